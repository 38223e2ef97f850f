"""Times of different subscribers made comparable: from each, the delay that its subscriber usually has is taken away.

A subscriber far away is notified of everything some milliseconds after the others, so the earliest time of an event
says as much about who received it as about when it happened. The usual delays are estimated from a sample of events: an
event's time is the median of its subscribers' times, and a subscriber's delay the median of its distances to that, a
few times over; then means of the values that are not unusual; and all of this again until it has settled. Only a better
hint comes of it: a delay that is wrong costs time, and never a verdict.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SAMPLE_ROWS = 300_000
PASSES, ROUNDS, ROUNDS_OF_MEANS = 4, 4, 30
USUAL = 4.0  # times the distance that three quarters are within

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def delays_of(rows: DataFrame, count: int) -> tuple[Ids, Floats]:
    """Subscribers, and the usual delay of each. The sample is every Nth event of this many deliveries."""
    every = max(1, count // SAMPLE_ROWS)
    chosen = (F.pmod(F.col("e"), F.lit(every)) == 0) & F.col("notified_at").isNotNull() & ~F.col("o")
    sample = rows.filter(chosen).select("s", "e", "notified_at").toArrow()
    columns: list[Any] = [column.to_numpy() for column in sample.columns]
    return usual_delays(*columns)


def with_levels(rows: DataFrame, names: Ids, delays: Floats) -> DataFrame:
    """Deliveries, each with `levelled`: when it was notified of, less its subscriber's usual delay."""
    table = rows.sparkSession.createDataFrame(pa.table({"s": names, "delay": delays}), "s long, delay double")
    levelled = F.col("notified_at") - F.coalesce("delay", F.lit(0.0))
    return rows.join(F.broadcast(table.coalesce(1)), "s", "left").withColumn("levelled", levelled).drop("delay")


def usual_delays(subscribers: Ids, events: Ids, times: Floats) -> tuple[Ids, Floats]:
    """Of each subscriber, by how much it is usually later than the others."""
    _, what, counts = np.unique(events, return_inverse=True, return_counts=True)
    known = np.isfinite(times) & (counts[what] > 1)  # what one alone received compares nobody
    names, who = np.unique(subscribers[known], return_inverse=True)
    _, what = np.unique(events[known], return_inverse=True)
    times = times[known]
    delays = np.zeros(len(names))
    if len(names) < 2:
        return names, delays
    for _ in range(PASSES):
        for _ in range(ROUNDS):
            before, happened = delays, _medians(what, times - delays[who])
            delays = _medians(who, times - happened[what])
        # Medians pass over what is unusual, but stop short of the best; means of what is usual go on to it.
        apart = np.abs(times - happened[what] - delays[who])
        near = np.quantile(apart, 0.75) + np.spacing(np.abs(times).max())
        usual = apart <= USUAL * near
        moved = delays - before
        for _ in range(ROUNDS_OF_MEANS):
            happened = _means(what[usual], (times - delays[who])[usual], len(happened))
            delays = _means(who[usual], (times - happened[what])[usual], len(delays))
        if np.ptp(moved) <= near:
            break  # else some subscribers agree with each other, and not yet with the rest, whom they take for unusual
    return names, delays


def _means(groups: Ids, values: Floats, count: int) -> Floats:
    sizes = np.bincount(groups, minlength=count)
    means: Floats = np.bincount(groups, values, count) / np.maximum(1, sizes)
    return means


def _medians(groups: Ids, values: Floats) -> Floats:
    """The (upper) median of each group; groups are 0, 1, 2 and so on, none is empty."""
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    medians: Floats = values[order][starts + sizes // 2]
    return medians
