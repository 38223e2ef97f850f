"""The hold-back queue of a subscriber: an event waits until everything its stamp names is done.

Each held event waits for exactly one thing at a time, `(topic, number)`, and is found by it: when that number is done
the event looks at its next condition. So the cost of releasing depends only on the released events, never on a scan of
the held ones. An event's first condition is its predecessor in its own topic; the others are the entries of its stamp,
for topics that this subscriber holds.

A *lane* is one topic the subscriber holds. A lane that is not open yet (its start is not known, the subscriber is just
joining it) blocks everything that names it.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from seriatim.model import Entries, Event, Number, Position, Topic


class Held(Struct):
    """An event, or (no `event`) a stretch of voids up to number `last`, that waits.

    `conditions` are those not yet looked at or not yet met.
    """

    event: Event | None
    entries: Entries
    since: float
    conditions: list[tuple[Topic, Number]]
    waits_for: tuple[Topic, Number] = ("", 0)
    last: Number = 0
    position: Position = 0


class Lane(Struct):
    """One topic: the first `done` events of it are notified, void, skipped or from before our start."""

    open: bool = False
    done: Number = 0
    held: dict[Number, Held] = field(default_factory=dict)


class Released(Struct, frozen=True):
    """`topic` is done up to `number`: an event to notify, voids, or (no `held`) skipped numbers."""

    topic: Topic
    number: Number
    held: Held | None
    skipped_from: Number = 0


class HoldBack:
    """All lanes of one subscriber. Methods that may release something return it in the order of notification.

    `bounded` keeps the order of arrival as well, which `force_oldest` and `oldest_since` need.
    """

    def __init__(self, lanes: dict[Topic, Lane], bounded: bool = False) -> None:
        self.lanes = lanes
        self.size = 0
        self._bounded = bounded
        self._waiting: dict[Topic, dict[Number, list[tuple[Topic, Number]]]] = {}
        self._arrivals: deque[tuple[float, Topic, Number]] = deque()
        for topic, lane in lanes.items():
            for number, held in lane.held.items():
                self._file(held.waits_for, topic, number)
                self.size += 1
                if bounded:
                    self._arrivals.append((held.since, topic, number))
        self._arrivals = deque(sorted(self._arrivals))

    def join(self, topic: Topic) -> None:
        """Start holding a topic whose beginning is not known yet: whatever names it must wait."""
        self.lanes[topic] = Lane()

    def open(self, topic: Topic, start: Number) -> list[Released]:
        """The topic begins after `start`."""
        lane = self.lanes[topic]
        lane.open = True
        return self._advance(topic, lane, start)

    def close(self, topics: Iterable[Topic]) -> list[Released]:
        """Stop holding topics: their held events are dropped, and then nothing waits for them any more."""
        closed = sorted(topics)
        for topic in closed:
            self.size -= len(self.lanes.pop(topic).held)
        return self._run(deque(waiter for topic in closed for waiter in self._wake_up_to(topic, None)))

    def drop(self, topic: Topic, first: Number, last: Number) -> None:
        """Forget what is held of these numbers; something else is admitted in their place at once."""
        lane = self.lanes[topic]
        for number in [number for number in lane.held if first <= number <= last]:
            del lane.held[number]
            self.size -= 1

    def admit(
        self,
        topic: Topic,
        number: Number,
        entries: Entries,
        event: Event | None,
        now: float,
        last: Number = 0,
        position: Position = 0,
    ) -> list[Released]:
        """Take one event of an open lane that is neither done nor held yet; or voids, from `number` to `last`.

        A stretch of voids is one step, however long. The entries belong to its first number.
        """
        lane = self.lanes[topic]
        conditions = [(other, needed) for other, needed in entries.items() if other in self.lanes and other != topic]
        lane.held[number] = Held(event, entries, now, conditions, last=last or number, position=position)
        self.size += 1
        if self._bounded:
            self._arrivals.append((now, topic, number))
        return self._run(deque([(topic, number)]))

    def force_oldest(self) -> list[Released]:
        """Release the event that is held longest, and before it everything held that must come before it."""
        self._forget_released()
        return self._force([self._arrivals[0][1:]]) if self._arrivals else []

    def oldest_since(self) -> float | None:
        """The time since which the oldest held event waits."""
        self._forget_released()
        return self._arrivals[0][0] if self._arrivals else None

    def missing(self) -> Iterable[tuple[Topic, Number]]:
        """Numbers that held events wait for and that have not arrived; at most one per topic."""
        for topic, lane in self.lanes.items():
            if lane.open and lane.done + 1 not in lane.held and (lane.held or self._waiting.get(topic)):
                yield topic, lane.done + 1

    def waiters(self, topic: Topic) -> Iterator[tuple[Topic, Number]]:
        """Held events of other topics that wait for this one, or did lately."""
        for waiting in self._waiting.get(topic, {}).values():
            for other, number in waiting:
                if other != topic and (lane := self.lanes.get(other)) is not None and number in lane.held:
                    yield other, number

    def _blocks(self, lane: Lane, needed: Number) -> bool:
        """Whether a condition is not met yet. Not a test of equality: a stamp may name less than what is done."""
        return not lane.open or lane.done < needed

    def _blocker(self, topic: Topic, number: Number, lane: Lane, held: Held) -> tuple[Topic, Number] | None:
        if lane.done < number - 1:
            return topic, number - 1
        conditions = held.conditions
        while conditions:
            other = self.lanes.get(conditions[-1][0])
            if other is not None and self._blocks(other, conditions[-1][1]):
                return conditions[-1]
            conditions.pop()
        return None

    def _run(self, work: deque[tuple[Topic, Number]]) -> list[Released]:
        released: list[Released] = []
        while work:
            topic, number = work.popleft()
            lane = self.lanes.get(topic)
            held = lane.held.get(number) if lane is not None else None
            if lane is None or held is None:
                continue
            if held.last <= lane.done:  # voids that began before it have covered it
                del lane.held[number]
                self.size -= 1
                continue
            blocker = self._blocker(topic, number, lane, held)
            if blocker is not None:
                held.waits_for = blocker
                self._file(blocker, topic, number)
                continue
            del lane.held[number]
            self.size -= 1
            lane.done = held.last
            released.append(Released(topic, held.last, held))
            waiting = self._waiting.get(topic)
            if waiting and number < held.last:
                work.extend(self._wake_up_to(topic, held.last))
            elif waiting and (woken := waiting.pop(number, None)):
                work.extend(woken)
        return released

    def _file(self, key: tuple[Topic, Number], topic: Topic, number: Number) -> None:
        by_number = self._waiting.get(key[0])
        if by_number is None:
            by_number = self._waiting[key[0]] = {}
        by_number.setdefault(key[1], []).append((topic, number))

    def _advance(self, topic: Topic, lane: Lane, to: Number) -> list[Released]:
        lane.done = max(lane.done, to)
        return self._run(self._wake_up_to(topic, lane.done))

    def _wake_up_to(self, topic: Topic, number: Number | None) -> deque[tuple[Topic, Number]]:
        waiting = self._waiting.get(topic, {})
        keys = sorted(key for key in waiting if number is None or key <= number)
        return deque(waiter for key in keys for waiter in waiting.pop(key))

    def _force(self, stack: list[tuple[Topic, Number]]) -> list[Released]:
        """Bring the lanes up to what is on the stack, predecessors first; what is missing is skipped.

        Order is acyclic, so a condition never leads back to what is being forced; the `in stack` guard keeps stamps
        that break this rule (forged ones) from looping.
        """
        released: list[Released] = []
        while stack:
            topic, number = stack[-1]
            lane = self.lanes.get(topic)
            if lane is None or not lane.open or lane.done >= number:
                stack.pop()
                continue
            nearest = lane.done + 1 if lane.done + 1 in lane.held else self._nearest(lane, number)
            if nearest is None:  # nothing held up to here: give up on the rest
                released.append(Released(topic, number, None, skipped_from=lane.done + 1))
                released.extend(self._advance(topic, lane, number))
            elif nearest > lane.done + 1:  # a hole before the nearest held one
                released.append(Released(topic, nearest - 1, None, skipped_from=lane.done + 1))
                released.extend(self._advance(topic, lane, nearest - 1))
            else:
                blocker = self._blocker(topic, nearest, lane, lane.held[nearest])
                if blocker is None:
                    released.extend(self._run(deque([(topic, nearest)])))
                elif blocker in stack or not self.lanes[blocker[0]].open:
                    return released
                else:
                    stack.append(blocker)
        return released

    def _nearest(self, lane: Lane, number: Number) -> Number | None:
        return min((held for held in lane.held if held <= number), default=None)

    def _forget_released(self) -> None:
        while self._arrivals:
            since, topic, number = self._arrivals[0]
            lane = self.lanes.get(topic)
            held = lane.held.get(number) if lane is not None else None
            if held is not None and held.since == since:
                return
            self._arrivals.popleft()
