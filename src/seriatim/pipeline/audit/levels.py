"""Times of different subscribers made comparable: from each, the delay that its subscriber usually has is taken away.

A subscriber far away is notified of everything some milliseconds after the others, so the earliest time of an event
says as much about who received it as about when it happened. What is usual is found from a sample of events: an event's
time is the median of its subscribers', a subscriber's delay the median of its distances to that, a few times over. Only
a better hint comes of it: a delay that is wrong costs time, and never a verdict.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SAMPLE_ROWS = 1_000_000
ROUNDS = 4

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def with_levels(rows: DataFrame, count: int) -> DataFrame:
    """Deliveries (so many), each with `levelled`: when it was notified of, less its subscriber's usual delay."""
    every = max(1, count // SAMPLE_ROWS)
    sample = (
        rows.filter((F.pmod(F.col("e"), F.lit(every)) == 0) & F.col("notified_at").isNotNull() & ~F.col("o"))
        .select("s", "e", "notified_at")
        .toArrow()
    )
    columns: list[Any] = [sample.column(name).to_numpy() for name in ("s", "e", "notified_at")]
    names, delays = usual_delays(*columns)
    table = rows.sparkSession.createDataFrame(pa.table({"s": names, "delay": delays}), "s long, delay double")
    levelled = F.col("notified_at") - F.coalesce("delay", F.lit(0.0))
    return rows.join(F.broadcast(table), "s", "left").withColumn("levelled", levelled).drop("delay")


def usual_delays(subscribers: Ids, events: Ids, times: Floats) -> tuple[Ids, Floats]:
    """Of each subscriber, by how much it is usually later than the others."""
    known = np.isfinite(times)
    names, who = np.unique(subscribers[known], return_inverse=True)
    _, what = np.unique(events[known], return_inverse=True)
    times = times[known]
    delays = np.zeros(len(names))
    for _ in range(ROUNDS if len(names) > 1 else 0):
        happened = _medians(what, times - delays[who])
        delays = _medians(who, times - happened[what])
    return names, delays


def _medians(groups: Ids, values: Floats) -> Floats:
    """The (upper) median of each group; groups are 0, 1, 2 and so on, none is empty."""
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    medians: Floats = values[order][starts + sizes // 2]
    return medians
