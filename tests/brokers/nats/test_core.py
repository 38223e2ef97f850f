"""Plain NATS: the part of the suite that applies to a broker that keeps nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from seriatim.brokers import Broker
from seriatim.brokers.nats.core import WAITING_MAX, CoreBroker
from seriatim.model import RequestRefused, Topic
from seriatim.protocols.with_broker import Append, Delivered, Listen, Listening, Watch, Write, Written
from tests.brokers.conformance import Probe, World, event
from tests.brokers.nats.slots import SlotConformance
from tests.brokers.nats.world import new_cluster, shared_server


class CoreWorld(World):
    def __init__(self) -> None:
        self.cluster = new_cluster()
        self.brokers: list[CoreBroker] = []

    async def connect(self) -> Broker:
        broker = CoreBroker(shared_server().url, cluster=self.cluster)
        await broker.open()
        broker.configure("ticket", lambda topic: "root")
        self.brokers.append(broker)
        return broker

    async def trim(self, topic: Topic, first: int) -> None:
        pytest.skip("nothing is kept, so nothing is trimmed")

    async def publish_plainly(self, subject: Topic, payload: bytes) -> None:
        pytest.skip("a plain message has no number where the broker keeps no log")


@asynccontextmanager
async def core_world() -> AsyncIterator[CoreWorld]:
    world = CoreWorld()
    yield world
    for broker in world.brokers:
        await broker.close()


class TestCore(SlotConformance):
    keeps_log = False
    has_slots = False
    replays = False
    knows_repeats = False

    def world(self):  # type: ignore[no-untyped-def]
        return core_world()


async def test_two_machines_of_one_connection_share_a_subscription() -> None:
    async with core_world() as world:
        broker = await world.connect()
        publisher, one, other = Probe(broker, "p"), Probe(broker, "s"), Probe(broker, "t")
        await one.ask(Listen("a", None, 1), Listening)
        await other.ask(Listen("a", None, 1), Listening)
        await publisher.ask(Write("a", 1, {}, event("a", "e1")), Written)
        await one.first(Delivered)
        await other.first(Delivered)
        await one.port.close()
        await publisher.ask(Write("a", 2, {}, event("a", "e2")), Written)
        await other.until(lambda: other.numbers("a") == [1, 2], "both")
        assert one.numbers("a") == [1]


async def test_what_needs_a_log_is_refused() -> None:
    async with core_world() as world:
        probe = Probe(await world.connect(), "p")
        probe.send(Append(event("a", "e1")), Watch(frozenset({"a"})))
        await probe.until(lambda: len(probe.errors) == 2, "two errors")
        for _, error in probe.errors:
            assert isinstance(error, RequestRefused) and "ticket mode" in str(error)


async def test_nonsense_on_the_wire_is_dropped() -> None:
    async with core_world() as world:
        broker = await world.connect()
        assert isinstance(broker, CoreBroker)
        probe = Probe(broker, "s")
        await probe.ask(Listen("a", None, 1), Listening)
        broker.link.publish(broker.names.slots_subject("a"), b"\xc1 nonsense")
        await probe.ask(Write("a", 1, {}, event("a", "e1")), Written)
        await probe.until(lambda: probe.numbers("a") == [1], "the event")


async def test_a_pause_keeps_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.brokers.nats.core.WAITING_MAX", 10)
    assert WAITING_MAX > 10

    async with core_world() as world:
        publisher, subscriber = Probe(await world.connect(), "p"), Probe(await world.connect(), "s")
        await subscriber.ask(Listen("a", None, 1), Listening)
        subscriber.port.pause()
        for number in range(1, 31):
            await publisher.ask(Write("a", number, {}, event("a", f"e{number}")), Written)
        port: Any = subscriber.port
        await subscriber.until(lambda: port.lost == 20, "what was too much to be dropped")
        subscriber.port.resume()
        await subscriber.until(lambda: len(subscriber.numbers("a")) == 10, "what was kept")
        assert subscriber.numbers("a") == list(range(1, 11))
