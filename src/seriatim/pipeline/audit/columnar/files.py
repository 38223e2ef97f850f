"""Parquet files as splits that tasks read by themselves, column by column.

A row that goes from the JVM to a Python worker costs as much as a sort of it, and its columns are arrays already in the
file. So where the deliveries are Parquet files in the columns of `schemas.py` that workers can open by their path, the
steps of an audit that go over every row read the files themselves. Spark does everything else, and logs that are stored
elsewhere: same tables, same hashes, same results.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.audit.columnar.hashing import Ids, hash_column, seed_of
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.schemas import LOST
from seriatim.pipeline.spark.unreadable import damaged

# What the files must have, and what they may leave out.
KINDS: dict[str, pa.DataType] = {
    "run": pa.string(),
    "subscriber": pa.string(),
    "position": pa.int64(),
    "event_id": pa.string(),
    "topic": pa.string(),
    "number": pa.int64(),
    "notified_at": pa.float64(),
    "out_of_order": pa.bool_(),
    "index": pa.int32(),
    "order_position": pa.int64(),
}
MAY_LACK = {"run", "number", "notified_at", "out_of_order", "index", "order_position"}
NAMES = ["subscriber", "topic"]  # few, so that they are read as numbers

Work = Callable[["Split"], Iterator[pa.RecordBatch]]


class Split(NamedTuple):
    """Some groups of rows of one file."""

    number: int
    path: str
    groups: tuple[int, ...]


class FileLog(NamedTuple):
    """Deliveries as files: the splits of all of them, how many rows they have, and how their names are hashed."""

    splits: tuple[Split, ...]
    rows: int
    has_runs: bool
    salt: int
    chunk_rows: int


def file_log(uris: Sequence[str], has_runs: bool, options: AuditOptions) -> FileLog | None:
    """These files, if all are Parquet in our columns and can be opened by their path; else None."""
    splits: list[Split] = []
    rows = 0
    for uri in uris:
        path = path_of(uri)
        file = _opened(path) if path is not None else None
        if file is None or path is None or not _fits(file.schema_arrow, has_runs):
            return None
        rows += file.metadata.num_rows
        groups: list[int] = []
        size = 0
        for group in range(file.metadata.num_row_groups):
            groups.append(group)
            size += file.metadata.row_group(group).num_rows
            if size >= options.split_rows:
                splits.append(Split(len(splits), path, tuple(groups)))
                groups, size = [], 0
        if groups:
            splits.append(Split(len(splits), path, tuple(groups)))
    return FileLog(tuple(splits), rows, has_runs, options.salt, options.chunk_rows) if rows else None


def path_of(uri: str) -> str | None:
    """The path of a `file:` URI, or what is a path already; None if it is elsewhere."""
    if uri.startswith("/"):
        return uri
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and not parts.netloc else None


def _opened(path: str) -> pq.ParquetFile | None:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException):
        return None  # Spark will say what is wrong with it


def _fits(schema: pa.Schema, has_runs: bool) -> bool:
    if any(name not in KINDS and name.lower() in KINDS for name in schema.names):
        return False  # Spark may take `Number` of one file for the `number` of others
    for name, kind in KINDS.items():
        if name == "run" and not has_runs:
            continue
        at = schema.get_field_index(name)
        if at < 0 and (name not in MAY_LACK or name == "run"):
            return False
        if at >= 0 and schema.field(at).type not in (kind, pa.large_string() if kind == pa.string() else kind):
            return False
    return True


def over_splits(spark: SparkSession, log: FileLog, work: Work, schema: str) -> DataFrame:
    """What a function makes of each split, a task each. It is a function of a module, or a `partial` of one."""
    count = len(log.splits)
    return spark.range(0, count, 1, count).mapInArrow(partial(_of_splits, log.splits, work), schema)


def _of_splits(splits: tuple[Split, ...], work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from work(splits[number])


class Chunk:
    """Some rows of a split, as arrays."""

    def __init__(self, log: FileLog, batch: pa.RecordBatch) -> None:
        self._log = log
        self._batch = batch
        self.rows = batch.num_rows

    def filter(self, which: NDArray[np.bool_]) -> "Chunk":
        """The chunk with only these rows."""
        return Chunk(self._log, self._batch.filter(pa.array(which)))

    def texts(self, name: str) -> pa.Array:
        return self._batch.column(name)

    def hashes(self, name: str, purpose: str | None = None) -> Ids:
        """Of each name with its run, as `columns.hashed` makes them; with a purpose: others."""
        before = () if purpose is None else (purpose,)
        if self._log.has_runs:
            seeds = hash_column(self._batch.column("run"), seed_of(self._log.salt, *before))
        else:
            seeds = seed_of(self._log.salt, *before, "")
        return hash_column(self._batch.column(name), seeds)

    def whole(self, name: str) -> Ids:
        """Whole numbers; what is not there is 0."""
        return self._filled(name, pa.int64(), 0)

    def times(self, name: str) -> NDArray[np.float64]:
        """Times; what is not there is not a number."""
        return self._filled(name, pa.float64(), np.nan)

    def flags(self, name: str) -> NDArray[np.bool_]:
        return self._filled(name, pa.bool_(), False)

    def there(self, name: str) -> NDArray[np.bool_]:
        """Which rows have it."""
        if name not in self._batch.schema.names:
            return np.zeros(self.rows, np.bool_)
        values: NDArray[np.bool_] = self._batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        return values

    def _filled(self, name: str, kind: pa.DataType, absent: float) -> NDArray[Any]:
        if name not in self._batch.schema.names:
            return np.full(self.rows, absent, kind.to_pandas_dtype())
        column = self._batch.column(name).cast(kind)
        values: NDArray[Any] = (pc.fill_null(column, absent) if column.null_count else column).to_numpy(
            zero_copy_only=False
        )
        return values


def chunks(log: FileLog, split: Split, *columns: str) -> Iterator[Chunk]:
    """The rows of a split, these columns of them, in the order of the file."""
    try:
        yield from _chunks(log, split, columns)
    except (OSError, pa.ArrowException):
        raise damaged(split.path) from None


def _chunks(log: FileLog, split: Split, columns: Sequence[str]) -> Iterator[Chunk]:
    with pq.ParquetFile(split.path, read_dictionary=NAMES) as file:
        there = file.schema_arrow.names
        wanted = [name for name in (*columns, LOST, *(["run"] if log.has_runs else [])) if name in there]
        for batch in file.iter_batches(log.chunk_rows, list(split.groups), wanted, use_threads=False):
            kept = batch.filter(batch.column(LOST).is_null()).drop_columns([LOST]) if LOST in wanted else batch
            if kept.num_rows:
                yield Chunk(log, kept)


def narrowed(log: FileLog, split: Split, has: Callable[[Chunk], NDArray[np.bool_]], *columns: str) -> Split:
    """The groups of a split that have some of the rows that are looked for. Only these columns are read."""
    kept = []
    for group in split.groups:
        if any(has(chunk).any() for chunk in chunks(log, split._replace(groups=(group,)), *columns)):
            kept.append(group)
    return split._replace(groups=tuple(kept))
