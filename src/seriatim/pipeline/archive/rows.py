"""Columns of the archive, and what is computed from them. Pure: DataFrame → DataFrame, or Columns."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, MapType, StructField, StructType

from seriatim.pipeline.schemas import ARCHIVE
from seriatim.pipeline.source.options import BOOKKEEPING
from seriatim.pipeline.source.rows import WITHDRAWN

# Rows that change later are written again; what was written last holds. Other tables have each row once.
KEYS: dict[str, list[str]] = {
    "subscriptions": ["subscriber", "topic", "since"],
    "publications": ["publisher", "event_id", "topic"],
}
DAY_MS = 24 * 3600 * 1000
PLACE = ["stream", "stream_position", "line"]


def file_schema(table: str) -> StructType:
    """Of the files: the table, where each row came from, and the folder's date."""
    fields = [StructField(each.name, each.dataType) for each in ARCHIVE[table].fields]
    return StructType([*fields, *BOOKKEEPING.fields, StructField("date", DateType())])


def with_date(rows: DataFrame) -> DataFrame:
    """The day (UTC) on which the server took a row; none for rows about what is missing."""
    return rows.withColumn("date", F.date_from_unix_date(F.floor(F.col("stored_at") / DAY_MS).cast("int")))


def digest(table: str) -> Column:
    """Of all rows, in any order: equal digests and counts mean equal rows. Maps have no hash of their own."""
    columns = [
        F.to_json(F.col(each.name)) if isinstance(each.dataType, MapType) else F.col(each.name)
        for each in file_schema(table).fields
        if each.name != "date"
    ]
    return F.coalesce(F.bit_xor(F.xxhash64(*columns)), F.lit(0).cast("long"))


def lost_count() -> Column:
    """How many positions are missing."""
    return F.coalesce(F.sum(F.col("lost_to") - F.col("stream_position") + 1), F.lit(0).cast("long"))


def last_rows(rows: DataFrame, table: str) -> DataFrame:
    """Of rows that change later, the last one of each key; without those that were withdrawn."""
    keys = KEYS.get(table)
    if keys is None:
        return rows
    others = [name for name in rows.columns if name not in keys]
    last = rows.groupBy(*keys).agg(F.max_by(F.struct(*others), F.struct("stream_position", "line")).alias("last"))
    held = last.select(*keys, *[F.col(f"last.{name}").alias(name) for name in others])
    return held.where(F.col("problem").isNull() | (F.col("problem") != WITHDRAWN))
