"""Runs of any size: read, judged and counted on Spark. Only tables of bounded size leave the executors.

That is: one row per bucket of a distribution, per step of a timeline, per shown name, and per kind of message. Each of
these is a named function of a DataFrame; `spark_figures` runs them and fills the structure.
"""

from collections.abc import Iterable
from math import log

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from seriatim.audit import ColumnMapping
from seriatim.order import GUARANTEES
from seriatim.pipeline.audit import audit_tables
from seriatim.pipeline.logs.tables import Tables, read_tables
from seriatim.pipeline.report import figures
from seriatim.pipeline.report.figures import Distribution, Ranking, RunFigures, Timeline, Traffic
from seriatim.pipeline.report.pages import Judgement, RunSection
from seriatim.pipeline.report.sources import name_of, note_of, restricted

KINDS_MAX = 100  # kinds of messages; a log that has more is not ours


def read_run_on_spark(
    spark: SparkSession,
    source: str,
    guarantees: Iterable[str] = GUARANTEES,
    limit: int = 10,
    mapping: ColumnMapping | None = None,
) -> RunSection:
    """Read a run with Spark, into the same section as `sources.read_run`."""
    tables = read_tables(spark, source, mapping)
    judgement = Judgement.of(audit_tables(tables, limit).report)
    return RunSection(
        name=name_of(source),
        judgement=restricted(judgement, guarantees),
        figures=spark_figures(tables),
        note=note_of(mapping, "read and judged on Spark"),
    )


def measured(deliveries: DataFrame, publications: DataFrame | None) -> DataFrame:
    """(measure, value): every latency, every time held back, the number of entries of every stamp."""
    rows = deliveries.select("event_id", "notified_at", "received_at", f.size("stamp").alias("entries"))
    if publications is None:
        rows = rows.withColumn("published_at", f.lit(None).cast("double"))
    else:
        # An id that stands for two events is the audit's affair; here one of them gives the time, so that no row is
        # counted twice.
        times = publications.groupBy("event_id").agg(f.max("published_at").alias("published_at"))
        rows = rows.join(times, "event_id", "left")
    measures = {
        "latency": f.col("notified_at") - f.col("published_at"),
        "held": f.col("notified_at") - f.col("received_at"),
        "stamp_entries": f.when(f.col("entries") >= 0, f.col("entries").cast("double")),
    }
    named = [f.struct(f.lit(name).alias("measure"), value.alias("value")) for name, value in measures.items()]
    return rows.select(f.inline(f.array(*named))).where(_is_finite(f.col("value")))


def bucketed(values: DataFrame) -> DataFrame:
    """(measure, bucket, count, lowest, highest, total) from (measure, value)."""
    return values.groupBy("measure", _bucket(f.col("value")).alias("bucket")).agg(
        f.count("*").alias("count"),
        f.min("value").alias("lowest"),
        f.max("value").alias("highest"),
        f.sum("value").alias("total"),
    )


def counted(deliveries: DataFrame) -> DataFrame:
    """(kind, name, rows): how many rows each subscriber and each topic has."""
    kinds = [f.struct(f.lit(kind).alias("kind"), f.col(kind).alias("name")) for kind in ("subscriber", "topic")]
    return deliveries.select(f.inline(f.array(*kinds))).groupBy("kind", "name").agg(f.count("*").alias("rows"))


def first_of(counts: DataFrame) -> DataFrame:
    """The first few names of each kind, by rows."""
    order = Window.partitionBy("kind").orderBy(f.desc("rows"), "name")
    return counts.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= figures.SHOWN_MAX)


def per_step(times: DataFrame, start_ms: float, step_ms: float) -> DataFrame:
    """(is_published, step, count) from (is_published, time)."""
    step = f.floor((f.col("time") - f.lit(start_ms)) / f.lit(step_ms)).alias("step")
    return times.groupBy("is_published", step).agg(f.count("*").alias("count"))


def times_of(deliveries: DataFrame, publications: DataFrame | None) -> DataFrame:
    """(is_published, time): when anything was notified or published."""
    times = deliveries.select(f.lit(False).alias("is_published"), f.col("notified_at").alias("time"))
    if publications is not None:
        times = times.union(publications.select(f.lit(True), f.col("published_at")))
    return times.where(_is_finite(f.col("time")))


def traffic_of(messages: DataFrame) -> DataFrame:
    """(kind, count, bytes), the heaviest first."""
    sums = messages.groupBy("kind").agg(f.count("*").alias("count"), f.sum("bytes").alias("bytes"))
    return sums.orderBy(f.desc("bytes"), "kind").limit(KINDS_MAX)


def ends_of(rows: DataFrame, time: str, *more: Column) -> DataFrame:
    """One row: how many there are, the first and the last time, and more."""
    value = f.when(_is_finite(f.col(time)), f.col(time))
    return rows.agg(f.count("*").alias("rows"), f.min(value).alias("first"), f.max(value).alias("last"), *more)


def spark_figures(tables: Tables) -> RunFigures:
    deliveries, publications = tables.deliveries, tables.publications
    distinct = f.countDistinct("event_id").alias("events")
    notified = _only(ends_of(deliveries, "notified_at", distinct, f.count_if("out_of_order").alias("out_of_order")))
    published = None if publications is None else _only(ends_of(publications, "published_at"))
    distributions = _distributions(bucketed(measured(deliveries, publications)), whole={"stamp_entries"})
    traffic = () if tables.messages is None else traffic_of(tables.messages).collect()
    rankings = _rankings(counted(deliveries))
    return RunFigures(
        deliveries=notified["rows"],
        events=notified["events"],
        publications=None if published is None else published["rows"],
        out_of_order=notified["out_of_order"],
        subscribers=rankings["subscriber"],
        topics=rankings["topic"],
        latency=distributions.get("latency"),
        held=distributions.get("held"),
        stamp_entries=distributions.get("stamp_entries"),
        timeline=_timeline(times_of(deliveries, publications), notified, published),
        traffic=tuple(Traffic(row["kind"], row["count"], row["bytes"]) for row in traffic),
    )


def _only(one: DataFrame) -> Row:
    (row,) = one.collect()
    return row


def _is_finite(value: Column) -> Column:
    return value.isNotNull() & ~f.isnan(value) & (f.abs(value) < f.lit(float("inf")))


def _bucket(value: Column) -> Column:
    """`figures.bucket_of`, as SQL."""
    place = f.floor(f.log(value) / f.lit(log(figures.WIDTH)))
    return (
        f.when(value < 0, f.lit(figures.NEGATIVE))
        .when(value < figures.SMALLEST, f.lit(figures.ZERO))
        .otherwise(place)
        .cast("int")
    )


def _distributions(buckets: DataFrame, whole: set[str]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    rows = buckets.collect()
    for measure in {row["measure"] for row in rows}:
        mine = sorted((row for row in rows if row["measure"] == measure), key=lambda row: row["bucket"])
        found[measure] = Distribution(
            buckets=tuple((row["bucket"], row["count"]) for row in mine),
            lowest=min(row["lowest"] for row in mine),
            highest=max(row["highest"] for row in mine),
            total=sum(row["total"] for row in mine),
            is_whole=measure in whole,
        )
    return found


def _rankings(counts: DataFrame) -> dict[str, Ranking]:
    first = sorted(first_of(counts).collect(), key=lambda row: row["rank"])
    values = counts.select(f.col("kind").alias("measure"), f.col("rows").cast("double").alias("value"))
    spreads = _distributions(bucketed(values), whole={"subscriber", "topic"})
    return {
        kind: Ranking(
            tuple((row["name"], row["rows"]) for row in first if row["kind"] == kind),
            spreads[kind].count if kind in spreads else 0,
            spreads.get(kind),
        )
        for kind in ("subscriber", "topic")
    }


def _timeline(times: DataFrame, notified: Row, published: Row | None) -> Timeline | None:
    if notified["first"] is None:
        return None
    ends = [time for row in (notified, published) if row is not None for time in (row["first"], row["last"])]
    known = [time for time in ends if time is not None]
    start, step, steps = figures.steps_over(min(known), max(known))
    rows = sorted(per_step(times, start, step).collect(), key=lambda row: row["step"])
    return Timeline(
        step_ms=step,
        steps=steps,
        notified=tuple((row["step"], row["count"]) for row in rows if not row["is_published"]),
        published=tuple((row["step"], row["count"]) for row in rows if row["is_published"]),
    )
