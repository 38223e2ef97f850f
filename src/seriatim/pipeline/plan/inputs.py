"""The checked input of a plan: subscriptions, rates of events, sites of clients.

The tables may come from the archive, from `seriatim workload` or from anywhere else; only the columns used here must be
there. An error names the table and the column. Files of any format are read as audits read logs
(`seriatim.pipeline.logs`). Text is read as text: a topic called 001 is not the topic 1. A number or a time that cannot
be converted is an error that names file, column and value, before anything is planned.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from seriatim.audit.mapping import ColumnMapping, nearest
from seriatim.audit.rules import Field, misfits
from seriatim.brokers.naming import bucket_of
from seriatim.model import InputError, Node
from seriatim.pipeline.archive.reading import read_archive
from seriatim.pipeline.archive.records import records_of
from seriatim.pipeline.logs import fitting
from seriatim.pipeline.logs.reading import Source, columns_of, entries_of, read_raw, source_of
from seriatim.pipeline.plan.graph import Floats, sums_of
from seriatim.pipeline.spark.unreadable import unreadable

TOPICS_MAX = 1_000_000  # their names and rates are kept by the driver, and written into plan.toml

TIMES = ("published_at", "received_at")  # of a log of events: one of them

# Columns that are read, if they are there; those that are needed must be.
FIELDS: dict[str, tuple[Field, ...]] = {
    "subscriptions": (Field("subscriber", "text", True), Field("topic", "text", True), Field("until", "text")),
    "rates": (Field("topic", "text", True), Field("events_per_s", "number", True), Field("site", "text")),
    "sites": (Field("client", "text", True), Field("site", "text", True)),
    "publications": (
        Field("topic", "text", True),
        Field("publisher", "text"),
        *(Field(name, "time") for name in TIMES),
    ),
}


class Inputs(NamedTuple):
    """`rates` and `sites` may be unknown. `ended`: subscriptions that have ended count, too (a run that is over)."""

    subscriptions: DataFrame
    rates: DataFrame | None = None
    sites: DataFrame | None = None
    ended: bool = False

    @property
    def held(self) -> DataFrame:
        """The topics held now: `subscriber`, `topic`. Rows may repeat."""
        rows = check_columns("subscriptions", self.subscriptions)
        if "until" in rows.columns and not self.ended:
            rows = rows.where(F.col("until").isNull())
        rows = rows.where(F.col("subscriber").isNotNull() & F.col("topic").isNotNull())
        return rows.select(F.col("subscriber").cast("string"), F.col("topic").cast("string"))


def check_known(name: str, column: str, known: Iterable[str]) -> None:
    """Refuse a table without a column; says which one is meant, if one is close."""
    known = list(known)
    if column not in known:
        near = nearest(column, known)
        hint = f"did you mean {near!r}? " if near else ""
        problem = f"has no column {column!r}, only {', '.join(known) or 'none at all'}"
        raise InputError(name, problem, f"{hint}give a table with {' and '.join(_needed(name))}")


def _needed(name: str) -> list[str]:
    return [field.name for field in FIELDS[name] if field.is_needed]


def check_columns(name: str, table: DataFrame) -> DataFrame:
    """Refuse a table that lacks a column, or has something else in it."""
    found = {field.name: field.dataType for field in table.schema.fields}
    for field in FIELDS[name]:
        if field.is_needed:
            check_known(name, field.name, found)
            if field.kind == "number" and not isinstance(found[field.name], NumericType):
                problem = f"has {found[field.name].simpleString()} in the column {field.name!r}"
                raise InputError(name, problem, "give numbers")
    return table


def read_table(spark: SparkSession, name: str, uri: str) -> DataFrame:
    """Parquet, CSV (with a heading) or JSON lines: a file, a folder or a pattern. `name` is what messages call it. All
    rows are read once and checked."""
    source = source_of(spark, uri, entries_of(spark, uri))
    known = columns_of(spark, source)
    if not known:
        raise InputError(name, f"{uri} is empty", "give Parquet, .csv or .jsonl with rows in it")
    for column in _needed(name):
        check_known(name, column, known)
    fields = [field for field in FIELDS[name] if field.name in known or _may_come(field.name, source)]
    sources = {field.name: (field.name,) for field in fields}
    table = fitting.fit(read_raw(spark, source, sources, with_place=True), fields, sources, ColumnMapping())
    _check(name, uri, table, list(sources))
    return table.select(*sources)


def _may_come(column: str, source: Source) -> bool:
    """A line of JSON leaves out what it does not have; but a log has one column of times, which every row has."""
    return not source.tells_all_columns and column not in TIMES


def _check(name: str, uri: str, table: DataFrame, columns: list[str]) -> None:
    """One pass over all rows. The digest reads every column, so that damage shows now, with the file's name."""
    first = F.min_by(F.struct("_file", "_problem"), F.col("_problem"))
    count = F.count(F.lit(1)).alias("rows")
    seen = table.agg(count, F.count("_problem").alias("bad"), first.alias("first"), F.bit_xor(F.xxhash64(*columns)))
    try:
        result = seen.collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        raise unreadable(uri, error) from None
    if result.bad:
        refusal = misfits(uri, result.bad, result.rows, [f"{result.first['_file']}, {result.first['_problem']}"])
        raise InputError(name, refusal.problem, refusal.fix)


def from_archive(spark: SparkSession, uri: str) -> tuple[DataFrame, DataFrame] | None:
    """Subscriptions and events, if an archive (`seriatim archive`) is at the URI."""
    if not records_of(spark, uri, "subscriptions"):
        return None
    return read_archive(spark, uri, "subscriptions"), read_archive(spark, uri, "events")


def with_site(rows: DataFrame, column: str, sites: DataFrame) -> DataFrame:
    """Adds `site`, where a client is. A client is known by its whole name, or by the one it asked for (before `~`)."""
    clients = check_columns("sites", sites).select(F.col("client").cast("string"), F.col("site").cast("string"))
    known = clients.dropDuplicates(["client"])
    exact = known.toDF(column, "_exact")
    named = known.where(~F.contains(F.col("client"), F.lit("~"))).toDF("_name", "_named")
    joined = rows.withColumn("_name", F.substring_index(F.col(column), "~", 1))
    joined = joined.join(exact, column, "left").join(named, "_name", "left")
    return joined.withColumn("site", F.coalesce("_exact", "_named")).drop("_name", "_exact", "_named")


class Topics(NamedTuple):
    """The ordered names: topics, or the buckets they share; the place in `names` is the id. `ids` maps every topic.
    `holders`: how many rows of subscriptions each has, which is how many hold it unless rows repeat."""

    names: list[str]
    ids: dict[str, int]
    holders: list[int]

    def table(self, spark: SparkSession) -> DataFrame:
        """`topic`, `id`: small enough to be sent to every executor."""
        return F.broadcast(spark.createDataFrame(list(self.ids.items()), "topic string, id int"))


def topics_of(held: DataFrame, buckets: int = 0) -> Topics:
    """The topics that are held now. The most held come first, so that an id says how widely a topic is held."""
    counted = held.groupBy("topic").count().orderBy(F.desc("count"), "topic")
    found = {row["topic"]: row["count"] for row in counted.limit(TOPICS_MAX + 1).collect()}
    if not found:
        fix = "give a table with rows whose `until` is empty, or count those that have ended (--ended)"
        raise InputError("subscriptions", "there is no current subscription in it", fix)
    if len(found) > TOPICS_MAX:
        fix = "plan over buckets (--buckets 1024): a plan names the home of every topic"
        raise InputError("subscriptions", f"there are more than {TOPICS_MAX:,} topics", fix)
    names: dict[str, int] = {}
    ids = {topic: names.setdefault(bucket_of(topic, buckets) if buckets else topic, len(names)) for topic in found}
    holders = [0] * len(names)
    for topic, count in found.items():
        holders[ids[topic]] += count
    return Topics(list(names), ids, holders)


def rates_of(publications: DataFrame, sites: DataFrame | None = None) -> DataFrame:
    """RATES as they were in a log of publications, or in an archive's events: per topic, and per site of publishers.
    Times are numbers in milliseconds, or times of any kind (ISO 8601 if they are text)."""
    found = publications.columns
    time = next((name for name in TIMES if name in found), None)
    wanted = ["topic"] if sites is None else ["topic", "publisher"]
    for column in wanted:
        check_known("publications", column, found)
    if time is None:
        fix = "give a table with times, as ISO 8601 or in milliseconds, or a table of rates"
        raise InputError("publications", "has neither published_at nor received_at", fix)
    fields = [*(Field(column, "text") for column in wanted), Field(time, "time")]
    sources = {field.name: (field.name,) for field in fields}
    events = fitting.fit(publications.select(*sources), fields, sources, ColumnMapping())
    ends = events.agg(F.min(time).alias("first"), F.max(time).alias("last"), F.min("_problem").alias("problem")).first()
    if ends is not None and ends["problem"] is not None:
        raise InputError("publications", ends["problem"], "give times as ISO 8601 or in milliseconds")
    if ends is None or ends["first"] is None:
        raise InputError("publications", "there is no event with a time in it", "leave it out, or give a log of events")
    seconds = max((ends["last"] - ends["first"]) / 1000.0, 0.001)
    if sites is None:
        counted = events.groupBy("topic").count().withColumn("site", F.lit(None).cast("string"))
    else:
        counted = with_site(events, "publisher", sites).groupBy("topic", "site").count()
    return counted.select("topic", (F.col("count") / seconds).alias("events_per_s"), "site")


def rates_and_places(inputs: Inputs, topics: Topics, held: DataFrame) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Events per second of every topic, and the part of them at each site. Without rates every topic has one event per
    second. Where a rate has no site, its events are taken to be where the topic's subscribers are."""
    count = len(topics.names)
    known: dict[str, Floats] = {}
    at_sites = _counts_by_site(inputs, held, count)
    if inputs.rates is None:
        rates, unplaced = np.ones(count), np.ones(count)
    else:
        rates, known, unplaced = _given_rates(check_columns("rates", inputs.rates), topics, count)
    sites = tuple(sorted({*known, *at_sites}))
    nothing = np.zeros(count)
    where = np.stack([known.get(site, nothing) for site in sites], axis=1) if sites else np.zeros((count, 0))
    if at_sites:
        shares = np.stack([at_sites.get(site, nothing) for site in sites], axis=1)
        sums = shares.sum(axis=1, keepdims=True)
        where += np.divide(shares, sums, out=np.zeros_like(shares), where=sums > 0.0) * unplaced[:, None]
    return rates, where, sites


def _given_rates(rates: DataFrame, topics: Topics, count: int) -> tuple[Floats, dict[str, Floats], Floats]:
    site = F.col("site") if "site" in rates.columns else F.lit(None)
    rate = F.sum(F.col("events_per_s").cast("double")).alias("rate")
    placed = rates.select(F.col("topic").cast("string"), "events_per_s", site.cast("string").alias("site"))
    rows = placed.join(topics.table(rates.sparkSession), "topic").groupBy("id", "site").agg(rate).toArrow()
    if not rows.num_rows:
        raise InputError("rates", "none of them is of a topic that somebody holds", "give rates of the same topics")
    ids, values = rows.column("id").to_numpy(), rows.column("rate").to_numpy().astype(np.float64)
    if not np.isfinite(values).all() or (values < 0.0).any():
        raise InputError("rates", "some are negative or not a number", "give events per second, from 0 up")
    names = np.asarray([name or "" for name in rows.column("site").to_pylist()])
    known = {str(name): sums_of(ids[names == name], values[names == name], count) for name in np.unique(names)}
    unplaced = known.pop("", np.zeros(count))
    return sums_of(ids, values, count), known, unplaced


def _counts_by_site(inputs: Inputs, held: DataFrame, count: int) -> dict[str, Floats]:
    """How many subscribers of each topic are at each site; nothing if that is not needed or not known."""
    rates = inputs.rates
    has_unplaced = rates is None or "site" not in rates.columns or not rates.where("site is null").isEmpty()
    if inputs.sites is None or not has_unplaced:
        return {}
    placed = with_site(held, "subscriber", inputs.sites).where("site is not null")
    rows = placed.groupBy("id", "site").count().toArrow()
    ids, counts = rows.column("id").to_numpy(), rows.column("count").to_numpy()
    names = np.asarray(rows.column("site").to_pylist())
    return {str(name): sums_of(ids[names == name], counts[names == name], count) for name in np.unique(names)}


def ranges_by_distance(
    stamps: DataFrame, events: DataFrame, sites: DataFrame, node_sites: Mapping[Node, str]
) -> DataFrame:
    """`is_far`, `ranges`: how many ranges of a run were stamped at another site than their first event came from."""
    spark = stamps.sparkSession
    nodes = F.broadcast(spark.createDataFrame(list(node_sites.items()), "node string, node_site string"))
    first = events.select("log", "number", "publisher", "index").where("index = 0").drop("index")
    is_first = (stamps["log"] == first["log"]) & (stamps["first"] == first["number"])
    joined = stamps.join(first, is_first).join(nodes, "node")
    far = with_site(joined.select("publisher", "node_site"), "publisher", sites)
    return far.groupBy((F.col("site") != F.col("node_site")).alias("is_far")).agg(F.count("*").alias("ranges"))
