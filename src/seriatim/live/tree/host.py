"""One node of the tree, running in this process: its machine, its journal, its port to the broker.

How a node is rebuilt from its journal, and which changes of the configuration it accepts, is in founding.py. The same
host serves the sequencer server and the sequencer embedded in `memory://`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import structs

from seriatim.brokers import Broker, Port
from seriatim.live.counters import Counters
from seriatim.live.founding import Rebuilt
from seriatim.live.host import MachineHost
from seriatim.live.life import EPOCH, NodeLife, why_older
from seriatim.live.tree.founding import Founded, check_shape, differences, healed, rebuild, without_journal
from seriatim.live.tree.operator import Operator, Room
from seriatim.live.tree.troubles import Refusals
from seriatim.live.tree.waiters import Waiters
from seriatim.model import APPLICATION, BROKER, Address, Fenced, Node, Number, SeriatimError, Topic
from seriatim.order import SequencingTree, count_of
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.confirming import Outdated
from seriatim.protocols.tree.messages import (
    CancelReshape,
    Finished,
    Granted,
    Inquire,
    NodeLeft,
    OrderFound,
    Pass,
    Refused,
    Reshape,
    Routed,
)
from seriatim.protocols.with_broker import Begun, OrderKept, Renewed, Stamped, Watch, Written
from seriatim.runtime import Driver, Journal, Recovered, Switchboard
from seriatim.runtime.net.switchboard import Outlet

logger = logging.getLogger(__name__)

Shape: TypeAlias = dict[Node, Node | None]

CONFIRM_MS = 3_000.0  # a node that comes back waits so long for neighbours that do not answer
FENCE_S = 30.0
SHOWN_MAX = 10  # topics that a line of the log names
SIZE_SAMPLE = 64  # one stamp in this many is encoded to learn its size
FOLLOWED_MS_MAX = 10_000.0  # a stamp that has not returned after this long is no longer followed

_encode = msgspec.msgpack.Encoder().encode


class NodeHost(MachineHost[SequencerNode, Founded]):
    """Starts, runs and stops one node. `counters`: counts what passes; None: nothing is counted.

    `life`: how the node is registered; None: with nothing said about its journal. `takes_over`: also from a process
    that answers. `heals`: a node that has lost its journal goes on as a new one, as far as that is safe.
    `confirm_ms`: how long a node that comes back waits for neighbours that do not answer.

    `tree` is the configured one, and once the node runs, the tree as it began; `machine.inner.tree` is the one that it
    is now. `shapes`: the shapes that the cluster may have now, None: that of `tree`. `is_reshaped`: nodes have joined
    or left, or are about to. `is_newcomer`: the node comes into a tree that runs. `tell`: told of changes of shape.
    `look`: at the layout, before the journal is opened: it may have changed since.
    """

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
        life: NodeLife | None = None,
        takes_over: bool = False,
        heals: bool = False,
        confirm_ms: float = CONFIRM_MS,
        shapes: Callable[[], list[Shape]] | None = None,
        is_reshaped: Callable[[], bool] = lambda: False,
        is_newcomer: bool = False,
        tell: Callable[[Payload], None] | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(node, switchboard=switchboard, journal=journal)
        self.tree = tree
        self._shapes = shapes if shapes is not None else lambda: [tree.parents]
        self._is_reshaped = is_reshaped
        self._is_newcomer = is_newcomer
        self._tell = tell
        self._look = look
        self.options = structs.replace(options, stages=broker.has_stages)
        self._broker = broker
        self._counters = counters
        self._life = life if life is not None else NodeLife(node, broker, "", "")
        self._takes_over = takes_over
        self._heals = heals
        self._confirm_ms = confirm_ms
        self._is_new = True
        self.left = asyncio.Event()  # it was part of the tree, and owes nobody anything
        self._is_healing = False
        self._begun: asyncio.Future[Begun] | None = None
        self._port: Port | None = None
        self._deliver: Outlet
        self.operator = Operator(
            lambda: self.machine.inner,
            lambda command: self.driver.deliver(APPLICATION, command),
            refuses="this broker may lose events, and topics do not move there" if broker.lossy else "",
            room=Room(lambda: broker.payload_bytes_max),
        )
        self.refusals = Refusals()
        self.waiters = Waiters(options.patience_ms)
        self.renewed: dict[Topic, Renewed] = {}  # the logs that were accepted, by this process
        self._climbing: tuple[Topic, Number] | None = None  # the range that is followed up the tree
        self._climbing_since_s = 0.0

    @property
    def epoch(self) -> int:
        return self.machine.epoch

    @property
    def removes_topics(self) -> bool:
        """Whether the broker can drop what there is of a topic."""
        return self._broker.removes_topics

    async def prepare(self) -> None:
        if self._look is not None:
            await self._look()
        await self._life.look(takes_over=self._takes_over)

    async def rebuild(self, recovered: Recovered) -> Rebuilt[SequencerNode, Founded]:
        self._is_new = is_new = recovered.snapshot is None and not recovered.records
        epoch = await self._epoch_known(is_new)
        if is_new and epoch:
            rebuilt = self._without_journal(epoch)
        else:
            rebuilt = rebuild(self.tree, self.node, self.options, recovered, is_newcomer=self._is_newcomer)
            older = why_older(self._life.last, rebuilt.machine.epoch - 1, rebuilt.machine.state.inputs)
            if older and self._heals and len(self.tree.parents) > 1 and self._life.last is not None:
                rebuilt = self._without_journal(self._life.last.numbers[EPOCH], older)
        machine = rebuilt.machine
        if machine.inner.is_member:
            check_shape(machine.inner.tree.parents, self._shapes())
            self._tell_differences(machine.inner.tree)
        self.tree = rebuilt.current.tree
        if self._is_healing:
            self._is_new = False
        elif not is_new:
            self._life.check(machine.epoch - 1, machine.state.inputs)
            machine.confirm_all(self._confirm_ms, with_broker=self._broker.tells_lives)
            is_healable = self.options.mode == "log" and len(self.tree.parents) > 1 and not self._is_reshaped()
            machine.heals_if_older = self._heals and is_healable
        elif epoch or (self._life.last is None and self._broker.lives is None):
            machine.confirm_all(self._confirm_ms, with_broker=False)
        await self._life.register(machine)
        return rebuilt

    def _tell_differences(self, current: SequencingTree) -> None:
        """The homes in the file say where topics began. They may have moved, or the file may have changed."""
        differing = differences(self.tree, current)
        if not differing and self.tree.default_home == current.default_home:
            return
        shown = [f"{topic} on {lives}, not {said}" for topic, (lives, said) in list(differing.items())[:SHOWN_MAX]]
        if self.tree.default_home != current.default_home:
            shown.append(f"all others on {current.default_home}, not {self.tree.default_home}")
        fix = "`seriatim apply` moves topics; or write in the file where they live"
        text = "homes are not those of the file, and the journal counts: node=%s topics=%d live=%s fix=%s"
        logger.warning(text, self.node, len(differing), ", ".join(shown), fix)

    async def _epoch_known(self, is_new: bool) -> int:
        """The latest epoch in which this node is known to have acted; 0: none. Asked only for an empty journal."""
        if not is_new:
            return 0
        last = self._life.last
        acted = last.numbers.get(EPOCH, 0) if last is not None else 0
        if self.options.mode != "log":
            return acted
        stamped = await self._broker.stamped_epoch(self.node)
        return max(acted, stamped if stamped is not None else 0, 1 if stamped == 0 else 0)

    def _without_journal(self, epoch: int, older: str = "") -> Rebuilt[SequencerNode, Founded]:
        """A node that is known to have run, and has an empty journal or an older one: a new one in its place, if the
        operator says so and that is safe."""
        was = older or f"the journal is empty, and the node has run in epoch {epoch}"
        lost = f"node {self.node} has lost its journal: {was}"
        if self.options.mode != "log":
            raise self._life.behind(
                f"{lost}; in ticket mode it cannot go on without it, because nobody else knows the granted numbers"
            )
        if self._is_reshaped():
            raise self._life.behind(lost)
        if not self._heals:
            raise self._life.behind(lost)
        if len(self.tree.parents) > 1:
            if not self._broker.tells_lives:
                raise self._life.behind(f"{lost}; this broker cannot fence what the former life still stamps")
            self._is_healing = True
            effect = "all nodes begin a new era; what was in flight through this one is a gap"
            logger.warning("node is healed without its journal: node=%s epoch=%s effect=%s", self.node, epoch, effect)
            return healed(self.tree, self.node, self.options, epoch)
        effect = "subscribers start their topics anew, with a gap; durable subscriptions are unknown"
        logger.warning("node goes on without its journal: node=%s epoch=%s effect=%s", self.node, epoch, effect)
        return without_journal(self.tree, self.node, self.options, epoch)

    async def serve(self, driver: Driver) -> None:
        self._deliver = driver.deliver
        self._port = self._broker.attach(self.node, self._from_broker, self._on_refused)
        self.switchboard.attach(self.node, self._from_network if self._counters is not None else driver.deliver)
        is_new = self._is_new and self.machine.inner.is_member
        found = await self._found_order_log() if is_new else None
        if is_new and self.epoch > 1:
            found = await self._fence(found)
        driver.start()
        machine = self.machine
        self._life.watch(driver, lambda: machine.state.inputs if machine.is_acting else None, self.end)
        if found is not None:
            driver.deliver(self.node, found)
        logger.info("node started: node=%s epoch=%s", self.node, self.epoch)

    async def _found_order_log(self) -> OrderFound | None:
        """What a root must be told that begins anew behind an order log, because it has lost its journal.

        It is told before anything else arrives: else it would give positions and numbers a second time. So whoever
        cannot read the order log does not start.
        """
        log = self._broker.order_log()
        if log is None or self.node != self.tree.root or not self.options.keeps_order_log:
            return None
        bounds = await log.bounds()
        if bounds is None:
            return None
        lasts: dict[Topic, Number] = {}
        position = bounds.first - 1
        while position < bounds.end:
            read = await log.read(position)
            lasts.update((each.topic, each.last) for each in read.ranges)
            position = read.after + count_of(read.ranges)
        logger.warning("node goes on behind the order log: node=%s order_log=%s", self.node, position)
        return OrderFound(position, lasts)

    async def _fence(self, found: OrderFound | None) -> OrderFound | None:
        """Let the broker refuse what earlier lives of this node still stamp, and read what they have stamped."""
        if not self._broker.tells_lives or self._port is None:
            return found
        self._begun = asyncio.get_running_loop().create_future()
        self._port.send(self.machine.ask_broker_again())
        begun = await asyncio.wait_for(self._begun, FENCE_S)
        self._begun = None
        if begun.latest > self.epoch:
            raise reason_of(self._life, Outdated(BROKER, "", begun.latest))
        lasts = dict(found.lasts) if found is not None else {}
        for topic, last in begun.stamped.items():
            lasts[topic] = max(last, lasts.get(topic, 0))
        return OrderFound(max(begun.ordered, found.position), lasts) if found is not None else None

    def told(self, notices: Sequence[Payload]) -> None:
        for each in notices:
            if isinstance(each, Outdated):
                self.end(reason_of(self._life, each))
            elif isinstance(each, NodeLeft):
                self.left.set()
                logger.info("node has left the tree, and owes nothing: node=%s move=%s", self.node, each.move)
            else:
                self.operator.told(each)
                if self._tell is not None:
                    self._tell(each)

    def command(self, command: Reshape | CancelReshape) -> None:
        """An operator's word on the shape of the tree, for the machine of a root."""
        self.driver.deliver(APPLICATION, command)

    def is_reshaping(self, node: Node) -> bool:
        """Whether a change of the tree that is about this node is under way, or waits for its turn."""
        moving = self.machine.state.sequencer.moving
        is_under_way = moving.move is not None and moving.move.change is not None and moving.move.change.node == node
        return is_under_way or any(wish.reshape.node == node for wish in moving.wishes)

    def look_at_log(self, topic: Topic) -> None:
        """Have the broker look now whether it is the one that it was, and what it holds."""
        if self._port is not None:
            self._port.send(Watch(frozenset({topic})))

    def end(self, error: BaseException) -> None:
        """Stop at once, because another process runs the node or its journal must not be used: nothing more leaves."""
        if self._driver is not None:
            self._driver.end(error)

    async def leave(self) -> None:
        await self._life.end()

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
        elif type(message) is OrderKept and message.position < self.machine.inner.order_healed:
            logger.info("order log goes on behind a hole: node=%s ends=%s", self.node, message.position)
        elif type(message) is OrderKept and message.position < (kept := self.machine.inner.order_kept):
            text = "order log is shorter than it was: somebody has deleted it, or restored an older copy"
            effect = "history has a gap there; the log goes on behind it"
            logger.warning(text + ": node=%s kept=%s ends=%s effect=%s", self.node, kept, message.position, effect)
        elif type(message) is Begun and self._begun is not None:
            self._begun.set_result(message)
            return
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


def reason_of(life: NodeLife, found: Outdated) -> SeriatimError:
    """Why a node must not act, as an error."""
    if found.later:
        later = f"another process runs node {life.node} in epoch {found.later}: {found.source} has heard of it"
        return Fenced(f"{later}; this one stops, and no event is lost by that")
    return life.behind(f"the journal of {life.node} is behind what {found.source} has seen: {found.reason}")
