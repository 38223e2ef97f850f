"""The ordering degree of paper 003 at scale: what `seriatim.audit.degree` measures, from tables.

Each subscriber is compared with the next one by name, so every row is compared at most twice: once as one's own and
once as the neighbour's.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from seriatim.audit.degree import Degree
from seriatim.model import InputError
from seriatim.pipeline.audit.columns import LogTables, slim_deliveries, with_hashes
from seriatim.pipeline.audit.events import events, events_of_rows, published
from seriatim.pipeline.audit.keep import kept, planned_simply
from seriatim.pipeline.logs.tables import Tables


def ordering_degree(tables: Tables) -> Degree:
    """Measure the order of one log."""
    log = LogTables(tables)
    if log.has_runs:
        raise InputError("run", "the degree is measured of one log", "filter one run and drop the column")
    with planned_simply(tables.deliveries.sparkSession):
        rows = slim_deliveries(log.deliveries, 0, has_runs=False)
        made = published(log, 0) if log.has_publications else None
        each = events_of_rows(rows.withColumn("levelled", F.col("notified_at")), has_runs=False)
        known = events(each, made).filter("not reused").select("e")
        names = with_hashes(log.deliveries, 0, s="subscriber").select("subscriber", "s").distinct()
        found = pairs(kept(usable(rows, known)), neighbours(names)).first()
    assert found is not None
    if not found["compared"]:
        return Degree(None, 0, 0, 0, 0)
    counted = (found[name] for name in ("pairs", "compared", "displaced", "displacement_max"))
    return Degree(found["weighed"] / found["compared"], *counted)


def usable(rows: DataFrame, known: DataFrame) -> DataFrame:
    """The rows that an audit judges the order by: s, e, p. Each event once, clear about its place and its id."""
    at_position = Window.partitionBy("s", "p")
    clear = rows.withColumn("is_tied", F.min("e").over(at_position) != F.max("e").over(at_position))
    first = clear.filter("not o").groupBy("s", "e").agg(F.min(F.struct("p", "is_tied")).alias("place"))
    return first.filter("not place.is_tied").select("s", "e", F.col("place.p").alias("p")).join(known, "e", "left_semi")


def neighbours(names: DataFrame) -> DataFrame:
    """Each subscriber with the next by name, the last with the first: s, other. Of two, only one pair."""
    by_name = Window.orderBy("subscriber")  # one row per subscriber, so one task can sort them
    line = names.withColumns(
        {"after": F.lead("s").over(by_name), "place": F.row_number().over(by_name), "first": F.first("s").over(by_name)}
    )
    ring = line.withColumn("other", F.coalesce("after", "first"))
    return ring.filter("s != other and (place != 2 or after is not null)").select("s", "other")


def pairs(rows: DataFrame, ring: DataFrame) -> DataFrame:
    """One row: pairs that share events, events compared and displaced, the longest way, the sum of S times degree."""
    mine = rows.join(ring, "s")
    theirs = rows.select(F.col("s").alias("other"), "e", F.col("p").alias("their_p"))
    shared = mine.join(theirs, ["other", "e"])
    own, their = Window.partitionBy("s").orderBy("p"), Window.partitionBy("s").orderBy("their_p")
    moved = shared.withColumn("moved", F.abs(F.row_number().over(own) - F.row_number().over(their)))
    each = moved.groupBy("s").agg(
        F.count(F.lit(1)).alias("size"),
        F.sum("moved").alias("moved"),
        F.sum((F.col("moved") > 0).cast("long")).alias("displaced"),
        F.max("moved").alias("furthest"),
    )
    return each.agg(
        F.count(F.lit(1)).alias("pairs"),
        F.sum("size").alias("compared"),
        F.sum("displaced").alias("displaced"),
        F.max("furthest").alias("displacement_max"),
        F.sum(F.col("size") - F.col("moved") / F.col("size")).alias("weighed"),
    )
