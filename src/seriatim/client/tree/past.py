"""Where in the order log a subscription begins that wants the past. Checked before anything changes.

The order log follows the events by a moment. So a place behind its end is waited for, and refused only when the time is
over. A place that somebody named (a position, a time, a number) is refused if retention has taken what comes next, so
that nobody rebuilds a state from half of the events: unless the gap policy is to skip. `"first"` means whatever is
there.

What is looked at is bounded. A loss that is not found here (it lies far behind the start, or happens later) is found by
the subscriber, which treats it by the gap policy.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import OrderLog
from seriatim.client.history import Start
from seriatim.model import InputError, Number, Position, Topic
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.with_broker import Start as PastStart

NOW = 'use start="now"'
SKIP = "gaps=GapPolicy.skip() to begin with a gap"
ROOT_WRITES = ": the root writes it, or nobody does if it is away"
READS_MAX = 16  # parts of the order log that are looked at for what a start needs


def check_has_past(options: TreeOptions, log: OrderLog | None) -> OrderLog:
    """The order log of a cluster. InputError: it has none."""
    if options.order != "global":
        problem = "the cluster orders pairwise, so there is no one order of past events"
        raise InputError("start", problem, f'{NOW}, or order = "global" in the cluster\'s file')
    if log is None or not options.keeps_order_log:
        raise InputError("start", "the cluster's broker keeps no order log", NOW)
    return log


class First(Struct, frozen=True):
    """What the order log has first of a topic, of the numbers that somebody wants: the number, and its position."""

    number: Number
    position: Position


class Beginning:
    """One search for the place where a subscription begins. `on_wait` is told what it waits for; empty: for nothing."""

    def __init__(
        self,
        broker: Broker,
        log: OrderLog,
        topics: frozenset[Topic],
        *,
        skips: bool,
        timeout_s: float,
        on_wait: Callable[[str], None],
    ) -> None:
        self._broker, self._log = broker, log
        self._topics = topics
        self._skips = skips
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._on_wait = on_wait
        self._looked_to: Position = 0  # how far the order log was read
        self._reads = 0

    async def find(self, start: Start) -> PastStart:
        """The place that `start` means. InputError: there is no such place any more, or yet."""
        if start == "first":
            return PastStart()
        try:
            if isinstance(start, Mapping):
                return await self._numbers(start)
            if isinstance(start, datetime):
                return await self._time(start)
            assert isinstance(start, int), "check_start lets nothing else pass"
            return await self._position(start)
        finally:
            self._on_wait("")

    # ── a position ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _position(self, position: Position) -> PastStart:
        after = position - 1
        end = await self._end_from(after, f"position {position}")
        bounds = await self._log.bounds()
        if end < after:
            fix = f"give at most {end + 1}; if the root of the tree is away, the order log follows when it is back"
            problem = f"there is no position {position} yet: the order log ends with {end}, and"
            raise InputError("start", f"{problem} {self._waited()} for it", fix)
        if bounds is not None and position < bounds.first and not self._skips:
            problem = f"position {position} is no longer in the order log"
            fix = f'it begins with {bounds.first}; start="first" begins there; or use {SKIP}'
            raise InputError("start", problem, fix)
        if not self._skips:
            firsts = await self._first_of(after, dict.fromkeys(self._topics, 1))
            await self._check_kept(firsts, f"position {position}")
        return PastStart(after=after, is_place=after > 0)

    async def _end_from(self, after: Position, what: str) -> Position:
        """Where the order log ends; if that is before this position, wait until it is there, or the time is over."""
        end = await self._end()
        if end < after:
            self._on_wait(f"{what} of the order log, which ends with {end}{ROOT_WRITES}")
            await self._log.wait(after - 1, self._left_s())
            end = await self._end()
        return end

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _waited(self) -> str:
        return f"waited {self._timeout_s:g} s"

    # ── a time ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _time(self, moment: datetime) -> PastStart:
        now = datetime.now(UTC)
        if moment > now:
            problem = f"{moment.isoformat()} is in the future: it is {now.isoformat(timespec='seconds')}"
            raise InputError("start", problem, f"give a time that has passed, or {NOW}")
        bounds = await self._log.bounds()
        if bounds is None:  # nothing was ordered yet, as far as anybody knows here
            return PastStart(is_place=True)
        after = await self._log.position_at(moment)
        what = f"what was published at {moment.isoformat()}"
        if bounds.first > 1 and after < bounds.first:
            if not self._skips:
                fix = f'give a later time; start="first" begins with position {bounds.first}; or use {SKIP}'
                raise InputError("start", f"the order log no longer has {what}", fix)
            return PastStart(after=bounds.first - 2, is_place=True)
        if not self._skips:
            firsts = await self._first_of(after, dict.fromkeys(self._topics, 1))
            if after == 0:
                self._check_ordered(firsts, dict.fromkeys(firsts, 1), "or give a later time")
            await self._check_kept(firsts, what)
        return PastStart(after=after, is_place=True)

    # ── a number for each of some topics ──────────────────────────────────────────────────────────────────────────

    async def _numbers(self, start: Mapping[Topic, Number]) -> PastStart:
        wanted = _by_ordered_topic(start, self._broker.ordered_topic)
        if not self._skips:
            kept = {topic: await self._broker.kept_numbers(topic) for topic in sorted(wanted)}
            for topic, numbers in kept.items():
                if numbers is not None and wanted[topic] < numbers.first:
                    problem = f"{topic} {wanted[topic]} is no longer kept"
                    fix = f'it begins with {numbers.first}; start="first" begins there; or use {SKIP}'
                    raise InputError("start", problem, fix)
            there = {
                topic: number
                for topic, number in wanted.items()
                if (numbers := kept[topic]) is not None and number <= numbers.last
            }
            self._check_ordered(await self._first_in_log(there), wanted, f"or use {SKIP}")
        return PastStart(numbers=wanted, is_place=True)

    async def _first_in_log(self, wanted: dict[Topic, Number]) -> dict[Topic, First]:
        """What the order log has of these topics. They are on the broker, so the log is waited for if it lags."""
        firsts = await self._first_of(0, wanted)
        while missing := wanted.keys() - firsts.keys():
            end, topic = await self._end(), min(missing)
            if self._looked_to >= end:
                self._on_wait(f"{topic} {wanted[topic]} in the order log, which ends with {end}{ROOT_WRITES}")
                if not await self._log.wait(end, self._left_s()):
                    problem = f"the order log does not have {topic} {wanted[topic]}, and {self._waited()} for it"
                    why = "the event is from before the order log, or somebody has deleted the log, or its root is away"
                    raise InputError("start", f"{problem}: {why}", f'use start="first", or {SKIP}')
            elif self._reads >= READS_MAX:
                break  # it is long: the subscriber will find out
            firsts |= await self._first_of(self._looked_to, {each: wanted[each] for each in missing})
        return firsts

    def _check_ordered(self, firsts: Mapping[Topic, First], wanted: Mapping[Topic, Number], fix: str) -> None:
        """InputError: the order log begins behind one of these numbers."""
        for topic, first in sorted(firsts.items()):
            if first.number > wanted[topic]:
                problem = f"the order log has {topic} only from number {first.number} on"
                why = "earlier events are from before it, or retention has removed their order"
                raise InputError("start", f"{problem}: {why}", f'start="first" begins there; {fix}')

    # ── looking at the order log ──────────────────────────────────────────────────────────────────────────────────

    async def _first_of(self, after: Position, wanted: Mapping[Topic, Number]) -> dict[Topic, First]:
        """What the order log has first of these topics behind a position, as far as that is found soon."""
        firsts: dict[Topic, First] = {}
        self._looked_to = after
        while len(firsts) < len(wanted) and self._reads < READS_MAX and self._looked_to < await self._end():
            self._reads += 1
            found = await self._log.read(self._looked_to)
            position = found.after
            for each in found.ranges:
                skipped = max(0, wanted.get(each.topic, 0) - each.first)
                if each.topic in wanted and skipped < each.count:
                    firsts.setdefault(each.topic, First(each.first + skipped, position + 1 + skipped))
                position += each.count
            self._looked_to = position
        return firsts

    async def _end(self) -> Position:
        bounds = await self._log.bounds()
        return bounds.end if bounds is not None else 0

    async def _check_kept(self, firsts: Mapping[Topic, First], what: str) -> None:
        """InputError: retention has taken the first events that would be handed out."""
        gone: dict[Topic, Number] = {}
        for topic, first in sorted(firsts.items()):
            numbers = await self._broker.kept_numbers(topic)
            if numbers is not None and first.number < numbers.first:
                gone[topic] = numbers.first
        if not gone:
            return
        topic, number = next(iter(gone.items()))
        lost = f"{topic} {firsts[topic].number}" + (f" to {number - 1}" if number - 1 > firsts[topic].number else "")
        self._reads = 0
        later = await self._first_of(min(first.position for first in firsts.values()) - 1, gone)
        first_kept = max((each.position for each in later.values()), default=0)
        fix = f"position {first_kept} is the first behind which all is kept; " if later.keys() == gone.keys() else ""
        problem = f"behind {what}, {lost} is no longer kept"
        raise InputError("start", problem, f'{fix}start="first" begins with what there is; or use {SKIP}')


def _by_ordered_topic(numbers: Mapping[Topic, Number], ordered_topic: Callable[[Topic], Topic]) -> dict[Topic, Number]:
    found: dict[Topic, Number] = {}
    for name, number in numbers.items():
        topic = ordered_topic(name)
        if found.setdefault(topic, number) != number:
            problem = f"{name} shares its numbers with another topic, which has number {found[topic]}"
            raise InputError("start", problem, "give them the same number")
    return found
