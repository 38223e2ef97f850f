"""Small files at any URI, through Hadoop's file systems: what an archive writes beside its tables.

A file appears whole or not at all: it is written under another name and renamed.
"""

import secrets
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seriatim.model import InputError


class Stored(NamedTuple):
    """A file or folder. `changed_at`: seconds since 1970."""

    name: str
    bytes: int
    changed_at: float
    is_folder: bool


def join(uri: str, *names: str) -> str:
    """A place below a URI."""
    return "/".join([uri.rstrip("/"), *names])


def put(spark: SparkSession, uri: str, data: bytes) -> bool:
    """Write a file that is not there yet; False: it is there already, and stays."""
    path, files = _open(spark, uri)
    if files.exists(path):
        return False
    beside = _path(spark, f"{uri.rpartition('/')[0]}/.{path.getName()}.{secrets.token_hex(6)}")
    try:
        stream = files.create(beside, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        return bool(files.rename(beside, path))
    except Py4JJavaError as error:
        raise InputError(uri, f"it cannot be written: {_reason(error)}", "check the address and your rights") from None


def get(spark: SparkSession, uri: str) -> bytes | None:
    """What a file holds; None: there is none."""
    path, files = _open(spark, uri)
    try:
        stream = files.open(path)
    except Py4JJavaError as error:
        if "FileNotFoundException" in error.java_exception.toString():
            return None
        raise InputError(uri, f"it cannot be read: {_reason(error)}", "check the address and your rights") from None
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def listed(spark: SparkSession, uri: str) -> list[Stored]:
    """What is directly in a folder, by name; nothing if there is no such folder. Files that begin with `.` are not."""
    path, files = _open(spark, uri)
    try:
        found = files.listStatus(path)
    except Py4JJavaError as error:
        if "FileNotFoundException" in error.java_exception.toString():
            return []
        raise InputError(uri, f"it cannot be listed: {_reason(error)}", "check the address and your rights") from None
    entries = [
        Stored(each.getPath().getName(), each.getLen(), each.getModificationTime() / 1000.0, each.isDirectory())
        for each in found
    ]
    return sorted(entry for entry in entries if not entry.name.startswith("."))


def size(spark: SparkSession, uri: str) -> int:
    """The bytes of all files in a folder."""
    path, files = _open(spark, uri)
    return int(files.getContentSummary(path).getLength())


def remove(spark: SparkSession, uri: str) -> None:
    """A file, or a folder and all in it, if it is there."""
    path, files = _open(spark, uri)
    files.delete(path, True)


def _open(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    path = _path(spark, uri)
    jsc: Any = spark._jsc
    try:
        return path, path.getFileSystem(jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        raise InputError(uri, f"it cannot be used: {_reason(error)}", "give a path, file:, hdfs: or s3a: URI") from None


def _path(spark: SparkSession, uri: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(uri)


def _reason(error: Py4JJavaError) -> str:
    text: str = str(error.java_exception.getMessage() or error.java_exception.toString())
    return text.splitlines()[0]
