"""Errors about files that Spark could not read, in one line that names the file. Its own first line seldom does."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from seriatim.audit import rules
from seriatim.model import LogError

DAMAGED = ("not a Parquet file", "CANNOT_READ_FILE_FOOTER", "FAILED_READ_FILE")
_FILE = re.compile(r"(?:file|path)[ :]+'?(\w+:[^\s'\"]+\.\w+)")
_NANOS = re.compile(r"TIMESTAMP\(NANOS")
_CODEC = re.compile(r"(\w+)Codec was not found")
_TYPE = re.compile(r"Illegal Parquet type: ([\w ()]+)")
NANOS_FIX = "set spark.sql.legacy.parquet.nanosAsLong=true in this session"
PROBLEMS = (
    (_NANOS, "times in nanoseconds, which Spark reads only as numbers", NANOS_FIX),
    (_CODEC, "compressed with {}, which Spark cannot read here", "write it with zstd, snappy or gzip"),
    (_TYPE, "a column of type {}, which Spark does not read", "write that column as text, or as plain bytes"),
)
WORKER_LINES, WORKER_CHARACTERS = 3, 600  # of what a worker said last
_JAVA = re.compile(r"\n\s*(?:at [\w.$]+\(|JVM stacktrace|SQLSTATE)")
_OURS = re.compile(r"^seriatim\.[\w.]+\.LogError: (.+)$", re.MULTILINE)  # of a task in Python


def unreadable(where: str, error: PySparkException | Py4JJavaError) -> LogError:
    text = told(error)
    found = _FILE.search(text)
    place = found.group(1) if found else where
    if "Unescaped quote character" in text:
        return rules.behind_quote(place)
    if "header does not conform" in text or "number of columns" in text.lower():
        return rules.other_heading(place)
    for pattern, problem, fix in PROBLEMS:
        if words := pattern.search(text):
            return LogError(place, problem.format(*words.groups()), fix)
    if any(words in text for words in DAMAGED):
        return damaged(place)
    if "CANNOT_MERGE_SCHEMA" in text or "Failed to merge" in text or "PARQUET_COLUMN_DATA_TYPE_MISMATCH" in text:
        return LogError(place, f"mixed types: {first_line(text)}", "write all files with the same types")
    return LogError(place, f"Spark cannot read it: {first_line(text)}", "check the file")


def damaged(place: str) -> LogError:
    """A file that cannot be read, whoever tried."""
    return LogError(place, "cannot be read: damaged, cut off, or not what its name says", "copy the file again")


def damage(error: PySparkException | Py4JJavaError) -> str | None:
    """If Spark failed because of a file, while it worked at something else: what is wrong with it. Else None."""
    text = told(error)
    if (ours := _OURS.search(text)) is not None:
        return ours.group(1)
    return str(unreadable("a file", error)) if any(words in text for words in DAMAGED) else None


def told(error: PySparkException | Py4JJavaError) -> str:
    """The message of an error and of what caused it."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    lines = [] if isinstance(error, Py4JJavaError) else [str(error)]  # which calls were made tells nobody anything
    while cause is not None and len(lines) < 20:
        lines.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(lines)


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def of_worker(text: str) -> str | None:
    """What a Python worker said last, if the error is one of those: the place in its code, and the error itself."""
    _, begun, rest = text.rpartition("Traceback (most recent call last):")
    if not begun:
        return None
    lines = [line.strip() for line in _JAVA.split(rest)[0].splitlines() if line.strip()]
    place = next((line for line in reversed(lines) if line.startswith("File ")), "")
    at = max((i for i, line in enumerate(lines) if line.startswith("File ")), default=-1)
    # Behind the last place come the line of code, which may be underlined, and the error, which may be long.
    said = [line for line in lines[at + 1 :] if not set(line) <= set("^~ ")][-WORKER_LINES:]
    return (
        f"{' | '.join(said)[:WORKER_CHARACTERS]} ({place})" if place else " | ".join(said)[:WORKER_CHARACTERS] or None
    )
