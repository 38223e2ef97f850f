"""What the subscriptions of one bus were notified of early: what the bus publishes comes behind it.

A subscription on a tree of several nodes may be notified of an event before its stamp is finished. Whatever the
application publishes on this bus from then on may be a reaction, so it waits until that stamp is finished
(protocols/tree/reacting.py). A subscription that was closed meanwhile makes no difference.
"""

from collections.abc import Callable, Mapping

from seriatim.model import Number, Topic
from seriatim.protocols.with_broker import StampedTo


class Early:
    """One bus. `numbers`: of each topic the last event that a subscription here was notified of early."""

    def __init__(self) -> None:
        self.numbers: dict[Topic, Number] = {}
        self.on_final: Callable[[StampedTo], None] | None = None  # the publisher, if it wants to know

    def notified(self, early: Mapping[Topic, Number]) -> None:
        for topic, number in early.items():
            self.numbers[topic] = max(number, self.numbers.get(topic, 0))

    def final(self, message: StampedTo) -> None:
        """The stamps up to here are finished."""
        if self.numbers.get(message.topic, message.last + 1) <= message.last:
            del self.numbers[message.topic]
        if self.on_final is not None:
            self.on_final(message)
