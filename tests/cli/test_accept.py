"""`seriatim accept` as an operator uses it: the stream of a topic is deleted, and later made anew with events in it."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import nats

from seriatim import connect
from tests.cli.processes import WAIT_S, run, up
from tests.waiting import until


async def made_anew(url: str, stream: str, topic: str, events: int | None) -> None:
    """Delete the stream of a topic. `events`: make another one in its place, with so many."""
    client = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.delete_stream(stream)
    if events is not None:
        await jetstream.add_stream(name=stream, subjects=[topic])
        for _ in range(events):
            await jetstream.publish(topic, b".")
    await client.close()


async def test_a_topic_goes_on_with_another_stream(tmp_path: Path) -> None:
    with up(tmp_path, "--cluster", "shop") as (_, ready):
        url, stream = ready["url"], "shop-topic-orders"

        async def accept(*options: str) -> tuple[int, str, str]:
            words = ("accept", "orders", *options, "--url", url, "--cluster", "shop", "--timeout", "60")
            done = await asyncio.to_thread(run, *words)
            return done.returncode, done.stdout, done.stderr

        def status() -> str:
            with urllib.request.urlopen(f"{ready['admin']}/status", timeout=WAIT_S) as answer:
                return str(answer.read().decode())

        async with connect(url, cluster="shop", timeout_s=WAIT_S) as bus:
            for n in range(3):
                await bus.publish("orders", b"a%d" % n)
            await made_anew(url, stream, "orders", None)
            await until(lambda: "was deleted; restore it, accept that it is" in status(), "the loss to be seen")
            code, out, error = await accept()
            assert (code, out) == (0, "orders: accepted; it continues at 5, 0 events were dropped\n"), error
            assert (await bus.publish("orders", b"b")).number == 5
            await made_anew(url, stream, "orders", 2)
            await until(lambda: "was deleted and created again" in status(), "the other stream to be seen")
            code, out, error = await accept()
            assert (code, out) == (1, "") and "holds 2 events that were never numbered" in error, out
            assert "--drop-events drops them" in error
            code, out, error = await accept("--drop-events", "--json")
            answer: dict[str, Any] = json.loads(out)
            assert (code, answer["is_done"], answer["first"], answer["dropped"]) == (0, True, 7, 2), error
            await until(lambda: "was deleted" not in status(), "everything to be well")
