"""The common part of the tests of the client: an embedded cluster on a broker of their choice, and buses on it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from seriatim.brokers import Broker
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client import Bus, Event, Subscription
from seriatim.client.brokered.cluster import Cluster
from seriatim.client.brokered.embedded import EmbeddedCluster, embedded_options
from seriatim.client.brokered.feed import Feed
from seriatim.client.brokered.source import BrokerSource
from seriatim.client.settings import Settings
from seriatim.client.tree.session import TreeSession, embedded_tree
from seriatim.live.tree.host import NodeHost
from seriatim.order import SequencingTree
from seriatim.protocols.tree.options import TreeOrder
from tests import waiting

T = TypeVar("T")


class World:
    """One cluster. Buses of it do not close it."""

    def __init__(self, broker: Broker, cluster: EmbeddedCluster[NodeHost]) -> None:
        self.broker = broker
        self.cluster = cluster

    def bus(self, **options: Any) -> Bus:
        """A bus on this cluster; takes what `connect` takes."""
        given: dict[str, Any] = {"cluster": "test", "timeout_s": 60.0} | options
        return Bus(TreeSession(Settings(url="memory://test", **given), self._open))

    async def _open(self) -> Cluster:
        return _Unclosed(self.cluster)


class _Unclosed:
    """A cluster that outlives its buses."""

    def __init__(self, cluster: EmbeddedCluster[NodeHost]) -> None:
        self.broker, self.description = cluster.broker, cluster.description
        self.network, self.journal = cluster.network, cluster.journal

    async def close(self) -> None:
        """The world closes it."""


@asynccontextmanager
async def world(
    broker: Broker | None = None,
    *,
    mode: str | None = None,
    order: TreeOrder = "global",
    causal: bool = False,
    tree: SequencingTree | None = None,
) -> AsyncIterator[World]:
    """A cluster that runs while the block does."""
    broker = broker if broker is not None else MemoryBroker()
    cluster = embedded_tree(broker, embedded_options(broker, mode, order, causal), tree)
    await cluster.start()
    try:
        yield World(broker, cluster)
    finally:
        await cluster.close()


async def take(events: Subscription, count: int, timeout_s: float = 60.0) -> list[Event]:
    """The next so many events."""
    return [await events.next(timeout_s) for _ in range(count)]


async def until(what: str, condition: Callable[[], bool], timeout_s: float = waiting.LIMIT_S) -> None:
    """The same, first what is waited for."""
    await waiting.until(condition, what, timeout_s)


def hurry(bus: Bus, events: Subscription | None = None, *, timeout_s: float) -> None:
    """Wait only so long from now on. What came before had all the time that a busy machine may need."""
    bus._opened()._timeout_s = timeout_s
    if events is not None:
        events._source.wishes = replace(events._source.wishes, timeout_s=timeout_s)


def feed_of(events: Subscription) -> Feed:
    """What feeds a subscription on a broker."""
    source = events._source
    assert isinstance(source, BrokerSource)
    return source.feed


def data(events: list[Event]) -> list[str]:
    """What the events say."""
    return [event.data.decode() for event in events]
