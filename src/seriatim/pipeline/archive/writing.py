"""The archive job: one streaming query per table, from the data source to folders of Parquet with a record each.

Spark writes down the range of a batch before it runs it, and that it is done after; the record is put in between. So a
job that is killed at any moment goes on with the same range, and finds out from the record whether anything is left to
do: nothing is lost, nothing is there twice.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct, field
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from seriatim.model import InputError, SeriatimError
from seriatim.pipeline import storage
from seriatim.pipeline.archive.records import Record, claim, is_written, new_folder, put_record, table_uri
from seriatim.pipeline.archive.rows import digest, lost_count, with_date
from seriatim.pipeline.source.options import TABLES

LOOK_S = 1.0
STOP_S = 60.0
MESSAGES_MAX = 200_000


class ArchiveFailed(SeriatimError):
    """A table could not be archived; says which one and why. What was archived before stays."""


class ArchiveOptions(Struct, frozen=True, kw_only=True):
    """Where to archive from and to."""

    url: str
    out: str
    checkpoint: str
    cluster: str = "seriatim"
    tables: tuple[str, ...] = TABLES
    topics: str = ""
    """Of events: names and patterns; empty: all."""

    gaps: Literal["rows", "fail"] = "rows"
    max_messages: int = MESSAGES_MAX
    """Per table and micro-batch."""

    trigger_s: float | None = None
    """How often to look for more; None: once, until everything that is there now is archived."""

    credentials: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in self.tables:
            if table not in TABLES:
                raise InputError("tables", f"{table!r} is not on the broker", f"use some of {', '.join(TABLES)}")
        if not self.tables:
            raise InputError("tables", "there are none", f"use some of {', '.join(TABLES)}")
        if self.max_messages < 1:
            raise InputError("max_messages", f"{self.max_messages} is not positive", "give a number above 0")
        if self.trigger_s is not None and self.trigger_s < 0:
            raise InputError("trigger_s", f"{self.trigger_s} is negative", "give seconds, or None for once")


def archive(
    spark: SparkSession,
    options: ArchiveOptions,
    *,
    until: Callable[[], bool] = lambda: False,
    on_batch: Callable[[Record], None] = lambda record: None,
) -> None:
    """Run the job: to the end of what is there, or, with `trigger_s`, until `until` says so. Raises ArchiveFailed."""
    for table in options.tables:
        claim(spark, options.out, table, storage.join(options.checkpoint, table))
    queries: list[StreamingQuery] = []
    try:
        for table in options.tables:
            queries.append(start_table(spark, options, table, on_batch))
        _wait(queries, until)
    finally:
        for query in queries:
            query.stop()
    _check(queries)


def start_table(
    spark: SparkSession, options: ArchiveOptions, table: str, on_batch: Callable[[Record], None]
) -> StreamingQuery:
    """One query, started."""
    source: dict[str, str] = {
        **options.credentials,
        "url": options.url,
        "cluster": options.cluster,
        "table": table,
        "max_messages": str(options.max_messages),
        "parallelism": str(spark.sparkContext.defaultParallelism),
        "gaps": "rows",
        "start": "all" if options.gaps == "rows" else "kept",
    }
    if table == "events" and options.topics:
        source["topics"] = options.topics
    rows = spark.readStream.format("seriatim").options(**source).load()
    write = partial(write_batch, root=options.out, table=table, gaps=options.gaps, on_batch=on_batch)
    writer = rows.writeStream.queryName(f"archive {table}").foreachBatch(write)
    writer = writer.option("checkpointLocation", storage.join(options.checkpoint, table))
    if options.trigger_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{options.trigger_s:g} seconds").start()


def write_batch(
    rows: DataFrame,
    batch: int,
    *,
    root: str,
    table: str,
    gaps: str = "rows",
    on_batch: Callable[[Record], None] = lambda record: None,
) -> None:
    """Put one batch into the archive, unless it is there."""
    spark = rows.sparkSession
    if is_written(spark, root, table, batch):
        return
    record = write_folder(with_date(rows), root, table, batch, batch)
    if gaps == "fail" and record.lost:
        storage.remove(spark, storage.join(table_uri(root, table), record.folder))
        raise InputError(
            f"batch {batch} of {table}",
            f"{record.lost} positions were gone before they could be archived",
            "archive with gaps as rows to go on and keep a note of what is missing",
        )
    put_record(spark, root, record)
    on_batch(record)


def write_folder(rows: DataFrame, root: str, table: str, first: int, last: int) -> Record:
    """Write rows, with their date, to a new folder; the record that would make them count."""
    seen = Observation(f"{table} {first} {last}")
    observed = rows.observe(
        seen,
        F.count(F.lit(1)).alias("rows"),
        F.count("lost_to").alias("gaps"),
        lost_count().alias("lost"),
        digest(table).alias("digest"),
    )
    folder = new_folder(first, last)
    uri = storage.join(table_uri(root, table), folder)
    observed.write.partitionBy("date").mode("error").option("compression", "zstd").parquet(uri)
    counts: dict[str, Any] = seen.get
    bytes_ = storage.size(rows.sparkSession, uri)
    return Record(
        table=table,
        first=first,
        last=last,
        folder=folder,
        rows=counts["rows"],
        gaps=counts["gaps"],
        lost=counts["lost"],
        digest=counts["digest"],
        bytes=bytes_,
    )


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _wait(queries: Sequence[StreamingQuery], until: Callable[[], bool]) -> None:
    """Until all have ended, one has failed, or somebody says so."""
    while any(query.isActive for query in queries) and not until():
        if any(not query.isActive and query.exception() is not None for query in queries):
            return
        time.sleep(LOOK_S / 4)


def _check(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        problem = query.exception()
        if problem is not None:
            raise ArchiveFailed(f"{query.name}: {reason_of(problem)}") from None


def reason_of(problem: StreamingQueryException) -> str:
    """What we ourselves said, if it was us: Spark puts its own words and a Java trace around it."""
    text = str(problem)
    for line in reversed(text.splitlines()):
        name, colon, rest = line.strip().partition(": ")
        if colon and name.startswith("seriatim."):
            return rest
    return text.splitlines()[0] if text else type(problem).__name__
