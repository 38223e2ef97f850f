"""A distribution of any number of values in a bounded table: how many fell into each of a fixed set of buckets.

Buckets are 2 % wide, so every quantile is within 1 % of a value that is really there; counts, lowest, highest and mean
are exact. Tables of parts add up, which is why executors can fill them and nothing else has to leave them. The whole
range from a nanosecond to a century, in milliseconds, has under 3,000 buckets. Whole numbers below 50 have a bucket
each.
"""

from collections import Counter
from collections.abc import Iterable
from math import ceil, floor, isfinite, log

from msgspec import Struct

WIDTH = 1.02
SMALLEST = 1e-6  # what is smaller counts as nothing
NEGATIVE = -(1 << 30)  # the bucket of what is below nothing: a latency between clocks that disagree
ZERO = NEGATIVE + 1


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
    return Distribution(
        buckets=tuple(sorted(buckets.items())), lowest=lowest, highest=highest, total=total, is_whole=is_whole
    )
