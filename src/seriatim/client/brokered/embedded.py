"""`memory://`: broker and nodes in the application's own process, for tests and first steps.

All buses of one event loop that connect to the same name share one cluster; without a name a bus has its own. The
cluster starts with the first bus and ends with the last one; nothing of it is kept.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from seriatim.brokers import Broker
from seriatim.client.brokered.cluster import Cluster, Network
from seriatim.client.settings import Settings
from seriatim.live.host import MachineHost
from seriatim.model import Address, InputError, JournalError
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.options import TreeOrder
from seriatim.runtime import Journal, Recovered, Switchboard
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.server.description import ClusterDescription

Make: TypeAlias = Callable[[], "EmbeddedCluster[Any]"]  # a cluster that has not started yet


H = TypeVar("H", bound=MachineHost[Any, Any])


class NamedMemoryJournal(MemoryJournal):
    """The journal of one durable subscription. It outlives the subscription, and allows one writer at a time."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._is_open = False

    async def open(self) -> Recovered:
        if self._is_open:
            raise JournalError(f"durable subscription {self._name!r} is in use; close the other one first")
        self._is_open = True
        return await super().open()

    async def close(self) -> None:
        self._is_open = False


class EmbeddedCluster(Generic[H]):
    """A broker and nodes, without servers. `hosts`: the nodes, on this switchboard."""

    def __init__(
        self, broker: Broker, description: ClusterDescription, switchboard: Switchboard, hosts: list[H]
    ) -> None:
        self.broker = broker
        self.description = description
        self.hosts = hosts
        self._switchboard = switchboard
        self._journals: dict[str, NamedMemoryJournal] = {}

    async def start(self) -> Self:
        await self.broker.open()
        self.broker.configure(self.description.mode, self.description.channel)
        for host in self.hosts:
            await host.start()
        return self

    def network(self, name: Address) -> Network:
        return Network(self._switchboard)

    def journal(self, durable: str) -> Journal:
        return self._journals.setdefault(durable, NamedMemoryJournal(durable))

    async def close(self) -> None:
        for host in self.hosts:
            await host.stop()
        await self.broker.close()


class SharedCluster:
    """The cluster of a name: it starts with its first user, and closes when the last one closes it."""

    def __init__(self, name: str, settings: Settings, make: Make) -> None:
        self._name = name
        self._runs = _wishes(settings) | {"order": settings.order or "global"}
        self._users = 0
        self._ready = asyncio.ensure_future(make().start())

    def check_fits(self, settings: Settings) -> None:
        """InputError: this bus cannot join. Options that it leaves out always match."""
        if (settings.order == "atoms") != (self._runs["order"] == "atoms"):
            problem = f"memory://{self._name} runs with order {self._runs['order']!r}"
            raise InputError("order", problem, "ask for the same, or use another name")
        for name, wish in _wishes(settings).items():
            runs = self._runs[name]
            if wish not in (None, "", runs):
                problem = f"memory://{self._name} runs with {name} {runs!r}, not {wish!r}"
                raise InputError("url", problem, "ask for the same or for nothing, or use another name")

    async def join(self) -> Cluster:
        """Add a user. Returns when the cluster is ready."""
        self._users += 1
        try:
            self.shared = cluster = await asyncio.shield(self._ready)
        except BaseException:
            self._leave()
            raise
        self.broker, self.description = cluster.broker, cluster.description
        self.network, self.journal = cluster.network, cluster.journal
        return self

    async def close(self) -> None:
        if self._leave():
            await self.shared.close()

    def _leave(self) -> bool:
        """Remove a user; returns whether it was the last. The next user starts another cluster."""
        self._users -= 1
        by_name = _running[asyncio.get_running_loop()]
        if self._users == 0 and by_name.get(self._name) is self:
            del by_name[self._name]
        return self._users == 0


def _wishes(settings: Settings) -> dict[str, object]:
    query = urlsplit(settings.url).query
    return {"order": settings.order, "options": query, "mode": settings.mode, "causal": settings.causal}


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, SharedCluster]] = WeakKeyDictionary()


async def open_embedded(settings: Settings, make: Make) -> Cluster:
    """Join, or start, the cluster of this name. Without a name it is a cluster of its own."""
    name = urlsplit(settings.url).netloc
    if not name:
        return await make().start()
    by_name = _running.setdefault(asyncio.get_running_loop(), {})
    if name in by_name:
        by_name[name].check_fits(settings)
    else:
        by_name[name] = SharedCluster(name, settings, make)
    return await by_name[name].join()


def embedded_options(broker: Broker, mode: str | None, order: TreeOrder, causal: bool) -> TreeOptions:
    """The options of a cluster on this broker. `mode` None: what fits. `causal`: publishers keep their own order."""
    fitting = "ticket" if causal or broker.lossy or not broker.keeps_log else "log"
    if mode == "log" and fitting == "ticket":
        why = "this broker loses events or keeps no log"
        if causal:
            why = "a publisher's own order across topics (causal=True) needs tickets"
        raise InputError("mode", f"log mode is not possible: {why}", 'use mode="ticket"')
    return TreeOptions(
        mode="ticket" if "ticket" in (mode, fitting) else "log",
        order=order,
        order_log=broker.order_log() is not None,
        own_order=causal,
        full_stamps=broker.lossy,
        retry_ms=100.0,
        lease_ms=1_000.0,
        patience_ms=500.0,
    )
