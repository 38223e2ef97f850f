"""The order log on Spark: whether it is sound, in which words if not, and where each delivery is in it.

The same rules as in `seriatim.audit.order_log`, as queries: for order logs of any size, of one run or of many.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from seriatim.audit.order_log import Extent, misplaced, number_fault, position_fault
from seriatim.audit.report import Anomaly
from seriatim.model import Placement
from seriatim.pipeline.audit.columns import RUN, complete
from seriatim.pipeline.audit.keep import kept
from seriatim.pipeline.schemas import PLACEMENTS

NAMES = PLACEMENTS.names
POSITIONS, NUMBERS = range(2)  # what does not follow


class Fault(NamedTuple):
    """The first anomalies of an order log, in order, and how many of each name there are."""

    anomalies: list[Anomaly]
    counts: dict[str, int]


def order_rows(order: DataFrame) -> DataFrame:
    """The columns of an order log, and its run."""
    return complete(order, PLACEMENTS, "order")


def check_ranges(rows: DataFrame, where: str) -> None:
    """Refuse rows that are no ranges."""
    wrong = rows.filter("last < first or position < 1 or first < 1").orderBy("run", *NAMES).limit(1).collect()
    for row in wrong:
        raise misplaced(where, placement_of(row))


def extents(rows: DataFrame) -> dict[str, Extent]:
    """From where to where the order log of each run goes."""
    found = rows.groupBy(RUN).agg(F.min("position").alias("first"), F.max(_end()).alias("last"))
    return {row[RUN]: Extent(row["first"], row["last"]) for row in found.collect()}


def faults(rows: DataFrame, limit: int) -> dict[str, Fault]:
    """What is wrong with the order logs of these runs, by run; nothing is said of those that are sound."""
    by_position = _following(rows, [RUN], "position", _end(), POSITIONS)
    by_number = _following(rows, [RUN, "topic"], "first", F.col("last"), NUMBERS)
    broken = kept(by_position.unionByName(by_number))
    found: dict[str, Fault] = {}
    each = Window.partitionBy(RUN, "name")
    in_order = each.orderBy("about", "group", *NAMES)
    shown = broken.withColumns({"nth": F.row_number().over(in_order), "total": F.count(F.lit(1)).over(each)})
    for row in sorted(shown.filter(F.col("nth") <= limit).collect(), key=lambda row: int(row["nth"])):
        told = position_fault if row["about"] == POSITIONS else number_fault
        anomaly = told(placement_of(row["before"]), placement_of(row))
        fault = found.setdefault(row[RUN], Fault([], {}))
        fault.anomalies.append(anomaly)
        fault.counts[anomaly.name] = row["total"]
    return found


def _following(rows: DataFrame, of: list[str], begin: str, end: Column, about: int) -> DataFrame:
    """The rows that do not begin right behind the highest end before them; `before` is the row that has that end."""
    earlier = Window.partitionBy(*of).orderBy(*NAMES).rowsBetween(Window.unboundedPreceding, -1)
    # Of rows with the same end the first stands for it.
    place = F.row_number().over(Window.partitionBy(*of).orderBy(*NAMES))
    known = rows.withColumns({"end": end, "place": -place})
    known = known.withColumn("highest", F.max(F.struct("end", "place", *NAMES)).over(earlier))
    later = F.col(begin) > F.col("highest.end")
    name = F.when(later, "order-log-gap").otherwise("order-log-overlap")
    if about == NUMBERS:
        name = F.when(later, "order-log-skip").otherwise("order-log-back")
    group = F.col("topic") if about == NUMBERS else F.lit("")
    wrong = known.filter(F.col(begin) != F.col("highest.end") + 1)
    before = F.struct(*(F.col(f"highest.{field}").alias(field) for field in NAMES)).alias("before")
    kind = (F.lit(about).alias("about"), group.alias("group"), name.alias("name"))
    return wrong.select(RUN, *kind, *NAMES, before)


def _end() -> Column:
    return F.col("position") + F.col("last") - F.col("first")


def placement_of(row: Row) -> Placement:
    return Placement(*(row[name] for name in NAMES))


def placed(deliveries: DataFrame, order: DataFrame) -> DataFrame:
    """Deliveries with `at`, their position in the order log, and `by`, its row; null where it does not have them.

    The rows of a topic, of both tables, go by their numbers: so each task needs the order log of its topics only. It
    must be sound.
    """
    by = F.struct(*NAMES)
    ranges = order.select(RUN, "topic", F.col("first").alias("number"), F.lit(0).alias("_kind"), by.alias("_by"))
    both = deliveries.withColumn("_kind", F.lit(1)).unionByName(ranges, allowMissingColumns=True)
    before = Window.partitionBy(RUN, "topic").orderBy("number", "_kind").rowsBetween(Window.unboundedPreceding, 0)
    found = both.withColumn("_by", F.last("_by", ignorenulls=True).over(before)).filter("_kind = 1")
    has = F.col("number").isNotNull() & (F.col("number") <= F.col("_by.last"))
    return found.withColumns(
        {
            "at": F.when(has, F.col("_by.position") + F.col("number") - F.col("_by.first")),
            "by": F.when(has, F.col("_by")),
        }
    ).drop("_kind", "_by")
