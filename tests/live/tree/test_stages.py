"""Stages on running nodes: a local subscriber does not wait for the root, and its reactions do.

A tree of three nodes; eu.* lives on eu, us.* on us. The monitor holds everything, so all stamps climb to the root.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seriatim.brokers import Broker
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.server import NatsServer
from seriatim.client import Bus
from seriatim.client.brokered.embedded import EmbeddedCluster
from seriatim.client.tree.session import embedded_tree
from seriatim.live.tree.host import NodeHost
from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from tests.client.world import World, data, take
from tests.waiting import until

HOMES = {"eu.orders": "eu", "eu.prices": "eu", "us.orders": "us"}
TREE = SequencingTree({"root": None, "eu": "root", "us": "root"}, HOMES)
OPTIONS = TreeOptions(mode="log", order="global", retry_ms=100.0, lease_ms=1_000.0, patience_ms=500.0)


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["memory", "nats"])
def broker(request: pytest.FixtureRequest) -> Broker:
    if request.param == "memory":
        return MemoryBroker()
    server: NatsServer = request.getfixturevalue("nats")
    return JetStreamBroker(server.url, cluster=request.node.originalname.replace("_", "-")[-30:])


class Links:
    """The links between the nodes; some of them may be cut."""

    def __init__(self, cluster: EmbeddedCluster[NodeHost]) -> None:
        self.cut: set[tuple[Address, Address]] = set()
        self._switchboard = cluster._switchboard
        self._send = self._switchboard.send
        self._switchboard.send = self.send  # type: ignore[method-assign]

    def send(self, source: Address, target: Address, message: Payload) -> None:
        if (source, target) not in self.cut:
            self._send(source, target, message)


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[tuple[World, Links]]:
    cluster = embedded_tree(broker, OPTIONS, TREE)
    links = Links(cluster)
    await cluster.start()
    try:
        yield World(broker, cluster), links
    finally:
        await cluster.close()


async def test_a_local_subscriber_does_not_wait_for_the_root(broker: Broker) -> None:
    async with (
        running(broker) as (world, links),
        world.bus(confirm="stored") as bus,
        bus.subscribe(*HOMES) as monitor,
        bus.subscribe("eu.orders", "eu.prices") as local,
    ):
        await bus.publish("eu.orders", b"first")
        assert data([*await take(local, 1), *await take(monitor, 1)]) == ["first", "first"]
        links.cut.add(("eu", "root"))
        await bus.publish("eu.orders", b"order")
        await bus.publish("eu.prices", b"price")
        events = await take(local, 2)
        assert sorted(data(events)) == ["order", "price"]
        assert all(event.early for event in events)
        assert not monitor.unread  # what meets at the root waits
        links.cut.clear()
        assert data(await take(monitor, 2)) == data(events)


async def test_a_reaction_comes_after_its_cause(broker: Broker) -> None:
    async with (
        running(broker) as (world, links),
        world.bus() as other,
        world.bus() as shop,
        other.subscribe(*HOMES) as monitor,
        shop.subscribe("eu.orders") as local,
    ):
        await other.publish("eu.orders", b"first")
        await take(local, 1), await take(monitor, 1)
        links.cut.add(("eu", "root"))
        other.publish_nowait("eu.orders", b"cause")
        (cause,) = await take(local, 1)
        assert cause.early
        effect = asyncio.ensure_future(shop.publish("us.orders", b"effect"))
        await until(lambda: "notified early" in waits(shop), "the reaction is held back")
        await other.publish("us.orders", b"no reaction")  # nobody else waits
        assert data(await take(monitor, 1)) == ["no reaction"]
        assert not effect.done()
        links.cut.clear()
        assert data(await take(monitor, 2)) == ["cause", "effect"]
        assert (await effect).number == 2
        await shop.publish("us.orders", b"later")
        assert not waits(shop)


async def test_a_reaction_waits_although_the_subscription_is_closed(broker: Broker) -> None:
    async with (
        running(broker) as (world, links),
        world.bus() as other,
        world.bus() as shop,
        other.subscribe(*HOMES) as monitor,
    ):
        async with shop.subscribe("eu.orders") as local:
            links.cut.add(("eu", "root"))
            other.publish_nowait("eu.orders", b"cause")
            assert (await take(local, 1))[0].early
        effect = asyncio.ensure_future(shop.publish("us.orders", b"effect"))
        await until(lambda: "notified early" in waits(shop), "the reaction is held back")
        links.cut.clear()
        assert data(await take(monitor, 2)) == ["cause", "effect"]
        await effect


async def test_a_topic_that_is_added_again_before_it_is_left_is_held(broker: Broker) -> None:
    """Both changes wait for their turn behind one that a node does not answer."""
    async with (
        running(broker) as (world, links),
        world.bus(confirm="stored") as bus,
        bus.subscribe("eu.orders", "eu.prices") as events,
    ):
        links.cut = {(f"{bus.name}/1", "us")}
        changes = (events.add("us.orders"), events.remove("eu.prices"), events.add("eu.prices"))
        for change in changes:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(change, 0.2)
        links.cut.clear()
        await events.remove("us.orders")
        await bus.publish("eu.prices", b"here")
        assert data(await take(events, 1)) == ["here"]


async def test_nothing_is_early_where_one_node_orders_everything(tmp_path: Path) -> None:
    cluster = embedded_tree(MemoryBroker(), OPTIONS, SequencingTree.single())
    await cluster.start()
    async with World(cluster.broker, cluster).bus() as bus, bus.subscribe("a", "b") as events, bus.subscribe("a"):
        await bus.publish("a", b"1")
        assert not (await events.next(60)).early
    await cluster.close()


def waits(bus: Bus) -> str:
    """What a bus says that its events wait for."""
    return "\n".join(bus.explain().notes) + "\n".join(bus._opened().explain())
