"""One node as this process serves it: its host, its port for clients and children, its connection to its parent.

Every node has a switchboard of its own, as if it were alone in its process; so it makes no difference which nodes share
one. Neighbours in the same process are joined directly, others over TCP (the child dials).
"""

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec import structs

from seriatim.brokers import Broker
from seriatim.model import Address, JournalError, Node
from seriatim.protocols.atoms.written import Written
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime import Journal
from seriatim.runtime.dialer import Dialer, Peer
from seriatim.runtime.listener import Listener, ListenerOptions
from seriatim.runtime.security import SecurityOptions
from seriatim.server.config import ClusterConfig
from seriatim.server.host import NodeHost
from seriatim.server.meters import MeteredBroker, MeteredSwitchboard, NodeMeter, Surveyor
from seriatim.server.standby import Standby, WatchedJournal
from seriatim.server.status import LinkStatus, NodeStatus, Role

logger = logging.getLogger(__name__)

SURVEY_PAUSE_S = 1.0
SURVEY_SHARE = 0.02  # of the time at most this much is spent on surveys
EXPLAIN_RANGES_MAX = 20_000  # explaining more of them one by one would keep the node from its work
BACKLOG_NOTED = 1_000  # a backlog of this many steps is worth a line in explain


class ServedNode:
    """Start the port (`listen`), then the node (`start`)."""

    def __init__(
        self,
        config: ClusterConfig,
        node: Node,
        *,
        place: int,
        broker: Broker,
        security: SecurityOptions,
        options: TreeOptions,
        meter: NodeMeter,
        journal: Callable[[Node], Journal],
        watched_journal: Callable[[Node], WatchedJournal],
    ) -> None:
        self.node = node
        self.place = place
        self.plan: Written | None = None  # of atoms
        self.role: Role = "starting"
        self.reason = ""
        self.meter = meter
        self.surveyor = Surveyor()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.switchboard = MeteredSwitchboard()
        self.switchboard.meters[node] = meter
        self.host: NodeHost | None = None
        self._standby: Standby | None = None
        self.dialer: Dialer | None = None
        self._parent: Peer | None = None
        self._config = config
        self._security = security
        self._options = options
        self._broker = MeteredBroker(broker, meter)
        self._make_journal = journal
        self._make_watched_journal = watched_journal
        self._journal: Journal | None = None
        self._started_s = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._hanging_up: list[asyncio.Task[None]] = []
        self.listener = self._make_listener()

    @property
    def address(self) -> str:
        """Where others find it: as configured, with the real port if that was 0."""
        configured = self._config.nodes[self.node].addresses[self.place]
        return self.listener.address if configured.endswith(":0") else configured

    def _make_listener(self) -> Listener:
        config, own = self._config, self._config.nodes[self.node]
        return Listener(
            self.switchboard,
            config.tree,
            cluster=config.cluster,
            bind=own.bind or own.addresses[self.place],
            security=self._security,
            options=ListenerOptions(clients_max=config.limits.connections_max),
            backlog=self._backlog,
        )

    def _backlog(self) -> int:
        return self.host.driver.backlog if self.role == "active" and self.host is not None else 0

    # ── starting and stopping ─────────────────────────────────────────────────────────────────────────────────────

    async def listen(self) -> None:
        """Open the port. Whoever connects before the node is active is told to try again."""
        await self.listener.start()

    def join(self, parent: "ServedNode") -> None:
        """The parent runs in this process too: hand messages over directly, in both directions."""

        def upwards(source: Address, message: Payload) -> None:
            parent.switchboard.deliver(source, parent.node, message)

        def downwards(source: Address, message: Payload) -> None:
            self.switchboard.deliver(source, self.node, message)

        self.switchboard.plug(parent.node, upwards)
        parent.switchboard.plug(self.node, downwards)

    def dial(self, parent: Node) -> None:
        """The parent runs elsewhere, at one of its addresses. It is called when the node is active, and not before.

        Whoever introduces himself as a node takes the place of the one before him: only the journal's owner may.
        """
        self._parent = Peer(parent, self._config.nodes[parent].addresses)

    def _start_dialing(self, parent: Peer) -> None:
        self.dialer = Dialer(
            self.switchboard,
            [parent],
            cluster=self._config.cluster,
            name=self.node,
            role="node",
            epoch=self.host.epoch if self.host is not None else 0,
            security=self._security,
            throttle=self.listener.throttle,
        )
        self.dialer.start()

    def _stop_dialing(self) -> None:
        if self.dialer is not None:
            self._hanging_up.append(asyncio.get_running_loop().create_task(self.dialer.stop()))
            self.dialer = None

    async def start(self) -> None:
        """Open the journal and serve. Raises what keeps the node from it.

        A node with standbys waits its turn instead, and this returns at once.
        """
        loop = asyncio.get_running_loop()
        if len(self._config.nodes[self.node].addresses) > 1:
            self.role = "standby"
            self._tasks.append(loop.create_task(self._stand_by()))
        else:
            host = self._make_host(self._make_journal(self.node))
            host.failed.add_done_callback(self._on_failed)
            await host.start()
            self._on_change(host, "started")
        self._tasks.append(loop.create_task(self._survey_forever()))

    async def stop(self) -> None:
        """Orderly: no new work, what is journaled goes out, then the connections close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._hanging_up, return_exceptions=True)
        if self._standby is not None:
            await self._standby.stop()
        if self.host is not None:
            await self.host.stop()
        if self.dialer is not None:
            await self.dialer.stop()
        await self.listener.stop()
        if self.role != "failed":
            self.role = "stopped"

    def _make_host(self, journal: Journal) -> NodeHost:
        self._journal = journal
        return NodeHost(
            self._config.tree,
            self.node,
            self._options,
            broker=self._broker,
            switchboard=self.switchboard,
            journal=journal,
        )

    async def _stand_by(self) -> None:
        """Run the node whenever nobody else does."""
        pause_s = self._config.times.takeover_ms / 1000.0
        while True:
            self._standby = standby = Standby(
                self.node,
                make_journal=lambda: self._make_watched_journal(self.node),
                make_host=self._make_host,
                silent_s=pause_s,
                on_change=self._on_change,
            )
            standby.start()
            error = await standby.failed
            await standby.stop()
            if not isinstance(error, JournalError):
                self._fail(error)
                return
            self.reason = str(error)  # the journal is away, or damaged: somebody may mend it
            logger.error("cannot take over", extra={"node": self.node, "reason": str(error), "again_s": pause_s})
            await asyncio.sleep(pause_s)

    def _on_change(self, host: NodeHost | None, reason: str) -> None:
        self.host = host
        self.role = "active" if host is not None else "standby"
        self.reason = ""
        self._stop_dialing()
        if host is not None and self._parent is not None:
            self._start_dialing(self._parent)
        logger.info("role", extra={"node": self.node, "role": self.role, "reason": reason})

    def _on_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        if not failed.cancelled():
            self._fail(failed.result())

    def _fail(self, error: BaseException) -> None:
        self.role = "failed"
        self.reason = str(error)
        self._stop_dialing()
        if not self.failed.done():
            self.failed.set_result(error)

    async def _survey_forever(self) -> None:
        while True:
            spent_s = 0.0
            if (host := self.host) is not None:
                began_s = time.perf_counter()
                for _ in self.surveyor.walk(host.machine.state.sequencer):
                    spent_s += time.perf_counter() - began_s
                    await asyncio.sleep(0)
                    began_s = time.perf_counter()
                spent_s += time.perf_counter() - began_s
            await asyncio.sleep(max(SURVEY_PAUSE_S, spent_s / SURVEY_SHARE))

    # ── looking at it ─────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> NodeStatus:
        """How it is, as of the last survey."""
        config, meter = self._config, self.meter
        node = config.nodes[self.node]
        uptime_s = time.monotonic() - self._started_s
        base = NodeStatus(
            node=self.node,
            role=self.role,
            address=self.address,
            parent=node.parent,
            reason=self.reason,
            uptime_s=uptime_s,
            journal=config.journal(self.node),
        )
        host = self.host
        if host is None or self.role != "active":
            return base
        survey = self.surveyor.last
        return structs.replace(
            base,
            epoch=host.epoch,
            stamps=meter.stamps,
            stamps_per_s=meter.stamps / uptime_s if uptime_s > 0 else 0.0,
            numbers=meter.numbers,
            entries_per_stamp=meter.entries / meter.stamps if meter.stamps else 0.0,
            bytes_per_stamp=meter.sampled_bytes / meter.sampled_stamps if meter.sampled_stamps else 0.0,
            hop_ms=meter.hop_s * 1000.0 if meter.hop_s is not None else None,
            topics=survey.topics,
            issued=survey.issued,
            open_ranges=survey.open_ranges,
            unstamped_ranges=survey.unstamped_ranges,
            oldest_open_s=survey.oldest_open_s,
            voids=meter.voids,
            subscribers=survey.subscribers,
            joins=survey.joins,
            journal_backlog=host.driver.backlog,
            journal_bytes=self._journal.bytes_since_snapshot if self._journal is not None else 0,
            appends=host.driver.appends,
            connections=self.listener.clients,
            dropped=self.switchboard.dropped,
            links={
                neighbour: LinkStatus(
                    connected=self._reaches(neighbour),
                    unacknowledged=len(link.unacknowledged),
                    sent=link.sent,
                )
                for neighbour, link in host.machine.state.links.items()
            },
        )

    def explain(self) -> list[str]:
        """What is unfinished here, and what each of it waits for."""
        if self.host is None or self.role != "active":
            return [f"{self.role}: {self.reason}" if self.reason else self.role]
        lines = []
        if self.dialer is not None:
            lines += [
                f"parent {node} is not connected: tried {story}" for node, story in self.dialer.problems().items()
            ]
        parents = self._config.tree.parents
        for child in (node for node, parent in parents.items() if parent == self.node):
            if not self._reaches(child):
                lines.append(f"child {child} is not connected: it has not dialed")
        backlog = self.host.driver.backlog
        if backlog >= BACKLOG_NOTED:
            lines.append(f"{backlog:,} steps wait for the journal")
        ranges = self.host.machine.state.sequencer.ranges
        count = sum(map(len, ranges.values()))
        if count > EXPLAIN_RANGES_MAX:
            lines.append(f"{count:,} ranges of {len(ranges):,} topics are open: too many to name them")
            return lines
        return lines + self.host.machine.explain()

    def _reaches(self, neighbour: Node) -> bool:
        if self.dialer is not None and neighbour == self._config.nodes[self.node].parent:
            return self.dialer.connected(neighbour)
        return self.switchboard.reaches(neighbour)
