"""What a plan is made from, checked: subscriptions, rates of events, sites of clients.

The tables may come from the archive, from `seriatim workload` or from anywhere else; only the columns used here must be
there. An error names the table and the column.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StringType

from seriatim.audit.mapping import ColumnMapping, nearest
from seriatim.audit.rules import Field
from seriatim.brokers.naming import bucket_of
from seriatim.model import InputError
from seriatim.pipeline.archive.reading import read_archive
from seriatim.pipeline.archive.records import records_of
from seriatim.pipeline.logs import fitting

TOPICS_MAX = 1_000_000  # their names and rates are kept by the driver, and written into plan.toml

# Columns that must be there, and whether they are text or numbers.
NEEDED: dict[str, dict[str, type]] = {
    "subscriptions": {"subscriber": StringType, "topic": StringType},
    "rates": {"topic": StringType, "events_per_s": NumericType},
    "sites": {"client": StringType, "site": StringType},
    "publications": {"topic": StringType},
}
TIMES = ("published_at", "received_at")  # of a log of events: one of them


class Inputs(NamedTuple):
    """`rates` and `sites` may be unknown. `ended`: subscriptions that have ended count, too (a run that is over)."""

    subscriptions: DataFrame
    rates: DataFrame | None = None
    sites: DataFrame | None = None
    ended: bool = False

    @property
    def held(self) -> DataFrame:
        """`subscriber`, `topic`."""
        return current(self.subscriptions, self.ended)


def check_known(name: str, column: str, known: Iterable[str]) -> None:
    """Refuse a table without a column; says which one is meant, if one is close."""
    known = list(known)
    if column not in known:
        near = nearest(column, known)
        hint = f"did you mean {near!r}? " if near else ""
        problem = f"has no column {column!r}, only {', '.join(known) or 'none at all'}"
        raise InputError(name, problem, f"{hint}give a table with {' and '.join(NEEDED[name])}")


def check_columns(name: str, table: DataFrame) -> DataFrame:
    """Refuse a table that lacks a column, or has something else in it."""
    found = {field.name: field.dataType for field in table.schema.fields}
    for column, kind in NEEDED[name].items():
        check_known(name, column, found)
        if kind is NumericType and not isinstance(found[column], NumericType):
            problem = f"has {found[column].simpleString()} in the column {column!r}"
            raise InputError(name, problem, "give numbers")
    return table


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


def current(subscriptions: DataFrame, ended: bool = False) -> DataFrame:
    """The topics held now: `subscriber`, `topic`. Rows may repeat. `ended`: ended subscriptions count, too."""
    rows = check_columns("subscriptions", subscriptions)
    if "until" in rows.columns and not ended:
        rows = rows.where(F.col("until").isNull())
    rows = rows.where(F.col("subscriber").isNotNull() & F.col("topic").isNotNull())
    return rows.select(F.col("subscriber").cast("string"), F.col("topic").cast("string"))


class Topics(NamedTuple):
    """What is ordered: topics, or the buckets they share; the place in `names` is its id. `ids` maps every topic.

    `holders`: how many rows of subscriptions each has, which is how many hold it unless rows repeat.
    """

    names: list[str]
    ids: dict[str, int]
    holders: list[int]

    def table(self, spark: SparkSession) -> DataFrame:
        """`topic`, `id`: small enough to be sent to every executor."""
        return F.broadcast(spark.createDataFrame(list(self.ids.items()), "topic string, id int"))


def topics_of(held: DataFrame, buckets: int = 0) -> Topics:
    """Of what is held now; those held by most come first, so that ids say something to a reader."""
    counted = held.groupBy("topic").count().orderBy(F.desc("count"), "topic")
    found = {row["topic"]: row["count"] for row in counted.limit(TOPICS_MAX + 1).collect()}
    if not found:
        problem = "there is no current subscription in it"
        fix = "give a table with rows whose `until` is empty, or count those that have ended (--ended)"
        raise InputError("subscriptions", problem, fix)
    if len(found) > TOPICS_MAX:
        fix = "plan over buckets (--buckets 1024): a plan names the home of every topic"
        raise InputError("subscriptions", f"there are more than {TOPICS_MAX:,} topics", fix)
    if not buckets:
        return Topics(list(found), {topic: place for place, topic in enumerate(found)}, list(found.values()))
    names: dict[str, int] = {}
    ids = {topic: names.setdefault(bucket_of(topic, buckets), len(names)) for topic in found}
    holders = [0] * len(names)
    for topic, count in found.items():
        holders[ids[topic]] += count
    return Topics(list(names), ids, holders)


def rates_of(publications: DataFrame, sites: DataFrame | None = None) -> DataFrame:
    """RATES as they were in a log of publications, or in an archive's events: per topic, and per site of publishers.

    Times are numbers in milliseconds, or times of any kind (ISO 8601 if they are text).
    """
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
