"""Sequencing atoms as applications use them: in this process, and on a real NATS server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

import seriatim
from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.naming import Names
from seriatim.brokers.nats.server import NatsServer
from seriatim.client import GapPolicy
from seriatim.filters import headers_of
from seriatim.live.server import SequencerServer
from seriatim.model import Closed, InputError, QueueFull, RequestRefused, TimedOut
from seriatim.server.config import parse_config
from tests import waiting
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.world import data, feed_of, take, until
from tests.ports import free_port

NODES = ("one", "two", "three")


def memory(name: str, **options: Any) -> seriatim.Bus:
    return seriatim.connect(f"memory://{name}", order="atoms", timeout_s=60.0, **options)


@asynccontextmanager
async def stations(
    server: NatsServer, cluster: str, folder: Path, nodes: tuple[str, ...] = NODES, **more: Any
) -> AsyncIterator[SequencerServer]:
    """A cluster of atoms in this process, connected as if each node were alone."""
    each = {node: {"address": "127.0.0.1:0"} for node in nodes}
    config = parse_config({"cluster": cluster, "broker": server.url, "order": "atoms", "nodes": each, **more}, folder)
    async with SequencerServer(config) as running:
        yield running


def check(folder: Path, *guarantees: str) -> None:
    report = audit(read_history(folder))
    for name in ("fifo", "tno", "integrity", "completeness", *guarantees):
        assert report.verdicts[name].answer == "valid", (name, report.verdicts[name].reason)


# ── in this process ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_two_subscribers_see_one_order_with_stamps() -> None:
    async with (
        memory("order") as one,
        memory("order") as two,
        one.subscribe("a", "b") as first,
        two.subscribe("a", "b") as second,
    ):
        sent = [bus.publish(topic, b"x") for _ in range(20) for topic in "ab" for bus in (one, two)]
        published = await asyncio.gather(*sent)
        seen, also_seen = await take(first, 80), await take(second, 80)
        assert [event.id for event in seen] == [event.id for event in also_seen]
        assert {event.id for event in seen} == {each.id for each in published}
        assert all("&" in atom for event in seen for atom in event.stamp)
        assert any(event.stamp for event in seen), "two members share two topics: there is an atom"
        for topic in "ab":  # numbers have no holes, whatever groups there were
            numbers = [event.number for event in seen if event.topic == topic]
            assert sorted(set(numbers)) == list(range(1, max(numbers) + 1)) and numbers == sorted(numbers)


async def test_filters_leave_out_what_does_not_match() -> None:
    async with (
        memory("filters") as one,
        memory("filters") as two,
        one.subscribe("a", "b") as everything,
        two.subscribe("a", "b", where="price > 6") as dear,
    ):
        for price in range(10):
            await one.publish("ab"[price % 2], b"%d" % price, headers=headers_of({"price": price}))
        seen = await take(everything, 10)
        assert [event.id for event in await take(dear, 3)] == [event.id for event in seen[7:]]
        assert dear.left_out == 7


async def test_topics_may_be_called_like_atoms() -> None:
    topics = ("a", "a.1&b.1", "a&", "&b")
    async with memory("names") as bus, bus.subscribe(*topics) as one, bus.subscribe(*topics) as two:
        for topic in topics * 3:
            await bus.publish(topic, topic.encode())
        seen = await take(one, 12)
        assert [event.id for event in seen] == [event.id for event in await take(two, 12)]
        assert all(event.data.decode() == event.topic for event in seen)


async def test_topics_are_added_and_left_while_events_flow(tmp_path: Path) -> None:
    async with (
        memory("change", publication_log=tmp_path) as bus,
        memory("change", publication_log=tmp_path) as other,
        bus.subscribe("a", "b", "c", log=tmp_path) as steady,
        other.subscribe("a", log=tmp_path) as changing,
    ):
        stop = asyncio.Event()
        count = 0

        async def publish() -> None:
            nonlocal count
            while not stop.is_set():
                for topic in "abc":
                    await bus.publish(topic, b"%d" % count)
                    count += 1

        async def read() -> None:
            async for _ in changing:
                pass

        publishing, reading = asyncio.create_task(publish()), asyncio.create_task(read())
        for _ in range(5):
            await changing.add("b", "c")
            await changing.remove("a")
            await changing.add("a")
            await changing.remove("b", "c")
        stop.set()
        await publishing
        assert len(await take(steady, count)) == count
        reading.cancel()
    check(tmp_path)


async def test_a_topic_that_nobody_holds_is_refused() -> None:
    async with memory("nobody") as bus:
        with pytest.raises(RequestRefused, match="nobody is subscribed"):
            await bus.publish("a", b"x")
        async with bus.subscribe("a") as events:
            await bus.publish("a", b"y")
            assert data(await take(events, 1)) == ["y"]
            with pytest.raises(RequestRefused, match="nobody is subscribed"):
                await bus.publish("b", b"x")  # … and a goes on
            await bus.publish("a", b"z")
            assert data(await take(events, 1)) == ["z"]

        async def is_refused() -> bool:
            try:
                await bus.publish("a", b"late")
            except RequestRefused:
                return True
            return False

        await waiting.until(is_refused, "the last member has left: the group is closed")


async def test_everything_is_gone_when_all_have_left() -> None:
    async with memory("gone") as bus:
        [station] = bus.session.connection.cluster.shared.hosts  # type: ignore[attr-defined]
        for _ in range(3):
            async with bus.subscribe("a", "b") as one, bus.subscribe("a", "b") as two:
                await bus.publish_many([("a", b"1"), ("b", b"2")])
                assert len(await take(one, 2)) == len(await take(two, 2)) == 2
        state = station.machine.inner.state
        await until("nothing is left", lambda: not state.coordinator.graph.groups and not state.host.atoms)
        assert not state.coordinator.forgotten and not state.coordinator.wanted
        assert set(station.machine.state.links) <= {"broker", bus.name}


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("mode", {"mode": "ticket"}),
        ("gaps", {"gaps": GapPolicy.skip()}),
        ("stamp_key", {"stamp_key": b"k" * 32}),
        ("journals", {"journals": "folder"}),
    ],
)
def test_what_means_nothing_to_atoms_is_refused(where: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=where):
        memory("refused", **options)


async def test_subscriptions_that_only_trees_have_are_refused() -> None:
    async with memory("refused") as bus:
        for wish in ({"durable": "d"}, {"ordered": False}, {"start": "first"}, {"gaps": GapPolicy.skip()}):
            with pytest.raises(InputError, match='order="atoms"'):
                bus.subscribe("a", **wish)


async def test_a_tree_and_atoms_do_not_share_a_name() -> None:
    async with memory("mixed"):
        with pytest.raises(InputError, match="memory://mixed runs with order 'atoms'; ask for the same"):
            async with seriatim.connect("memory://mixed"):
                pass
    with pytest.raises(InputError, match="unknown order 'clock'"):
        seriatim.connect("memory://", order="clock")  # type: ignore[arg-type]


# ── on NATS ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("nodes", "causal"), [(("alone",), False), (NODES, False), (NODES, True)])
async def test_the_same_order_for_everybody(tmp_path: Path, nodes: tuple[str, ...], causal: bool) -> None:
    server, cluster = shared_server(), new_cluster()

    def connect() -> seriatim.Bus:
        options: Any = {"cluster": cluster, "publication_log": tmp_path, "timeout_s": 60.0, "causal": causal}
        return seriatim.connect(server.url, order="atoms", **options)

    async with (
        stations(server, cluster, tmp_path, nodes, causal=causal) as running,
        connect() as one,
        connect() as two,
        one.subscribe("orders", "payments", "stock", log=tmp_path) as first,
        two.subscribe("orders", "payments", "stock", log=tmp_path) as second,
    ):
        topics = ("orders", "payments", "stock")
        for i in range(10):
            await asyncio.gather(
                one.publish_many(topics[i % 3], [b"one", b"and one"]), two.publish(topics[i % 2], b"two")
            )
        one_saw, two_saw = await take(first, 30), await take(second, 30)
        assert [event.id for event in one_saw] == [event.id for event in two_saw]
        await second.remove("orders")
        await two.publish_many([(topic, b"last") for topic in topics])
        assert data(await take(first, 3)) == ["last"] * 3
        assert {event.topic for event in await take(second, 2)} == {"payments", "stock"}
        assert {role for status in running.status().nodes for role in status.roles} == {
            "coordinator",
            "ingress",
            "host",
        }
        assert not bus_waits(one)
    check(tmp_path, *(["causal", "fifo-across-topics", "acyclic"] if causal else []))
    deliveries = list(read_history(tmp_path).deliveries)
    assert len(deliveries) == 65
    assert all(0.0 < (row.received_at or 0.0) <= (row.notified_at or 0.0) for row in deliveries)


def bus_waits(bus: seriatim.Bus) -> list[str]:
    return [line for line in bus.explain().sentences if "waits for" in line]


async def test_a_client_must_know_who_orders(tmp_path: Path) -> None:
    server, atoms, tree = shared_server(), new_cluster(), new_cluster()
    config = parse_config(
        {"cluster": tree, "broker": server.url, "nodes": {"root": {"address": "127.0.0.1:0"}}}, tmp_path
    )
    async with stations(server, atoms, tmp_path, ("alone",)), SequencerServer(config):
        with pytest.raises(InputError, match=r"orders by atoms; connect\(order=\"atoms\"\)"):
            async with seriatim.connect(server.url, cluster=atoms, timeout_s=60.0):
                pass
        with pytest.raises(InputError, match="keeps global order"):
            async with seriatim.connect(server.url, cluster=tree, order="atoms", timeout_s=60.0):
                pass


async def test_the_broker_is_killed_while_events_flow(tmp_path: Path) -> None:
    async with (
        NatsServer() as server,
        stations(server, "killed", tmp_path, ("one", "two")),
        seriatim.connect(server.url, cluster="killed", order="atoms", timeout_s=120.0) as bus,
        bus.subscribe("a", "b") as one,
        bus.subscribe("a", "b") as two,
    ):
        published = await bus.publish_many([("a", b"1"), ("b", b"2")] * 5)
        server.kill()
        futures = [bus.publish_nowait("ab"[i % 2], b"%d" % i) for i in range(20)]
        published += await asyncio.gather(*futures)  # numbered and journaled, whatever the broker does
        await server.restart()
        seen, also_seen = await take(one, 30), await take(two, 30)
        assert [event.id for event in seen] == [event.id for event in also_seen]
        assert sorted(event.id for event in seen) == sorted(receipt.id for receipt in published)


async def test_what_was_given_up_is_not_published_later(tmp_path: Path) -> None:
    """Nor twice, if it is tried again; and it counts as waiting until the ingress is past it."""

    server, cluster = shared_server(), new_cluster()
    limits = seriatim.Limits(queue_events=4)
    nodes = {"alone": {"address": f"127.0.0.1:{free_port()}"}}
    config = parse_config({"cluster": cluster, "broker": server.url, "order": "atoms", "nodes": nodes}, tmp_path)

    def connect(timeout_s: float, **more: Any) -> seriatim.Bus:
        return seriatim.connect(server.url, cluster=cluster, order="atoms", timeout_s=timeout_s, **more)

    running = SequencerServer(config)
    await running.start()
    try:
        async with connect(60.0) as one, connect(1.0, limits=limits) as two, one.subscribe("a") as seen:
            first = await two.publish("a", b"once", id="payment-0")
            assert await two.publish("a", b"once", id="payment-0") == first
            await running.stop()
            for _ in range(4):
                with pytest.raises(TimedOut, match="unknown"):
                    await two.publish("a", b"once", id="payment-1")
            with pytest.raises(QueueFull, match="4 events"):
                two.publish_nowait("a", b"no more")
            running = SequencerServer(config)
            await running.start()
            for _ in range(60):  # each waits for a second
                with contextlib.suppress(TimedOut):
                    await two.publish("a", b"once", id="payment-1")
                    break
            await one.publish("a", b"last")
            assert data(await take(seen, 3)) == ["once", "once", "last"]
    finally:
        await running.stop()


async def test_a_subscriber_that_retention_has_overtaken_is_told(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    client = await nats.connect(server.url)
    stream = Names(cluster).slots_stream("a")

    async def last() -> int:
        return (await client.jetstream().stream_info(stream)).state.last_seq

    async with (
        stations(server, cluster, tmp_path, ("alone",)),
        seriatim.connect(server.url, cluster=cluster, order="atoms", timeout_s=60.0) as bus,
        bus.subscribe("a") as slow,
        bus.subscribe("a") as quick,
    ):
        before = await last()
        port = feed_of(slow)._port
        port.pause()
        for _ in range(16):  # more than is on its way already when reading is paused
            await bus.publish("a", b"x" * 200_000)
        await take(quick, 16)
        await client.jetstream().purge_stream(stream, seq=before + 16)
        port.resume()
        with pytest.raises(Closed, match="has dropped items of a before this subscriber had read them"):
            await take(slow, 16)
        await bus.publish("a", b"y")  # others have read what is gone
        assert data(await take(quick, 1)) == ["y"]
    await client.close()
