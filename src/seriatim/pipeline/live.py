"""Tables of a running cluster as DataFrames, for notebooks: what `format("seriatim")` reads, put together.

read_broker(spark, url, "publications")       one table; of rows that change later, the last one of each
ordered_events(spark, url, "orders.*")        events with the key that sorts them as every subscriber saw them
"""

from pyspark.sql import DataFrame, SparkSession

from seriatim.model import InputError
from seriatim.pipeline.archive.reading import KEYS, last_rows
from seriatim.pipeline.replay import in_sequence, would_have_seen
from seriatim.pipeline.schemas import ARCHIVE, EVENTS


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
    """Events of these topics (names and patterns; empty: all) in their order, with `order_key` and `order_position`, as
    a subscriber of them was notified. In global order the key is the position in the order log, else it follows from
    stamps and is negative (replay/choosing.py). Only what has its place is there. `skip_gaps`: continue after positions
    or stamps that are missing."""
    events = read_broker(spark, url, "events", topics=topics, **options)
    order = read_broker(spark, url, "order", **options)
    stamps = read_broker(spark, url, "stamps", **options)
    names = [row[0] for row in events.select("topic").distinct().collect()]
    if not names:
        raise InputError("topics", f"there is no event of {topics or 'any topic'} yet", "check names and cluster")
    replay = would_have_seen(events, names, order=order, stamps=stamps, skip_gaps=skip_gaps)
    return in_sequence(replay.events).select(*EVENTS.names, "order_key", "order_position")
