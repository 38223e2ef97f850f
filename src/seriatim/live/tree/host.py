"""One node of the tree, running in this process: its machine, its journal, its port to the broker.

How a node is rebuilt from its journal, and which changes of the configuration it accepts, is in founding.py. The same
host serves the sequencer server and the sequencer embedded in `memory://`.
"""

import logging
import time

import msgspec
from msgspec import structs

from seriatim.brokers import Broker, Port
from seriatim.live.counters import Counters
from seriatim.live.founding import Rebuilt
from seriatim.live.host import MachineHost
from seriatim.live.tree.founding import Founded, rebuild, without_journal
from seriatim.live.tree.troubles import Refusals
from seriatim.live.tree.waiters import Waiters
from seriatim.model import (
    BROKER,
    Address,
    ConnectionFailed,
    Node,
    Number,
    RemoteError,
    RequestRefused,
    SeriatimError,
    Topic,
)
from seriatim.order import SequencingTree, count_of
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Finished, Granted, Inquire, OrderFound, Pass, Refused, Routed
from seriatim.protocols.with_broker import OrderKept, Renewed, Stamped, Written
from seriatim.runtime import Driver, Journal, Recovered, Switchboard
from seriatim.runtime.net.switchboard import Outlet

logger = logging.getLogger(__name__)

SIZE_SAMPLE = 64  # one stamp in this many is encoded to learn its size
FOLLOWED_MS_MAX = 10_000.0  # a stamp that has not returned after this long is no longer followed

_encode = msgspec.msgpack.Encoder().encode


class NodeHost(MachineHost[SequencerNode, Founded]):
    """Starts, runs and stops one node. `counters`: counts what passes; None: nothing is counted."""

    kind = "node"

    def __init__(
        self,
        tree: SequencingTree,
        node: Node,
        options: TreeOptions,
        *,
        broker: Broker,
        switchboard: Switchboard,
        journal: Journal,
        counters: Counters | None = None,
    ) -> None:
        super().__init__(node, switchboard=switchboard, journal=journal)
        self.tree = tree
        self.options = structs.replace(options, stages=broker.has_stages)
        self._broker = broker
        self._counters = counters
        self._port: Port | None = None
        self._deliver: Outlet
        self.refusals = Refusals()
        self.waiters = Waiters(options.patience_ms)
        self.renewed: dict[Topic, Renewed] = {}  # the logs that were accepted, by this process
        self._climbing: tuple[Topic, Number] | None = None  # the range that is followed up the tree
        self._climbing_since_s = 0.0

    @property
    def epoch(self) -> int:
        return self.machine.epoch

    async def rebuild(self, recovered: Recovered) -> Rebuilt[SequencerNode, Founded]:
        is_new = recovered.snapshot is None and not recovered.records
        if is_new and self.options.mode == "log" and (epoch := await self._epoch_on_broker()) is not None:
            return without_journal(self.tree, self.node, self.options, epoch)
        return rebuild(self.tree, self.node, self.options, recovered)

    async def _epoch_on_broker(self) -> int | None:
        """The epoch of the node's last stamp on the broker. A new node that has one has lost its journal: it may
        continue, with a warning, in a later epoch; others ignore an earlier one."""
        try:
            epoch = await self._broker.stamped_epoch(self.node)
        except (ConnectionFailed, RequestRefused) as error:
            logger.warning("cannot tell whether this node is new: node=%s reason=%s", self.node, error)
            return None
        if epoch is not None:
            effect = "subscribers start their topics anew, with a gap; durable subscriptions are unknown"
            fix = "stop it, restore the journal and start it again; or go on, and start durable subscriptions anew"
            if len(self.tree.parents) > 1:
                effect = "its links to other nodes start again, and theirs do not: a node may stop, or wait for ever"
                fix = "stop it, restore the journal and start it again; or start anew, with empty journals on all nodes"
            text = "node has lost its journal: the journal is empty, but the broker has stamps of this node"
            logger.warning(text + ": node=%s effect=%s fix=%s", self.node, effect, fix)
        return epoch

    async def serve(self, driver: Driver) -> None:
        self._deliver = driver.deliver
        self._port = self._broker.attach(self.node, self._from_broker, self._on_refused)
        self.switchboard.attach(self.node, self._from_network if self._counters is not None else driver.deliver)
        found = await self._found_order_log()
        driver.start()
        if found is not None:
            driver.deliver(self.node, found)
        logger.info("node started: node=%s epoch=%s", self.node, self.epoch)

    async def _found_order_log(self) -> OrderFound | None:
        """What a root must be told that knows less than the order log, because it has lost its journal.

        It is told before anything else arrives: else it would give positions and numbers a second time.
        """
        log = self._broker.order_log()
        if log is None or self.node != self.tree.root or not self.options.keeps_order_log:
            return None
        known = self.machine.inner.order_position
        try:
            bounds = await log.bounds()
            if bounds is None or bounds.end <= known:
                return None
            lasts: dict[Topic, Number] = {}
            position = bounds.first - 1
            while position < bounds.end:
                read = await log.read(position)
                lasts.update((each.topic, each.last) for each in read.ranges)
                position = read.after + count_of(read.ranges)
        except (ConnectionFailed, RequestRefused, RemoteError) as error:
            logger.warning("cannot compare with the order log: node=%s reason=%s", self.node, error)
            return None
        text = "node knows less than the order log, and goes on behind it: node=%s known=%s order_log=%s"
        logger.warning(text, self.node, known, position)
        return OrderFound(position, lasts)

    async def disconnect(self) -> None:
        if self._port is not None:
            await self._port.close()

    def _on_refused(self, message: Payload, error: SeriatimError) -> None:
        """The broker does not carry something out. It is asked again; health says so until it does."""
        if self.refusals.add(message, error):
            logger.error("request refused by the broker: at=%s reason=%s", self.node, error)

    def _from_broker(self, message: Payload) -> None:
        self.refusals.heard(message)
        if type(message) is Renewed:
            self.renewed[message.topic] = message
        if type(message) is Written and message.event_id is None and self._counters is not None:
            self._counters.voids += 1
        elif type(message) is OrderKept and message.position < (kept := self.machine.inner.order_kept):
            text = "order log is shorter than it was: somebody has deleted it, or restored an older copy"
            effect = "history has a gap there; the log goes on behind it"
            logger.warning(text + ": node=%s kept=%s ends=%s effect=%s", self.node, kept, message.position, effect)
        self._deliver(BROKER, message)

    def _from_network(self, source: Address, message: Payload) -> None:
        """Like `deliver`, but counts."""
        if type(message) is Frame:
            if self._climbing is not None and type(message.body) is Routed:
                self._returned(message.body)
        elif type(message) is Inquire and self._counters is not None:
            self._counters.inquiries += 1
            self.waiters.heard(source, message)
        self._deliver(source, message)

    def send(self, source: Address, target: Address, message: Payload) -> None:
        if type(message) is Refused:
            logger.warning("request refused: node=%s client=%s reason=%s", source, target, message.reason)
        elif self._counters is not None:
            if type(message) is Stamped or type(message) is Granted:
                self._stamped(self._counters, message)
            elif type(message) is Frame and type(message.body) is Pass and self._climbing is None:
                self._climbing = (message.body.topic, message.body.first)
                self._climbing_since_s = time.monotonic()
        if target == BROKER:
            assert self._port is not None, "attached before the driver starts"
            self._port.send(message)
        else:
            self.switchboard.send(source, target, message)

    def _stamped(self, counters: Counters, message: Stamped | Granted) -> None:
        counters.stamps += 1
        counters.numbers += message.last - message.first + 1
        counters.stamp_entries.observe(len(message.entries))
        if counters.stamps % SIZE_SAMPLE == 1:
            counters.sampled_stamps += 1
            counters.sampled_bytes += len(_encode(message.entries))

    def _returned(self, routed: Routed) -> None:
        """One stamp at a time is followed on its way up and back."""
        body = routed.body
        elapsed_ms = (time.monotonic() - self._climbing_since_s) * 1000.0
        if type(body) is Finished and (body.topic, body.first) == self._climbing:
            self._climbing = None
            if self._counters is not None:
                self._counters.hop_ms = elapsed_ms
                self._counters.hops_ms.observe(elapsed_ms)
        elif elapsed_ms > FOLLOWED_MS_MAX:
            self._climbing = None
