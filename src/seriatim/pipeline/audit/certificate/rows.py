"""The pass over deliveries, as queries: the same rules as in `seriatim.audit.certificate`, for rows of any size.

Deliveries here are *placed* (`order.placed`): `at` is their position in the order log, `by` its row. Only rows that are
shown leave Spark.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import RUN, row_of
from seriatim.pipeline.audit.keep import kept

# What tells the rows of a subscriber apart, in the order of the reference auditor.
SORTED = ("position", "event_id", "topic", "number", "index", "out_of_order")
SLIM = (RUN, "subscriber", *SORTED, "order_position")
OWN = (RUN, "subscriber")
NAMED = 1_000  # subscribers, in one query
TOLD = "subscriber string, position long, event_id string, topic string, number long, index int, out_of_order boolean"


def slim(deliveries: DataFrame) -> DataFrame:
    """What is looked at of each delivery."""
    return deliveries.select(*SLIM)


def walked(rows: DataFrame, with_rows: bool = False) -> DataFrame:
    """Placed rows, and what shows along each subscriber's positions.

    `tied`: two events claim the position. `hole`: a position before this row that has none. `key`: the place of a row
    that is judged. `reach`: the highest key before it, and, if wanted, the row that has it. `late`: not above that.
    """
    own = Window.partitionBy(*OWN)
    in_order = own.orderBy(*SORTED)
    peers = own.orderBy("position").rangeBetween(Window.currentRow, Window.currentRow)
    previous = F.lag("position", 1, -1).over(in_order)
    told = rows.withColumns(
        {
            "tied": F.min("event_id").over(peers) != F.max("event_id").over(peers),
            "hole": F.when(F.col("position") > previous + 1, previous + 1),
        }
    )
    told = told.withColumn("judged", ~F.col("out_of_order") & ~F.col("tied") & F.col("at").isNotNull())
    # The judged rows of one position are of one event: the first of them counts.
    nth = F.row_number().over(Window.partitionBy(*OWN, "position", "judged").orderBy(*SORTED))
    told = told.withColumn("key", F.when(F.col("judged") & (nth == 1), F.struct("at", "index")))
    place = F.struct("key")
    if with_rows:
        told = told.withColumn("nth", F.row_number().over(in_order))
        place = F.struct("key", -F.col("nth"), _row().alias("row"))
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    reached = told.withColumn("reach", F.max(F.when(F.col("key").isNotNull(), place)).over(before))
    return reached.withColumn("late", F.coalesce(F.col("key") <= F.col("reach.key"), F.lit(False)))


def _row() -> Column:
    return F.struct("subscriber", *SORTED, "at", "by")


def is_mistold() -> Column:
    """Whether the subscriber was told another position than that of the order log."""
    return F.coalesce(F.col("order_position") != F.col("at"), F.lit(False))


def by_subscriber(found: DataFrame) -> DataFrame:
    """One row for each subscriber: what is counted of its rows, as they were walked, and its first hole and tie."""
    lacks = F.col("number").isNull()
    return found.groupBy(*OWN).agg(
        F.count(F.lit(1)).alias("deliveries"),
        F.count_if("out_of_order").alias("out_of_order"),
        F.count_if(lacks).alias("unnumbered"),
        F.count_if(~lacks & F.col("at").isNull()).alias("uncovered"),
        F.count_if("late").alias("late"),
        F.count_if(is_mistold()).alias("mistold"),
        F.min("hole").alias("hole"),
        F.min(F.when(F.col("tied"), F.col("position"))).alias("tie"),
    )


def late_rows(found: DataFrame) -> DataFrame:
    """Of rows that were walked, with rows: the late ones, and `other`, the row it repeats or the one it follows.

    `name` says which of these.
    """
    late = found.filter("late").select(*OWN, "key").distinct()
    again = Window.partitionBy(*OWN, "key").orderBy(*SORTED)
    same = found.filter("key is not null").join(late, [*OWN, "key"], "left_semi")
    told = same.withColumns({"is_repeat": F.row_number().over(again) > 1, "first": F.first(_row()).over(again)})
    return (
        told.filter("late")
        .withColumns(
            {
                "name": F.when(F.col("is_repeat"), "order-repeat").otherwise("order-inversion"),
                "other": F.when(F.col("is_repeat"), F.col("first")).otherwise(F.col("reach.row")),
            }
        )
        .select(RUN, "name", "subscriber", *SORTED, _row().alias("row"), "other")
    )


def mismatched(rows: DataFrame) -> DataFrame:
    """Events at two places, and places of two events: run, kind, event_id or place, and the two that differ."""
    covered = rows.filter("at is not null").select(RUN, "event_id", F.struct("at", "index").alias("place"))
    by_event = covered.groupBy(RUN, "event_id").agg(F.min("place").alias("one"), F.max("place").alias("other"))
    by_place = covered.groupBy(RUN, "place").agg(F.min("event_id").alias("one"), F.max("event_id").alias("other"))
    two_places = by_event.filter("one != other").select(
        RUN,
        F.lit(0).alias("kind"),
        F.col("event_id").alias("one_id"),
        F.col("event_id").alias("other_id"),
        F.col("one").alias("one_place"),
        F.col("other").alias("other_place"),
    )
    two_events = by_place.filter("one != other").select(
        RUN,
        F.lit(1).alias("kind"),
        F.col("one").alias("one_id"),
        F.col("other").alias("other_id"),
        F.col("place").alias("one_place"),
        F.col("place").alias("other_place"),
    )
    return two_places.unionByName(two_events)


def first_of(found: DataFrame, limit: int, of: list[str], *order: str) -> DataFrame:
    """The first rows of each group, by `nth`, and the `total` of it."""
    each = Window.partitionBy(*of)
    numbered = found.withColumns(
        {"nth": F.row_number().over(each.orderBy(*order)), "total": F.count(F.lit(1)).over(each)}
    )
    return numbered.filter(F.col("nth") <= limit)


def mistold_rows(rows: DataFrame) -> DataFrame:
    """The rows that tell another position."""
    found = rows.filter(is_mistold())
    return found.select(RUN, F.lit("position-mismatch").alias("name"), "subscriber", *SORTED, _row().alias("row"))


def rows_of(pairs: DataFrame, rows: DataFrame) -> DataFrame:
    """Of mismatches, the first row of each of the two that differ: `row` and `other`."""
    keys = pairs.withColumn("pair", F.monotonically_increasing_id())
    keys = kept(keys)
    sides = []
    for side in ("one", "other"):
        wanted = keys.select(RUN, "pair", F.col(f"{side}_id").alias("event_id"), f"{side}_place.*")
        there = rows.filter("at is not null").join(F.broadcast(wanted), [RUN, "event_id", "at", "index"])
        first = F.min(F.struct("subscriber", *SORTED, "at", "by")).alias("row" if side == "one" else "other")
        sides.append(there.groupBy("pair").agg(first))
    return keys.join(sides[0], "pair").join(sides[1], "pair")


def whole_rows(deliveries: DataFrame, wanted: Iterable[tuple[str, Row]]) -> dict[tuple[object, ...], str]:
    """The deliveries behind (run, row) as they were given, by run and what tells them apart; `explain.decode` reads."""
    keys = sorted({(run, *_told(row)) for run, row in wanted}, key=repr)
    if not keys:
        return {}
    names = (RUN, "subscriber", *SORTED)
    known = F.broadcast(deliveries.sparkSession.createDataFrame(keys, f"run string, {TOLD}").coalesce(1))
    # Files that tell from where to where their names go need not be read.
    names_here = {key[1] for key in keys}
    deliveries = deliveries.filter(F.col("subscriber").isin(*names_here)) if len(names_here) <= NAMED else deliveries
    found = deliveries.join(known, list(names), "left_semi").select(*names, row_of("deliveries").alias("text"))
    first = found.groupBy(*names).agg(F.min("text").alias("text")).collect()
    return {(row[RUN], *_told(row)): row["text"] for row in first}


def key_of(run: str, row: Row) -> tuple[object, ...]:
    """By what `whole_rows` knows a row."""
    return (run, *_told(row))


def _told(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("subscriber", *SORTED))
