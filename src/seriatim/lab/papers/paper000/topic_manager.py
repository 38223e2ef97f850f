"""The topic manager of paper 000: one stage of the multistage sequencer (Figs. 15, 16(b), 18(b), 19(b)).

A manager numbers the events of its topic and remembers, for the topics below it in its sequencing group, the highest
number that came past. A request visits only the managers of the sequencing group it started with; this is what lets
two requests overtake each other (README, hole 1).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from seriatim.lab.papers.paper000 import messages as say
from seriatim.lab.papers.paper000.ranks import Ranks, manager_of
from seriatim.model import Address, Entries, Number, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload


class TopicManagerState(Struct):
    clock: Number  # LC: events and subscriptions counted so far
    lower_clocks: Entries  # LLC: the highest number seen of each lower topic
    subscriptions: dict[Address, tuple[Topic, ...]]  # externalSubs
    group: tuple[Topic, ...]  # SG, highest rank first; always contains the manager's own topic


class TopicManager:
    """`subscriptions` are those that exist from the start; they take no numbers."""

    def __init__(
        self, topic: Topic, ranks: Ranks, subscriptions: Mapping[Address, Iterable[Topic]] | None = None
    ) -> None:
        ranks.check(topic)
        self.topic = topic
        self.ranks = ranks
        given = {name: tuple(ranks.ordered(topics)) for name, topics in (subscriptions or {}).items()}
        self.state = TopicManagerState(0, {}, {name: held for name, held in given.items() if topic in held}, ())
        self._update_group()
        self.state.lower_clocks = {other: 0 for other in self.state.group if ranks.precedes(topic, other)}

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case say.CreateTimestamp(event_id, publisher, topic) if topic == self.topic:
                self._forward_event(self._create(), event_id, publisher, effects)
            case say.FillInTimestamp(timestamp, event_id, publisher):
                self._forward_event(self._fill_in(timestamp), event_id, publisher, effects)
            case say.FillInSubscription(timestamp, topics, subscriber):
                self._subscribe(timestamp, topics, subscriber, effects)
            case say.UpdateSubscription(subscriber, topics):
                self._update(subscriber, topics)
            case _:
                raise RemoteError(f"{source} sent {manager_of(self.topic)} what it does not understand: {message!r}")
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()

    def _create(self) -> Entries:
        """Fig. 16(b), lines 02-07: a new timestamp with our next number and what we know of lower topics."""
        state = self.state
        state.clock += 1
        timestamp = {other: state.lower_clocks.get(other, 0) for other in state.group}
        timestamp[self.topic] = state.clock
        return timestamp

    def _fill_in(self, timestamp: Entries) -> Entries:
        """Fig. 16(b), lines 15-18: learn the lower topics' numbers, add our own without counting."""
        for other, number in timestamp.items():
            if self.ranks.precedes(self.topic, other):
                self._raise_lower(other, number)
        return timestamp | {self.topic: self.state.clock}

    def _forward_event(self, timestamp: Entries, event_id: str, publisher: Address, effects: Effects) -> None:
        following = self.ranks.next(timestamp, self.topic)
        if following is None:
            effects.send.append((publisher, say.EventTimestamp(timestamp, event_id)))
        else:
            effects.send.append((manager_of(following), say.FillInTimestamp(timestamp, event_id, publisher)))

    def _subscribe(self, timestamp: Entries, topics: tuple[Topic, ...], subscriber: Address, effects: Effects) -> None:
        """Fig. 18(b): take the subscription into the table; it counts like an event."""
        state = self.state
        state.subscriptions[subscriber] = topics
        self._update_group()
        for other, number in timestamp.items():
            if self.ranks.precedes(self.topic, other) and other in state.group:
                self._raise_lower(other, number)
        state.clock += 1
        timestamp = timestamp | {self.topic: state.clock}
        following = self.ranks.next(timestamp, self.topic)
        if following is None:
            effects.send.append((subscriber, say.CompletedSubscription(timestamp, topics)))
        else:
            effects.send.append((manager_of(following), say.FillInSubscription(timestamp, topics, subscriber)))

    def _update(self, subscriber: Address, topics: tuple[Topic, ...]) -> None:
        """Fig. 19(b): a subscription shrank; what left the group is forgotten at once."""
        if topics:
            self.state.subscriptions[subscriber] = topics
        else:
            self.state.subscriptions.pop(subscriber, None)
        self._update_group()
        for other in [other for other in self.state.lower_clocks if other not in self.state.group]:
            del self.state.lower_clocks[other]

    def _raise_lower(self, other: Topic, number: Number) -> None:
        self.state.lower_clocks[other] = max(number, self.state.lower_clocks.get(other, 0))

    def _update_group(self) -> None:
        """Fig. 15: our topic, and every topic that at least two subscriptions hold together with it."""
        holders = Counter(topic for topics in self.state.subscriptions.values() for topic in topics)
        shared = {topic for topic, count in holders.items() if count >= 2}
        self.state.group = tuple(self.ranks.ordered(shared | {self.topic}))
