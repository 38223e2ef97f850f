"""The figures of a run: what a report says about a history beside its verdicts. This file counts rows in memory;
`spark.py` fills the same structure from tables of any size, and a test compares the two.

A distribution of any number of values is a bounded table: how many fell into each of a fixed set of buckets. Buckets
are 2 % wide, so every quantile is within 1 % of a value that is really there; counts, lowest, highest and mean are
exact. Tables of parts add up, which is why executors can fill them and nothing else has to leave them. The whole range
from a nanosecond to a century, in milliseconds, has under 3,000 buckets. Whole numbers below 50 have a bucket each.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil, floor, isfinite, log

from msgspec import Struct

from seriatim.model import History
from seriatim.pipeline.report.drawing.axes import nice_step

WIDTH = 1.02
SMALLEST = 1e-6  # what is smaller counts as nothing
NEGATIVE = -(1 << 30)  # the bucket of what is below nothing: a latency between clocks that disagree
ZERO = NEGATIVE + 1
SHOWN_MAX = 10  # names in a ranking
STEPS_ABOUT = 60  # steps of a timeline


class Distribution(Struct, frozen=True, kw_only=True):
    """`buckets` is sorted: (bucket, how many)."""

    buckets: tuple[tuple[int, int], ...]
    lowest: float
    highest: float
    total: float
    is_whole: bool = False

    @property
    def count(self) -> int:
        return sum(count for _, count in self.buckets)

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def negative(self) -> int:
        """How many values were below zero."""
        return self.buckets[0][1] if self.buckets[0][0] == NEGATIVE else 0

    def quantile(self, share: float) -> float:
        """The value that this share of all values does not exceed, within 1 %."""
        rank = max(1, ceil(share * self.count))
        for bucket, count in self.buckets:
            rank -= count
            if rank <= 0:
                return self._middle(bucket)
        return self.highest

    def values(self) -> list[tuple[float, int]]:
        """A value for each bucket, and how many it stands for."""
        return [(self._middle(bucket), count) for bucket, count in self.buckets]

    def _middle(self, bucket: int) -> float:
        if bucket == NEGATIVE:
            return self.lowest
        if bucket == ZERO:
            return 0.0
        value = min(max(WIDTH ** (bucket + 0.5), self.lowest), self.highest)
        return float(round(value)) if self.is_whole else value


def bucket_of(value: float) -> int:
    """The bucket of a finite value. The Spark job says the same in SQL."""
    if value < 0:
        return NEGATIVE
    return ZERO if value < SMALLEST else floor(log(value) / log(WIDTH))


def distribution_of(values: Iterable[float], is_whole: bool = False) -> Distribution | None:
    """The distribution of values in memory; None if there are none. Infinite values and NaN are left out."""
    buckets: Counter[int] = Counter()
    lowest, highest, total = float("inf"), float("-inf"), 0.0
    for value in values:
        if isfinite(value):
            buckets[bucket_of(value)] += 1
            lowest, highest, total = min(lowest, value), max(highest, value), total + value
    if not buckets:
        return None
    found = tuple(sorted(buckets.items()))
    return Distribution(buckets=found, lowest=lowest, highest=highest, total=total, is_whole=is_whole)


class Ranking(Struct, frozen=True):
    """How many rows each name has: the first few names, and how it is spread over all of them."""

    first: tuple[tuple[str, int], ...]
    names: int
    spread: Distribution | None


class Timeline(Struct, frozen=True, kw_only=True):
    step_ms: float
    steps: int
    notified: tuple[tuple[int, int], ...]  # (step, how many); steps without any are left out
    published: tuple[tuple[int, int], ...]


class Traffic(Struct, frozen=True):
    """Messages of one kind between roles."""

    kind: str
    count: int
    bytes: int


class RunFigures(Struct, frozen=True, kw_only=True):
    """The figures of a run. None: not recorded."""

    deliveries: int
    events: int
    publications: int | None
    out_of_order: int
    subscribers: Ranking
    topics: Ranking
    latency: Distribution | None  # ms from published to notified
    held: Distribution | None  # ms from received to notified
    stamp_entries: Distribution | None
    timeline: Timeline | None
    traffic: tuple[Traffic, ...] = ()


def figures_of(history: History) -> RunFigures:
    deliveries, publications = history.deliveries, history.publications
    published = {row.event_id: row.published_at for row in publications if row.published_at is not None}
    sizes: dict[str, list[int]] = {}
    for message in history.messages:
        sizes.setdefault(message.kind, []).append(message.bytes)
    traffic = [Traffic(kind, len(each), sum(each)) for kind, each in sizes.items()]
    return RunFigures(
        deliveries=len(deliveries),
        events=len({row.event_id for row in deliveries}),
        publications=len(publications) or None,
        out_of_order=sum(row.out_of_order for row in deliveries),
        subscribers=ranking_of(Counter(row.subscriber for row in deliveries)),
        topics=ranking_of(Counter(row.topic for row in deliveries)),
        latency=distribution_of(
            row.notified_at - published[row.event_id]
            for row in deliveries
            if row.notified_at is not None and row.event_id in published
        ),
        held=distribution_of(
            row.notified_at - row.received_at
            for row in deliveries
            if row.notified_at is not None and row.received_at is not None
        ),
        stamp_entries=distribution_of((len(row.stamp) for row in deliveries if row.stamp is not None), is_whole=True),
        timeline=_timeline((row.notified_at for row in deliveries if row.notified_at is not None), published.values()),
        traffic=tuple(sorted(traffic, key=lambda one: (-one.bytes, one.kind))),
    )


def ranking_of(counts: Mapping[str, int]) -> Ranking:
    first = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN_MAX]
    return Ranking(tuple(first), len(counts), distribution_of(counts.values(), is_whole=True))


def steps_over(first_ms: float, last_ms: float) -> tuple[float, float, int]:
    """Start, length and number of steps: round lengths, about STEPS_ABOUT of them."""
    if last_ms <= first_ms:
        return first_ms, 1.0, 1
    step_ms = nice_step((last_ms - first_ms) / STEPS_ABOUT)
    return first_ms, step_ms, int((last_ms - first_ms) // step_ms) + 1


def _timeline(notified: Iterable[float], published: Iterable[float]) -> Timeline | None:
    times = [[time for time in each if isfinite(time)] for each in (notified, published)]
    if not times[0]:
        return None
    start, step, steps = steps_over(min(map(min, filter(None, times))), max(map(max, filter(None, times))))
    counts = [tuple(sorted(Counter(int((time - start) // step) for time in each).items())) for each in times]
    return Timeline(step_ms=step, steps=steps, notified=counts[0], published=counts[1])
