"""Which topics each subscriber holds, and which topics are therefore coupled.

Two topics are *coupled* when enough current subscriptions hold both: one for global order, two for pairwise order. A
node keeps the subscriptions that touch the topics homed on it and counts, for each of these topics, how many
subscriptions hold it together with each other topic. The counts change by what a subscription changes, not by its
size times the number of subscribers.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from seriatim.model import Address, Topic


class Holder(Struct, array_like=True, omit_defaults=True):
    """The latest subscription known of one subscriber. An empty set is kept, so that old news cannot revive it.

    `acquaintance` is another number when the subscriber becomes known again after it was forgotten. A `lasting` one is
    not to be forgotten for its silence.
    """

    version: int
    topics: frozenset[Topic]
    acquaintance: int
    heard_at: float = 0.0
    lasting: bool = False

    @property
    def lasts(self) -> bool:
        """Whether a silent subscriber is remembered. One that holds nothing is not."""
        return self.lasting and bool(self.topics)


class CouplingState(Struct, array_like=True):
    """Plain data of a CouplingTable."""

    holders: dict[Address, Holder] = field(default_factory=dict)
    together: dict[Topic, dict[Topic, int]] = field(default_factory=dict)
    forgotten: int = 0  # how often somebody was forgotten


class Shift(Struct, frozen=True):
    """One pair that became coupled, or stopped being so: `topic` is homed here."""

    topic: Topic
    other: Topic
    coupled: bool


class CouplingTable:
    """Subscriptions touching the topics for which `homed` holds, and the pairs they couple."""

    __slots__ = ("_homed", "state", "threshold")

    def __init__(self, state: CouplingState, homed: Callable[[Topic], bool], threshold: int) -> None:
        self.state = state
        self.threshold = threshold
        self._homed = homed

    def version(self, subscriber: Address) -> int:
        """Latest version known; 0 if the subscriber is unknown."""
        holder = self.state.holders.get(subscriber)
        return holder.version if holder is not None else 0

    def acquaintance(self, subscriber: Address) -> int:
        """A number that stays the same while the subscriber is known without a break; 0 if it is unknown."""
        holder = self.state.holders.get(subscriber)
        return holder.acquaintance if holder is not None else 0

    def topics(self, subscriber: Address) -> frozenset[Topic]:
        """What the subscriber holds, or is just joining; nothing if it is unknown."""
        holder = self.state.holders.get(subscriber)
        return holder.topics if holder is not None else frozenset()

    def group(self, topic: Topic) -> set[Topic]:
        """The topics coupled with a topic homed here."""
        counts = self.state.together.get(topic, {})
        return {other for other, count in counts.items() if count >= self.threshold}

    def apply(
        self, subscriber: Address, version: int, topics: frozenset[Topic], now: float, lasting: bool = False
    ) -> list[Shift]:
        """Apply a subscription. A newer version replaces the known one; an older one changes nothing."""
        holder = self.state.holders.get(subscriber)
        if holder is None:
            holder = self.state.holders[subscriber] = Holder(0, frozenset(), self.state.forgotten + 1)
        holder.heard_at = now
        if version <= holder.version:
            return []
        before, holder.topics = holder.topics, topics
        holder.version, holder.lasting = version, lasting
        return self._shift(before, topics)

    def forget(self, subscriber: Address) -> list[Shift]:
        """Forget a subscriber, as if it had left all its topics."""
        holder = self.state.holders.pop(subscriber, None)
        if holder is None:
            return []
        self.state.forgotten += 1
        return self._shift(holder.topics, frozenset())

    def holding(self, topic: Topic) -> dict[Address, Holder]:
        """Everybody known who holds a topic. Looks at all of them."""
        return {name: holder for name, holder in self.state.holders.items() if topic in holder.topics}

    def adopt(self, topic: Topic, handed: Mapping[Address, Holder], now: float) -> list[Shift]:
        """A topic moves here, and these hold it as its former home knew. To be called before it is homed here.

        Who is known here from a later subscription has left it meanwhile, or joined it, or other topics: then pairs of
        the topic become coupled or stop being so, against what its former home knew.
        """
        shifts: list[Shift] = []
        for name, holder in sorted(handed.items()):
            shifts += self.apply(name, holder.version, holder.topics, now, holder.lasting)
            self._count_each(topic, holder.topics, +1, [])
        nobody = Holder(0, frozenset(), 0)
        for name in sorted(handed.keys() | self.holding(topic).keys()):
            then, now_held = handed.get(name, nobody).topics, self.state.holders[name].topics
            now_held = now_held if topic in now_held else frozenset()
            self._count_each(topic, now_held - then, +1, shifts)
            self._count_each(topic, then - now_held, -1, shifts)
        return shifts

    def release(self, topic: Topic) -> list[Address]:
        """A topic has moved away. Forget, and return, those who hold nothing else that is homed here."""
        self.state.together.pop(topic, None)
        gone = [
            name for name, holder in sorted(self.holding(topic).items()) if not any(map(self._homed, holder.topics))
        ]
        for name in gone:
            del self.state.holders[name]
        self.state.forgotten += bool(gone)
        return gone

    def _count_each(self, topic: Topic, others: frozenset[Topic], by: int, shifts: list[Shift]) -> None:
        for other in sorted(others - {topic}):
            self._count(topic, other, by, shifts)

    def newly_coupled(self, threshold: int) -> list[Shift]:
        """The pairs that are coupled now and were not while `threshold` subscriptions were needed."""
        together = sorted(self.state.together.items())
        return [
            Shift(topic, other, True)
            for topic, counts in together
            for other, count in sorted(counts.items())
            if self.threshold <= count < threshold
        ]

    def _shift(self, before: frozenset[Topic], after: frozenset[Topic]) -> list[Shift]:
        shifts: list[Shift] = []
        gone, new, kept = sorted(before - after), sorted(after - before), sorted(after & before)
        for topic in filter(self._homed, gone):
            for other in before:
                if other != topic:
                    self._count(topic, other, -1, shifts)
        for topic in filter(self._homed, new):
            for other in after:
                if other != topic:
                    self._count(topic, other, +1, shifts)
        for topic in filter(self._homed, kept):
            for other in gone:
                self._count(topic, other, -1, shifts)
            for other in new:
                self._count(topic, other, +1, shifts)
        shifts.sort(key=lambda shift: (shift.topic, shift.other))
        return shifts

    def _count(self, topic: Topic, other: Topic, by: int, shifts: list[Shift]) -> None:
        counts = self.state.together.setdefault(topic, {})
        before = counts.get(other, 0)
        after = before + by
        if after:
            counts[other] = after
        else:
            del counts[other]
            if not counts:
                del self.state.together[topic]
        if (before >= self.threshold) != (after >= self.threshold):
            shifts.append(Shift(topic, other, after >= self.threshold))
