"""One node as this process serves it: its host, its port for clients and other nodes, its connections to them.

Every node has its own switchboard, as if it were alone in its process, so it does not matter which nodes share a
process. Neighbours in the same process are joined directly, others over TCP (one of the two dials).
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from msgspec import structs

from seriatim.live.counters import Counters
from seriatim.live.host import MachineHost
from seriatim.live.life import HEAL, NodeLife
from seriatim.model import Address, ConnectionFailed, Node
from seriatim.order import Moves, SequencingTree
from seriatim.runtime import Journal, Switchboard
from seriatim.runtime.net.dialer import Dialer, Peer
from seriatim.runtime.net.listener import Listener, ListenerOptions
from seriatim.runtime.net.wire import Decoders
from seriatim.server.config import ClusterConfig
from seriatim.server.health import Ledger, Problem, Trouble
from seriatim.server.status import LinkStatus, NodeStatus, Role

if TYPE_CHECKING:
    from seriatim.live.server import SequencerServer

logger = logging.getLogger(__name__)

BACKLOG_NOTED = 1_000  # a backlog of this many steps is worth a line in explain
APPEND_S = 5.0  # a journal that takes longer for one append is a trouble
LOOK_S = 1.0

AnyHost = TypeVar("AnyHost", bound=MachineHost[Any, Any])


class Served(ABC, Generic[AnyHost]):
    """Start the port (`listen`), then the node (`start`). When it cannot continue, `failed` holds the reason."""

    decoders: ClassVar[Decoders]
    reserved: ClassVar[tuple[Address, ...]] = ()  # names that no client may use, besides those of nodes
    lost: ClassVar[str] = HEAL  # what to do if the journal is lost

    def __init__(self, process: "SequencerServer", node: Node) -> None:
        self.node = node
        self.role: Role = "starting"
        self.reason = ""
        self.counters: Counters = Counters()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.switchboard = Switchboard()
        self.host: AnyHost | None = None
        self.dialer: Dialer | None = None
        self.process = process
        self._at = process.config.nodes[node].addresses[process.roster.place_of(node)]
        self._dialed: list[Peer] = []
        self._joined: dict[Node, Served[Any]] = {}
        self._ledger = Ledger(node)
        self._journal: Journal | None = None
        self._started_s = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._hanging_up: list[asyncio.Task[None]] = []
        config, own = self._config, self._config.nodes[node]
        self.listener = Listener(
            self.switchboard,
            config.tree,
            cluster=config.cluster,
            decoders=self.decoders,
            bind=own.bind or self._at,
            security=process.security,
            options=ListenerOptions(clients_max=config.limits.connections_max),
            backlog=self._backlog,
            neighbours=self.neighbours(),
            reserved=self.reserved,
            layout=process.agreement.version,
        )

    @abstractmethod
    def make_host(self, journal: Journal) -> AnyHost:
        """A host of this node, not started."""

    @abstractmethod
    def details(self, host: AnyHost) -> dict[str, Any]:
        """The fields of the status that only this kind of node has."""

    @abstractmethod
    def waits(self, host: AnyHost) -> list[str]:
        """The unfinished work of the machine."""

    def answers(self) -> Mapping[str, Callable[[bytes], bytes | None]]:
        """What else this node answers on the broker while it is active, under which word."""
        return {}

    def neighbours(self) -> Mapping[Node, frozenset[Node]] | None:
        """Which nodes may talk to each other; None: along the tree."""
        return None

    @abstractmethod
    def dials(self) -> list[Node]:
        """The neighbours that this node connects to; the others connect to it."""

    @abstractmethod
    def others(self) -> Mapping[Node, str]:
        """The nodes that it should be connected to, and the relation of each to this one."""

    def moves(self) -> tuple[SequencingTree, Moves] | None:
        """The tree as topics began, and how they have moved since. None: not known, or topics have no homes here."""
        return None

    def operate(self, question: bytes) -> bytes | None:
        """Answer an operator. None: this node does not."""
        return None

    @property
    def _config(self) -> ClusterConfig:
        """The configuration as it is now: nodes and addresses may change."""
        return self.process.config

    @property
    def place(self) -> int:
        """Which of the node's addresses is this process's: 0, or that of a standby. Below 0: none any more."""
        node = self._config.nodes.get(self.node)
        return node.addresses.index(self._at) if node is not None and self._at in node.addresses else -1

    @property
    def address(self) -> str:
        """Where others find it: the configured address, with the real port if that was 0."""
        return self.listener.address if self._at.endswith(":0") else self._at

    def _backlog(self) -> int:
        return self.host.driver.backlog if self.role == "active" and self.host is not None else 0

    async def listen(self) -> None:
        """Open the port. Clients that connect before the node is active are told to try again."""
        try:
            await self.listener.start()
        except ConnectionFailed as error:
            if self._at not in self.process.agreement.layout.addresses.get(self.node, []):
                raise
            fix = f"`seriatim node address {self.node} HOST:PORT` gives it another one, also while it is down"
            raise ConnectionFailed(f"{error}. A command has set this address: {fix}") from None

    def follow(self) -> None:
        """The cluster has another layout now."""
        if self.node in self._config.nodes:
            self.listener.reshape(self._config.tree, self.neighbours(), self.process.agreement.version)
            self.connect(self.process.served)

    def connect(self, served: "Mapping[Node, Served[Any]]") -> None:
        """Connect to the nodes that this one dials: directly if both always run in this process, otherwise over TCP.

        A process that introduces itself as a node replaces the previous one, so only the journal's owner may do that.
        """
        nodes, peers = self._config.nodes, list[Peer]()
        for other in self.dials():
            here = served.get(other)
            if here is not None and len(nodes[other].addresses) == len(nodes[self.node].addresses) == 1:
                if self._joined.get(other) is not here:
                    self._join(here)
            else:
                peers.append(Peer(other, nodes[other].addresses))
        for node, joined in list(self._joined.items()):
            if node not in nodes or any(peer.node == node for peer in peers):
                self._part(joined)
        if peers != self._dialed:
            self._dialed = peers
            if self.dialer is not None and peers:
                self.dialer.change(peers)
            else:
                self._dial()

    def _join(self, other: "Served[Any]") -> None:
        """The other node runs in this process too: hand messages over directly, in both directions."""
        self._joined[other.node], other._joined[self.node] = other, self
        self.switchboard.plug(
            other.node, lambda source, message: other.switchboard.deliver(source, other.node, message)
        )
        other.switchboard.plug(self.node, lambda source, message: self.switchboard.deliver(source, self.node, message))

    def _part(self, other: "Served[Any]") -> None:
        """Disconnect a node of the same process, which may run elsewhere from now on."""
        del self._joined[other.node]
        other._joined.pop(self.node, None)
        self.switchboard.unplug(other.node)
        other.switchboard.unplug(self.node)

    async def start(self) -> None:
        """Open the journal and serve. Raises the reason if the node cannot run."""
        host = self._make_host(self._own_journal())
        host.failed.add_done_callback(self._on_failed)
        await host.start()
        self._on_change(host, "started")
        self._tasks.append(asyncio.get_running_loop().create_task(self._look_forever()))

    def _own_journal(self) -> Journal:
        return self.process.journal(self.node)

    def life(self) -> NodeLife:
        """How this node is registered on the broker."""
        folder = self._config.journal_folder(self.node)
        where = f"journal {folder if folder is not None else self._config.journal(self.node)}"
        return NodeLife(self.node, self.process.broker, where, self._config.cluster, self.help_if_lost())

    def help_if_lost(self) -> str:
        """What to do if the journal is lost."""
        return self.lost

    def _make_host(self, journal: Journal) -> AnyHost:
        self._journal = journal
        return self.make_host(journal)

    async def stop(self) -> None:
        """Take no new work, send what is journaled, then close the connections."""
        await self._end_tasks()
        if self.host is not None:
            await self.host.stop()
        if self.dialer is not None:
            await self.dialer.stop()
        await self.listener.stop()
        if self.role != "failed":
            self.role = "stopped"

    async def settle(self, timeout_s: float) -> None:
        """The node has left the cluster: wait until others have heard all that it owes them."""

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._hanging_up, return_exceptions=True)

    def _on_change(self, host: AnyHost | None, reason: str) -> None:
        self.host = host
        self.role = "active" if host is not None else "standby"
        self.reason = ""
        self._dial()
        logger.info("role changed: node=%s role=%s reason=%s", self.node, self.role, reason)

    def _dial(self) -> None:
        """Connect to other processes, while the node is active here."""
        self._stop_dialing()
        host = self.host
        if host is not None and self._dialed:
            self.dialer = Dialer(
                self.switchboard,
                self._dialed,
                cluster=self._config.cluster,
                name=self.node,
                role="node",
                epoch=host.epoch,
                security=self.process.security,
                throttle=self.listener.throttle,
                decoders=self.decoders,
            )
            self.dialer.start()

    def _stop_dialing(self) -> None:
        if self.dialer is not None:
            self._hanging_up.append(asyncio.get_running_loop().create_task(self.dialer.stop()))
            self.dialer = None

    def _on_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        if not failed.cancelled():
            self._fail(failed.result())

    def _fail(self, error: BaseException) -> None:
        self.role = "failed"
        self.reason = str(error)
        self._stop_dialing()
        if not self.failed.done():
            self.failed.set_result(error)

    def status(self) -> NodeStatus:
        uptime_s = time.monotonic() - self._started_s
        base = NodeStatus(
            node=self.node,
            role=self.role,
            address=self.address,
            parent=node.parent if (node := self._config.nodes.get(self.node)) is not None else None,
            reason=self.reason,
            uptime_s=uptime_s,
            journal=self._config.journal(self.node),
            problems=self.problems(),
        )
        host, counters = self.host, self.counters
        if host is None or self.role != "active":
            return base
        stamps = counters.stamps
        return structs.replace(
            base,
            epoch=host.epoch,
            stamps=stamps,
            stamps_per_s=stamps / uptime_s if uptime_s > 0 else 0.0,
            numbers=counters.numbers,
            entries_per_stamp=counters.stamp_entries.total / stamps if stamps else 0.0,
            bytes_per_stamp=counters.sampled_bytes / counters.sampled_stamps if counters.sampled_stamps else 0.0,
            hop_ms=counters.hop_ms,
            voids=counters.voids,
            journal_backlog=host.driver.backlog,
            journal_bytes=self._journal.bytes_since_snapshot if self._journal is not None else 0,
            appends=host.driver.appends,
            connections=self.listener.clients,
            dropped=self.switchboard.dropped,
            links={
                neighbour: LinkStatus(
                    connected=self._reaches(neighbour), unacknowledged=len(link.unacknowledged), sent=link.sent
                )
                for neighbour, link in host.machine.state.links.items()
                if neighbour in self._config.nodes
            },
            **self.details(host),
        )

    # ── health ────────────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self) -> list[Problem]:
        """The current problems of this node, and how long each has lasted."""
        return self._ledger.update(self.troubles())

    async def _look_forever(self) -> None:
        """Look for problems at intervals, so that it is known how long each has lasted, even if nobody asks."""
        while True:
            self.problems()
            await asyncio.sleep(LOOK_S)

    @abstractmethod
    def needed(self) -> list[Node]:
        """The nodes without which this one cannot do its work."""

    def troubles(self) -> Iterator[Trouble]:
        """The current problems."""
        if self.role == "standby":
            yield from self.standing_by()
        elif self.role == "active" and self.host is not None:
            yield from self._links_missing(self.host)
            if (age_s := self.host.driver.appending_s) > APPEND_S:
                reason = f"the journal does not accept records: {self.host.driver.backlog:,} steps wait for it"
                yield Trouble("journal", "", reason, age_s)
            yield from self.at_work(self.host)
        elif self.role in ("starting", "stopped", "failed"):
            yield Trouble(self.role, "", f"is {self.role}{': ' if self.reason else ''}{self.reason}")

    def standing_by(self) -> Iterator[Trouble]:
        """What keeps this process from taking the node over when it should."""
        if self.reason:
            yield Trouble("standby", "", f"cannot take over: {self.reason}")

    def at_work(self, host: AnyHost) -> Iterator[Trouble]:
        """The problems of the machine itself."""
        yield from ()

    def _links_missing(self, host: AnyHost) -> Iterator[Trouble]:
        others, problems = self.others(), self.dialer.problems() if self.dialer is not None else {}
        for node in self.needed():
            if self._reaches(node):
                continue
            here = self._joined.get(node)
            why = f"it is {here.role}" if here is not None else f"tried {problems.get(node, 'nothing yet')}"
            if here is None and all(peer.node != node for peer in self._dialed):
                why = "it has not dialed"
            link = host.machine.state.links.get(node)
            waiting = len(link.unacknowledged) if link is not None else 0
            reason = f"{others[node]} {node} is not connected: {why}; {waiting:,} messages wait for it"
            yield Trouble("link", node, reason)

    def explain(self) -> list[str]:
        """The unfinished work here, and what each item waits for."""
        host = self.host
        if host is None or self.role != "active":
            return [f"{self.role}: {self.reason}" if self.reason else self.role]
        problems = self.dialer.problems() if self.dialer is not None else {}
        dialed = {peer.node for peer in self._dialed}
        others = self.others()
        lines = [f"{others[node]} {node} is not connected: tried {story}" for node, story in problems.items()]
        for node, what in others.items():
            if node not in dialed and not self._reaches(node):
                lines.append(f"{what} {node} is not connected: it has not dialed")
        if host.driver.backlog >= BACKLOG_NOTED:
            lines.append(f"{host.driver.backlog:,} steps wait for the journal")
        return lines + self.waits(host)

    def _reaches(self, neighbour: Node) -> bool:
        if (here := self._joined.get(neighbour)) is not None:
            return here.role == "active"
        if self.dialer is not None and any(peer.node == neighbour for peer in self._dialed):
            return self.dialer.connected(neighbour)
        return self.switchboard.reaches(neighbour)
