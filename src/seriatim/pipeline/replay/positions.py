"""The order log on Spark: whether it is sound, how far it goes, and the position of every event.

    with_positions(events, order)     events with `position`, null where the order log does not have their number
    with_keys(events, ranges)         events with the key of the range that they are in; others are left out

A position counts broker messages, so all events of one pack share theirs and follow each other by `index`.

Events find their ranges by chunks of 65,536 numbers of a log: each chunk is one pass over its ranges and events side by
side. No join compares every range with every event, and a log of any length is shared by many tasks.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.model import InputError, Number, Position, Topic

CHUNK_BITS = 16  # this many numbers of a log are given their places at a time, as a power of two
RANGES = "log string, first long, last long, key long, rises boolean, position long"


# ── places of events ──────────────────────────────────────────────────────────────────────────────────────────────


def runs(order: DataFrame) -> DataFrame:
    """The order log as ranges for `with_keys`: the key of a number is its position."""
    position = F.col("position")
    return order.select("log", "first", "last", position.alias("key"), F.lit(True).alias("rises"), "position")


def with_positions(events: DataFrame, order: DataFrame) -> DataFrame:
    """Events with `position`; null where the order log does not have their number."""
    found = _in_ranges(events, runs(order))
    return found.select(*events.columns, _rising("position").alias("position"))


def with_keys(events: DataFrame, ranges: DataFrame) -> DataFrame:
    """Events with `order_key` and `order_position`; those that are in no range are left out.

    `ranges` has the columns of RANGES: `key` is that of `first`, and if it `rises`, the next number has the next one.
    """
    found = _in_ranges(events, ranges).where("_range IS NOT NULL")
    key = F.when(F.col("_range.rises"), _rising("key")).otherwise(F.col("_range.key"))
    return found.select(*events.columns, key.alias("order_key"), _rising("position").alias("order_position"))


def _in_ranges(events: DataFrame, ranges: DataFrame) -> DataFrame:
    """Events with `_range`, the range that has their number, or null. Ranges of a log must not overlap."""
    place = F.struct("first", "last", "key", "rises", "position")
    starts = ranges.withColumn("_place", place)
    starts = starts.withColumn("_chunk", F.explode(F.sequence(_chunk("first"), _chunk("last"))))
    begin = F.greatest("first", F.shiftleft("_chunk", CHUNK_BITS))
    starts = starts.select("log", begin.alias("number"), "_chunk", "_place")
    both = events.withColumn("_chunk", _chunk("number")).unionByName(starts, allowMissingColumns=True)
    before = Window.partitionBy("log", "_chunk").orderBy("number", F.col("_place").isNull())
    latest = F.last("_place", ignorenulls=True).over(before.rowsBetween(Window.unboundedPreceding, 0))
    filled = both.withColumn("_range", latest).where("_place IS NULL")
    return filled.withColumn("_range", F.when(F.col("number") <= F.col("_range.last"), F.col("_range")))


def _chunk(column: str) -> Column:
    return F.shiftright(F.col(column), CHUNK_BITS)


def _rising(name: str) -> Column:
    return F.col(f"_range.{name}") + F.col("number") - F.col("_range.first")


# ── what the order log has ────────────────────────────────────────────────────────────────────────────────────────


class OrderedLog(NamedTuple):
    """What the order log has of one log: its first and last number, their positions, how many numbers these are, and
    when the broker stored the first of them, in ms."""

    first: Number
    last: Number
    begin: Position
    end: Position
    numbers: int
    stored_at: float


class Gap(NamedTuple):
    """Numbers of a log that the order log lacks between two that it has, at positions `after` and `before`."""

    log: Topic
    first: Number
    last: Number
    after: Position
    before: Position


def lanes(order: DataFrame) -> dict[Topic, OrderedLog]:
    """One for each log that has a position."""
    end = F.col("position") + F.col("last") - F.col("first")
    count, stored_at = F.sum(F.col("last") - F.col("first") + 1), F.min("received_at")
    found = order.groupBy("log").agg(F.min("first"), F.max("last"), F.min("position"), F.max(end), count, stored_at)
    return {row[0]: OrderedLog(*row[1:]) for row in found.collect()}


def gaps(order: DataFrame) -> DataFrame:
    """Where the numbers of a log do not go on: rows of `Gap`."""
    following = Window.partitionBy("log").orderBy("first")
    end = F.col("position") + F.col("last") - F.col("first")
    pairs = order.select(
        "log",
        (F.col("last") + 1).alias("begin"),
        (F.lead("first").over(following) - 1).alias("until"),
        end.alias("after"),
        F.lead("position").over(following).alias("before"),
    )
    return pairs.where("begin <= until").selectExpr("log", "begin AS first", "until AS last", "after", "before")


def first_hole(order: DataFrame, after: Position) -> Position | None:
    """The first position behind this one that the order log does not have, before one that it has. One task."""
    end = F.col("position") + F.col("last") - F.col("first")
    in_turn = Window.orderBy("position")
    ends = order.select(end.alias("end"), F.lead("position").over(in_turn).alias("next"))
    row = ends.where((F.col("end") >= after) & (F.col("end") + 1 < F.col("next"))).agg(F.min("end")).collect()[0]
    return None if row[0] is None else row[0] + 1


def check_sound(order: DataFrame) -> None:
    """Raise InputError if a position stands for two numbers, or a number has two positions."""
    end = F.col("position") + F.col("last") - F.col("first")
    spans = [
        _twice(order, F.lit(""), F.col("position"), end, "position"),
        _twice(order, F.col("log"), F.col("first"), F.col("last"), "number"),
    ]
    for row in spans[0].union(spans[1]).limit(1).collect():
        what = f"{row['kind']} {row['begin']}" + (f" of {row['of']}" if row["of"] else "")
        fix = "somebody else has written to the stream of the order log; replay with --by stamps"
        raise InputError("order log", f"{what} occurs twice", fix)


def _twice(order: DataFrame, of: Column, begin: Column, end: Column, kind: str) -> DataFrame:
    """Ranges that begin before another one, which begins no later, has ended; chunk by chunk."""
    spans = order.select(of.alias("of"), begin.alias("begin"), end.alias("end"), F.lit(kind).alias("kind"))
    cut = F.explode(F.sequence(F.shiftright("begin", CHUNK_BITS), F.shiftright("end", CHUNK_BITS)))
    earlier = Window.partitionBy("of", "chunk").orderBy("begin").rowsBetween(Window.unboundedPreceding, -1)
    seen = spans.withColumn("chunk", cut).withColumn("reached", F.max("end").over(earlier))
    return seen.where("begin <= reached").select("kind", "of", "begin")
