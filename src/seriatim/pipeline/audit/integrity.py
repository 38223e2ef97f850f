"""Which rows may be used, and what is wrong with the others: what `evidence.py` and `check_integrity` say, at scale."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import LogTables, delivery_json, with_hashes
from seriatim.pipeline.audit.doubts import doubts

# As the reference auditor sorts the rows of one subscriber.
ROW_ORDER = ("position", "event_id", "topic", "number", "index", "out_of_order")
FIRST_PUBLISHED, FIRST_HELD = 0, 1  # phases of phantoms: what nobody published is told first


def found(frame: DataFrame, name: str, count: Column, phase: int, sentence: Column, witness: Column) -> DataFrame:
    """Anomalies in common columns. The frame has run, subscriber, position and event_id."""
    return frame.select(
        "run",
        F.lit(name).alias("name"),
        count.cast("long").alias("count"),
        F.lit(phase).alias("phase"),
        "subscriber",
        F.col("position").cast("long").alias("position"),
        F.col("event_id").alias("tie"),
        sentence.alias("sentence"),
        witness.alias("witness"),
    )


def repeats(log: LogTables, repeated: DataFrame, salt: int) -> tuple[DataFrame, DataFrame]:
    """Duplicates, and doubts about rows that may only have been logged twice."""
    keys = repeated.select("s", "e")
    rows = with_hashes(log.deliveries, salt, s="subscriber", e="event_id").join(keys, ["s", "e"])
    same = Window.partitionBy("s", "e").orderBy(*ROW_ORDER)
    rows = rows.withColumn("row", delivery_json())
    rows = rows.withColumns(
        {
            "first_position": F.first("position").over(same),
            "first_row": F.first("row").over(same),
            "nth": F.row_number().over(same),
        }
    ).filter("nth > 1")
    again = rows.filter("position != first_position")
    where = F.concat(F.lit("at positions "), "first_position", F.lit(" and "), "position")
    sentence = F.concat("subscriber", F.lit(" was notified of "), "event_id", F.lit(" twice, "), where)
    duplicates = found(again, "duplicate", F.lit(1), 0, sentence, F.array("first_row", "row"))
    logged = rows.filter("position = first_position")
    reason = F.concat(
        "subscriber",
        F.lit(": "),
        "event_id",
        F.lit(" twice at position "),
        "position",
        F.lit(", logged or notified twice"),
    )
    return duplicates, doubts(logged, "integrity", 0, "subscriber", "position", "event_id", reason=reason)


def row_doubts(subscribers: DataFrame, holes: DataFrame | None, tied: DataFrame | None) -> list[DataFrame]:
    """Rows that are missing, and positions that two events claim."""
    made = []
    if holes is not None:
        rows = holes.join(subscribers, "s").withColumn("kind", F.lit(0))
        reason = F.concat("subscriber", F.lit(": no row for position "), "position", F.lit(", so rows are missing"))
        made.append(doubts(rows, "order", 0, "subscriber", "kind", reason=reason))
    if tied is not None:
        first = tied.groupBy("s").agg(F.min("p").alias("position"))
        rows = first.join(subscribers, "s").withColumn("kind", F.lit(1))
        reason = F.concat(
            "subscriber", F.lit(": different events at position "), "position", F.lit(", order not known")
        )
        made.append(doubts(rows, "order", 0, "subscriber", "kind", reason=reason))
    return made
