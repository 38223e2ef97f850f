"""Why nothing can be promised, as tables: each doubt with its reason, in the reference auditor's order.

A verdict needs the first doubt and how many there are, so no list of them ever reaches the driver.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# What a doubt is about. `order` is a doubt about fifo and about per-topic, and so about every guarantee of order.
ABOUT = ("order", "fifo", "causal", "integrity", "completeness")


SORTED = {f"text{i}": "string" for i in range(2)} | {f"count{i}": "long" for i in range(5)}


def doubts(frame: DataFrame, about: str, phase: int, *order: str, reason: Column) -> DataFrame:
    """Doubts in common columns. `order` names the columns that sort those of one phase: texts first, then counts."""
    assert about in ABOUT
    kinds = dict(frame.dtypes)
    places = {name: F.lit(None).cast(kind) for name, kind in SORTED.items()}
    texts = iter([name for name, kind in SORTED.items() if kind == "string"])
    counts = iter([name for name, kind in SORTED.items() if kind == "long"])
    for name in order:
        is_text = kinds[name] == "string"
        places[next(texts if is_text else counts)] = F.col(name).cast("string" if is_text else "long")
    return frame.select(
        "run",
        F.lit(about).alias("about"),
        F.lit(phase).alias("phase"),
        *(column.alias(name) for name, column in places.items()),
        reason.alias("reason"),
    )


def summary(rows: DataFrame) -> DataFrame:
    """Of each run and subject: the first reason, and how many different ones there are: run, about, first, count."""
    order = F.struct("phase", *SORTED, "reason")
    return rows.groupBy("run", "about").agg(
        F.min(order)["reason"].alias("first"), F.count_distinct("reason").alias("count")
    )
