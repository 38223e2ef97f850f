"""`seriatim accept` as an operator uses it: the stream of a topic is deleted, and later made anew with events in it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
from click.testing import CliRunner

from seriatim.cli import main
from tests.cli.processes import WAIT_S, up
from tests.waiting import wait


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(words))
    return result.exit_code, result.stdout, result.stderr


def made_anew(url: str, stream: str, topic: str, events: int | None) -> None:
    """Delete the stream of a topic. `events`: make another one in its place, with so many."""

    async def work() -> None:
        client = await nats.connect(url)
        jetstream = client.jetstream()
        await jetstream.delete_stream(stream)
        if events is not None:
            await jetstream.add_stream(name=stream, subjects=[topic])
            for _ in range(events):
                await jetstream.publish(topic, b".")
        await client.close()

    asyncio.run(work())


def test_a_topic_goes_on_with_another_stream(tmp_path: Path) -> None:
    with up(tmp_path, "--cluster", "shop") as (_, ready):
        where = ("--url", ready["url"], "--cluster", "shop", "--timeout", "60")

        def lost(text: str) -> None:
            wait(lambda: text in run("status", *where)[1], f"status says {text!r}", WAIT_S)

        assert run("pub", "orders", "a {{n}}", "--count", "3", *where)[0] == 0
        code, out, error = run("accept", "orders", *where)
        assert (code, out) == (1, "") and "orders: not accepted: its log is the one that it always was" in error
        made_anew(ready["url"], "shop-topic-orders", "orders", None)
        lost("was deleted; restore it, accept that it is another one")
        code, out, error = run("accept", "orders", *where)
        assert (code, out) == (0, "orders: accepted; it continues at 3, 0 events were dropped\n"), error
        assert run("pub", "orders", "b", *where)[1] == "published 1 event on orders: number 3\n"
        made_anew(ready["url"], "shop-topic-orders", "orders", 2)
        lost("was deleted and created again")
        code, out, error = run("accept", "orders", *where)
        assert (code, out) == (1, ""), (out, run("status", *where))
        assert "holds 2 events that were never numbered" in error
        assert "--drop-events drops them" in error
        code, out, error = run("accept", "orders", "--drop-events", "--json", *where)
        answer: dict[str, Any] = json.loads(out)
        assert (code, answer["is_done"], answer["first"], answer["dropped"]) == (0, True, 5, 2), error
        assert run("status", *where)[0] == 0
        assert run("accept", "no.such.topic", *where)[0] == 1
