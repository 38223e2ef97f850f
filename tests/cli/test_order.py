"""`seriatim order`: the order log as text and as JSON, from any place, and why there is none."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import seriatim
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.urls import open_broker
from seriatim.cli.order import print_order
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import take
from tests.waiting import until


async def order(*options: str) -> tuple[int, str, str]:
    """Run the command as a process: exit code, stdout, stderr."""
    pipe = asyncio.subprocess.PIPE
    words = ("-m", "seriatim.cli", "order", *options)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=pipe, stderr=pipe)
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def test_the_order_log_of_a_cluster(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.orders", f"{cluster}.payments"]
    place = ("--url", server.url, "--cluster", cluster)
    began = datetime.now(UTC)
    async with (
        sequencer(server, cluster, tmp_path, causal=True) as running,
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(*topics) as events,
    ):
        for i in range(6):
            await bus.publish(topics[i % 2], b"%d" % i)
        positions = {(each.topic, each.number): each.position for each in await take(events, 6)}
        broker = JetStreamBroker(server.url, cluster=cluster)
        await broker.open()
        assert await broker.order_log().wait(5, 30.0)
        await broker.close()
        _, text, _ = await order(*place, "--json")
        rows = [json.loads(line) for line in text.splitlines()]
        numbers = [(row["topic"], n) for row in rows for n in range(row["first"], row["last"] + 1)]
        assert {each: position for position, each in enumerate(numbers, 1)} == positions
        assert rows[0]["position"] == 1
        _, some, _ = await order(*place, "--after", "2", "--topics", topics[0], "--json")
        assert {json.loads(line)["topic"] for line in some.splitlines()} == {topics[0]}
        _, tail, _ = await order(*place, "--last", "1")
        assert len(tail.splitlines()) == 1 and tail.split()[0] == "6"
        assert (await order(*place, "--since", began.isoformat()))[1].splitlines()[0].split()[0] == "1"
        later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        assert (await order(*place, "--since", later))[:2] == (0, "")
        code, _, said = await order(*place, "--after", "7")
        assert (code, said) == (2, "Error: position: 7 is beyond the end of the order log; it ends with 6\n")
        status = running.status().nodes[0]
        assert status.order_position == 6
    assert (await order(*place))[0] == 0, "it can be read without a sequencer"


async def test_a_cluster_without_an_order_log_says_why(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    place = ("--url", server.url, "--cluster", cluster)
    code, _, said = await order(*place, "--timeout", "0.2")
    assert (code, "no sequencer answers for it; check the name" in said) == (2, True), said
    async with sequencer(server, cluster, tmp_path, order="pairwise"):
        code, _, said = await order(*place)
        assert code == 2 and f"--cluster: '{cluster}' has no order log: its order is pairwise, so no one" in said
    cluster = new_cluster()
    async with sequencer(server, cluster, tmp_path, order="atoms", default_home=""):
        code, _, said = await order("--url", server.url, "--cluster", cluster)
        assert code == 2 and f"'{cluster}' has no order log: it uses atoms, which keep no order log; use a" in said


@pytest.mark.parametrize("causal", [False, True])
async def test_nothing_is_ordered_yet(tmp_path: Path, causal: bool) -> None:
    """A new cluster with global order has an empty order log, and is not taken for a pairwise one."""
    server, cluster = shared_server(), new_cluster()
    async with sequencer(server, cluster, tmp_path, causal=causal):
        code, _, said = await order("--url", server.url, "--cluster", cluster)
        assert code == 2 and "order log: it is empty, or was deleted" in said, said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "--since: 'yesterday' is not a time; write it like 2026-03-01T09:00:00+01:00"),
        (["--after", "1", "--last", "2"], "--after: it says where to begin, and so do --since and --last"),
        (["--url", "memory://"], "--url: memory:// is inside one process"),
        (["--url", "vcube://127.0.0.1:1"], "--url: peers and overlays have no order log"),
    ],
)
async def test_bad_options(options: list[str], said: str) -> None:
    code, _, error = await order(*options)
    assert code == 2 and said in error


async def test_following(capsys: pytest.CaptureFixture[str]) -> None:
    async with seriatim.connect("memory://followed", causal=True) as bus, bus.subscribe("a", "b") as events:
        log = open_broker("memory://followed").order_log()
        assert log is not None
        following = asyncio.get_running_loop().create_task(print_order(log, 0, None, True, False))
        await bus.publish("a", b"1")
        await bus.publish("b", b"2")
        assert [each.position for each in await take(events, 2)] == [1, 2]
        assert await log.wait(1, 30.0)
        shown: list[str] = []

        def is_shown() -> bool:
            shown.extend(capsys.readouterr().out.split())
            return len(shown) == 6

        await until(is_shown, "two ranges to be printed")
        following.cancel()
    assert shown == ["1", "a", "1..1", "2", "b", "1..1"]
