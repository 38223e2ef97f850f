"""Tables about events and each publisher's own order, with a row per event, not per delivery."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import LogTables, checked, pack_place, with_hashes

# As the reference auditor sorts publications that share an id.
PUBLICATION_ORDER = ("topic", "publisher", "published_at", "sequence", "seen", "number", "index")

NOT_PUBLISHED = {  # the columns of an event that a publication gives it
    "published": "double",
    "a": "long",
    "b": "long",
    "sequence": "long",
    "seen": "long",
    "published_place": "struct<number: bigint, index: int>",
}


def totals(log: LogTables, salt: int) -> DataFrame:
    """One row per subscriber and topic, from one pass over the deliveries: run, subscriber, topic, s, t, and counts.

    n rows, of them `tagged`; first and final position; how many rows have a number, and how many of those numbers are
    `packed` into one (see `columns.py`), the lowest and the highest.
    """
    packed = pack_place(F.col("number"), F.col("index").cast("long"))
    return (
        with_hashes(log.deliveries, salt, s="subscriber", t="topic")
        .groupBy("run", "subscriber", "topic", "s", "t")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.sum(F.col("out_of_order").cast("long")).alias("tagged"),
            F.min("position").alias("first"),
            F.max("position").alias("final"),
            F.count("number").alias("numbered"),
            *places_in(packed),
        )
    )


def places_in(packed: Column) -> list[Column]:
    """The number of packed places, the lowest, and the highest."""
    return [F.count(packed).alias("packed"), F.min(packed).alias("lowest"), F.max(packed).alias("highest")]


def subscribers(all_totals: DataFrame) -> DataFrame:
    """One row per subscriber: run, subscriber, s, n rows, the last position, how many rows are tagged and numbered.

    `collided`: another subscriber has the same hash.
    """
    return all_totals.groupBy("s").agg(
        F.min("run").alias("run"),
        F.min("subscriber").alias("subscriber"),
        _differ("run", "subscriber").alias("collided"),
        F.sum("n").alias("n"),
        F.max("final").alias("last"),
        F.sum("tagged").alias("tagged"),
        F.sum("numbered").alias("numbered"),
    )


def topics(all_totals: DataFrame) -> DataFrame:
    """One row per topic: t, run, and `collided`, if another topic has the same hash."""
    return all_totals.groupBy("t").agg(F.min("run").alias("run"), _differ("run", "topic").alias("collided"))


def _differ(*names: str) -> Column:
    """Whether rows of a group do not all have the same."""
    differs = F.lit(False)
    for name in names:
        differs = differs | (F.min(name) != F.max(name))
    return differs


def published(log: LogTables, salt: int) -> DataFrame:
    """One row per published id: e, its publication, `twice` if the id was published as two different rows.

    `a` is the publisher, hashed as a subscriber of its name would be; `b` is the topic, hashed.
    """
    rows = with_hashes(log.publications, salt, e="event_id", a="publisher", b="topic")
    rows = rows.withColumn("made_check", checked(salt))
    told = F.struct(*PUBLICATION_ORDER, "event_id", "run", "a", "b", "made_check")
    first = rows.groupBy("e").agg(
        F.min(told).alias("first"),
        F.max(told).alias("last"),
        (F.min("made_check") != F.max("made_check")).alias("clash"),
    )
    return first.select("e", "first.*", (~F.col("first").eqNullSafe(F.col("last"))).alias("twice"), "clash")


def events_of_rows(rows: DataFrame, has_runs: bool) -> DataFrame:
    """One row per event that was delivered: n rows tell of it, `shared` by two or more subscribers.

    `collided`: two ids have one hash. Numbers and indices are the lowest and the highest that rows give it.
    """
    index = F.when(F.col("number").isNotNull(), F.col("index"))
    return rows.groupBy("e").agg(
        (F.min("run") if has_runs else F.lit("")).alias("run"),
        F.count(F.lit(1)).alias("n"),
        F.sum((~F.col("o")).cast("long")).alias("untagged"),
        (F.min("s") != F.max("s")).alias("shared"),
        F.min("t").alias("t"),
        (F.min("t") != F.max("t")).alias("two_topics"),
        F.min("check").alias("check"),
        (F.min("check") != F.max("check")).alias("collided"),
        F.min("levelled").alias("levelled"),
        F.min("number").alias("number"),  # plain columns, so that groups are hashed and not sorted
        F.max("number").alias("number_high"),
        F.min(index).alias("index"),
        F.max(index).alias("index_high"),
    )


def delivered() -> Column:
    return F.col("n") > 0


def with_times(all_events: DataFrame, rows: DataFrame) -> DataFrame:
    """Add when each event was first notified of and first received: other hints of its place than the one it was
    given."""
    times = rows.groupBy("e").agg(F.min("notified_at").alias("notified"), F.min("received_at").alias("received"))
    return all_events.join(times, "e", "left")


def events(each: DataFrame, publications: DataFrame | None) -> DataFrame:
    """One row per event, delivered (`each`) or only published.

    `reused`: the id stands for two events. `low` and `high` are the lowest and highest number and index that its rows
    give it: the same, if they agree.
    """
    told = F.col("number").isNotNull()
    each = each.withColumns(
        {
            "low": F.when(told, F.struct("number", "index")),
            "high": F.when(told, F.struct(F.col("number_high").alias("number"), F.col("index_high").alias("index"))),
        }
    ).drop("number", "number_high", "index", "index_high")
    if publications is None:
        absent = {name: F.lit(None).cast(kind) for name, kind in NOT_PUBLISHED.items()}
        return each.withColumns({"reused": F.col("two_topics"), **absent})
    names = ("e", "a", "b", "sequence", "seen", "twice", "clash", "made_check")
    place = F.when(F.col("number").isNotNull(), F.struct("number", "index")).alias("published_place")
    known = publications.select(
        *names, F.col("run").alias("published_run"), F.col("published_at").alias("published"), place
    )
    both = each.join(known, "e", "full_outer")
    return both.withColumns(
        {
            "run": F.coalesce("run", "published_run"),
            "n": F.coalesce("n", F.lit(0)),
            "untagged": F.coalesce("untagged", F.lit(0)),
            "shared": F.coalesce("shared", F.lit(False)),
            "collided": _true(F.col("collided")) | _true(F.col("clash")) | _true(F.col("check") != F.col("made_check")),
            "reused": _true(F.col("two_topics")) | _true(F.col("twice")) | _true(F.col("t") != F.col("b")),
            "t": F.coalesce("t", "b"),
        }
    )


def _true(column: Column) -> Column:
    return F.coalesce(column, F.lit(False))


def chains(all_events: DataFrame) -> DataFrame:
    """The publications that can be told, in their publishers' own order: e, run, a, seen, k, chain, rank, ordered.

    A publisher whose order is not known (no sequence, or the same one twice) gets one chain per event.
    """
    rows = all_events.filter(F.col("a").isNotNull() & ~F.col("reused"))
    own = Window.partitionBy("a")
    # Sequences differ, and none is null, exactly if each is greater than the one before it.
    before = F.lag("sequence").over(own.orderBy(F.col("sequence").asc_nulls_first()))
    first = F.row_number().over(own.orderBy(F.col("sequence").asc_nulls_first()))
    stepped = rows.withColumns({"steps": (F.col("sequence") > before) | (first == 1), "rank": first})
    told = F.min(F.coalesce(F.col("steps"), F.lit(False))).over(own) & (
        F.min(F.col("sequence").isNotNull()).over(own) | (F.count(F.lit(1)).over(own) == 1)
    )
    chain = "if(ordered, a, xxhash64(a, e)) as chain"
    marked = stepped.withColumn("ordered", told)
    return marked.selectExpr("e", "run", "a", "seen", "k", "ordered", chain, "if(ordered, rank, 1) as rank")


def fill_keys(rows: DataFrame) -> DataFrame:
    """An event that nobody was notified of has no key of its own: that of its publisher's previous event, or next."""
    own = Window.partitionBy("chain")
    # Both frames begin at the first row: a frame that reaches to the last row is computed again for every row.
    earlier = F.last("k", ignorenulls=True).over(own.orderBy("rank").rowsBetween(Window.unboundedPreceding, -1))
    later = F.last("k", ignorenulls=True).over(own.orderBy(F.desc("rank")).rowsBetween(Window.unboundedPreceding, -1))
    return rows.withColumn("k", F.coalesce("k", earlier, later, F.lit(float("-inf"))))
