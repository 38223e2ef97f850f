"""Which rows may be used, and what is wrong with the others: what `evidence.py` and `check_integrity` say, at scale."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import (
    LogTables,
    delivery_json,
    publication_json,
    subscription_json,
    with_hashes,
)
from seriatim.pipeline.audit.doubts import doubts
from seriatim.pipeline.audit.events import PUBLICATION_ORDER
from seriatim.pipeline.audit.explain import FOUND, SCHEMA, explain_reused
from seriatim.pipeline.audit.keep import handed_out, kept
from seriatim.pipeline.audit.places import shown
from seriatim.pipeline.audit.workers import in_python

# As the reference auditor sorts the rows of one subscriber.
ROW_ORDER = ("position", "event_id", "topic", "number", "index", "out_of_order")
FIRST_PUBLISHED, FIRST_HELD = 0, 1  # phases of phantoms: what nobody published is told first


def found(frame: DataFrame, name: str, phase: Column, sentence: Column, witness: Column) -> DataFrame:
    """Anomalies in common columns, each counted once. The frame has run, subscriber, position and event_id."""
    return frame.select(
        "run",
        F.lit(name).alias("name"),
        F.lit(1).cast("long").alias("count"),
        phase.cast("int").alias("phase"),
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
    duplicates = found(again, "duplicate", F.lit(0), sentence, F.array("first_row", "row"))
    logged = rows.filter("position = first_position")
    reason = F.concat(
        "subscriber",
        F.lit(": "),
        "event_id",
        F.lit(" twice at position "),
        "position",
        F.lit(", logged or notified twice"),
    )
    return duplicates, doubts(logged, "integrity", 0, "subscriber", "position", reason=reason)


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


def reused(log: LogTables, all_events: DataFrame, salt: int, is_undivided: bool) -> DataFrame:
    """Ids that stand for two events, and which: the first rows of each kind are enough to tell."""
    ids = all_events.filter("reused").select("e")
    notified = with_hashes(log.deliveries, salt, e="event_id").join(ids, "e")
    of_topic = Window.partitionBy("e", "topic").orderBy("subscriber", *ROW_ORDER)
    notified = notified.withColumn("nth", F.row_number().over(of_topic)).filter("nth = 1")
    rows = notified.select("e", "run", "event_id", delivery_json().alias("row"))
    if log.has_publications:
        made = with_hashes(log.publications, salt, e="event_id").join(ids, "e").distinct()
        of_id = Window.partitionBy("e").orderBy(*PUBLICATION_ORDER)
        made = made.withColumn("nth", F.row_number().over(of_id)).filter("nth <= 2")
        rows = rows.unionByName(made.select("e", "run", "event_id", publication_json().alias("row")))
    rows = (rows.coalesce(1) if is_undivided else rows.repartition("e")).sortWithinPartitions("e")
    return in_python(rows, explain_reused, FOUND, SCHEMA, is_undivided)


def reused_doubt(told: DataFrame) -> DataFrame:
    """From the anomalies of `reused`: one doubt per run."""
    first = told.groupBy("run").agg(F.min("tie").alias("id"))
    reason = F.concat(F.lit("the id "), "id", F.lit(" stands for two events: their order cannot be told"))
    return doubts(first, "order", 1, reason=reason)


def unpublished(log: LogTables, all_events: DataFrame, runs: DataFrame, salt: int) -> DataFrame:
    """Notifications of what nobody published, in the runs whose publications are known."""
    ids = all_events.filter("n > 0 and a is null").select("e")
    rows = with_hashes(log.deliveries, salt, e="event_id").join(ids, "e").join(runs, "run", "left_semi")
    sentence = F.concat("subscriber", F.lit(" was notified of "), "event_id", F.lit(", which nobody published"))
    return found(rows, "phantom", F.lit(FIRST_PUBLISHED), sentence, F.array(delivery_json()))


def spans(log: LogTables, salt: int) -> DataFrame:
    """Of each subscriber and topic: when it was held, in order: s, t, spans."""
    rows = with_hashes(log.subscriptions, salt, s="subscriber", t="topic")
    order = [F.coalesce(name, F.lit(-1)).alias(name) for name in ("since", "until", "start", "end")]
    span = F.struct(*order, subscription_json().alias("row"))
    return rows.groupBy("s", "t").agg(F.sort_array(F.collect_list(span)).alias("spans"))


def uncovered(received: DataFrame, held: DataFrame) -> DataFrame:
    """Subscribers and topics that no single span covers: s, t, spans. Only of those need rows be looked at.

    `received` (s, t, first, final) are the positions of each subscriber and topic.
    """
    none = F.array().cast("array<struct<since: bigint, until: bigint, start: bigint, end: bigint, row: string>>")
    both = received.join(held, ["s", "t"], "left").withColumn("spans", F.coalesce("spans", none))
    unclear = both.filter(~F.exists("spans", lambda span: _covers(span, F.col("first"), F.col("final"))))
    return unclear.select("s", "t", "spans")


def not_held(log: LogTables, unclear: DataFrame, runs: DataFrame, salt: int) -> DataFrame:
    """Notifications on a topic that the subscriber did not hold then, of those that are `uncovered`."""
    rows = with_hashes(log.deliveries, salt, s="subscriber", t="topic").join(runs, "run", "left_semi")
    rows = rows.join(unclear, ["s", "t"])
    rows = rows.filter(~F.exists("spans", lambda span: _covers(span, F.col("position"), F.col("position"))))
    what = F.concat("event_id", F.lit(" on topic "), "topic", F.lit(", which it did not hold then"))
    sentence = F.concat("subscriber", F.lit(" was notified of "), what)
    witness = F.concat(F.array(delivery_json()), F.transform("spans", lambda span: span["row"]))
    return found(rows, "phantom", F.lit(FIRST_HELD), sentence, witness)


def _covers(span: Column, low: Column, high: Column) -> Column:
    return (span["since"] <= low) & ((span["until"] < 0) | (high < span["until"]))


def has_several_places() -> Column:
    """Whether rows give an event two numbers."""
    several = (F.col("low") != F.col("high")) | (F.col("low") != F.col("published_place"))
    return F.coalesce(several & ~F.col("reused"), F.lit(False))


def contradicted(
    log: LogTables, rows: DataFrame, all_events: DataFrame, several_count: int, salt: int
) -> DataFrame | None:
    """Events whose number is another event's, or that have two numbers, and their count. None if there are none."""
    told = all_events.filter(~F.col("reused"))
    place = F.coalesce("published_place", "low")
    several_places = told.filter(has_several_places()).select("e")
    claims = told.filter(place.isNotNull()).select(
        "e", "t", place["number"].alias("number"), place["index"].alias("index")
    )
    if several_count:
        several_places = kept(several_places)
        more = rows.filter("number is not null").join(handed_out(several_places, several_count), "e", "left_semi")
        claims = kept(claims.unionByName(more.select("e", "t", "number", "index").distinct()))
    at_place = ["t", "number", "index"]
    taken = claims.groupBy(*at_place).agg(F.min("e").alias("one"), F.max("e").alias("other")).filter("one != other")
    clashing = taken.select(*at_place)
    if not several_count and clashing.isEmpty():
        return None
    clashing = kept(clashing)
    same_place = claims.join(handed_out(clashing, clashing.count()), at_place, "left_semi").select("e")
    suspects = several_places.unionByName(same_place)
    return _mismatches(log, kept(suspects.distinct()), salt)


def _mismatches(log: LogTables, suspects: DataFrame, salt: int) -> DataFrame:
    columns = ("e", "run", "topic", "number", "index", "event_id", "phase", "subscriber", "position", "row")
    notified = with_hashes(log.deliveries, salt, e="event_id").join(suspects, "e").filter("number is not null")
    claims = notified.withColumns({"row": delivery_json(), "phase": F.lit(1)}).select(*columns)
    if log.has_publications:
        made = with_hashes(log.publications, salt, e="event_id").join(suspects, "e").filter("number is not null")
        made = made.withColumns(
            {
                "row": publication_json(),
                "phase": F.lit(0),
                "subscriber": F.lit(None).cast("string"),
                "position": F.lit(None).cast("long"),
            }
        )
        claims = claims.unionByName(made.select(*columns))
    # As the reference goes along the rows: publications by id, then subscribers by name, each by position.
    order = ("phase", "subscriber", "position", "event_id", "number", "index")
    of_place = Window.partitionBy("run", "topic", "number", "index").orderBy(*order)
    of_event = Window.partitionBy("e").orderBy(*order)
    claims = claims.withColumns(
        {
            "owner": F.first("event_id").over(of_place),
            "owner_row": F.first("row").over(of_place),
            "first_number": F.first("number").over(of_event),
            "first_index": F.first("index").over(of_event),
            "first_row": F.first("row").over(of_event),
        }
    )
    taken = F.col("owner") != F.col("event_id")
    moved = (F.col("first_number") != F.col("number")) | (F.col("first_index") != F.col("index"))
    claims = claims.filter(taken | moved).withColumn("nth", F.row_number().over(of_event)).filter("nth = 1")
    stands = F.concat(F.lit("number "), shown("number", "index"), F.lit(" of topic "), "topic", F.lit(" stands for "))
    sentence = F.when(taken, F.concat(stands, "owner", F.lit(" and for "), "event_id")).otherwise(
        F.concat(
            "event_id",
            F.lit(" has the numbers "),
            shown("first_number", "first_index"),
            F.lit(" and "),
            shown("number", "index"),
            F.lit(" of topic "),
            "topic",
        )
    )
    witness = F.when(taken, F.array("owner_row", "row")).otherwise(F.array("first_row", "row"))
    return found(claims, "number-mismatch", F.col("phase"), sentence, witness)
