"""Tables of a running cluster as DataFrames, for notebooks: what `format("seriatim")` reads, put together.

read_broker(spark, url, "publications")       one table; of rows that change later, the last one of each
ordered_events(spark, url, "orders.*")        events with the key that sorts them as every subscriber saw them
"""

from pyspark.sql import DataFrame, SparkSession

from seriatim.model import InputError
from seriatim.pipeline.archive.reading import KEYS, last_rows
from seriatim.pipeline.replay.ordering import in_order, places, with_order_keys
from seriatim.pipeline.schemas import ARCHIVE
from seriatim.pipeline.source.options import read_options


def read_broker(spark: SparkSession, url: str, table: str = "events", **options: str) -> DataFrame:
    """A table as it is on the broker now, in the columns of `schemas.py`. `options`: those of the data source."""
    given = {**options, "url": url, "table": table}
    if table not in KEYS:
        return spark.read.format("seriatim").options(**given).load()
    rows = spark.read.format("seriatim").options(**{**given, "gaps": "rows"}).load()
    return last_rows(rows.where("lost_to IS NULL"), table).select(*ARCHIVE[table].names)


def ordered_events(
    spark: SparkSession, url: str, topics: str = "", *, skip_gaps: bool = False, **options: str
) -> DataFrame:
    """Events of these topics (names and patterns; empty: all) in their order, with `ordinal` and `order_key`. Only what
    has its stamp is there: of topics that are coupled, everybody sees the rows in this order. `order_key` is text and
    sorts alike, so that a table stays in order wherever it goes. `skip_gaps`: see `merger.Merger`."""
    events = read_broker(spark, url, "events", topics=topics, **options)
    stamps = read_broker(spark, url, "stamps", **options)
    logs = logs_of(url, topics, **options) if topics else None
    return in_order(with_order_keys(events, places(stamps, logs, skip_gaps)))


def logs_of(url: str, topics: str, **options: str) -> list[str]:
    """The logs (topics, or the buckets they share) in which these topics are."""
    reader = read_options({**options, "url": url}).reader
    catalogue = reader.catalogue(topics)
    found = {each.holds for each in (*catalogue.of("log", topics), *catalogue.of("slots", topics))}
    if not found:
        raise InputError("topics", f"cluster {reader.cluster} has none of {topics!r}", "check names and cluster")
    return sorted(found)
