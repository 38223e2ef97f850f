"""Machines that are broken on purpose, one rule each: a checker that does not catch them is no checker.

Each variant replaces the one method (or table) that holds the rule. The names are what the rule is called
in the protocol's README, with `no-` in front.
"""

from dataclasses import replace
from typing import Any

import msgspec

from seriatim.explore.tree import PROPER, Cast
from seriatim.model import Address, Entries, InputError, Node, Number, Topic
from seriatim.order import HoldBack, Lane, Shift
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree import Publisher, Sequencer, Subscriber
from seriatim.protocols.tree.broker import Broker
from seriatim.protocols.tree.messages import Delivered, JoinId, Pass, Ticket, Write, Written
from seriatim.protocols.tree.state import Desk, Join, Range


class SkippingSequencer(Sequencer):
    """The home sends a request straight to the next node that has something to collect, as the paper does."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._handlers[Pass] = (self._on_pass, None)  # it comes from any node below

    def _next_stop(self, message: Pass) -> Node:
        if self.tree.home(message.topic) != self.node:
            return super()._next_stop(message)
        coupled = self._couplings.group(message.topic) | message.uncouple | message.once
        stops = {self.tree.meet(message.topic, other) for other in coupled} | {message.top}
        return next(node for node in self.tree.paths[self.node][1:] if node in stops)


class HastySequencer(Sequencer):
    """The cut does not wait until the other topics were announced."""

    def _await_announcements(self, join_id: JoinId, join: Join, now: float, effects: Effects) -> None:
        super()._await_announcements(join_id, join, now, effects)
        if join.unannounced:
            join.unannounced.clear()
            self._cut(join_id, join, now, effects)


class FloorlessSequencer(Sequencer):
    """A joining topic gets no floor."""

    def _floor(self, topic: Topic, members: frozenset[Topic]) -> Entries:
        return {}


class ForgetfulSequencer(Sequencer):
    """Nobody remembers what the subscriber has seen on topics that it left."""

    def _left_topics(self, join: Join) -> frozenset[Topic]:
        return frozenset()


class AbruptSequencer(Sequencer):
    """A topic that is uncoupled is not collected one last time."""

    def _collect(self, message: Pass) -> Entries:
        entries = super()._collect(message)
        return {topic: number for topic, number in entries.items() if topic not in message.uncouple}

    def _shift(self, shift: Shift) -> None:
        known = self.state.regroupings.get(shift.topic)
        was_new = not shift.coupled and known is not None and shift.other in known.couple
        super()._shift(shift)
        if was_new and known is not None:  # coupled and uncoupled between two events
            known.once.discard(shift.other)


class BaselessSequencer(Sequencer):
    """A topic that is newly coupled gives no base: only what rises from now on is collected."""

    def _collect(self, message: Pass) -> Entries:
        entries = super()._collect(message)
        return {topic: number for topic, number in entries.items() if topic not in message.couple}


class RepeatingSequencer(Sequencer):
    """A repeated request takes new numbers."""

    def _is_repeat(self, desk: Desk, ticket: Ticket) -> bool:
        return False


class EmptyVoidSequencer(Sequencer):
    """A void carries nothing."""

    def _void_entries(self, range_: Range, number: Number) -> Entries:
        return {}


class LooseSequencer(Sequencer):
    """Causal mode couples topics only if two subscriptions hold both."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._couplings.threshold = 2


class CarelessHoldBack(HoldBack):
    """A topic that is just being joined holds nothing back."""

    def _blocks(self, lane: Lane, needed: Number) -> bool:
        return lane.open and lane.done < needed


class CarelessSubscriber(Subscriber):
    holdback_type = CarelessHoldBack


class ExactHoldBack(HoldBack):
    """Equality, as the paper prints it: what is done must be exactly what the stamp names."""

    def _blocks(self, lane: Lane, needed: Number) -> bool:
        return not lane.open or lane.done != needed


class ExactSubscriber(Subscriber):
    holdback_type = ExactHoldBack


class HurriedPublisher(Publisher):
    """Does not wait for its own events on other topics."""

    def __init__(self, tree: Any, name: Any, options: Any, state: Any = None) -> None:
        super().__init__(tree, name, msgspec.structs.replace(options, causal=False), state)


class OverwritingBroker(Broker):
    """The last one to write a slot wins."""

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = super().step(source, message, now)
        if type(message) is not Write:
            return effects
        topic = self.state.topics[message.topic]
        slot = next(slot for slot in topic.slots if slot.number == message.number)
        if slot.event != message.event:
            slot.entries, slot.event, slot.proof = message.entries, message.event, message.proof
            delivered = Delivered(message.topic, message.number, message.entries, message.event, message.proof)
            effects.send = [(listener, delivered) for listener in topic.listeners]
            winner = None if message.event is None else message.event.id
            effects.send.append((source, Written(message.topic, message.number, winner, message.proof)))
        return effects


VARIANTS: dict[str, tuple[str, Cast]] = {
    "no-hop-by-hop": ("a request skips nodes", replace(PROPER, sequencer=SkippingSequencer)),
    "no-two-phase-start": ("the cut does not wait for announcements", replace(PROPER, sequencer=HastySequencer)),
    "no-holding": ("events do not wait for a topic being joined", replace(PROPER, subscriber=CarelessSubscriber)),
    "no-floor": ("a joining topic gets no floor", replace(PROPER, sequencer=FloorlessSequencer)),
    "no-left-topics": ("topics left in the past are forgotten", replace(PROPER, sequencer=ForgetfulSequencer)),
    "no-closing": ("an uncoupled topic is not collected once more", replace(PROPER, sequencer=AbruptSequencer)),
    "no-base": ("a newly coupled topic gives no base", replace(PROPER, sequencer=BaselessSequencer)),
    "no-at-least": ("an event waits for equality", replace(PROPER, subscriber=ExactSubscriber)),
    "no-idempotence": ("a repeated ticket takes new numbers", replace(PROPER, sequencer=RepeatingSequencer)),
    "no-void-stamp": ("a void carries no entries", replace(PROPER, sequencer=EmptyVoidSequencer)),
    "no-write-once": ("the last writer of a slot wins", replace(PROPER, broker=OverwritingBroker)),
    "no-fencing": ("a replaced process may still write the journal", replace(PROPER, fenced=False)),
    "no-causal-coupling": ("causal mode couples as total order does", replace(PROPER, sequencer=LooseSequencer)),
    "no-causal-publisher": ("a publisher does not wait for itself", replace(PROPER, publisher=HurriedPublisher)),
}


def cast_of(variant: str | None) -> Cast:
    """The cast of this variant; without a name, the proper one."""
    if variant is None:
        return PROPER
    if variant not in VARIANTS:
        raise InputError("variant", f"there is none called {variant!r}", f"use one of {', '.join(VARIANTS)}")
    return VARIANTS[variant][1]
