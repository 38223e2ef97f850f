"""One sequence from the stamps of several logs: a fixed place for every stamped range.

It is for numbers without a position in an order log: clusters in pairwise order, and numbers from before an order log.

A *log* is an ordered topic or a bucket. A stamp says of a range of its numbers: these come after the first `k` events
of that other log. Of all sequences that a subscriber of a set of logs may be notified of, the merger always gives the
same one. Each range gets an *ordinal*, and (ordinal, log, number, index) sorts the events:

    ordinal = the largest of   when the broker stored the stamp, in microseconds since 1970,
                               1 + the ordinal of the range before it in its log,
                               1 + the ordinal of the range that holds number k of U, for each entry `U: k`

So an ordinal is close to a time, and larger than the ordinal of everything that must come before. It depends only on
the stamps before it: not on when they are read, in which pieces, beside which others, or on what is stamped later.
Therefore keys never change as an archive grows, and several machines agree on them.

*Ranges are never split.* A stamp may name a number in the middle of a range. All of that range is then placed before
it. That is allowed: the entries of a range are met at its first number, so nothing of it ever has to wait for more. And
it closes no circle that is not there: whatever comes after number k of a range comes after its first number.

*Nothing comes out too early.* A range whose stamp names something that has no stamp yet is held, with all that follows
in its log. What is out is always the beginning of each log, with all its predecessors: it could have been seen.

*Circles.* The stamps of a sequencing tree are acyclic. Where there is pairwise order only (a<b, b<c, c<a for holders of
two logs each, which is legal) there is no sequence for a holder of all three, and `knot` shows why.

The state is a few numbers per log, the ranges that are held, and two numbers for each range whose ordinal may still
have to be looked up: those at or above `frontier`.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from operator import attrgetter

from msgspec import Struct, field

from seriatim.model import Entries, InputError, Number, Topic


class Range(Struct, frozen=True):
    """A stamped range that is not placed yet. `lost`: its stamp is gone, and the merger was told to continue without
    it."""

    first: Number
    last: Number
    entries: Entries
    received_us: int
    lost: bool = False


class Placed(Struct, frozen=True, gc=False):
    log: Topic
    first: Number
    last: Number
    ordinal: int


class Held(Struct, frozen=True):
    """The first range of a log that cannot be placed, and what it waits for; the later ranges of its log wait with
    it."""

    log: Topic
    first: Number
    last: Number
    waits_for: Topic
    needed: Number

    def __str__(self) -> str:
        if self.waits_for == self.log:
            return f"the stamps of {self.log} up to {self.needed} are missing"
        return f"{self.log} {self.first}…{self.last} comes after {self.waits_for} {self.needed}"


class MergedLog(Struct):
    """One log. `placed_to` is None until its first stamp is there: then it begins wherever that begins."""

    placed_to: Number | None = None
    ordinal: int = -1  # of the last placed range
    forgotten_to: Number = 0  # of the ranges up to here the ordinals are no longer known, or never were
    lasts: list[Number] = field(default_factory=list)  # of the placed ranges above: their last numbers,
    ordinals: list[int] = field(default_factory=list)  # and their ordinals
    queue: deque[Range] = field(default_factory=deque)  # not placed yet, by number


class Merger:
    """Feed it stamps, each log's in order of their numbers; take out places. The set of logs is fixed.

    Entries of logs outside the set are ignored, as a subscriber ignores them. A log of the set that has no stamp yet
    holds up what names it.

    `skip_gaps`: if stamps of a log are missing between two others, continue without them. The order that lost stamps
    gave is lost with them: across such a place, order is by time and not proven. Only for when all stamps are there.
    """

    def __init__(self, logs: Iterable[Topic], skip_gaps: bool = False) -> None:
        self.lanes = {log: MergedLog() for log in sorted(set(logs))}
        self._skip_gaps = skip_gaps
        self._promised_us = 0
        self._heads: dict[Topic, tuple[list[tuple[Topic, Number]], int]] = {}  # what the first range has yet to look at
        self._blocked: dict[Topic, tuple[Topic, Number]] = {}
        self._waiting: dict[Topic, list[tuple[Number, Topic]]] = {}  # a heap for each log that is waited for
        self._placed: list[Placed] = []

    @property
    def frontier(self) -> int:
        """Whatever will be placed has at least this ordinal: below it, what is out is complete."""
        lanes = ((lane.ordinal + 1, lane.queue) for lane in self.lanes.values())
        return min((least if queue else max(least, self._promised_us) for least, queue in lanes), default=0)

    def feed(self, log: Topic, first: Number, last: Number, entries: Mapping[Topic, Number], received_us: int) -> None:
        """Take one stamp. A repeat changes nothing."""
        lane = self.lanes.get(log)
        if lane is None:
            raise InputError(f"log {log!r}", "it is not in the set that is merged", "name it when the merger is made")
        if not 1 <= first <= last or received_us < 0:
            raise InputError(f"stamp of {log} {first}…{last}", "no such range", "numbers go up from 1, times from 0")
        wanted = {other: k for other, k in entries.items() if other in self.lanes and other != log}
        range_ = Range(first, last, wanted, received_us)
        if lane.placed_to is None:
            lane.placed_to = lane.forgotten_to = first - 1
            lane.queue.append(range_)
            self._advance([log, *self._woken_by(log, first - 1)])
        elif last > lane.placed_to:
            if not lane.queue or first > lane.queue[-1].last:
                lane.queue.append(range_)
            elif any((first, last) == (each.first, each.last) for each in lane.queue):
                return
            else:  # into a gap
                lane.queue = deque(sorted([*lane.queue, range_], key=attrgetter("first")))
            if lane.queue[0] is range_:
                self._heads.pop(log, None)
                self._advance([log])

    def promise(self, received_us: int) -> None:
        """No stamp that is fed from now on was stored before this: less has to be remembered."""
        self._promised_us = max(self._promised_us, received_us)

    def take(self) -> list[Placed]:
        """What was placed since the last time, predecessors first."""
        placed, self._placed = self._placed, []
        return placed

    def forget(self) -> None:
        """Drop ordinals that nobody can need: whatever is placed from now on has a larger one anyway."""
        frontier = self.frontier
        for lane in self.lanes.values():
            if count := bisect_left(lane.ordinals, frontier):
                lane.forgotten_to = lane.lasts[count - 1]
                del lane.lasts[:count], lane.ordinals[:count]

    # ── what is held ──────────────────────────────────────────────────────────────────────────────────────────────

    def held(self) -> list[Held]:
        """For each log that cannot go on although it has stamps: where it stands, and what for."""
        return [self._held(log) for log in sorted(self._blocked)]

    def knot(self) -> list[Held]:
        """If ranges wait for one another in a circle: one such circle, each waiting for the next. Else nothing."""
        seen: set[Topic] = set()
        for start in sorted(self._blocked):
            path: list[Topic] = []
            log = start
            while log in self._blocked and log not in seen:
                seen.add(log)
                path.append(log)
                log = self._blocked[log][0]
            if log in path and self._blocked[log][0] != log:
                return [self._held(each) for each in path[path.index(log) :]]
        return []

    def _held(self, log: Topic) -> Held:
        head, (waits_for, needed) = self.lanes[log].queue[0], self._blocked[log]
        return Held(log, head.first, head.last, waits_for, needed)

    # ── placing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _advance(self, work: list[Topic]) -> None:
        """Place whatever can be placed of these logs, and of those that waited for it."""
        while work:
            log = work.pop()
            lane = self.lanes[log]
            self._blocked.pop(log, None)
            while lane.queue:
                blocker = self._try_to_place(log, lane)
                if blocker is not None:
                    self._blocked[log] = blocker
                    if blocker[0] != log:
                        heapq.heappush(self._waiting.setdefault(blocker[0], []), (blocker[1], log))
                    break
                assert lane.placed_to is not None
                if log in self._waiting:
                    work.extend(self._woken_by(log, lane.placed_to))

    def _woken_by(self, log: Topic, number: Number) -> list[Topic]:
        """The logs that waited for a number of this log up to this one."""
        waiting = self._waiting.get(log)
        woken: list[Topic] = []
        while waiting and waiting[0][0] <= number:
            needed, waiter = heapq.heappop(waiting)
            if self._blocked.get(waiter) == (log, needed):
                woken.append(waiter)
        if not waiting:
            self._waiting.pop(log, None)
        return woken

    def _try_to_place(self, log: Topic, lane: MergedLog) -> tuple[Topic, Number] | None:
        """Place the first range of the queue; or say what it waits for."""
        queue = lane.queue
        head = queue[0]
        assert lane.placed_to is not None, "a log with stamps has begun"
        if head.first != lane.placed_to + 1:
            if head.first <= lane.placed_to:
                fix = "keep one row per stamp, as the sequencer wrote it"
                problem = "part of this range has another stamp"
                raise InputError(f"stamp of {log} {head.first}…{head.last}", problem, fix)
            if not self._skip_gaps:
                return log, head.first - 1
            head = Range(lane.placed_to + 1, head.first - 1, {}, 0, lost=True)
            queue.appendleft(head)
        started = self._heads.pop(log, None)
        rest, ordinal = started or (list(head.entries.items()), max(head.received_us, lane.ordinal + 1))
        while rest:
            other, needed = rest[-1]
            before = self.lanes[other]
            if before.placed_to is None or before.placed_to < needed:
                self._heads[log] = rest, ordinal
                return other, needed
            if needed > before.forgotten_to:
                ordinal = max(ordinal, before.ordinals[bisect_left(before.lasts, needed)] + 1)
            rest.pop()
        queue.popleft()
        lane.placed_to, lane.ordinal = head.last, ordinal
        lane.lasts.append(head.last)
        lane.ordinals.append(ordinal)
        if not head.lost:
            self._placed.append(Placed(log, head.first, head.last, ordinal))
        return None
