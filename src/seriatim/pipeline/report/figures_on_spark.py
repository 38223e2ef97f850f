"""The figures of a run from tables of any size. Only tables of bounded size leave the executors.

That is: one row per bucket of a distribution, per step of a timeline, per shown name, and per kind of message. Each of
these is a named function of a DataFrame; `spark_figures` runs them and fills the structure.
"""

from math import log

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from seriatim.pipeline.report.distribution import NEGATIVE, SMALLEST, WIDTH, ZERO, Distribution
from seriatim.pipeline.report.figures import SHOWN_MAX, Ranking, RunFigures, Timeline, Traffic, steps_over
from seriatim.pipeline.tables import Tables

KINDS_MAX = 100  # kinds of messages; a log that has more is not ours


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


def counted(rows: DataFrame, column: str) -> DataFrame:
    """(name, rows): how many rows each value of a column has."""
    return rows.groupBy(f.col(column).alias("name")).agg(f.count("*").alias("rows"))


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


def spark_figures(tables: Tables) -> RunFigures:
    """Runs all of it."""
    deliveries, publications = tables.deliveries, tables.publications
    totals = deliveries.agg(
        f.count("*").alias("rows"),
        f.countDistinct("event_id").alias("events"),
        f.count_if("out_of_order").alias("out_of_order"),
    ).first()
    assert totals is not None
    distributions = _distributions(bucketed(measured(deliveries, publications)), whole={"stamp_entries"})
    traffic = () if tables.messages is None else traffic_of(tables.messages).collect()
    return RunFigures(
        deliveries=totals["rows"],
        events=totals["events"],
        publications=None if publications is None else publications.count(),
        out_of_order=totals["out_of_order"],
        subscribers=_ranking(counted(deliveries, "subscriber")),
        topics=_ranking(counted(deliveries, "topic")),
        latency=distributions.get("latency"),
        held=distributions.get("held"),
        stamp_entries=distributions.get("stamp_entries"),
        timeline=_timeline(times_of(deliveries, publications)),
        traffic=tuple(Traffic(row["kind"], row["count"], row["bytes"]) for row in traffic),
    )


def _is_finite(value: Column) -> Column:
    return value.isNotNull() & ~f.isnan(value) & (f.abs(value) < f.lit(float("inf")))


def _bucket(value: Column) -> Column:
    """`distribution.bucket_of`, as SQL."""
    place = f.floor(f.log(value) / f.lit(log(WIDTH)))
    return f.when(value < 0, f.lit(NEGATIVE)).when(value < SMALLEST, f.lit(ZERO)).otherwise(place).cast("int")


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


def _ranking(counts: DataFrame) -> Ranking:
    first = counts.orderBy(f.desc("rows"), "name").limit(SHOWN_MAX).collect()
    values = counts.select(f.lit("rows").alias("measure"), f.col("rows").cast("double").alias("value"))
    spread = _distributions(bucketed(values), whole={"rows"}).get("rows")
    names = 0 if spread is None else spread.count
    return Ranking(tuple((row["name"], row["rows"]) for row in first), names, spread)


def _timeline(times: DataFrame) -> Timeline | None:
    ends = times.agg(
        f.min("time").alias("first"), f.max("time").alias("last"), f.count_if(~f.col("is_published")).alias("notified")
    ).first()
    assert ends is not None
    if not ends["notified"]:
        return None
    start, step, steps = steps_over(ends["first"], ends["last"])
    rows = sorted(per_step(times, start, step).collect(), key=lambda row: row["step"])
    return Timeline(
        start_ms=start,
        step_ms=step,
        steps=steps,
        notified=tuple((row["step"], row["count"]) for row in rows if not row["is_published"]),
        published=tuple((row["step"], row["count"]) for row in rows if row["is_published"]),
    )
