"""The coupling graph: topics, how often and where their events are published, and which of them are coupled.

It is the sum of any number of subscriptions: the driver holds it in a few arrays. Pairs that only wide subscriptions
couple (overlaps.py) are not listed; they follow from the topics' masks, class by class.

*Stamps.* A full stamp of T names its whole group. A difference names U only if U had an event since T's last one; with
independent events at the rates r that has the probability r(U) / (r(U) + r(T)). So a coupled pair costs
2 r(T) r(U) / (r(T) + r(U)) entries per second: at most twice what the slower of the two publishes.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

PAIRS_MAX = 20_000_000  # coupled pairs, in the driver's memory: about 40 bytes each
BIN = 0.01  # rates are alike if they differ by less than this share, where every topic is coupled with every other


class Classes(NamedTuple):
    """Topics held by the same wide subscriptions. Those of coupled classes are coupled, also within a class."""

    of_topic: Ids
    sizes: Ids
    coupled: Flags  # [class, class]


class Graph:
    """`a[i]` and `b[i]` are coupled: `shared[i]` subscribers hold both. `where[t, s]` is the part of the events of
    topic t that is published at site s, per second."""

    def __init__(
        self,
        names: list[str],
        rates: Floats,
        pairs: tuple[Ids, Ids, Ids],
        where: Floats | None = None,
        sites: tuple[str, ...] = (),
        masks: Ids | None = None,
        threshold: int = 2,
    ) -> None:
        self.names = names
        self.rates = rates
        self.a, self.b, self.shared = pairs
        self.sites = sites
        self.where = where if where is not None else np.zeros((len(names), len(sites)))
        self.masks = masks if masks is not None else np.zeros(len(names), np.int64)
        self.threshold = threshold
        order = np.argsort(np.concatenate([self.a, self.b]), kind="stable")
        self.others = np.concatenate([self.b, self.a])[order].astype(np.int32)
        self.degrees = np.bincount(np.concatenate([self.a, self.b]), minlength=len(names)).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.degrees)])

    @property
    def size(self) -> int:
        return len(self.names)

    def listed(self, topic: int) -> Ids:
        """The topics coupled with this one, but for those that the wide subscriptions alone couple with it."""
        return self.others[self.starts[topic] : self.starts[topic + 1]].astype(np.int64)

    @cached_property
    def classes(self) -> Classes:
        """Group topics by mask. Without wide subscriptions there is one class, which is not coupled with itself."""
        masks, of_topic, sizes = np.unique(self.masks, return_inverse=True, return_counts=True)
        common = np.bitwise_count(masks[:, None] & masks[None, :])
        return Classes(of_topic, sizes, common >= self.threshold)

    @cached_property
    def is_wide(self) -> Flags:
        """Whether wide subscriptions alone couple a topic with others."""
        inside: Flags = np.any(self.classes.coupled, axis=1).reshape(-1)[self.classes.of_topic]
        return inside

    @cached_property
    def group_sizes(self) -> Ids:
        """How many topics each is coupled with: the entries of a full stamp."""
        classes = self.classes
        by_class = classes.coupled @ classes.sizes - np.diag(classes.coupled)
        sizes: Ids = self.degrees + by_class[classes.of_topic]
        return sizes

    @property
    def pair_count(self) -> int:
        return int(self.group_sizes.sum()) // 2

    @cached_property
    def pair_costs(self) -> Floats:
        return self.pair_cost(self.a, self.b)

    def pair_cost(self, a: Ids, b: Ids) -> Floats:
        """Entries per second that these pairs cost."""
        rate, other = self.rates[a], self.rates[b]
        return rate * share(rate, other) + other * share(other, rate)

    @cached_property
    def difference_entries(self) -> Floats:
        """Expected entries of a stamp, per topic."""
        sums = np.zeros(self.size)
        for this, that in ((self.a, self.b), (self.b, self.a)):
            sums += np.bincount(this, share(self.rates[this], self.rates[that]), self.size)
        return sums + self._by_class()

    @property
    def entries_per_s(self) -> float:
        return float(self.difference_entries @ self.rates)

    def _by_class(self) -> Floats:
        """Expected entries of a stamp that come from the wide subscriptions alone. Topics with similar rates are summed
        together."""
        classes = self.classes
        sums = np.zeros(self.size)
        for this in np.flatnonzero(np.any(classes.coupled, axis=1)):
            mine = np.flatnonzero(classes.of_topic == this)
            theirs = self.rates[classes.coupled[this][classes.of_topic]]
            bins, place, counts = np.unique(_bins(theirs), return_inverse=True, return_counts=True)
            means = np.bincount(place, theirs) / counts
            own = share(self.rates[mine], self.rates[mine]) * classes.coupled[this, this]
            for part in np.array_split(np.arange(len(mine)), max(1, len(mine) * len(bins) // 4_000_000)):
                rates = self.rates[mine[part]]
                sums[mine[part]] = share(rates[:, None], means[None, :]) @ counts - own[part]
        return sums

    @cached_property
    def components(self) -> Ids:
        """Topics that are coupled, directly or through others, have the same label: the smallest of their ids."""
        a, b = [self.a], [self.b]
        classes = self.classes
        first = np.full(len(classes.sizes), self.size, np.int64)
        np.minimum.at(first, classes.of_topic, np.arange(self.size))
        for this, that in zip(*np.nonzero(np.triu(classes.coupled)), strict=True):
            a.append(np.asarray([first[this]]))
            b.append(np.asarray([first[that]]))
            for each in {this, that}:
                members = np.flatnonzero(classes.of_topic == each)
                a.append(members)
                b.append(np.full(len(members), first[each]))
        return components_of(np.concatenate(a), np.concatenate(b), self.size)


def columns_of(table: DataFrame, *names: str) -> tuple[Ids, ...]:
    """Columns of a small table, brought to the driver."""
    found = table.select(*names).toArrow()
    return tuple(found.column(name).to_numpy().astype(np.int64) for name in names)


def sums_of(places: NDArray[Any], values: NDArray[Any], size: int) -> Floats:
    """The sum of the values at each place."""
    return np.bincount(places, values, size).astype(np.float64)


def components_of(a: Ids, b: Ids, size: int) -> Ids:
    labels = np.arange(size)
    while True:
        least = np.minimum(labels[a], labels[b])
        before = labels.copy()
        np.minimum.at(labels, before[a], least)
        np.minimum.at(labels, before[b], least)
        while (labels[labels] != labels).any():
            labels = labels[labels]
        if (labels[a] == labels[b]).all():
            return labels


def implied_pairs(masks: Ids, threshold: int) -> int:
    """How many pairs of topics the wide subscriptions alone couple: topics with the same mask are alike."""
    values, sizes = np.unique(masks, return_counts=True)
    coupled = np.bitwise_count(values[:, None] & values[None, :]) >= threshold
    return int(sizes @ coupled @ sizes - np.diag(coupled) @ sizes) // 2


def share(rate: Floats, other: Floats) -> Floats:
    """The probability that `other` had an event since the last one of `rate`."""
    both = rate + other
    return np.divide(other, both, out=np.zeros(np.broadcast(rate, other).shape), where=both > 0.0)


def _bins(rates: Floats) -> Ids:
    least = float(rates[rates > 0.0].min(initial=1.0))
    return np.floor(np.log(np.maximum(rates, least / 2.0)) / BIN).astype(np.int64)
