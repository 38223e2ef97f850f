"""What lies at a URI, seen through Hadoop's file systems: the one place that asks the JVM about files.

Any URI that Spark can read will do: a local path, `file:`, `hdfs:`, `s3a:`. Looks at names and a few first bytes only.
"""

from itertools import islice
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seriatim.audit.foreign import format_of
from seriatim.model import LogError

LOOKED_AT = 1_000  # files of a folder that are looked at to know its format
MAGIC_PARQUET = b"PAR1"


class Entry(NamedTuple):
    """A file or folder."""

    uri: str
    name: str
    is_folder: bool
    bytes: int


def find(spark: SparkSession, uri: str) -> list[Entry]:
    """The entries that a URI stands for: one, or those that fit its pattern. Raises LogError if there are none."""
    path = _path(spark, uri)
    try:
        # A pattern such as logs/*.csv; a URI without one is an entry if it exists.
        found = _file_system(spark, path).globStatus(path)
    except Py4JJavaError as error:
        raise LogError(uri, _reason(error), "check the address and your rights") from None
    if not found:
        raise LogError(uri, "no such file or folder", "correct the path")
    return [_entry(status) for status in found]


def children(spark: SparkSession, uri: str) -> list[Entry]:
    """What is directly in a folder, by name; hidden entries (`_`, `.`) left out, as Spark does."""
    path = _path(spark, uri)
    try:
        found = [_entry(status) for status in _file_system(spark, path).listStatus(path)]
    except Py4JJavaError as error:
        raise LogError(uri, _reason(error), "check the address and your rights") from None
    return sorted(entry for entry in found if not entry.name.startswith(("_", ".")))


def files_below(spark: SparkSession, uri: str) -> list[Entry]:
    """The first files of a folder and of the folders in it."""
    path = _path(spark, uri)
    listed = _file_system(spark, path).listFiles(path, True)

    def walk() -> Any:
        while listed.hasNext():
            yield _entry(listed.next())

    below = uri.rstrip("/")
    return [
        entry
        for entry in islice(walk(), LOOKED_AT)
        if not any(part.startswith(("_", ".")) for part in entry.uri.partition(below)[2].split("/"))
        and not entry.name.startswith(("_", "."))
    ]


def format_at(spark: SparkSession, entry: Entry) -> str:
    """csv, tsv, jsonl or parquet: from the name of a file, or else from how it begins."""
    by_name = format_of(entry.name)
    if by_name is not None:
        return by_name
    head = _head(spark, entry)
    if head.startswith(MAGIC_PARQUET):
        return "parquet"
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    first = head.partition(b"\n")[0]
    if b"," in first:
        return "csv"
    if b"\t" in first:
        return "tsv"
    raise LogError(entry.uri, "neither Parquet, JSON lines nor CSV", "name it .parquet, .jsonl, .csv or .tsv if it is")


def write_text(spark: SparkSession, uri: str, text: str) -> None:
    """A small file, replaced if it is there; its folder is made if need be."""
    path = _path(spark, uri)
    stream = _file_system(spark, path).create(path, True)
    try:
        stream.write(bytearray(text.encode("utf-8")))
    finally:
        stream.close()


def _head(spark: SparkSession, entry: Entry, length: int = 4096) -> bytes:
    path = _path(spark, entry.uri)
    stream = _file_system(spark, path).open(path)
    try:
        return bytes(stream.readNBytes(min(length, entry.bytes)))
    finally:
        stream.close()


def _entry(status: Any) -> Entry:
    path = status.getPath()
    return Entry(path.toString(), path.getName(), status.isDirectory(), status.getLen())


def _path(spark: SparkSession, uri: str) -> Any:
    return _jvm(spark).org.apache.hadoop.fs.Path(uri)


def _file_system(spark: SparkSession, path: Any) -> Any:
    return path.getFileSystem(spark._jsc.hadoopConfiguration())


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _reason(error: Py4JJavaError) -> str:
    text: str = str(error.java_exception.getMessage() or error.java_exception.toString())
    return text.splitlines()[0]
