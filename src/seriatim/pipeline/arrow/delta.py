"""Delta tables as tables: the rows of their newest version, and nothing else that lies in their folders.

The `deltalake` wheel (extra `delta`, no jar) reads the log of the table. Where the files of a version are simply its
rows, Spark reads these files. Where they are not (rows marked as deleted, columns under other names, values that are
only in the log), the wheel reads the rows and they are copied: to where this process can read them, so Spark must run
on this machine.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from seriatim.audit.folders import DELTA, INSTALL_DELTA
from seriatim.model import InputError, LogError

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROWS_OF_FILE = 1_000_000
READER_VERSION = 1  # of tables whose files are read as they are
_copies: dict[tuple[str, int], list[Path]] = {}


def open_table(uri: str) -> "DeltaTable":
    """The newest version of the table. LogError: it cannot be read. InputError: the extra is missing."""
    if find_spec("deltalake") is None:
        raise InputError(uri, "a Delta table, and the package that reads these is not installed", INSTALL_DELTA)
    from deltalake import DeltaTable

    with _explained(uri):
        return DeltaTable(uri.removeprefix("file:") if uri.startswith("file:/") else uri)


def row_count(table: "DeltaTable") -> int:
    """How many rows it has now."""
    with _explained(table.table_uri):
        return int(table.count())


def plain_files(table: "DeltaTable") -> list[str] | None:
    """The files of this version, if their rows are the rows of the table; None if they are not."""
    protocol = table.protocol()
    if protocol.min_reader_version > READER_VERSION or table.metadata().partition_columns:
        return None
    return [f"file:{uri}" if uri.startswith("/") else uri for uri in table.file_uris()]


def copied(table: "DeltaTable") -> list[Path]:
    """The rows as Parquet files on this machine, for as long as this process lives. Each version is copied once."""
    key = (table.table_uri, table.version())
    if key not in _copies:
        folder = Path(tempfile.mkdtemp(prefix="seriatim-delta-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        files: list[Path] = []
        writer: pq.ParquetWriter | None = None
        with _explained(table.table_uri):
            for batch in batches(table):
                if writer is None:
                    files.append(folder / f"part-{len(files):05}.parquet")
                    writer, rows = pq.ParquetWriter(files[-1], batch.schema), 0
                writer.write_batch(batch)
                rows += batch.num_rows
                if rows >= ROWS_OF_FILE:
                    writer.close()
                    writer = None
            if writer is not None:
                writer.close()
        _copies[key] = files
    return _copies[key]


def batches(table: "DeltaTable") -> Iterator[pa.RecordBatch]:
    """The rows of this version; one empty batch if there are none."""
    from deltalake import QueryBuilder

    reader = pa.RecordBatchReader.from_stream(QueryBuilder().register("rows", table).execute("SELECT * FROM rows"))
    schema = pa.schema([(field.name, _usual(field.type)) for field in reader.schema])
    is_empty = True
    for batch in reader:
        if batch.num_rows:
            is_empty = False
            yield batch.cast(schema)
    if is_empty:
        yield pa.RecordBatch.from_pylist([], schema)


def _usual(kind: pa.DataType) -> pa.DataType:
    """Texts as Parquet has them: views are of the engine that read them."""
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """What the wheel raises, as an error of ours."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        fix = f"check the table and its {DELTA} with the system that writes it"
        raise LogError(uri, f"this Delta table cannot be read: {text[:300]}", fix) from None
