"""The subscriber of paper 000: notify, subscribe, unsubscribe (Figs. 17, 18(a), 19(a)), as printed.

Equality in `isNext`, the condition on dummies, and the clock that is replaced when a subscription completes are the
paper's; README says what goes wrong with each. Lines of the figures are given where the code follows them.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from seriatim.lab.papers.paper000 import messages as say
from seriatim.lab.papers.paper000.ranks import Ranks, manager_of
from seriatim.model import (
    APPLICATION,
    BROKER,
    Address,
    Entries,
    Event,
    InputError,
    Notification,
    Number,
    RemoteError,
    Topic,
)
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube.messages import Subscribe, Subscribed, Unsubscribe

NOT_BEGUN: Number = -1  # the clock has no pair for a topic whose subscription is not complete


class Held(Struct, frozen=True):
    """Why something stays in the buffer: `waits_for` must be exactly at `wanted`, and is at `reached`.

    With `reached` > `wanted` it will stay forever: the clock does not run backwards.
    """

    event: Event | None  # None: a dummy
    topic: Topic
    number: Number
    waits_for: Topic
    wanted: Number
    reached: Number


class SubscriberState(Struct):
    topics: tuple[Topic, ...]  # subs
    clock: Entries  # sub_LC: the number reached in each topic held
    buffer: list[say.EnsNotify] = field(default_factory=list)  # to_deliver
    opening: Topic | None = None  # the subscribe operation under way
    waiting: list[Subscribe | Unsubscribe] = field(default_factory=list)  # operations called meanwhile


class Subscriber:
    """`topics` are held from the start, with all clocks at zero. Operations are carried out one at a time."""

    def __init__(self, name: Address, ranks: Ranks, topics: Iterable[Topic] = ()) -> None:
        held = set(topics)
        for topic in held:
            ranks.check(topic)
        self.name = name
        self.ranks = ranks
        self.state = SubscriberState(tuple(ranks.ordered(held)), dict.fromkeys(ranks.ordered(held), 0))

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Subscribe() | Unsubscribe() if source == APPLICATION:
                self._check(message)
                self.state.waiting.append(message)
            case say.EnsSubscribed(topic) if topic == self.state.opening:
                self._ask_for_clock(topic, effects)
            case say.CompletedSubscription(timestamp) if self.state.opening is not None:
                self._complete(timestamp, effects)
            case say.EnsNotify(topic, event):
                if event is None and self._dummy_fits(message):  # lines 01-05
                    self._update_clock(message)
                elif event is None or topic in self.state.topics:  # lines 06 and 09-17: `_flush` looks at once
                    self.state.buffer.append(message)
            case _:
                raise RemoteError(f"{source} sent subscriber {self.name} what it does not understand: {message!r}")
        self._next_operation(effects)
        self._flush(effects)
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()

    def explain(self) -> list[Held]:
        """What is buffered, and the first entry of its timestamp that does not fit the clock."""
        return [self._explain(notice) for notice in self.state.buffer]

    # ── notify, Fig. 17 ───────────────────────────────────────────────────────────────────────────────────────────

    def _flush(self, effects: Effects) -> None:
        """Lines 10-16 and 20-26: take from the buffer what is next until nothing is. A dummy is never notified."""
        buffer = self.state.buffer
        while (notice := next((notice for notice in buffer if self._mismatch(notice) is None), None)) is not None:
            buffer.remove(notice)
            if notice.event is not None:
                number = notice.timestamp[notice.topic]
                effects.notify.append(Notification(notice.event, number, notice.timestamp))
            self._update_clock(notice)

    def _update_clock(self, notice: say.EnsNotify) -> None:
        """updateSubLC: the larger number wins, for every topic of the clock that the timestamp mentions."""
        clock = self.state.clock
        for topic in clock:
            clock[topic] = max(clock[topic], notice.timestamp.get(topic, 0))

    def _dummy_fits(self, notice: say.EnsNotify) -> bool:
        """Line 02. It asks about all topics of the clock but the dummy's own, also those the dummy does not mention."""
        return all(
            notice.timestamp.get(topic) == reached + 1
            for topic, reached in self.state.clock.items()
            if topic != notice.topic
        )

    def _mismatch(self, notice: say.EnsNotify) -> tuple[Topic, Number, Number] | None:
        """isNext, with its reason: a topic, the number it must be at and the number it is at; None if all are equal."""
        clock, timestamp = self.state.clock, notice.timestamp
        own = notice.topic
        if clock.get(own) != timestamp[own] - 1:
            return own, timestamp[own] - 1, clock.get(own, NOT_BEGUN)
        for topic, wanted in timestamp.items():
            if topic in clock and topic != own and clock[topic] != wanted:
                return topic, wanted, clock[topic]
        return None

    def _explain(self, notice: say.EnsNotify) -> Held:
        mismatch = self._mismatch(notice)
        assert mismatch is not None, "what is next does not stay in the buffer"
        return Held(notice.event, notice.topic, notice.timestamp[notice.topic], *mismatch)

    # ── subscribe, Fig. 18(a), and unsubscribe, Fig. 19(a) ────────────────────────────────────────────────────────

    def _check(self, command: Subscribe | Unsubscribe) -> None:
        self.ranks.check(command.topic)
        will_hold = command.topic in self.state.topics or command.topic == self.state.opening
        for earlier in self.state.waiting:
            if earlier.topic == command.topic:
                will_hold = isinstance(earlier, Subscribe)
        if will_hold and isinstance(command, Subscribe):
            raise InputError("topic", f"{self.name} already holds {command.topic!r}", "subscribe to it once")
        if not will_hold and isinstance(command, Unsubscribe):
            raise InputError("topic", f"{self.name} does not hold {command.topic!r}", "unsubscribe from a held topic")

    def _next_operation(self, effects: Effects) -> None:
        while self.state.waiting and self.state.opening is None:
            match self.state.waiting.pop(0):
                case Subscribe(topic):
                    self.state.opening = topic
                    effects.send.append((BROKER, say.EnsSubscribe(topic)))
                case Unsubscribe(topic):
                    self._leave(topic, effects)

    def _ask_for_clock(self, topic: Topic, effects: Effects) -> None:
        """Fig. 18(a), lines 03-07: from here events of the topic are buffered."""
        topics = tuple(self.ranks.ordered({*self.state.topics, topic}))
        self.state.topics = topics
        lowest = manager_of(topics[-1])
        effects.send.append((lowest, say.FillInSubscription(dict.fromkeys(topics, 0), topics, self.name)))

    def _complete(self, timestamp: Entries, effects: Effects) -> None:
        """Fig. 18(a), lines 09-12. The whole clock is replaced, not only the new topic's entry."""
        state = self.state
        topic, state.opening = state.opening, None
        assert topic is not None
        state.clock = dict(timestamp)
        state.buffer = [
            notice for notice in state.buffer if notice.topic != topic or notice.timestamp[topic] > timestamp[topic]
        ]
        for held in state.topics:
            effects.send.append((BROKER, say.EnsPublish(held, None, timestamp)))
        effects.notify.append(Subscribed(topic))

    def _leave(self, topic: Topic, effects: Effects) -> None:
        """Fig. 19(a). The clock keeps a pair for each topic held, so the left one's pair goes."""
        state = self.state
        state.topics = tuple(other for other in state.topics if other != topic)
        state.clock.pop(topic, None)
        for held in state.topics:
            effects.send.append((manager_of(held), say.UpdateSubscription(self.name, state.topics)))
        effects.send.append((manager_of(topic), say.UpdateSubscription(self.name, ())))
        effects.send.append((BROKER, say.EnsUnsubscribe(topic)))
