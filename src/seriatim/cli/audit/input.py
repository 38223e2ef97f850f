"""The input of `seriatim audit`: the options for logs of other systems, and the choice of the engine.

It imports no Spark: a small file is audited without it.
"""

import re
from collections.abc import Iterable
from glob import iglob
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click

from seriatim.audit import ColumnMapping, read_history
from seriatim.audit.logs import OnlySpark, table_for_spark
from seriatim.audit.mapping import FIELDS
from seriatim.audit.rules import format_of
from seriatim.cli.common import add_options
from seriatim.model import History, InputError
from seriatim.order import GUARANTEES

FILES_MAX = 200  # more than this are read in parallel, by Spark
PARQUET_ROWS_MAX = 4_000_000  # up to this many, one process judges them before Spark on two cores does
BYTES_MAX = 100_000_000  # about a million deliveries; packed files are counted as they lie

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")

guarantee_option = click.option(
    "--guarantee",
    "guarantees",
    type=click.Choice(list(GUARANTEES)),
    multiple=True,
    metavar="NAME",
    help="Only this guarantee; may be given again. Default: all of them.",
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "python", "spark"]),
    default="auto",
    help="Read and judge logs with plain Python or Spark. auto: Spark if they are large.",
)

# The options that make a `ColumnMapping`; `mapping_of` takes them.
mapping_options = add_options(
    click.option("--subscriber", metavar="COLUMN", help="Column that names the subscriber."),
    click.option("--event", metavar="COLUMN[,COLUMN…]", help="Column that identifies the event; several are joined."),
    click.option("--topic", metavar="COLUMN", help="Column that names the topic."),
    click.option("--position", metavar="COLUMN", help="Column that counts a subscriber's notifications."),
    click.option(
        "--order-by",
        metavar="COLUMN",
        help="Instead of a position: a column with a time or a counter, or `line` for the lines of a file.",
    ),
    click.option("--trust-order", is_flag=True, help="Trust --order-by even if the lines of a file contradict it."),
    click.option(
        "--subscriber-from",
        type=click.Choice(["file"]),
        help="Instead of a column: every file belongs to one subscriber, named like the file.",
    ),
    click.option("--topic-value", metavar="NAME", help="Instead of a column: all events have this topic."),
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="FIELD=COLUMN",
        help=f"Any field of a delivery ({', '.join(FIELDS)}); may be given again.",
    ),
    click.option("--run", metavar="NAME", help="Only rows of this run, if there is a column `run`."),
)


def mapping_of(options: dict[str, Any]) -> ColumnMapping:
    """The column mapping from the options of a command."""
    columns = {
        "subscriber": options["subscriber"],
        "event_id": options["event"],
        "topic": options["topic"],
        "position": options["position"],
    }
    for pair in options["maps"]:
        field, equals, column = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not FIELD=COLUMN", param_hint="--map")
        field = "event_id" if field == "event" else field
        if columns.get(field):
            raise click.BadParameter(f"{field} is mapped twice", param_hint="--map")
        columns[field] = column
    return ColumnMapping.of(
        columns,
        order_by=options["order_by"],
        trust_order=options["trust_order"],
        subscriber_from_file=options["subscriber_from"] == "file",
        topic_value=options["topic_value"],
        run=options["run"],
    )


class Choice(NamedTuple):
    """Which engine audits a log, and why. `is_needed`: the other one cannot."""

    engine: str
    reason: str
    is_needed: bool = False
    is_small: bool = False  # known to be; of a URI nothing is known


def choose_engine(path: str, wanted: str, reads_parquet: bool = False) -> Choice:
    """Spark for what plain Python cannot read, or not in reasonable time. `reads_parquet`: `read_log` would read it."""
    if _SCHEME.match(path):
        if wanted == "python":
            raise InputError("--engine", f"plain Python does not read {path}", "leave it out: Spark reads URIs")
        return Choice("spark", "a URI", True)
    files = list(islice(_files(Path(path)), FILES_MAX + 1))
    size = sum(file.stat().st_size for file in files)
    is_small = len(files) <= FILES_MAX and size <= BYTES_MAX
    if wanted != "auto":
        return Choice(wanted, "--engine", True, is_small)
    if any(format_of(file) == "parquet" for file in files):
        rows = _parquet_rows(path, files) if reads_parquet and len(files) <= FILES_MAX else None
        if rows is not None and rows <= PARQUET_ROWS_MAX:
            return Choice("python", f"{rows:,} rows of Parquet", is_small=is_small)
        return Choice("spark", "Parquet", True, is_small)
    if (table := table_for_spark(path)) is not None:
        return Choice("spark", table.name, True, is_small)
    if is_small:
        return Choice("python", "a small log", is_small=True)
    return Choice("spark", f"{size / 1e6:,.0f} MB" if size > BYTES_MAX else f"more than {FILES_MAX} files")


def _parquet_rows(path: str, files: list[Path]) -> int | None:
    """How many rows there are, if they can be read without Spark."""
    if find_spec("pyarrow") is None:
        return None
    from seriatim.pipeline.arrow.reading import row_count

    try:
        return row_count(path, files)
    except OnlySpark:
        return None


def read_log(path: str, mapping: ColumnMapping) -> History:
    """Read a log without Spark. Parquet that only Spark reads raises `OnlySpark`, a LogError."""
    if not any(format_of(file) == "parquet" for file in _files(Path(path))):
        return read_history(path, mapping)
    if find_spec("pyarrow") is None:
        raise InputError(path, "Parquet, and pyarrow is not installed", 'pip install "seriatim[spark]"')
    from seriatim.pipeline.arrow.reading import read_parquet

    return read_parquet(path, mapping)


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return (file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "_")))
    return map(Path, iglob(str(path), recursive=True))
