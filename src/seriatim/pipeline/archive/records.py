"""The records of an archive, which say what counts as written.

    <archive>/table=events/batch=7~5f2c…/date=2026-05-01/part-….parquet     rows
    <archive>/_records/events/batch-7-7.json                               "batch 7 is in that folder"
    <archive>/_records/events/batch-0-99.json                              "batches 0 to 99 are, compacted, in that one"

A folder of rows is used only if a record names it, and a record appears in one piece after its folder is complete.
Every attempt writes its own folder. So whatever was killed, and whenever, left nothing that anybody reads; and a batch
that is repeated finds its record and does nothing. A record of several batches makes those within it void: readers see
either the small folders or the large one, never both and never none.
"""

import re
import secrets
import time

import msgspec
from msgspec import Struct, field
from pyspark.sql import SparkSession

from seriatim.model import UNREADABLE, InputError
from seriatim.pipeline.spark import files

RECORDS = "_records"
_NAME = re.compile(r"batch-(\d+)-(\d+)\.json")
LOOKS = 20  # at a folder of records that changes while it is read


class Record(Struct, frozen=True, kw_only=True):
    """Batches `first` … `last` of a table are in `folder`. `digest`: of all rows, however they lie in files."""

    table: str
    first: int
    last: int
    folder: str
    rows: int
    gaps: int  # of the rows: those that say that something is missing
    lost: int  # positions of streams that were gone before they could be read
    digest: int
    bytes: int
    written_at: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        return f"batch-{self.first:012d}-{self.last:012d}.json"

    def covers(self, other: "Record") -> bool:
        """Whether the other one is void because of this one."""
        return self.first <= other.first and other.last <= self.last and self != other


def new_folder(first: int, last: int) -> str:
    """A name for the folder of one attempt."""
    batches = str(first) if first == last else f"{first}-{last}"
    return f"batch={batches}~{secrets.token_hex(4)}"


def table_uri(root: str, table: str) -> str:
    return files.join(root, f"table={table}")


def records_uri(root: str, table: str) -> str:
    return files.join(root, RECORDS, table)


def put_record(spark: SparkSession, root: str, record: Record) -> None:
    """Add a record to the archive, which makes its rows part of it. If another process was faster, its record counts;
    the rows are equal."""
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    files.create(spark, files.join(records_uri(root, record.table), record.name), data)


def is_written(spark: SparkSession, root: str, table: str, batch: int) -> bool:
    """Whether a batch is in the archive, alone or among others."""
    return any(first <= batch <= last for first, last in _ranges(spark, root, table))


def records_of(spark: SparkSession, root: str, table: str) -> list[Record]:
    """The records that hold, by batch. A compaction may remove void ones while we look: then look again."""
    for _ in range(LOOKS):
        found = [_read(spark, root, table, *each) for each in _valid(_ranges(spark, root, table))]
        present = [each for each in found if each is not None]
        if len(present) == len(found):
            return present
    raise InputError(root, f"the records of {table} change all the time", "stop other compactions and try again")


def void_records(spark: SparkSession, root: str, table: str) -> list[Record]:
    """The records that one of more batches has replaced."""
    ranges = _ranges(spark, root, table)
    valid = set(_valid(ranges))
    found = [_read(spark, root, table, *each) for each in ranges if each not in valid]
    return [each for each in found if each is not None]


def _ranges(spark: SparkSession, root: str, table: str) -> list[tuple[int, int]]:
    names = [_NAME.fullmatch(each.name) for each in files.children(spark, records_uri(root, table))]
    return sorted((int(name[1]), int(name[2])) for name in names if name is not None)


def _valid(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges that do not lie within another one. Ranges never overlap in part."""
    valid: list[tuple[int, int]] = []
    for first, last in sorted(ranges, key=lambda each: (each[0], -each[1])):
        if not valid or last > valid[-1][1]:
            valid.append((first, last))
    return valid


def _read(spark: SparkSession, root: str, table: str, first: int, last: int) -> Record | None:
    uri = files.join(records_uri(root, table), f"batch-{first:012d}-{last:012d}.json")
    data = files.read(spark, uri)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Record)
    except UNREADABLE as error:
        raise InputError(uri, f"it is not a record of an archive: {error}", "restore it from a copy") from None


def claim(spark: SparkSession, root: str, table: str, checkpoint: str) -> None:
    """An archive goes with one checkpoint: with another one its batches would be counted from 0 again. The same random
    name lies in both."""
    here, there = files.join(records_uri(root, table), "writer.json"), files.join(checkpoint, "writer.json")
    ours, theirs = files.read(spark, here), files.read(spark, there)
    if ours is None and theirs is None:
        files.create(spark, there, msgspec.json.encode({"id": secrets.token_hex(16)}))
        theirs = files.read(spark, there)
    if ours is None and theirs is not None:
        # Whether a query has written down what its first batch is.
        if any(each.name == "0" for each in files.children(spark, files.join(checkpoint, "offsets"))):
            raise InputError(checkpoint, f"it belongs to another archive than {root}", "give a new --checkpoint")
        files.create(spark, here, theirs)
        ours = files.read(spark, here)
    if ours != theirs:
        raise InputError(
            root,
            f"{table} were archived here with another checkpoint than {checkpoint}",
            "give that one, or archive to another place",
        )
