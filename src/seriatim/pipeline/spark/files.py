"""Files and folders at any URI, through Hadoop's file systems: the one place that asks the JVM about them.

Any URI that Spark can read will do: a local path, `file:`, `hdfs:`, `s3a:`. For names, sizes and small files; the rows
of tables are read and written by Spark itself. What cannot be done is an InputError that names the URI.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seriatim.model import InputError


class Entry(NamedTuple):
    """A file or folder. `changed_at`: seconds since 1970."""

    uri: str
    name: str
    is_folder: bool
    bytes: int
    changed_at: float

    @property
    def is_hidden(self) -> bool:
        """Whether Spark leaves it out when it reads the folder."""
        return self.name.startswith(("_", "."))


def join(uri: str, *names: str) -> str:
    """A place below a URI."""
    return "/".join([uri.rstrip("/"), *names])


def find(spark: SparkSession, uri: str) -> list[Entry]:
    """What a URI stands for: one entry, or those that fit its pattern (`logs/*.csv`), or none."""
    path, system = _open(spark, uri)
    with _explained(uri, "found"):
        return [_entry(status) for status in system.globStatus(path) or ()]


def children(spark: SparkSession, uri: str) -> list[Entry]:
    """What is directly in a folder, by name; nothing if there is no such folder. Names that begin with `.` are not."""
    path, system = _open(spark, uri)
    with _explained(uri, "listed"):
        try:
            found = [_entry(status) for status in system.listStatus(path)]
        except Py4JJavaError as error:
            if _is_absence(error):
                return []
            raise
    return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def files_below(spark: SparkSession, uri: str, count_max: int) -> list[Entry]:
    """The first files of a folder and of the folders in it, without what is hidden."""
    with _explained(uri, "listed"):
        found = (_entry(status) for status in _walk(spark, uri))
        return list(islice((entry for entry in found if not _is_hidden(entry, uri)), count_max))


def empty_below(spark: SparkSession, uri: str) -> list[Entry]:
    """All files below a folder without one byte. However many files there are: of each only its length is asked."""
    with _explained(uri, "listed"):
        found = [_entry(status) for status in _walk(spark, uri) if not status.getLen()]
    return [entry for entry in found if not _is_hidden(entry, uri)]


def _walk(spark: SparkSession, uri: str) -> Iterator[Any]:
    path, system = _open(spark, uri)
    statuses = system.listFiles(path, True)
    while statuses.hasNext():
        yield statuses.next()


def _is_hidden(entry: Entry, uri: str) -> bool:
    below = entry.uri.partition(uri.rstrip("/"))[2]
    return entry.is_hidden or any(part.startswith(("_", ".")) for part in below.split("/"))


def size(spark: SparkSession, uri: str) -> int:
    """The bytes of all files in a folder."""
    path, system = _open(spark, uri)
    with _explained(uri, "listed"):
        return int(system.getContentSummary(path).getLength())


def read(spark: SparkSession, uri: str) -> bytes | None:
    """What a file holds; None: there is none."""
    path, system = _open(spark, uri)
    with _explained(uri, "read"):
        try:
            stream = system.open(path)
        except Py4JJavaError as error:
            if _is_absence(error):
                return None
            raise
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()


def read_head(spark: SparkSession, entry: Entry, length: int) -> bytes:
    """How a file begins."""
    path, system = _open(spark, entry.uri)
    with _explained(entry.uri, "read"):
        stream = system.open(path)
        try:
            return bytes(stream.readNBytes(min(length, entry.bytes)))
        finally:
            stream.close()


def ends_a_line(spark: SparkSession, uri: str) -> bool:
    """Whether the last byte of a file ends a line. Of packed files nobody knows."""
    path, system = _open(spark, uri)
    with _explained(uri, "read"):
        length = system.getFileStatus(path).getLen()
        if uri.endswith(".gz") or not length:
            return True
        stream = system.open(path)
        try:
            stream.seek(length - 1)
            return bytes(stream.readNBytes(1)) in (b"\n", b"\r")
        finally:
            stream.close()


def create(spark: SparkSession, uri: str, data: bytes) -> bool:
    """Write a file that is not there yet; False: it is there already, and stays.

    It appears whole or not at all: it is written under another name and renamed.
    """
    path, system = _open(spark, uri)
    with _explained(uri, "written"):
        if system.exists(path):
            return False
        beside = _path(spark, f"{uri.rpartition('/')[0]}/.{path.getName()}.{secrets.token_hex(6)}")
        _write(system, beside, data)
        return bool(system.rename(beside, path))


def replace(spark: SparkSession, uri: str, data: bytes) -> None:
    """Write a file, in place of one that is there; its folder is made if need be."""
    path, system = _open(spark, uri)
    with _explained(uri, "written"):
        _write(system, path, data)


def remove(spark: SparkSession, uri: str) -> None:
    """A file, or a folder and all in it, if it is there."""
    path, system = _open(spark, uri)
    with _explained(uri, "removed"):
        system.delete(path, True)


def _write(system: Any, path: Any, data: bytes) -> None:
    stream = system.create(path, True)
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()


def _entry(status: Any) -> Entry:
    path = status.getPath()
    changed_at = status.getModificationTime() / 1000.0
    return Entry(path.toString(), path.getName(), status.isDirectory(), status.getLen(), changed_at)


def _open(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    """The path of a URI, and the file system it is in."""
    session: Any = spark._jsc
    with _explained(uri, "used", "give a path, file:, hdfs: or s3a: URI"):
        path = _path(spark, uri)
        return path, path.getFileSystem(session.hadoopConfiguration())


def _path(spark: SparkSession, uri: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(uri)


@contextmanager
def _explained(uri: str, done: str, fix: str = "check the address and your rights") -> Iterator[None]:
    """What the JVM throws, as an error of ours."""
    try:
        yield
    except Py4JJavaError as error:
        text = str(error.java_exception.getMessage() or error.java_exception.toString())
        raise InputError(uri, f"it cannot be {done}: {text.splitlines()[0]}", fix) from None


def _is_absence(error: Py4JJavaError) -> bool:
    return "FileNotFoundException" in error.java_exception.toString()
