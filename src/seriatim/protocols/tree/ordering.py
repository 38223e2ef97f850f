"""The order log: every node keeps the order in which events passed it, and the root's order is that of all events.

*Up the tree.* A range has its place in a node's order when it is issued there, or when the child's message that tells
of it arrives. Whatever climbs (`Pass`, `Announce`, `Cut`) carries the ranges of the child's order that the parent does
not have yet; the parent merges them before it handles the message. So if one event was covered somewhere when another
one passed, it stands before it in the order of every node above. If nothing climbs, a `Summary` does, at most one in
`order_ms`. A tick is not journaled and links are numbered, so the decision to send one is an input of its own, as
`Forget` is. A parent that does not answer gets fewer and longer ones: passes have to wait behind them when it is back.

*At the root.* The root counts positions and hands ranges to the broker: one write under way, repeated until it is
answered, and at most one in `order_ms`; what comes meanwhile goes with the next one. Only what the broker keeps is
forgotten here. Nobody waits for any of this: it is off the way of every event.

*A log that is shorter than it was.* Somebody deletes the order log, or restores an older copy of it. The root hears of
that from the broker, or when it starts and asks. It goes on behind what was kept, so no position is given twice; what
the log lacks before that is lost, and who reads history gets a gap in its place.

A node keeps the order since it *began* to. A node that is older than the order log begins when it starts, and tells of
no ranges before that: a message without an order (None) comes from a node that has not begun.
"""

from seriatim.model import BROKER, Address, Node, Number, Position, Topic
from seriatim.order import OrderedRange, PassingOrder, SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import SequencerState
from seriatim.protocols.with_broker import Ordered, OrderKept

ORDERED_AT_ONCE = 2_000  # ranges in one message to the broker, or to a parent that lags


class Ordering(SequencerCore):
    """The part of a sequencer that keeps the order of what passes it."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        self._order = PassingOrder(self.state.order)
        self._order_due: float | None = 0.0 if self.state.order.ranges else None  # when to hand ranges on, or again
        self._order_rests_until = 0.0  # what comes before goes together
        self._order_ends: Position | None = None  # the root: where the log ends, if it has lost what it had kept
        if self._parent is None and len(tree.parents) > 1 and not self.state.order.end:
            self.state.order.counted = True
        self.parent_lags = False  # it has not acknowledged much of what was sent to it

    @property
    def order_position(self) -> Position:
        """The root: how many positions it has given."""
        return self.state.order.end

    @property
    def order_lost(self) -> Position:
        """The root: up to which position the order log was once found cut short; 0: never."""
        return self.state.order.lost

    @property
    def order_kept(self) -> Position:
        """The root: how many positions the broker's order log is known to hold."""
        return self.state.order.told

    def _place(self, topic: Topic, first: Number, last: Number, now: float) -> Position:
        """These numbers pass here now. Returns the position of the first; 0: only the root knows it."""
        if not self.state.order.begun:
            return 0
        if self._order_due is None:
            self._order_due = max(now, self._order_rests_until)
        position = self._order.add(topic, first, last)
        return position if self._parent is None else 0

    def _merge(self, message: say.Climbing, now: float) -> Position:
        """What passed the child before this message. Returns the position of a pass; 0: not known."""
        if message.order is None or not self.state.order.begun or self.state.healing.is_blank:
            return 0
        if message.order:
            self._order.merge(message.order)
            if self._order_due is None:
                self._order_due = max(now, self._order_rests_until)
        return self._place(message.topic, message.first, message.last, now) if type(message) is say.Pass else 0

    def _carried(self, first: Number | None = None) -> tuple[OrderedRange, ...] | None:
        """The ranges that the parent does not have yet, to go with a message to it.

        A pass is about the last of them: its own numbers, from `first` on, are not said twice.
        """
        if not self.state.order.begun:
            return None
        self._order_due = None
        return self._order.take() if first is None else self._order.take_before(first)

    def _on_climbing(self, source: Address, message: say.Climbing, now: float, effects: Effects) -> None:
        """First the order of what passed the child earlier, then the message itself."""
        self._passing_at = self._merge(message, now)
        self._handle_climbing(source, message, now, effects)

    def _on_summary(self, source: Address, message: say.Summary, now: float, effects: Effects) -> None:
        self._merge(message, now)

    def _on_summarise(self, source: Address, message: say.Summarise, now: float, effects: Effects) -> None:
        self._order_due = None
        if self._parent is not None and self.state.order.ranges:
            effects.send.append((self._parent, say.Summary(self._order.take())))

    def _on_begin_order(self, source: Address, message: say.BeginOrder, now: float, effects: Effects) -> None:
        self.state.order.begun = True

    def _on_order_kept(self, source: Address, message: OrderKept, now: float, effects: Effects) -> None:
        if self._parent is not None:
            return
        order = self.state.order
        if message.position < order.told:
            order.lost, self._order_ends, self._order_due = order.told, message.position, now
            return
        self._order_ends = None
        if message.position >= self.state.healing.hole:
            self.state.healing.hole = 0
        was_behind = len(order.ranges) > ORDERED_AT_ONCE
        self._order.forget_to(message.position)
        rests_until = now if was_behind else max(now, self._order_rests_until)
        self._order_due = rests_until if self.state.order.ranges else None
        self._report_healed(now, effects)

    def _on_order_found(self, source: Address, message: say.OrderFound, now: float, effects: Effects) -> None:
        """Continue behind an order log that has more than this process knows, so that no event is numbered a second
        time."""
        if self._parent is not None or message.position <= self.state.order.end:
            return
        self._order.resume_at(message.position)
        self._order_due = None
        for topic, last in sorted(message.lasts.items()):
            if self._is_home(topic) and last > (home := self._home(topic)).issued:
                home.issued = last
                self._passages.raise_to(topic, last)

    def _hand_on_order(self, now: float, effects: Effects) -> None:
        """A tick: if it is time, summarise for the parent, or write to the broker."""
        if self._order_due is None or now < self._order_due:
            return
        if self.parent_lags and len(self.state.order.ranges) < ORDERED_AT_ONCE:
            self._order_due = now + self.options.retry_ms
            return
        self._order_rests_until = now + self.options.order_ms
        if self._parent is not None:
            effects.add(self.step(self.node, say.Summarise(), now))
            return
        ranges = self._order.following(ORDERED_AT_ONCE)
        self._order_due = now + self.options.retry_ms
        effects.send.append((BROKER, Ordered(self.state.order.told, ranges, self.state.epoch, self.state.moving.since)))

    def _start_order(self, now: float, effects: Effects) -> None:
        """A process starts: hand on what waits. If this node kept no order until now, it does from here on.

        A root asks whether the log still has what it had kept: it may have been deleted meanwhile.
        """
        order = self.state.order
        self._order_due = now if order.ranges or (self._parent is None and order.told) else None
        if self.options.keeps_order_log and not self.state.order.begun:
            effects.add(self.step(self.node, say.BeginOrder(), now))

    def _explain_order(self) -> list[str]:
        order = self.state.order
        if self._parent is not None:
            return []
        if self._order_ends is not None:
            lost = f"{self._order_ends + 1}..{order.told}"
            return [
                f"order log: it has lost positions {lost} (deleted, expired or an older copy): waits for the broker"
            ]
        if not order.ranges:
            return []
        first, more = order.ranges[0], len(order.ranges) - 1
        others = f" and {more} more ranges" if more else ""
        return [
            f"order log {order.told + 1}..{order.end}: {first.topic} {first.first}..{first.last}{others}: "
            "waits for the broker"
        ]
