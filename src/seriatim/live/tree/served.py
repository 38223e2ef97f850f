"""A node of the tree as this process serves it: with standbys, and with surveys of what it holds."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from seriatim.live.life import HEAL, RESHAPED, UNHEALED
from seriatim.live.served import Served
from seriatim.live.tree.acceptance import answer_acceptance
from seriatim.live.tree.active import ActiveProcess
from seriatim.live.tree.host import NodeHost
from seriatim.live.tree.inventory import Inventory
from seriatim.live.tree.reshaping import Reshaper
from seriatim.live.tree.standby import Standby
from seriatim.live.tree.survey import Surveyor
from seriatim.live.tree.troubles import Lag, late
from seriatim.live.tree.wire import TREE
from seriatim.model import Address, JournalError, Node, SeriatimError
from seriatim.order import Moves, SequencingTree
from seriatim.runtime import Journal
from seriatim.server.changing import layout_question
from seriatim.server.config import ON_BROKER
from seriatim.server.health import Trouble
from seriatim.server.status import INVENTORY, node_subject

if TYPE_CHECKING:
    from seriatim.live.server import SequencerServer

logger = logging.getLogger(__name__)

SURVEY_PAUSE_S = 1.0
SURVEY_SHARE = 0.02  # at most this much of the time is spent on surveys
SURVEYED = ("topics", "issued", "open_ranges", "unstamped_ranges", "oldest_open_s", "subscribers", "joins")
EXPLAIN_RANGES_MAX = 20_000  # explaining more of them one by one would keep the node from its work


class ServedNode(Served[NodeHost]):
    """One node of the tree. Its children dial it, and it dials its parent."""

    decoders = TREE

    def __init__(self, process: "SequencerServer", node: Node) -> None:
        super().__init__(process, node)
        self.surveyor = Surveyor()
        self._standby: Standby | None = None
        self._lag = Lag()
        self._active = ActiveProcess(self)
        self._is_waiting = False  # for its turn
        self.reshaper = Reshaper(self)

    def make_host(self, journal: Journal) -> NodeHost:
        return NodeHost(
            self._config.tree,
            self.node,
            self.process.options,
            broker=self.process.broker,
            switchboard=self.switchboard,
            journal=journal,
            counters=self.counters,
            life=self.life(),
            takes_over=self._config.nodes[self.node].journal in ON_BROKER,
            heals=self.process.heals or self._forgets_on_purpose(),
            shapes=lambda: self.process.agreement.layout.possible_shapes,
            is_reshaped=lambda: self.process.agreement.layout.is_reshaped,
            is_newcomer=self.process.agreement.layout.is_newcomer(self.node),
            tell=self.reshaper.told,
            look=self._look_at_layout,
        )

    async def _look_at_layout(self) -> None:
        try:
            await self.process.agreement.look()
        except SeriatimError as error:  # the broker is away, or slow: what follows says so
            logger.debug("layout not looked at: node=%s reason=%s", self.node, error)

    def _forgets_on_purpose(self) -> bool:
        """A single node with its journal in memory starts anew each time. In a larger tree all others would wait for
        that, and know a gap: there its operator has to say so."""
        return self._config.nodes[self.node].journal == "memory" and len(self._config.nodes) == 1

    def help_if_lost(self) -> str:
        if self.process.agreement.layout.is_reshaped:
            return RESHAPED
        return HEAL if self.process.options.mode == "log" else UNHEALED

    def dials(self) -> list[Node]:
        parent = self._config.tree.parents[self.node]
        return [parent] if parent is not None else []

    def others(self) -> Mapping[Node, str]:
        tree = self._config.tree
        parent = tree.parents[self.node]
        return {each: "parent" if each == parent else "child" for each in tree.neighbours(self.node)}

    def answers(self) -> Mapping[str, Callable[[bytes], bytes | None]]:
        def answer(word: str, data: bytes) -> bytes | None:
            host = self.host
            if host is None or self.role != "active":
                return None
            if word == "accept":
                return answer_acceptance(host, data)
            return Inventory(host, time.monotonic() - self._started_s, self._where).answers()[word](data)

        return {word: partial(answer, word) for word in (*INVENTORY, "accept")}

    def _where(self, client: Address) -> str | None:
        guest = self.listener.owners.get(client)
        return guest.peer if guest is not None else None

    async def start(self) -> None:
        """Start like any node. A node with standbys waits for its turn instead, and this returns at once."""
        loop = asyncio.get_running_loop()
        if self._has_standbys:
            self._begin_standing_by()
            self._tasks.append(loop.create_task(self._look_forever()))
        else:
            await super().start()
        self._tasks.append(loop.create_task(self._survey_forever()))
        if self.process.agreement.changes:
            self._tasks.append(loop.create_task(self.reshaper.run()))

    @property
    def _has_standbys(self) -> bool:
        node = self._config.nodes.get(self.node)
        return node is not None and len(node.addresses) > 1

    def _begin_standing_by(self) -> None:
        loop = asyncio.get_running_loop()
        self.role, self._is_waiting = "standby", True
        self._tasks.append(loop.create_task(self._stand_by()))
        self._tasks.append(loop.create_task(self._active.look_forever()))

    def _own_journal(self) -> Journal:
        """The journal of the node. If the broker keeps it, it has a beat, because the node may be given a standby while
        it runs."""
        is_watched = self._config.nodes[self.node].journal in ON_BROKER
        return self.process.watched_journal(self.node) if is_watched else super()._own_journal()

    def _on_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        """The node has been given a standby since it started here, and that has taken over: stand by for it."""
        host = self.host
        is_replaced = not failed.cancelled() and isinstance(failed.result(), JournalError) and self._has_standbys
        if self._is_waiting or not is_replaced or host is None:
            super()._on_failed(failed)
            return
        logger.warning("standing by from now on: node=%s reason=%s", self.node, failed.result())
        self._on_change(None, str(failed.result()))
        self._tasks.append(asyncio.get_running_loop().create_task(self._stand_by_after(host)))

    async def _stand_by_after(self, host: NodeHost) -> None:
        await host.stop()
        self._begin_standing_by()

    async def stop(self) -> None:
        await self._end_tasks()
        await self.reshaper.stop()
        if self._standby is not None:
            await self._standby.stop()
        await super().stop()

    async def settle(self, timeout_s: float) -> None:
        host = self.host
        if host is not None and self.role == "active":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await host.left.wait()

    @property
    def takeover_s(self) -> float:
        return self._config.times.takeover_ms / 1000.0

    async def ask_active(self, timeout_s: float) -> bytes | None:
        """The status of the process that runs the node. None: there is none, or it does not answer."""
        requests = self.process.broker.requests
        assert requests is not None, "a broker with journals has requests"
        return await requests.request(node_subject(self._config.cluster, "status", self.node), b"", timeout_s)

    async def _stand_by(self) -> None:
        """Run the node whenever no other process does."""
        pause_s = self.takeover_s
        while True:
            self._standby = standby = Standby(
                self.node,
                make_journal=lambda: self.process.watched_journal(self.node),
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
            self.reason = str(error)  # the journal is unreachable or damaged, and may be repaired
            logger.error("cannot take over: node=%s reason=%s again_s=%s", self.node, error, pause_s)
            await asyncio.sleep(pause_s)

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

    def moves(self) -> tuple[SequencingTree, Moves] | None:
        host = self.host
        if host is None or self.role != "active":
            return None
        if not host.machine.inner.is_member:
            return None
        return host.machine.inner.tree.began, host.machine.state.sequencer.moves

    def operate(self, question: bytes) -> bytes | None:
        if (about_layout := layout_question(question)) is not None:
            return self.reshaper.answer(about_layout)
        host = self.host
        return host.operator.answer(question) if host is not None and self.reshaper.is_root else None

    def needed(self) -> list[Node]:
        return self.dials()

    def standing_by(self) -> Iterator[Trouble]:
        yield from super().standing_by()
        yield from self._active.troubles()

    def at_work(self, host: NodeHost) -> Iterator[Trouble]:
        yield from host.refusals.troubles()
        yield from late(self.surveyor.last)
        inner = host.machine.inner
        if self.node == inner.tree.root and ("order log", "") not in host.refusals:
            yield from self._lag.troubles(inner.order_position, inner.order_kept, time.monotonic())

    def details(self, host: NodeHost) -> dict[str, Any]:
        """What the last survey found, for the status page."""
        last = self.surveyor.last
        found: dict[str, Any] = {name: getattr(last, name) for name in SURVEYED}
        found |= {"waiting": host.waiters.count, "longest_wait_s": host.waiters.oldest_s}
        inner = host.machine.inner
        if self.node == inner.tree.root:
            found |= {
                "order_position": inner.order_position,
                "order_kept": inner.order_kept,
                "order_lost": inner.order_lost,
            }
        return found

    def waits(self, host: NodeHost) -> list[str]:
        moving = self.reshaper.explain() + host.operator.explain()
        ranges = host.machine.state.sequencer.ranges
        count = sum(map(len, ranges.values()))
        if count > EXPLAIN_RANGES_MAX:
            own = [f"{count:,} ranges of {len(ranges):,} topics are open: too many to name them"]
        else:
            own = host.machine.explain()
        return moving + own + host.waiters.lines()
