"""The doubts about publishers and causes: those of `Chains`, `check_fifo` and `check_causes`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import LogTables, before, told, with_hashes
from seriatim.pipeline.audit.explain import CIRCULAR
from seriatim.pipeline.audit.keep import kept
from seriatim.pipeline.audit.reporting import doubts

ROUNDS_MAX = 100  # in which what comes after circular causes is looked for


def fifo_doubts(chain_rows: DataFrame, publications: DataFrame) -> DataFrame:
    """Publishers whose own order is not known."""
    names = publications.select("e", "publisher")
    rows = chain_rows.filter("not ordered").join(names, "e").select("run", "publisher").distinct()
    reason = told("{publisher}: publications without a sequence of their own")
    return doubts(rows, "fifo", 1, "publisher", reason=reason)


def unpublished_doubt(log: LogTables, all_events: DataFrame, runs: DataFrame, salt: int) -> DataFrame:
    """The first event that counts for the order and has no publication, in the runs that have some."""
    ids = all_events.filter("n > 0 and a is null and not reused").select("e")
    rows = with_hashes(log.deliveries, salt, s="subscriber", e="event_id").join(ids, "e").filter("not out_of_order")
    rows = rows.join(runs, "run", "left_semi")
    first = rows.groupBy("run", "s", "subscriber", "e", "event_id").agg(F.min("position").alias("position"))
    row = F.min(F.struct("subscriber", "position", "event_id"))["event_id"]
    reason = told("{event_id}: notified, but its publication is not in the log")
    return doubts(first.groupBy("run").agg(row.alias("event_id")), "fifo", 2, reason=reason)


def causal_doubts(
    chain_rows: DataFrame, publications: DataFrame, subscribers: DataFrame, silent: DataFrame
) -> list[DataFrame]:
    """Publications that do not say what their publisher had seen, or say what cannot be. `silent` runs never say."""
    names = publications.select("e", "publisher", "event_id")
    ends = subscribers.select(F.col("s").alias("a"), "last")
    rows = (
        chain_rows.withColumn("highest", F.coalesce(F.max("seen").over(before("chain", "rank")), F.lit(0)))
        .join(silent, "run", "left_anti")
        .join(names, "e")
        .join(ends, "a", "left")
        .withColumns(
            {
                "chain_name": F.when(F.col("ordered"), F.lit("")).otherwise(F.col("event_id")),
                "notified": F.coalesce(F.col("last") + 1, F.lit(0)),
            }
        )
    )

    had = "{event_id}: {publisher} had seen {seen} notifications, "
    order = ("publisher", "chain_name", "rank", "kind")
    kinds = (
        ("seen is null", "{event_id}: what {publisher} had seen is not recorded"),
        ("seen > notified", had + "the log has fewer"),
        ("seen < highest", had + "and {highest} before that"),
    )
    strange = kept(rows.filter(" or ".join(which for which, _ in kinds)))
    if strange.isEmpty():
        return []
    return [
        doubts(strange.filter(which).withColumn("kind", F.lit(kind)), "causal", 1, *order, reason=told(reason))
        for kind, (which, reason) in enumerate(kinds)
    ]


def hopeless(found: DataFrame, chain_rows: DataFrame, rows: DataFrame, salt: int) -> DataFrame | None:
    """Publications whose causes are circular, and all that come after such a one: chain, and the first `rank` of it."""
    circular = found.filter(F.col("name") == CIRCULAR).select("run", F.col("tie").alias("event_id"))
    if circular.isEmpty():
        return None
    ids = with_hashes(circular, salt, e="event_id").select("e")
    first = kept(chain_rows.join(ids, "e").groupBy("chain").agg(F.min("rank").alias("from_rank")))
    size = None
    for _ in range(ROUNDS_MAX):
        counted = first.agg(F.count(F.lit(1)), F.sum("from_rank")).first()
        if counted == size:
            break
        size = counted
        events = hopeless_events(first, chain_rows)
        met = rows.join(events, "e").groupBy(F.col("s").alias("a")).agg(F.min("p").alias("met"))
        after = chain_rows.filter("ordered").join(met, "a").filter("seen > met")
        more = after.groupBy("chain").agg(F.min("rank").alias("from_rank"))
        first = kept(first.unionByName(more).groupBy("chain").agg(F.min("from_rank").alias("from_rank")))
    return first


def hopeless_events(first: DataFrame, chain_rows: DataFrame) -> DataFrame:
    return chain_rows.join(first, "chain").filter("rank >= from_rank").select("e")


def circular_doubt(first: DataFrame, chain_rows: DataFrame, publications: DataFrame) -> DataFrame:
    names = publications.select("e", "publisher", "event_id")
    rows = chain_rows.join(first, "chain").filter("rank = from_rank").join(names, "e")
    name = F.when(F.col("ordered"), F.col("publisher")).otherwise(F.concat("publisher", F.lit("\0"), "event_id"))
    example = rows.groupBy("run").agg(F.min(F.struct(name.alias("chain"), "event_id"))["event_id"].alias("event_id"))
    reason = told("{event_id}: its causes are circular, something was seen before it was published")
    return doubts(example, "causal", 2, reason=reason)
