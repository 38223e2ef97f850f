"""The order log of running nodes: dense and without repeats after restarts, and after a journal was lost."""

import shutil
from pathlib import Path

import pytest

import seriatim
from seriatim.brokers.nats import order
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.server import NatsServer
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import take
from tests.waiting import until

Item = seriatim.Event | seriatim.Gap


async def logged(server: NatsServer, cluster: str, count: int) -> list[tuple[str, int]]:
    """The order log, number by number, when it has so many positions."""
    broker = JetStreamBroker(server.url, cluster=cluster)
    await broker.open()
    try:
        log = broker.order_log()
        assert await log.wait(count - 1, 30.0)
        numbers: list[tuple[str, int]] = []
        while len(numbers) < count:
            for each in (await log.read(len(numbers))).ranges:
                numbers += [(each.topic, number) for number in range(each.first, each.last + 1)]
        return numbers
    finally:
        await broker.close()


async def published(server: NatsServer, cluster: str, topics: list[str], count: int) -> dict[tuple[str, int], int]:
    """What one subscriber was told of the positions of these events, which it saw in their order."""
    async with (
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(*topics) as events,
    ):
        for i in range(count):
            await bus.publish(topics[i % len(topics)], b"%d" % i)
        seen = await take(events, count)
    assert [each.position for each in seen] == sorted(each.position or 0 for each in seen)
    return {(each.topic, each.number): each.position or 0 for each in seen}


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_positions_go_on_after_a_restart(tmp_path: Path, mode: str) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    told: dict[tuple[str, int], int] = {}
    for _ in range(2):
        async with sequencer(server, cluster, tmp_path, causal=True, mode=mode):
            told |= await published(server, cluster, topics, 6)
    async with sequencer(server, cluster, tmp_path, causal=True, mode=mode) as running:
        numbers = await logged(server, cluster, 12)
        await until(lambda: running.status().nodes[0].order_kept == 12, "the root to know it")
        assert running.explain()[0].waits == []
    assert told == {each: position for position, each in enumerate(numbers, 1)}


async def test_a_root_that_lost_its_journal_goes_on_behind_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    async with sequencer(server, cluster, tmp_path, causal=True):
        told = await published(server, cluster, topics, 6)
        await logged(server, cluster, 6)
    shutil.rmtree(tmp_path / f"journal-{cluster}.root")
    async with sequencer(server, cluster, tmp_path, heals=True, causal=True):
        assert "node goes on behind the order log" in caplog.text
        told |= await published(server, cluster, topics, 4)
        numbers = await logged(server, cluster, 10)
    caplog.clear()
    async with sequencer(server, cluster, tmp_path, causal=True):
        assert "goes on behind" not in caplog.text, "it is in the journal"
        told |= await published(server, cluster, topics, 2)
        numbers = await logged(server, cluster, 12)
    assert told == {each: position for position, each in enumerate(numbers, 1)}
    for topic in topics:
        assert [number for each, number in numbers if each == topic] == list(range(1, 7))


async def begun_anew(bus: seriatim.Bus, topics: list[str]) -> list[tuple[str, int, int]]:
    """The gaps that a reader of all of history is told before it is live, one for each topic."""
    gaps: list[tuple[str, int, int]] = []
    async with bus.subscribe(*topics, start="first", show_gaps=True) as events:
        await until(lambda: events.progress().is_live, "it to be live")
        for _ in topics:
            item: Item = await anext(events)
            assert isinstance(item, seriatim.Gap)
            gaps.append((item.topic.rsplit(".", 1)[1], item.first, item.last))
    return sorted(gaps)


@pytest.mark.parametrize("is_running", [True, False])
async def test_an_order_log_that_somebody_deletes_is_a_gap(
    tmp_path: Path, is_running: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody publishes after it was deleted, so nothing but the root can tell that it is gone."""
    monkeypatch.setattr(order, "CHECK_S", 0.1 if is_running else 60.0)
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    async with sequencer(server, cluster, tmp_path):
        await published(server, cluster, topics, 6)
        await logged(server, cluster, 6)
        if is_running:
            await delete_order_log(server, cluster)
            await until(lambda: "order log is shorter than it was" in caplog.text, "the root to notice")
    if not is_running:
        await delete_order_log(server, cluster)
    async with (
        sequencer(server, cluster, tmp_path) as running,
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
    ):
        assert await begun_anew(bus, topics) == [("a", 1, 3), ("b", 1, 3)]
        assert running.status().nodes[0].order_lost == 6
        await bus.publish(topics[0], b"news")
        await until(lambda: running.status().nodes[0].order_kept == 7, "the log to have it")
        async with bus.subscribe(*topics, start=7) as events:
            (event,) = await take(events, 1)
            assert (event.position, event.number) == (7, 4), "no position is given twice"


async def delete_order_log(server: NatsServer, cluster: str) -> None:
    broker = JetStreamBroker(server.url, cluster=cluster)
    await broker.open()
    broker.api.delete_stream(broker.names.order_stream)
    log = broker.order_log()
    try:
        while await log.bounds() is not None:  # bounded by the time of the test
            pass
    finally:
        await broker.close()
