"""Why nothing can be promised, as tables: each doubt with its reason, in the order in which the reference auditor has them.

A verdict needs the first doubt and how many there are, so no list of them ever reaches the driver.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# What a doubt is about. `order` is a doubt about fifo and about per-topic, and so about every guarantee of order.
ABOUT = ("order", "fifo", "causal", "integrity", "completeness")


def doubts(frame: DataFrame, about: str, phase: int, *order: str, reason: Column) -> DataFrame:
    """Doubts in common columns; up to five columns of the frame sort those of one phase."""
    assert about in ABOUT
    kinds = ("string", "string", "long", "long", "long")
    assert len(order) <= len(kinds)
    # Text before counts: what is given as a count is cast to one.
    places = {f"sort{i}": F.lit(None).cast(kind) for i, kind in enumerate(kinds)}
    texts, counts = iter(range(2)), iter(range(2, 5))
    for name in order:
        is_text = dict(frame.dtypes)[name] == "string"
        i = next(texts if is_text else counts)
        places[f"sort{i}"] = F.col(name).cast(kinds[i])
    return frame.select(
        "run",
        F.lit(about).alias("about"),
        F.lit(phase).alias("phase"),
        *(column.alias(name) for name, column in places.items()),
        reason.alias("reason"),
    )


def summary(rows: DataFrame) -> DataFrame:
    """Of each run and subject: the first reason, and how many different ones there are: run, about, first, count."""
    order = F.struct("phase", *(f"sort{i}" for i in range(5)), "reason")
    return rows.groupBy("run", "about").agg(
        F.min(order)["reason"].alias("first"), F.count_distinct("reason").alias("count")
    )
