"""The options of the data source `seriatim`. Spark hands them over with their names in lower case."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from pyspark.sql.types import StructField, StructType

from seriatim.brokers.bulk import BulkReader
from seriatim.brokers.urls import bulk_reader, kind_or_none
from seriatim.model import InputError
from seriatim.pipeline.schemas import ARCHIVE, COUNT, TEXT, TIME, table_of

TABLES = ("events", "stamps", "order", "deliveries", "publications", "subscriptions")
PARTITION_BYTES = 32 * 1024 * 1024

# Where a row came from, and what is missing. `line` counts the rows of one message, `stored_at` is when the server took
# it, in ms since 1970. A row that says that something is missing has no other columns: positions
# `stream_position` … `lost_to`, and why.
BOOKKEEPING = table_of(
    stream_=TEXT, stream_position_=COUNT, line_=COUNT, stored_at_=TIME, lost_to_=COUNT, problem_=TEXT
)

_OTHERS = ("url", "cluster", "table", "topics", "start", "gaps", "max_messages", "parallelism", "partition_bytes")


class SourceOptions(Struct, frozen=True, kw_only=True):
    """The options of one read. `reader` is made of `url`, `cluster` and the broker's own options."""

    reader: BulkReader
    table: str = "events"
    topics: str = ""  # of events: names and patterns, separated by commas; empty: all of them
    start: Literal["kept", "all"] = "kept"  # with what a stream still has, or with 1: then what is gone is a gap
    gaps: Literal["fail", "rows"] = "fail"  # where a stream has lost something: an error, or a row that says so
    max_messages: int | None = None  # per micro-batch of a streaming read; one message holds 1 to 4,096 events
    parallelism: int = 4
    partition_bytes: int = PARTITION_BYTES

    @property
    def schema(self) -> StructType:
        """The schema of the rows. Rows about gaps have nulls in the table's columns."""
        table = ARCHIVE[self.table]
        if self.gaps == "fail":
            return table
        nullable = [StructField(each.name, each.dataType) for each in table.fields]
        return StructType([*nullable, *BOOKKEEPING.fields])


def read_options(said: Mapping[str, str]) -> SourceOptions:
    """Read the options that Spark hands over. InputError names the one that is wrong."""
    options = {name.lower(): value for name, value in said.items()}
    url = options.get("url") or options.get("path")
    if not url:
        raise InputError("option url", "it is missing", 'give .option("url", "nats://host:port")')
    kind = kind_or_none(url)
    of_broker = kind.reading_options if kind is not None else ()
    for name in options:
        if name not in _OTHERS and name not in of_broker and name != "path":
            raise InputError(f"option {name}", "there is no such option", f"use {', '.join(_OTHERS + of_broker)}")
    table = options.get("table", "events")
    if table not in TABLES:
        raise InputError("option table", f"{table!r} is not on the broker", f"use one of {', '.join(TABLES)}")
    given: dict[str, Any] = {name: options[name] for name in ("cluster", *of_broker) if name in options}
    if "connect_timeout_s" in given:
        given["connect_timeout_s"] = _seconds(options, "connect_timeout_s")
    return SourceOptions(
        reader=bulk_reader(url, **given),
        table=table,
        topics=options.get("topics", ""),
        start=_choice(options, "start", "kept", "all"),  # type: ignore[arg-type]
        gaps=_choice(options, "gaps", "fail", "rows"),  # type: ignore[arg-type]
        max_messages=_count(options, "max_messages", None),
        parallelism=_count(options, "parallelism", 4) or 4,
        partition_bytes=_count(options, "partition_bytes", PARTITION_BYTES) or PARTITION_BYTES,
    )


def _choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    value = options.get(name, choices[0])
    if value not in choices:
        raise InputError(f"option {name}", f"unknown value {value!r}", f"use {' or '.join(choices)}")
    return value


def _count(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"option {name}", f"{text!r} is not a count", "give a whole number above 0")
    return int(text)


def _seconds(options: Mapping[str, str], name: str) -> float:
    try:
        seconds = float(options[name])
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise InputError(f"option {name}", f"{options[name]!r} is not a time", "give a number of seconds above 0")
    return seconds
