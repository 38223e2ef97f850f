"""Columns of an archive, and reading it back: only what its records name, each row once."""

from datetime import date

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, MapType, StructField, StructType

from seriatim.audit.folders import DELTA
from seriatim.model import InputError
from seriatim.pipeline.archive.records import Record, records_of, table_uri
from seriatim.pipeline.schemas import ARCHIVE
from seriatim.pipeline.source.options import BOOKKEEPING, TABLES
from seriatim.pipeline.source.rows import WITHDRAWN
from seriatim.pipeline.spark import files
from seriatim.pipeline.spark.unreadable import unreadable

# Rows that change later are written again; what was written last holds. Other tables have each row once.
KEYS: dict[str, list[str]] = {
    "subscriptions": ["subscriber", "topic", "since"],
    "publications": ["publisher", "event_id", "topic"],
}
DAY_MS = 24 * 3600 * 1000
PLACE = ["stream", "stream_position", "line"]


def file_schema(table: str) -> StructType:
    """The schema of an archive's files: the columns of the table, where each row came from, and the folder's date."""
    fields = [StructField(each.name, each.dataType) for each in ARCHIVE[table].fields]
    return StructType([*fields, *BOOKKEEPING.fields, StructField("date", DateType())])


def with_date(rows: DataFrame) -> DataFrame:
    """The day (UTC) on which the server took a row; none for rows about what is missing."""
    return rows.withColumn("date", F.date_from_unix_date(F.floor(F.col("stored_at") / DAY_MS).cast("int")))


def digest(table: str) -> Column:
    """A digest of all rows in any order: equal digests and counts mean equal rows. Maps are hashed as JSON."""
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
    """Keep only the last row of each key, for tables whose rows change later, and drop withdrawn ones."""
    keys = KEYS.get(table)
    if keys is None:
        return rows
    others = [name for name in rows.columns if name not in keys]
    last = rows.groupBy(*keys).agg(F.max_by(F.struct(*others), F.struct("stream_position", "line")).alias("last"))
    held = last.select(*keys, *[F.col(f"last.{name}").alias(name) for name in others])
    return held.where(F.col("problem").isNull() | (F.col("problem") != WITHDRAWN))


def read_archive(
    spark: SparkSession, uri: str, table: str, *, since: date | None = None, until: date | None = None
) -> DataFrame:
    """A table of an archive, in the columns of `schemas.py`. `since`, `until`: days (UTC) on which the broker took it.
    What is in the archive when this is called is what is read; what comes later, and what a compaction changes
    meanwhile, makes no difference."""
    rows = read_rows(spark, uri, table, records_of(spark, uri, _checked(table)))
    if since is not None:
        rows = rows.where(F.col("date") >= F.lit(since))
    if until is not None:
        rows = rows.where(F.col("date") <= F.lit(until))
    return _present(rows, table)


def read_logged(spark: SparkSession, uri: str, table: str) -> tuple[DataFrame, int]:
    """A table that clients log, as `read_archive` gives it, and how many messages of its stream the archive lacks.
    Those are what was gone before it could be read, and what was before the first position that was read (`--gaps fail`
    begins with what a stream still has)."""
    records = records_of(spark, uri, _checked(table))
    rows = read_rows(spark, uri, table, records)
    begins = rows.agg(F.min("stream_position")).collect()[0][0]
    before = 0 if begins is None else begins - 1
    return _present(rows, table), before + sum(each.lost for each in records)


def read_gaps(spark: SparkSession, uri: str, table: str) -> DataFrame:
    """What is missing in a table: stream, first and last position, and why."""
    rows = read_rows(spark, uri, table, records_of(spark, uri, _checked(table)))
    lost = rows.where(F.col("lost_to").isNotNull())
    return lost.selectExpr("stream", "stream_position AS first", "lost_to AS last", "problem")


def describe(spark: SparkSession, uri: str) -> list[dict[str, str | int]]:
    """The size of every table of an archive: rows, lost positions, folders and bytes."""
    found: list[dict[str, str | int]] = []
    for table in TABLES:
        records = records_of(spark, uri, table)
        if records:
            row: dict[str, str | int] = {"table": table, "rows": sum(each.rows - each.gaps for each in records)}
            row |= {"lost": sum(each.lost for each in records), "folders": len(records)}
            found.append(row | {"bytes": sum(each.bytes for each in records), "batches": records[-1].last + 1})
    if not found:
        if any(child.name == DELTA for child in files.children(spark, uri)):
            fix = "give an archive that `seriatim archive` has written; audits, plans and reports read Delta tables"
            raise InputError(uri, "this is a Delta table, and no archive", fix)
        raise InputError(uri, "there is no archive here", "check the path; `seriatim archive --out` makes one")
    return found


def read_rows(spark: SparkSession, uri: str, table: str, records: list[Record]) -> DataFrame:
    """The rows of some records as they were written, with where they came from and their date. They are counted, which
    reads the ends of files only: a file that has gone would else go unnoticed. Raises InputError if a folder does not
    have the rows that its record counts, LogError if a file cannot be read."""
    schema, root = file_schema(table), table_uri(uri, table)
    folders = {each.folder: each for each in records if each.rows}
    if not folders:
        return spark.createDataFrame([], schema)
    there = {each.name for each in files.children(spark, root)}
    for folder in folders.keys() - there:
        raise _not_whole(root, folders[folder], 0)
    try:
        paths = [files.join(root, folder) for folder in folders]
        found = spark.read.schema(schema).option("basePath", root).parquet(*paths)
        counted = {f"batch={row[0]}": row[1] for row in found.groupBy("batch").count().collect()}
    except (PySparkException, Py4JJavaError) as error:
        raise unreadable(root, error) from None
    for folder, record in folders.items():
        if counted.get(folder, 0) != record.rows:
            raise _not_whole(root, record, counted.get(folder, 0))
    return found.select(*schema.names)


def _not_whole(root: str, record: Record, rows: int) -> InputError:
    batches = f"batch {record.first}" if record.first == record.last else f"batches {record.first} to {record.last}"
    return InputError(
        files.join(root, record.folder),
        f"{batches} of {record.table} should have {record.rows:,} rows here, and {rows:,} are there",
        "restore the folder from a copy; if it was compacted with --grace 0 just now, try again",
    )


def _present(rows: DataFrame, table: str) -> DataFrame:
    """Rows in the columns of `schemas.py`, without those that stand for missing positions."""
    return last_rows(rows.where(F.col("lost_to").isNull()), table).select(*ARCHIVE[table].names)


def _checked(table: str) -> str:
    if table not in TABLES:
        raise InputError("table", f"there is no table {table!r} in an archive", f"use one of {', '.join(TABLES)}")
    return table
