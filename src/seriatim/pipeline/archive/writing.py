"""The archive job: one streaming query per table, from the data source to folders of Parquet with a record each.

Spark writes down the range of a batch before it runs it, and that it is done afterwards; the record is written between
the two. So a job that is killed at any moment continues with the same range, and sees from the record whether anything
is left to do: no row is lost or written twice.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from msgspec import Struct, field
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from seriatim.audit.rules import ORDER
from seriatim.model import InputError, SeriatimError
from seriatim.pipeline.archive.reading import digest, lost_count, with_date
from seriatim.pipeline.archive.records import Record, claim, is_written, new_folder, put_record, table_uri
from seriatim.pipeline.source.options import TABLES
from seriatim.pipeline.spark import files

logger = logging.getLogger(__name__)

LOOK_S = 0.25
BEGIN_S = 60.0
AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # pauses before it is tried again; then it is given up
PERMANENT = ("InputError", "GapError", "LogError")  # trying again changes nothing
MESSAGES_MAX = 200_000
DATES_OPEN = 32


class ArchiveFailed(SeriatimError):
    """A table could not be archived; says which one and why. Rows that were archived before stay."""


class ArchiveOptions(Struct, frozen=True, kw_only=True):
    url: str
    out: str
    checkpoint: str
    cluster: str = "seriatim"
    tables: tuple[str, ...] = TABLES
    topics: str = ""  # of events: names and patterns; empty: all
    gaps: Literal["rows", "fail"] = "rows"
    max_messages: int = MESSAGES_MAX  # per table and micro-batch
    trigger_s: float | None = None  # how often to look for more; None: once, until all that is there now is archived
    credentials: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in self.tables:
            if table not in TABLES:
                raise InputError("tables", f"{table!r} is not on the broker", f"use some of {', '.join(TABLES)}")
        if not self.tables:
            raise InputError("tables", "no table is named", f"use some of {', '.join(TABLES)}")
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
    """Run the job: to the end of what is there, or, with `trigger_s`, until `until` says so. Raises ArchiveFailed.
    Without `trigger_s` one table follows the other, each with the whole machine, the order log first: then the events
    that it places are on the broker when these are read, and the archive has them."""
    for table in options.tables:
        claim(spark, options.out, table, files.join(options.checkpoint, table))
    in_turn = sorted(options.tables, key=lambda table: table != ORDER)
    jobs = [TableJob(spark, options, table, on_batch) for table in in_turn]
    try:
        for job in jobs:
            job.start()
            if options.trigger_s is None:
                _wait([job], until)
            else:
                job.wait_begun(until)  # Python workers that all start at once may be too slow for Spark
        if options.trigger_s is not None:
            _wait(jobs, until)
    finally:
        for job in jobs:
            job.stop()


@dataclass
class TableJob:
    """One table's query; started again after a failure that may pass: a broker or a worker that was away."""

    _spark: SparkSession
    _options: ArchiveOptions
    _table: str
    _on_batch: Callable[[Record], None]
    _query: StreamingQuery | None = None
    _failures: int = 0  # since the last batch
    _begin_at: float = 0.0

    def start(self) -> None:
        options, table = self._options, self._table
        rows = self._spark.readStream.format("seriatim").options(**source_options(self._spark, options, table)).load()
        write = partial(write_batch, root=options.out, table=table, gaps=options.gaps, on_batch=self._written)
        writer = rows.writeStream.queryName(f"archive {table}").foreachBatch(write)
        writer = writer.option("checkpointLocation", files.join(options.checkpoint, table))
        if options.trigger_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{options.trigger_s:g} seconds")
        self._query = writer.start()

    def stop(self) -> None:
        """Stop the query. May be called twice, and before `start`."""
        if self._query is not None:
            self._query.stop()

    def is_running(self) -> bool:
        """Whether it goes on. Raises ArchiveFailed if it cannot."""
        if self._query is None:  # it failed, and its time to begin again may have come
            if time.monotonic() >= self._begin_at:
                self.start()
            return True
        if self._query.isActive:
            return True
        problem = self._query.exception()
        if problem is None:
            return False
        kind, reason = reason_of(problem)
        if kind in PERMANENT or self._failures == len(AGAIN_S):
            raise ArchiveFailed(f"{self._table}: {reason}")
        logger.warning("archiving starts again: table=%s reason=%s", self._table, reason)
        self._begin_at = time.monotonic() + AGAIN_S[self._failures]
        self._failures += 1
        self._query = None
        return True

    def wait_begun(self, until: Callable[[], bool]) -> None:
        """Wait until it has looked at the broker once, or failed; not for ever."""
        deadline = time.monotonic() + BEGIN_S
        while time.monotonic() < deadline and not until() and self.is_running():
            if self._query is not None and (self._query.lastProgress is not None or self._failures):
                return
            time.sleep(LOOK_S)

    def _written(self, record: Record) -> None:
        self._failures = 0
        self._on_batch(record)


def source_options(spark: SparkSession, options: ArchiveOptions, table: str) -> dict[str, str]:
    """What the data source is asked for. Gaps come as rows in either case: the batch that holds one is looked at."""
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
    return source


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
        files.remove(spark, files.join(table_uri(root, table), record.folder))
        raise InputError(
            f"batch {batch} of {table}",
            f"{record.lost} positions were gone before they could be archived",
            "archive with gaps as rows to continue and record what is missing",
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
    uri = files.join(table_uri(root, table), folder)
    # One open file per date instead of a sort of everything by date: a batch seldom has more than a few.
    rows.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(DATES_OPEN))
    observed.write.partitionBy("date").mode("error").option("compression", "zstd").parquet(uri)
    bytes_ = files.size(rows.sparkSession, uri)
    return Record(table=table, first=first, last=last, folder=folder, bytes=bytes_, **seen.get)


def _wait(jobs: Sequence[TableJob], until: Callable[[], bool]) -> None:
    """Wait until all have ended, one has failed, or `until` says so."""
    while not until():
        if not [job for job in jobs if job.is_running()]:
            return
        time.sleep(LOOK_S)


def reason_of(problem: StreamingQueryException) -> tuple[str, str]:
    """What kind of error of ours it was, and what we said; Spark puts its own words and a Java trace around it. If it
    was none of ours: what Spark says first."""
    text = str(problem)
    for line in reversed(text.splitlines()):
        name, colon, rest = line.strip().partition(": ")
        if colon and name.startswith("seriatim."):
            return name.rpartition(".")[2], rest
    return "", text.splitlines()[0] if text else type(problem).__name__
