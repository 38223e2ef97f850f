"""Files and folders at any URI, through Hadoop's file systems: the one place that asks the JVM about them.

Any URI that Spark can read will do: a local path, `file:`, `hdfs:`, `s3a:`. For names, sizes and small files; the rows
of tables are read and written by Spark itself. A failure is an InputError that names the URI.
"""

import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
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
    return "/".join([uri.rstrip("/"), *names])


def find(spark: SparkSession, uri: str) -> list[Entry]:
    """What a URI stands for: one entry, or those that fit its pattern (`logs/*.csv`), or none."""
    with _opened(spark, uri, "found") as (path, system):
        return [_entry(status) for status in system.globStatus(path) or ()]


def children(spark: SparkSession, uri: str) -> list[Entry]:
    """What is directly in a folder, by name, but for names that begin with `.`; nothing if there is no such folder."""
    with _opened(spark, uri, "listed") as (path, system):
        try:
            found = [_entry(status) for status in system.listStatus(path)]
        except Py4JJavaError as error:
            if _is_absence(error):
                return []
            raise
    return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def marks(spark: SparkSession, uri: str, patterns: Collection[str], is_deep: bool) -> dict[str, set[str]]:
    """What fits these patterns in a folder, and if `is_deep` in the folders in it: folder → names."""
    found: dict[str, set[str]] = {}
    escaped = re.sub(r"([*?\[\]{}\\])", r"\\\1", uri.rstrip("/"))
    for pattern in patterns:
        for below in ("", "*/") if is_deep else ("",):
            for entry in find(spark, f"{escaped}/{below}{pattern}"):
                folder = entry.uri.rstrip("/").rsplit("/", pattern.count("/") + 1)[0]
                found.setdefault(folder, set()).add(entry.name)
    return found


def files_below(spark: SparkSession, uri: str, count_max: int) -> list[Entry]:
    """The first files of a folder and of the folders in it, without what is hidden."""
    found = (_entry(status) for status in _walk(spark, uri))
    return list(islice((entry for entry in found if not _is_hidden(entry, uri)), count_max))


def empty_below(spark: SparkSession, uri: str) -> list[Entry]:
    """All files below a folder without one byte. Asks only for lengths, however many files there are."""
    found = (_entry(status) for status in _walk(spark, uri) if not status.getLen())
    return [entry for entry in found if not _is_hidden(entry, uri)]


def _walk(spark: SparkSession, uri: str) -> Iterator[Any]:
    with _opened(spark, uri, "listed") as (path, system):
        statuses = system.listFiles(path, True)
        while statuses.hasNext():
            yield statuses.next()


def _is_hidden(entry: Entry, uri: str) -> bool:
    below = entry.uri.partition(uri.rstrip("/"))[2]
    return entry.is_hidden or any(part.startswith(("_", ".")) for part in below.split("/"))


def size(spark: SparkSession, uri: str) -> int:
    with _opened(spark, uri, "listed") as (path, system):
        return int(system.getContentSummary(path).getLength())


def read(spark: SparkSession, uri: str) -> bytes | None:
    """The bytes of a file; None if there is no such file."""
    with _opened(spark, uri, "read") as (path, system):
        try:
            stream = system.open(path)
        except Py4JJavaError as error:
            if _is_absence(error):
                return None
            raise
        with closing(stream):
            return bytes(stream.readAllBytes())


def read_head(spark: SparkSession, entry: Entry, length: int) -> bytes:
    """The first bytes of a file."""
    with _opened(spark, entry.uri, "read") as (path, system), closing(system.open(path)) as stream:
        return bytes(stream.readNBytes(min(length, entry.bytes)))


def ends_a_line(spark: SparkSession, uri: str) -> bool:
    """Whether the last byte of a file ends a line. Compressed files always pass."""
    with _opened(spark, uri, "read") as (path, system):
        length = system.getFileStatus(path).getLen()
        if uri.endswith(".gz") or not length:
            return True
        with closing(system.open(path)) as stream:
            stream.seek(length - 1)
            return bytes(stream.readNBytes(1)) in (b"\n", b"\r")


def create(spark: SparkSession, uri: str, data: bytes) -> bool:
    """Write a file that is not there yet; False: it is there already, and stays. It appears whole or not at all: it is
    written under another name and renamed."""
    with _opened(spark, uri, "written") as (path, system):
        if system.exists(path):
            return False
        beside = _path(spark, f"{uri.rpartition('/')[0]}/.{path.getName()}.{secrets.token_hex(6)}")
        _write(system, beside, data)
        return bool(system.rename(beside, path))


def replace(spark: SparkSession, uri: str, data: bytes) -> None:
    """Write a file, in place of one that is there; its folder is made if need be."""
    with _opened(spark, uri, "written") as (path, system):
        _write(system, path, data)


def remove(spark: SparkSession, uri: str) -> None:
    """Remove a file, or a folder and all in it, if it is there."""
    with _opened(spark, uri, "removed") as (path, system):
        system.delete(path, True)


def _write(system: Any, path: Any, data: bytes) -> None:
    with closing(system.create(path, True)) as stream:
        stream.write(bytearray(data))


def _entry(status: Any) -> Entry:
    path = status.getPath()
    changed_at = status.getModificationTime() / 1000.0
    return Entry(path.toString(), path.getName(), status.isDirectory(), status.getLen(), changed_at)


def _path(spark: SparkSession, uri: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(uri)


@contextmanager
def _opened(spark: SparkSession, uri: str, done: str) -> Iterator[tuple[Any, Any]]:
    """The path of a URI and its file system, for something to be done; what the JVM throws then is an error of ours."""
    session: Any = spark._jsc
    with _explained(uri, "used", "give a path, file:, hdfs: or s3a: URI"):
        path = _path(spark, uri)
        system = path.getFileSystem(session.hadoopConfiguration())
    with _explained(uri, done):
        yield path, system


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
