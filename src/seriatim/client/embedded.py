"""`memory://`: broker and sequencer in the application's own process, for tests and first steps.

All buses of one event loop that connect to the same name share one cluster; without a name a bus has one of its own. It
begins with the first of them and ends with the last one; nothing of it survives.
"""

import asyncio
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from seriatim.brokers import Broker
from seriatim.client.cluster import Cluster
from seriatim.model import Address, InputError, JournalError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime import Journal, Recovered, Switchboard
from seriatim.runtime.description import ClusterDescription
from seriatim.runtime.journal import MemoryJournal
from seriatim.server.host import NodeHost


class LocalNetwork:
    """All machines of the process on one switchboard: nothing has to be connected."""

    def __init__(self, switchboard: Switchboard) -> None:
        self.switchboard = switchboard

    async def open(self) -> None:
        """Nothing to do."""

    def down(self) -> list[str]:
        return []

    async def close(self) -> None:
        """Nothing to do."""


class NamedMemoryJournal(MemoryJournal):
    """The journal of one durable subscription: outlives it, and has one writer at a time."""

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


class EmbeddedCluster:
    """A broker and the nodes of a tree (one node, unless told otherwise), without servers."""

    def __init__(
        self, broker: Broker, options: TreeOptions, name: str = "memory", tree: SequencingTree | None = None
    ) -> None:
        self.broker = broker
        self.description = ClusterDescription.of(name, tree or SequencingTree.single(), options)
        self._switchboard = Switchboard()
        self._journals: dict[str, NamedMemoryJournal] = {}
        self._hosts = [
            NodeHost(
                self.description.tree,
                node,
                self.description.options,
                broker=broker,
                switchboard=self._switchboard,
                journal=MemoryJournal(),
            )
            for node in self.description.parents
        ]

    async def start(self) -> None:
        """Open the broker and run the nodes."""
        await self.broker.open()
        self.broker.configure(self.description.mode, self.description.tree.home)
        for host in self._hosts:
            await host.start()

    def network(self, name: Address) -> LocalNetwork:
        return LocalNetwork(self._switchboard)

    def journal(self, durable: str) -> Journal:
        if durable not in self._journals:
            self._journals[durable] = NamedMemoryJournal(durable)
        return self._journals[durable]

    async def close(self) -> None:
        for host in self._hosts:
            await host.stop()
        await self.broker.close()


class _Shared:
    """One cluster of a name, and how many use it."""

    def __init__(self, url: str, mode: str | None, causal: bool | None, order: str) -> None:
        self.order = order
        self.query = urlsplit(url).query
        self.mode = mode
        self.causal = causal
        self.users = 0
        self.ready = asyncio.get_running_loop().create_task(_start(url, mode, causal, order))

    def problem_with(self, url: str, mode: str | None, causal: bool | None, order: str) -> str | None:
        """Why somebody who asks for this cannot join; None: it can. Who asks for nothing takes what there is."""
        wishes = {"options": urlsplit(url).query or self.query, "mode": mode or self.mode}
        wishes["causal"] = str(self.causal if causal is None else causal)
        wishes["order"] = order
        runs = {"order": self.order, "options": self.query, "mode": self.mode, "causal": str(self.causal)}
        return next(
            (f"{name} {runs[name]!r}, not {wishes[name]!r}" for name in runs if runs[name] != wishes[name]), None
        )


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Shared]] = WeakKeyDictionary()


class SharedCluster:
    """One user's handle on an embedded cluster: closing it closes the cluster if nobody else uses it."""

    def __init__(self, name: str, shared: _Shared, cluster: Cluster) -> None:
        self.broker = cluster.broker
        self.description = cluster.description
        self.network = cluster.network
        self.journal = cluster.journal
        self._name = name
        self._shared: _Shared | None = shared
        self._cluster = cluster

    async def close(self) -> None:
        if self._shared is None:
            return
        shared, self._shared = self._shared, None
        shared.users -= 1
        if shared.users == 0:
            _running[asyncio.get_running_loop()].pop(self._name, None)
            await self._cluster.close()


async def open_embedded(
    url: str, *, mode: str | None = None, causal: bool | None = None, order: str = "tree"
) -> Cluster:
    """Join, or start, the cluster of this name. Without a name it is a cluster of its own."""
    name = urlsplit(url).netloc
    if not name:
        return await _start(url, mode, causal, order)
    by_name = _running.setdefault(asyncio.get_running_loop(), {})
    shared = by_name.get(name)
    if shared is None:
        shared = by_name[name] = _Shared(url, mode, causal, order)
    elif (problem := shared.problem_with(url, mode, causal, order)) is not None:
        raise InputError(
            "url", f"memory://{name} runs with {problem}", "ask for the same or for nothing, or use another name"
        )
    shared.users += 1
    try:
        return SharedCluster(name, shared, await asyncio.shield(shared.ready))
    except BaseException:
        shared.users -= 1
        if shared.users == 0 and by_name.get(name) is shared:
            del by_name[name]
        raise


async def _start(url: str, mode: str | None, causal: bool | None, order: str) -> Cluster:
    from seriatim.brokers.urls import open_broker

    broker = open_broker(url)
    if order == "atoms":
        from seriatim.client.atoms_embedded import EmbeddedAtoms  # only where atoms order

        atoms = EmbeddedAtoms(broker, bool(causal))
        await atoms.start()
        return atoms
    cluster = EmbeddedCluster(broker, embedded_options(broker, mode, causal))
    await cluster.start()
    return cluster


def embedded_options(broker: Broker, mode: str | None, causal: bool | None) -> TreeOptions:
    """How a cluster on this broker orders, unless somebody asks for something else."""
    fitting = "ticket" if causal or broker.lossy or not broker.keeps_log else "log"
    if mode == "log" and fitting == "ticket":
        why = "this broker loses events or keeps no log" if not causal else "causal order needs tickets"
        raise InputError("mode", f"log mode is not possible: {why}", 'use mode="ticket"')
    return TreeOptions(
        mode="ticket" if "ticket" in (mode, fitting) else "log",
        causal=bool(causal),
        full_stamps=broker.lossy,
        retry_ms=100.0,
        lease_ms=1_000.0,
        patience_ms=500.0,
    )
