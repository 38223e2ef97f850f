"""Which rows may be used, and why the others may not: the results of `evidence.py` and `check_integrity`, at scale."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import LogTables, row_of, shown, told, with_hashes
from seriatim.pipeline.audit.events import PUBLICATION_ORDER
from seriatim.pipeline.audit.explain import FOUND, explain_reused
from seriatim.pipeline.audit.keep import handed_out, in_python, kept
from seriatim.pipeline.audit.reporting import doubts

# As the reference auditor sorts the rows of one subscriber.
ROW_ORDER = ("position", "event_id", "topic", "number", "index", "out_of_order")
FIRST_PUBLISHED, FIRST_HELD = 0, 1  # phases of phantoms: unpublished events are reported first


def found(
    frame: DataFrame, name: str, sentence: Column, witness: Column, phase: Column | int = 0, count: Column | int = 1
) -> DataFrame:
    """Anomalies in common columns. The frame has run, subscriber, position and event_id."""
    return frame.select(
        "run",
        F.lit(name).alias("name"),
        F.lit(count).cast("long").alias("count"),
        F.lit(phase).cast("int").alias("phase"),
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
    rows = rows.withColumn("row", row_of("deliveries"))
    firsts = {f"first_{name}": F.first(name).over(same) for name in ("position", "row")}
    rows = rows.withColumns({**firsts, "nth": F.row_number().over(same)}).filter("nth > 1")
    again = rows.filter("position != first_position")
    sentence = told("{subscriber} was notified of {event_id} twice, at positions {first_position} and {position}")
    logged = rows.filter("position = first_position")
    reason = told("{subscriber}: {event_id} twice at position {position}, logged or notified twice")
    return (
        found(again, "duplicate", sentence, F.array("first_row", "row")),
        doubts(logged, "integrity", 0, "subscriber", "position", reason=reason),
    )


def row_doubts(subscribers: DataFrame, holes: DataFrame | None, tied: DataFrame | None) -> list[DataFrame]:
    """Rows that are missing, and positions that two events claim."""
    first = tied.groupBy("s").agg(F.min("p").alias("position")) if tied is not None else None
    kinds = (
        (holes, "{subscriber}: no row for position {position}, so rows are missing"),
        (first, "{subscriber}: different events at position {position}, order not known"),
    )
    return [
        doubts(
            rows.join(subscribers, "s").withColumn("kind", F.lit(kind)),
            "order",
            0,
            "subscriber",
            "kind",
            reason=told(text),
        )
        for kind, (rows, text) in enumerate(kinds)
        if rows is not None
    ]


def reused(log: LogTables, all_events: DataFrame, salt: int, is_undivided: bool) -> DataFrame:
    """Ids that stand for two events, and which: the first rows of each kind are enough to tell."""
    ids = all_events.filter("reused").select("e")
    notified = with_hashes(log.deliveries, salt, e="event_id").join(ids, "e")
    of_topic = Window.partitionBy("e", "topic").orderBy("subscriber", *ROW_ORDER)
    notified = notified.withColumn("nth", F.row_number().over(of_topic)).filter("nth = 1")
    rows = notified.select("e", "run", "event_id", row_of("deliveries").alias("row"))
    if log.has_publications:
        made = with_hashes(log.publications, salt, e="event_id").join(ids, "e").distinct()
        of_id = Window.partitionBy("e").orderBy(*PUBLICATION_ORDER)
        made = made.withColumn("nth", F.row_number().over(of_id)).filter("nth <= 2")
        rows = rows.unionByName(made.select("e", "run", "event_id", row_of("publications").alias("row")))
    rows = (rows.coalesce(1) if is_undivided else rows.repartition("e")).sortWithinPartitions("e")
    return in_python(rows, explain_reused, FOUND, is_undivided)


def reused_doubt(anomalies: DataFrame) -> DataFrame:
    """From the anomalies of `reused`: one doubt per run."""
    first = anomalies.groupBy("run").agg(F.min("tie").alias("id"))
    return doubts(first, "order", 1, reason=told("the id {id} stands for two events: their order is not known"))


def unpublished(log: LogTables, all_events: DataFrame, runs: DataFrame, salt: int) -> DataFrame:
    """Notifications of what nobody published, in the runs whose publications are known."""
    ids = all_events.filter("n > 0 and a is null").select("e")
    rows = with_hashes(log.deliveries, salt, e="event_id").join(ids, "e").join(runs, "run", "left_semi")
    sentence = told("{subscriber} was notified of {event_id}, which nobody published")
    return found(rows, "phantom", sentence, F.array(row_of("deliveries")), FIRST_PUBLISHED)


def spans(log: LogTables, salt: int) -> DataFrame:
    """Of each subscriber and topic: when it was held, in order: s, t, spans."""
    rows = with_hashes(log.subscriptions, salt, s="subscriber", t="topic")
    order = [F.coalesce(name, F.lit(-1)).alias(name) for name in ("since", "until", "start", "end")]
    span = F.struct(*order, row_of("subscriptions").alias("row"))
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
    sentence = told("{subscriber} was notified of {event_id} on topic {topic}, which it did not hold then")
    witness = F.concat(F.array(row_of("deliveries")), F.transform("spans", lambda span: span["row"]))
    return found(rows, "phantom", sentence, witness, FIRST_HELD)


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
    clear = all_events.filter(~F.col("reused"))
    place = F.coalesce("published_place", "low")
    several_places = clear.filter(has_several_places()).select("e")
    claims = clear.filter(place.isNotNull()).select(
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
    claims = numbered(log, suspects, salt)
    # As the reference goes along the rows: publications by id, then subscribers by name, each by position.
    order = ("phase", "subscriber", "position", "event_id", "number", "index")
    of_place = Window.partitionBy("run", "topic", "number", "index").orderBy(*order)
    of_event = Window.partitionBy("e").orderBy(*order)
    owners = {"owner": F.first("event_id").over(of_place), "owner_row": F.first("row").over(of_place)}
    firsts = {f"first_{name}": F.first(name).over(of_event) for name in ("number", "index", "row")}
    claims = claims.withColumns(owners | firsts)
    taken = F.col("owner") != F.col("event_id")
    moved = (F.col("first_number") != F.col("number")) | (F.col("first_index") != F.col("index"))
    claims = claims.filter(taken | moved).withColumn("nth", F.row_number().over(of_event)).filter("nth = 1")
    place, first = shown("number", "index"), shown("first_number", "first_index")
    stands = told("number {place} of topic {topic} stands for {owner} and for {event_id}", place=place)
    has = told("{event_id} has the numbers {first} and {place} of topic {topic}", first=first, place=place)
    witness = F.when(taken, F.array("owner_row", "row")).otherwise(F.array("first_row", "row"))
    return found(claims, "number-mismatch", F.when(taken, stands).otherwise(has), witness, F.col("phase"))


def numbered(log: LogTables, events: DataFrame, salt: int) -> DataFrame:
    """The rows of these events (e) that have a number, each as `row`. The reference auditor looks at phase 0 first."""
    tables = [(1, "deliveries"), *([(0, "publications")] if log.has_publications else [])]
    parts = [
        with_hashes(getattr(log, name), salt, e="event_id")
        .join(events, "e")
        .filter("number is not null")
        .withColumns({"row": row_of(name), "phase": F.lit(phase)})
        for phase, name in tables
    ]
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
