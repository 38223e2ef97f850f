"""Few large files of many small ones, while others read and write the archive.

Runs of neighbouring small folders are written again as one, sorted by where rows came from, and only if count and
digest are those of the old rows is a record put that makes the old ones void. Old folders stay until nobody can be
reading them any more (`grace_s`), and are then removed, records first. A compaction that is killed has changed nothing,
or all.
"""

import time
from collections.abc import Callable
from functools import reduce
from operator import xor

from msgspec import Struct
from pyspark.sql import SparkSession

from seriatim.model import SeriatimError
from seriatim.pipeline.archive.reading import PLACE, read_rows
from seriatim.pipeline.archive.records import Record, put_record, records_of, records_uri, table_uri, void_records
from seriatim.pipeline.archive.writing import write_folder
from seriatim.pipeline.source.options import TABLES
from seriatim.pipeline.spark import files

FOLDER_BYTES = 1024 * 1024 * 1024  # of a run of folders that become one
FILE_BYTES = 128 * 1024 * 1024
GRACE_S = 3600.0


class CompactionFailed(SeriatimError):
    """The written rows differ from those that were recorded: nothing was replaced."""


class Compaction(Struct, kw_only=True):
    table: str
    replaced: int = 0
    written: int = 0
    removed: int = 0


def compact(
    spark: SparkSession,
    uri: str,
    tables: tuple[str, ...] = TABLES,
    *,
    folder_bytes: int = FOLDER_BYTES,
    file_bytes: int = FILE_BYTES,
    grace_s: float = GRACE_S,
    on_record: Callable[[Record], None] = lambda record: None,
) -> list[Compaction]:
    """Make large files of small ones, then remove what was replaced more than `grace_s` ago."""
    done = []
    for table in tables:
        compaction = Compaction(table=table)
        for run in runs(records_of(spark, uri, table), folder_bytes):
            record = _rewrite(spark, uri, table, run, file_bytes)
            put_record(spark, uri, record)
            on_record(record)
            compaction.replaced += len(run)
            compaction.written += 1
        compaction.removed = _sweep(spark, uri, table, grace_s)
        done.append(compaction)
    return done


def runs(records: list[Record], bytes_max: int) -> list[list[Record]]:
    """Runs of neighbouring records that are small enough to be joined; at least two in each."""
    found: list[list[Record]] = []
    run: list[Record] = []
    for record in records:
        total = sum(each.bytes for each in run) + record.bytes
        if run and (total > bytes_max or record.first != run[-1].last + 1):
            found.append(run)
            run = []
        run.append(record)
    return [each for each in [*found, run] if len(each) > 1]


def _rewrite(spark: SparkSession, uri: str, table: str, run: list[Record], file_bytes: int) -> Record:
    total = sum(each.bytes for each in run)
    rows = read_rows(spark, uri, table, run)
    file_count = max(1, round(total / file_bytes))
    gathered = rows.coalesce(1) if file_count == 1 else rows.repartitionByRange(file_count, "date", *PLACE)
    record = write_folder(gathered.sortWithinPartitions("date", *PLACE), uri, table, run[0].first, run[-1].last)
    expected = (sum(each.rows for each in run), reduce(xor, (each.digest for each in run)))
    if (record.rows, record.digest) != expected:
        files.remove(spark, files.join(table_uri(uri, table), record.folder))
        raise CompactionFailed(
            f"batches {record.first} to {record.last} of {table}: {record.rows} rows with digest {record.digest:x} "
            f"were read, and {expected[0]} with {expected[1]:x} are recorded; a file was changed or is damaged"
        )
    return record


def _sweep(spark: SparkSession, uri: str, table: str, grace_s: float) -> int:
    """Remove what is void, and what no record names: left behind by somebody who was killed."""
    now = time.time()
    valid = records_of(spark, uri, table)
    removed = 0
    for record in void_records(spark, uri, table):
        replaced_at = max((each.written_at for each in valid if each.covers(record)), default=now)
        if now - replaced_at >= grace_s:
            files.remove(spark, files.join(records_uri(uri, table), record.name))
            files.remove(spark, files.join(table_uri(uri, table), record.folder))
            removed += 1
    named = {each.folder for each in [*valid, *void_records(spark, uri, table)]}
    for entry in files.children(spark, table_uri(uri, table)):
        if entry.is_folder and entry.name not in named and now - entry.changed_at >= max(grace_s, 1.0):
            if _may_be_under_way(entry.name, valid) and now - entry.changed_at < max(grace_s, GRACE_S):
                continue
            files.remove(spark, files.join(table_uri(uri, table), entry.name))
            removed += 1
    return removed


def _may_be_under_way(folder: str, valid: list[Record]) -> bool:
    """A batch after the last recorded one may be being written just now."""
    batch = folder.removeprefix("batch=").partition("~")[0].partition("-")[0]
    return not batch.isdigit() or not valid or int(batch) > valid[-1].last
