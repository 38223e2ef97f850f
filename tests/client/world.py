"""What tests of the client share: an embedded cluster on a broker of their choice, and buses on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from seriatim.brokers import Broker
from seriatim.brokers.memory import MemoryBroker
from seriatim.client import Bus, Event, GapPolicy, Limits, Subscription
from seriatim.client.cluster import Cluster
from seriatim.client.embedded import EmbeddedCluster, embedded_options
from seriatim.client.settings import Settings, check_settings
from seriatim.order import SequencingTree

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float = 240.0) -> T:
    """Run a test's coroutine in a loop of its own, bounded."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await coroutine

    return asyncio.run(bounded())


class World:
    """One cluster. Buses of it do not close it."""

    def __init__(self, broker: Broker, cluster: EmbeddedCluster) -> None:
        self.broker = broker
        self.cluster = cluster

    def bus(self, **options: Any) -> Bus:
        """A bus on this cluster; takes what `connect` takes."""
        defaults: dict[str, Any] = dict.fromkeys(
            ("mode", "causal", "name", "token", "tls", "stamp_key", "sequencers", "journals", "publication_log")
        )
        defaults |= {"cluster": "test", "gaps": GapPolicy.wait(), "timeout_s": 60.0, "limits": Limits()}
        return Bus(check_settings("memory://test", open_cluster=self._open, **(defaults | options)))

    async def _open(self, settings: Settings) -> Cluster:
        return _Unclosed(self.cluster)


class _Unclosed:
    """A cluster that outlives its buses."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.broker, self.description = cluster.broker, cluster.description
        self.network, self.journal = cluster.network, cluster.journal

    async def close(self) -> None:
        """The world closes it."""


@asynccontextmanager
async def world(
    broker: Broker | None = None,
    *,
    mode: str | None = None,
    causal: bool | None = None,
    tree: SequencingTree | None = None,
) -> AsyncIterator[World]:
    """A cluster that runs while the block does."""
    broker = broker if broker is not None else MemoryBroker()
    cluster = EmbeddedCluster(broker, embedded_options(broker, mode, causal), tree=tree)
    await cluster.start()
    try:
        yield World(broker, cluster)
    finally:
        await cluster.close()


async def take(events: Subscription, count: int, timeout_s: float = 60.0) -> list[Event]:
    """The next so many events."""
    return [await events.next(timeout_s) for _ in range(count)]


async def until(what: str, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Poll until it is so; an error says what was waited for."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {timeout_s} s until {what}"
        await asyncio.sleep(0.002)


def hurry(bus: Bus, events: Subscription | None = None, *, timeout_s: float) -> None:
    """Wait only so long from now on. What came before had all the time that a busy machine may need."""
    bus._opened()._timeout_s = timeout_s
    if events is not None:
        events._wishes = replace(events._wishes, timeout_s=timeout_s)


def data(events: list[Event]) -> list[str]:
    """What the events say."""
    return [event.data.decode() for event in events]
