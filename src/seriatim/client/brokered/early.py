"""The events that the application of one bus was given early: later publications of the bus come after them.

A subscription on a tree of several nodes may be notified of an event before its stamp is finished. Once the application
has the event, whatever it publishes on this bus may be a reaction, so it waits until that stamp is finished
(protocols/tree/reacting.py). An event that the application has not taken yet cannot be reacted to. A subscription that
was closed meanwhile makes no difference.
"""

from collections import deque
from collections.abc import Callable, Mapping

from seriatim.client.inbox import Inbox
from seriatim.model import Number, Topic
from seriatim.protocols.with_broker import StampedTo

UNREAD_MAX = 4_096  # early events in one inbox that are distinguished from those that were read


class Early:
    """One bus, with all its subscriptions."""

    def __init__(self) -> None:
        self.on_final: Callable[[StampedTo], None] | None = None  # the publisher, if it wants to know
        self._given: dict[Topic, Number] = {}  # of each topic the last number that was given early and is not final
        self._finals: dict[Topic, Number] = {}
        self._unread: list[UnreadEarly] = []

    def add(self, inbox: Inbox, given: Mapping[Topic, Number]) -> "UnreadEarly":
        """One more subscription; `given`: by an earlier process, as far as it is not known to be final."""
        for topic, number in given.items():
            self.give(topic, number)
        unread = UnreadEarly(self, inbox)
        self._unread.append(unread)
        return unread

    def remove(self, unread: "UnreadEarly") -> None:
        """Forget a subscription: what it has read is given to the application now, and nothing later."""
        if unread in self._unread:
            unread.give_what_was_read()
            self._unread.remove(unread)

    def behind(self) -> dict[Topic, Number]:
        """Events that the bus publishes now come after these numbers."""
        for unread in self._unread:
            unread.give_what_was_read()
        return dict(self._given)

    def give(self, topic: Topic, number: Number) -> None:
        if number > self._finals.get(topic, 0):
            self._given[topic] = max(number, self._given.get(topic, 0))

    def final(self, message: StampedTo) -> None:
        """The stamps up to here are finished."""
        topic, last = message.topic, message.last
        self._finals[topic] = max(last, self._finals.get(topic, 0))
        if self._given.get(topic, last + 1) <= last:
            del self._given[topic]
        if self.on_final is not None:
            self.on_final(message)


class UnreadEarly:
    """The early events of one inbox, until the application has taken them."""

    def __init__(self, early: Early, inbox: Inbox) -> None:
        self._early = early
        self._inbox = inbox
        self._notices: deque[tuple[int, Topic, Number]] = deque()  # with their places in the inbox

    def put(self, topic: Topic, number: Number) -> None:
        """Called before it is put into the inbox. If very many wait, the oldest count as taken."""
        self._notices.append((self._inbox.count, topic, number))
        if len(self._notices) > UNREAD_MAX:
            self._early.give(*self._notices.popleft()[1:])

    def give_what_was_read(self) -> None:
        notices, reached = self._notices, self._inbox.reached
        while notices and notices[0][0] < reached:
            self._early.give(*notices.popleft()[1:])
