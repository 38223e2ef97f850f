"""Machines that are broken on purpose, one rule each: a checker that does not catch them proves nothing.

Each variant replaces the one method (or table) that holds the rule. The names are what the rule is called
in the protocol's README, with `no-` in front.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from seriatim.lab.explore.engine.plan import broken, cast_with, gives
from seriatim.lab.explore.tree.cast import PROPER, Cast
from seriatim.lab.explore.tree.healing_variants import HEALING
from seriatim.model import Address, Entries, Node, Number, Topic
from seriatim.order import HoldBack, OrderedRange, ShapeChange, Shift, level
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree import Publisher, Sequencer, SequencerNode, Subscriber
from seriatim.protocols.tree.estate import Estate, Regrouping
from seriatim.protocols.tree.messages import JoinId, Pass, Reign, Subscribe, Switch, Vouch
from seriatim.protocols.tree.placing import Placing
from seriatim.protocols.tree.reacting import Reactions
from seriatim.protocols.tree.state import Join, MoveUnderWay, Switching
from seriatim.protocols.with_broker import Delivered, OrderKept, Write, Written

VARIANTS: dict[str, tuple[str, Cast]] = {}


def breaks(name: str, text: str, role: str = "sequencer", **methods: Callable[..., Any]) -> None:
    """The machine of this role, with these methods in place of its own."""
    VARIANTS[name] = text, cast_with(PROPER, role, **methods)


def holds_back(name: str, text: str, blocks: Callable[..., bool]) -> None:
    """A subscriber whose events wait for other things."""
    VARIANTS[name] = (
        text,
        Cast(subscriber=type("Broken", (Subscriber,), {"holdback_type": broken(HoldBack, _blocks=blocks)})),
    )


class SkippingSequencer(Sequencer):
    """The home sends a request straight to the next node that has something to collect, as the paper does."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._handlers[Pass] = (self._on_climbing, None)  # it comes from any node below

    def _next_stop(self, message: Pass) -> Node:
        if self.tree.home(message.topic) != self.node:
            return super()._next_stop(message)
        coupled = self._couplings.group(message.topic) | message.uncouple | message.once
        stops = {self.tree.meet(message.topic, other) for other in coupled} | {message.top}
        return next(node for node in self.tree.paths[self.node][1:] if node in stops)


def cut_at_once(self: Sequencer, join_id: JoinId, join: Join, now: float, effects: Effects) -> None:
    Sequencer._await_announcements(self, join_id, join, now, effects)
    if join.unannounced:
        join.unannounced.clear()
        self._cut(join_id, join, now, effects)


def without_uncoupled(self: Sequencer, message: Pass) -> Entries:
    entries = Sequencer._collect(self, message)
    return {topic: number for topic, number in entries.items() if topic not in message.uncouple}


def without_once(self: Sequencer, shift: Shift) -> None:
    known = self.state.regroupings.get(shift.topic)
    was_new = not shift.coupled and known is not None and shift.other in known.couple
    Sequencer._shift(self, shift)
    if was_new and known is not None:  # coupled and uncoupled between two events
        known.once.discard(shift.other)


def collect_without_base(self: Sequencer, message: Pass) -> Entries:
    """Collect only what rises from now on."""
    entries = Sequencer._collect(self, message)
    return {topic: number for topic, number in entries.items() if topic not in message.couple}


def couple_by_two(self: Sequencer, *args: Any, **named: Any) -> None:
    Sequencer.__init__(self, *args, **named)
    self._couplings.threshold = 2


def join_as_if_new(self: Sequencer, source: Address, message: Subscribe, now: float, effects: Effects) -> None:
    Sequencer._on_subscribe(self, source, structs.replace(message, left=frozenset()), now, effects)


def publish_at_once(self: Publisher, tree: Any, name: Any, options: Any, state: Any = None) -> None:
    """Publish without waiting for the publisher's own events on other topics."""
    Publisher.__init__(self, tree, name, structs.replace(options, own_order=False), state)


def overwrite(self: Broker, source: Address, message: Payload, now: float) -> Effects:
    effects = Broker.step(self, source, message, now)
    if type(message) is not Write:
        return effects
    topic = self.state.topics[message.topic]
    slot = next(slot for slot in topic.slots if slot.number == message.number)
    if slot.event != message.event:
        slot.entries, slot.event, slot.proof = message.entries, message.event, message.proof
        slot.position = message.position
        delivered = Delivered(
            message.topic, message.number, message.entries, message.event, message.proof, message.position
        )
        effects.send = [(listener, delivered) for listener in topic.listeners]
        winner = None if message.event is None else message.event.id
        effects.send.append((source, Written(message.topic, message.number, winner, message.proof)))
    return effects


def level_of_begun(self: Subscriber, home: Node) -> Node:
    """Compute the level without topics that are just being joined."""
    return level(self.tree, home, [topic for topic, lane in self.state.lanes.items() if lane.open])


def handle_then_merge(self: Sequencer, source: Address, message: Any, now: float, effects: Effects) -> None:
    """The child's order counts only after its message was handled: what is issued meanwhile goes before it."""
    own = structs.replace(message, order=()) if message.order is not None else message
    Sequencer._on_climbing(self, source, own, now, effects)
    if message.order:
        self._order.merge(message.order)
        self._order_due = now


def carry_nothing(self: Sequencer, first: Number | None = None) -> tuple[OrderedRange, ...] | None:
    """Carry only the range of the pass itself; everything else waits for a summary."""
    order = self.state.order
    if not order.begun:
        return None
    if first is not None:
        order.ranges[:] = self._order.take_before(first)
    return ()


def keep_what_rises(self: Sequencer, source: Address, message: OrderKept, now: float, effects: Effects) -> None:
    """A log that ends earlier than it did is not believed."""
    if message.position >= self.state.order.told:
        Sequencer._on_order_kept(self, source, message, now, effects)


def summarise_in_a_tick(self: Sequencer, now: float, effects: Effects) -> None:
    """Hand on the order without a record of that decision."""
    before = len(effects.persist)
    Sequencer._hand_on_order(self, now, effects)
    del effects.persist[before:]


def ask_nobody(self: SequencerNode, patience_ms: float | None, *, with_broker: bool) -> None:
    """Act at once, without asking neighbours or the broker."""


def hand_over(**without: Callable[[], Any]) -> Callable[..., Estate]:
    """A former home that leaves out a part of what it knows."""

    def estate(self: Sequencer, topic: Topic, now: float) -> Estate:
        return structs.replace(Sequencer._estate(self, topic, now), **{name: new() for name, new in without.items()})

    return estate


def wait_if_arriving(self: Sequencer, source: Address, message: Any, topic: Topic) -> bool:
    """Whoever asks the former home is answered until the switch, as if nothing were under way."""
    if topic in self.state.moving.leaving:
        return False
    return Sequencer._must_wait(self, source, message, topic)


def vouch_in_vain(self: Sequencer, source: Address, message: Vouch, now: float, effects: Effects) -> None:
    """Let a count climb without any node taking note of it."""
    Sequencer._on_vouch(self, source, structs.replace(message, number=0), now, effects)


def switch_silently(self: Sequencer, message: Switch, now: float, effects: Effects) -> dict[Topic, Number]:
    """Switch without telling the counts of topics that meet the moved one elsewhere now."""
    Sequencer._switch(self, message, now, effects)
    return {}


def meet_now(self: Sequencer, topic: Topic, others: Iterable[Topic], moves: int) -> list[Topic]:
    """Where topics meet by the map of the node, whatever the home knew."""
    return Sequencer._meeting_here(self, topic, others, self.tree.moves.number)


def go_on_after_a_change_of_shape(self: Sequencer, switching: Switching) -> bool:
    return switching.move == self.tree.shaped or Sequencer._may_go_on(self, switching)


def crown_at_once(self: Sequencer, move: MoveUnderWay, now: float, effects: Effects) -> None:
    """Crown the new root without telling the broker."""
    self._crown(move, now, effects)


def reign_with(**other: Any) -> Callable[..., Reign]:
    """An old root that hands over something else than it should."""

    def reign(self: Sequencer, change: ShapeChange) -> Reign:
        return structs.replace(Sequencer._reign(self, change), **other)

    return reign


def hand_over_and_keep(self: Sequencer, change: ShapeChange) -> Reign:
    """The old root hands over the order, and goes on to tell of it."""
    kept, told = list(self.state.order.ranges), self.state.order.told
    reign = Sequencer._reign(self, change)
    self.state.order.ranges[:], self.state.order.told = kept, told
    return reign


def take_from_nobody(self: SequencerNode, source: Address, frame: Any, now: float) -> Effects:
    """What comes on a link that it does not know of is not heard."""
    return self._idle_or_asking()


VARIANTS["no-hop-by-hop"] = "a request skips nodes", Cast(sequencer=SkippingSequencer)
breaks("no-two-phase-start", "the cut does not wait for announcements", _await_announcements=cut_at_once)
holds_back(
    "no-holding",
    "events do not wait for a topic being joined",
    lambda self, lane, needed: lane.open and lane.done < needed,
)
breaks("no-floor", "a joining topic gets no floor", _floor=gives({}))
breaks("no-left-topics", "topics left in the past are forgotten", _left_topics=gives(frozenset()))
breaks("no-closing", "an uncoupled topic is not collected once more", _collect=without_uncoupled, _shift=without_once)
breaks("no-base", "a newly coupled topic gives no base", _collect=collect_without_base)
holds_back(  # as the paper prints it
    "no-at-least", "an event waits for equality", lambda self, lane, needed: not lane.open or lane.done != needed
)
breaks("no-idempotence", "a repeated ticket takes new numbers", _is_repeat=gives(False))
breaks("no-void-stamp", "a void carries no entries", _void_entries=gives({}))
breaks("no-write-once", "the last writer of a slot wins", "broker", step=overwrite)
VARIANTS["no-fencing"] = "a replaced process may still write the journal", Cast(fenced=False)
breaks("no-global-coupling", "topics that one subscription holds are not coupled", __init__=couple_by_two)
breaks("no-left-announcement", "topics left in the past are not announced", _on_subscribe=join_as_if_new)
VARIANTS["no-placed"] = (
    "an event counts as placed when it is stored",
    Cast(publisher=type("Broken", (Publisher,), {"placing_type": broken(Placing, _has_place=gives(True))})),
)
breaks("no-own-order", "a publisher does not wait for itself", "publisher", __init__=publish_at_once)
VARIANTS["no-journal-before-telling"] = "a stage is told before the journal has the pass", Cast(tells_first=True)
breaks("no-level", "a subscriber waits for no meeting node", "subscriber", _level=lambda self, home: home)
breaks("no-joining-level", "a topic being joined does not count", "subscriber", _level=level_of_begun)
VARIANTS["no-waiting-reaction"] = (
    "a reaction does not wait until its cause is final",
    Cast(publisher=type("Broken", (Publisher,), {"reactions_type": broken(Reactions, _causes=gives([]))})),
)
breaks("no-order-first", "a node handles a message before it merges the child's order", _on_climbing=handle_then_merge)
breaks("no-order-carried", "what climbs carries no order, only summaries do", _carried=carry_nothing)
breaks("no-order-journal", "a summary is sent without a record of it", _hand_on_order=summarise_in_a_tick)
breaks(
    "no-cover",
    "who reads the past goes live before the order log covers its starts",
    "subscriber",
    _is_covered=gives(True),
)
breaks(
    "no-lost-told",
    "who reads the past is not told what a cut order log lacks",
    "subscriber",
    _tell_lost=gives(True),
)
breaks(
    "no-stop-in-past",
    "who must not lose anything goes on behind a gap of the past",
    "subscriber",
    _stops_at=gives(False),
)
breaks("no-lost-noticed", "the root does not go on behind a cut order log", _on_order_kept=keep_what_rises)
breaks("no-stamp-comparison", "who comes back is not told what it has stamped", "node", compare_broker=gives(None))
breaks("no-link-comparison", "who comes back is not told what it has sent", "node", _compare_link=gives(None))
breaks("no-confirmation", "who comes back asks nobody", "node", confirm=ask_nobody)
breaks("no-stamp-fence", "stamps of a life that was replaced are kept", "broker", _is_refused=gives(False))
breaks(
    "no-history-journal",
    "a durable subscriber forgets how far it has read the past",
    "subscriber",
    _resume_past=gives(None),
)
breaks("no-quiesce", "the former home goes on until the switch", _must_wait=wait_if_arriving, _rests=gives(False))
breaks("no-quiet", "the former home does not wait until its ranges are finished", _is_quiet=gives(True))
breaks("no-count-handed-over", "the new home begins again with number 1", _estate=hand_over(issued=int))
breaks("no-table-handed-over", "the new home does not know who holds the topic", _estate=hand_over(holders=dict))
breaks("no-closing-handed-over", "the new home names no topic a last time", _estate=hand_over(regrouping=Regrouping))
breaks("no-requests-handed-over", "the new home does not know who asked before", _estate=hand_over(desks=dict))
breaks("no-ranges-handed-over", "the new home does not know which numbers are open", _estate=hand_over(ranges=list))
breaks("no-announced-count", "nodes are not told the count of a topic that moves", _on_vouch=vouch_in_vain)
breaks("no-switch-awaited", "the new home goes on before all nodes know where the topic lives", _may_go_on=gives(True))
breaks("no-related-counts", "nodes do not tell the counts of what meets the topic elsewhere", _switch=switch_silently)
breaks("no-recollecting", "other topics do not collect it where it meets them now", _recollect=gives(None))
breaks("no-map-of-the-home", "what climbs is taken by the map of the node, not of its home", _meeting_here=meet_now)
breaks("no-map-of-a-stage", "a stage is enough by any map", "subscriber", _is_map_of=gives(True))
breaks(
    "no-shape-awaited",
    "the next step begins before all nodes know the new shape",
    _may_go_on=go_on_after_a_change_of_shape,
)
breaks("no-empty-leaf", "a leaf leaves while topics live there", _topics_of=gives([]))
breaks("no-last-word", "the last answer of a leaf that leaves is not waited for", _leaver=gives(set()))
breaks("no-order-handed-over", "a new root begins the order again", _reign=reign_with(end=0, told=0, order=()))
breaks("no-rest-handed-over", "what the old root has not written is not handed over", _reign=reign_with(order=()))
breaks("no-end-of-reign", "the old root tells again what it has handed over", _reign=hand_over_and_keep)
breaks("no-cession", "the broker is not told of a new root before it reigns", _cede=crown_at_once)
VARIANTS["no-order-fence"] = (
    "the broker takes the order of earlier roots, and they do not look whether there is another one",
    Cast(node=broken(SequencerNode, _since=gives((0, 1_000))), broker=broken(Broker, _is_deposed=gives(False))),
)
breaks(
    "no-strangers",
    "who is sent something on a link it does not know of goes on",
    "node",
    _take_from_stranger=take_from_nobody,
)
breaks(
    "no-epoch-with-welcome",
    "a node records its epoch before anybody says whether it was welcomed already",
    "node",
    _epoch_must_wait=gives(False),
)
breaks("no-shape-told", "clients are told where a topic lives, not that the node is new", _shape_told=gives(()))
VARIANTS["no-asking-around"] = (
    "a client asks nobody else if a home does not answer",
    Cast(
        subscriber=broken(Subscriber, _seek=gives(None)),
        publisher=broken(Publisher, _seek=gives(None)),
    ),
)

VARIANTS |= HEALING
