"""The rules of logs: which tables and columns there are, which cells fit, and in which words the others are refused.

Two readers follow them: the plain one (`reading.py`, `fitting.py`) and the one on Spark (`pipeline/logs`). Both take
their fields, patterns, limits and words from here, so that a log is accepted or refused alike, whoever reads it; a test
feeds the same files to both. A row that does not fit is refused, never dropped: half a log must not pass for the whole.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import NoneType
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import unquote

import msgspec

from seriatim.model import UNREADABLE, Delivery, LogError, Message, Placement, Publication, Subscription

# ── tables and their columns ──────────────────────────────────────────────────────────────────────────────────────

Kind: TypeAlias = Literal["text", "count", "index", "time", "number", "flag", "stamp"]


class Field(NamedTuple):
    """A column of a table. `is_needed`: a log without the column is refused. `is_null`: a row may leave it empty."""

    name: str
    kind: Kind
    is_needed: bool = False
    is_null: bool = True


HISTORY: dict[str, type[msgspec.Struct]] = {
    "deliveries": Delivery,
    "publications": Publication,
    "subscriptions": Subscription,
    "messages": Message,
}
TABLES = tuple(HISTORY)
ORDER = "order"  # the order log: given beside a history, and no part of it
ROWS = HISTORY | {ORDER: Placement}
_KINDS: dict[type, Kind] = {str: "text", float: "time", bool: "flag"}


def _fields_of(row: type[msgspec.Struct]) -> tuple[Field, ...]:
    fields = []
    for field in msgspec.structs.fields(row):
        parts = [part for part in get_args(field.type) or (field.type,) if part is not NoneType]
        kind = _KINDS.get(parts[0], "stamp")
        if parts[0] is int:
            kind = "index" if field.default == 0 else "count"
        fields.append(Field(field.name, kind, field.required, NoneType in get_args(field.type)))
    return tuple(fields)


FIELDS = {name: _fields_of(row) for name, row in ROWS.items()}

# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}
PARQUET = (".parquet", ".pq")
SUFFIXES = (".gz", *FORMATS, *PARQUET, ".log", ".txt")  # left out of the name of a file's subscriber, in this order
SEPARATORS = {"csv": ",", "tsv": "\t"}
NOTHING = "__HIVE_DEFAULT_PARTITION__"  # what Spark and Hive call a folder for a null
HEAD = 1_000  # lines of JSON looked at to know the columns


def format_of(path: PurePath | str) -> str | None:
    """csv, tsv, jsonl or parquet, from a file's name; None if the name does not say."""
    path = PurePath(path)
    suffix = (PurePath(path.stem).suffix if path.suffix == ".gz" else path.suffix).lower()
    return "parquet" if suffix in PARQUET else FORMATS.get(suffix)


def name_of(file: str) -> str:
    """A file's name without its suffixes: what its subscriber is called."""
    for suffix in SUFFIXES:
        file = file.removesuffix(suffix)
    return file


def keys_of(line: str) -> Iterable[str]:
    """The columns that a line of JSON has; none, if it is not an object."""
    try:
        return msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (*UNREADABLE, UnicodeEncodeError):
        return ()


def folder_columns(folders: Sequence[str]) -> dict[str, str | None]:
    """The columns that the folders above a file add to its rows: one named `column=value` is a column of its files.

    Otherwise the files below `run=1/` and `run=2/` would be compared as one run.
    """
    pairs = (folder.partition("=") for folder in folders)
    return {unquote(name): None if value == NOTHING else unquote(value) for name, equals, value in pairs if equals}


def check_folders(where: str, files: Iterable[Sequence[str]]) -> bool:
    """Whether the folders on the way to these files are columns.

    Raises LogError if only some of them are, or if they are others for some files: Spark passes over such files, and
    half a log must not pass for the whole.
    """
    kinds: dict[tuple[str, ...], str] = {}
    for folders in files:
        names = tuple(folder.partition("=")[0] if "=" in folder else "" for folder in folders)
        kinds.setdefault(names, "/".join(folders) or "the folder itself")
    if not any(any(names) for names in kinds):
        return False
    if len(kinds) > 1 or not all(next(iter(kinds))):
        shown = ", ".join(sorted(kinds.values())[:3])
        problem = f"folders named column=value beside or below others: {shown}"
        raise LogError(where, problem, "give a folder whose files are all below folders of the same columns")
    return True


# ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# A cell is text, or missing; an empty one is missing. Numbers may have spaces around them and be written as 3, 3.0 or
# 3e0. A time is ISO 8601 with a date; without a zone it is UTC.

COUNT_MAX, INDEX_MAX = 2**63 - 1, 2**31 - 1
NUMBER_DIGITS, FRACTION_DIGITS = 38, 9  # of a number that gives an order: any clock, to the nanosecond
YES, NO = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
# Read alike by Python and by Java. The end is written so because `$` allows a line to end before it.
TIME = (
    r"^(?!0000)\d{4}-\d\d-\d\d(?:[T ](?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?"
    r"(?: ?(?:Z|[+-](?:0\d|1[0-7])(?::?[0-5]\d)?))?)?(?![\s\S])"
)
REPLACED = "\ufffd"  # what bytes that are not UTF-8 become
# In JSON, one half of a character that takes two escapes, without the other. An escaped backslash begins no escape.
HALF = (
    r"(?<!\\)(?:\\\\)*\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
SHOWN_MAX = 80  # characters of a cell or line in a message

EMPTY = "empty"
NOT_WHOLE, NEGATIVE, TOO_LARGE = "is not a whole number", "is negative", "is too large"
NOT_TIME, NOT_NUMBER = "is neither a number nor a time", "is not a number"
NOT_FLAG, NOT_STAMP, NOT_UTF8 = "is neither true nor false", "is not a stamp", "not UTF-8"
NOT_JSON, OTHER_CELLS, CUT_OFF = (
    "not a JSON object",
    "more or fewer cells than the first line",
    "the last line is cut off",
)

_CORRECT = "correct it, or map another column"
_FIXES = {  # the first whose words a problem has
    CUT_OFF: "copy the file again, or delete that line if its writer was stopped there",
    NOT_JSON: "write one JSON object per line",
    OTHER_CELLS: "quote cells that contain separators; write empty cells too",
    NOT_UTF8: "write the file as UTF-8",
    NEGATIVE: "count from 0 (numbers from 1)",
    NOT_TIME: "write a number or a time such as 2026-01-31T12:00:00.5Z",
    NOT_STAMP: 'write it as JSON, such as {"topic": 3}, or leave it empty',
    EMPTY: "fill it, or map another column",
}


def of_column(columns: Sequence[str], problem: str) -> str:
    """The problem of a cell. A value that is at fault comes before the problem."""
    return f"column {', '.join(columns)}: {problem}"


def empty_name(columns: Sequence[str], field: str) -> str:
    """A cell that must name something is empty."""
    return of_column(columns, f"{EMPTY}, and it is the {field}")


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────

EXAMPLES = 3  # rows shown of those that do not fit


def misfits(where: str, bad: int, rows: int, examples: Iterable[str], what: str = "rows") -> LogError:
    """Rows do not fit. `examples` are the first of them, each with its place if that is known."""
    shown = list(examples)
    fix = next((fix for words, fix in _FIXES.items() if words in shown[0]), _CORRECT)
    return LogError(where, f"{bad:,} of {rows:,} {what} do not fit: {'; '.join(shown)}", fix)


def half_character(where: str, line: str) -> LogError:
    """Such characters become a question mark somewhere, so two names would pass for one."""
    what = f"half a character (a \\ud8… escape without its other half): {line[:SHOWN_MAX]}"
    return LogError(where, what, "write both halves")


def not_json_lines(where: str) -> LogError:
    """The error for a file of which none of the first lines is a JSON object."""
    what = f"not JSON lines: none of its first {HEAD:,} lines is a JSON object with fields"
    return LogError(where, what, "write one JSON object per line")


def behind_quote(where: str) -> LogError:
    """What was meant is not known, and CSV readers differ."""
    return LogError(where, "text after a closing quote", 'write a quote inside a cell twice: "a ""word"""')


def check_heading(columns: Iterable[str], where: str) -> None:
    """Refuse two columns of one name, or of names that differ only in case, which Spark takes for one."""
    names: dict[str, str] = {}
    for column in filter(None, columns):
        other = names.setdefault(column.lower(), column)
        if other is not column:
            both = column if other == column else f"{other} and {column}, which differ only in case"
            raise LogError(where, f"two columns are called {both}", "rename one of them")


def other_heading(where: str) -> LogError:
    """Files of one table begin with the same line."""
    return LogError(where, "its columns are not those of the other files", "audit files of one kind at a time")


def check_columns(table: str, known: Sequence[str], where: str) -> None:
    """Refuse a table of a history that lacks a column. Deliveries may be mapped: see `ColumnMapping.sources`."""
    missing = [field.name for field in FIELDS[table] if field.is_needed and field.name not in known]
    if known and missing:
        fix = f"its columns are {', '.join(known)}; docs/audit.md lists the fields"
        raise LogError(where, f"no column {', '.join(missing)}", fix)


def check_formats(where: str, files: Iterable[tuple[str, str]]) -> str | None:
    """The format of (format, name) of files. Files of one table have one: another may be another table or log."""
    formats: dict[str, str] = {}
    for kind, name in files:
        formats.setdefault(kind, name)
    if len(formats) > 1:
        shown = " and ".join(f"{kind} ({name})" for kind, name in sorted(formats.items()))
        raise LogError(where, f"files of different formats: {shown}", "give one of them: a folder, a file or a pattern")
    return next(iter(formats), None)


def check_tables(where: str, found: Mapping[str, Sequence[str]]) -> None:
    """Refuse a folder of a run that has a table twice, or tables and no deliveries. `found`: table → file names."""
    for name, files in found.items():
        if len(files) > 1:
            raise LogError(where, f"{name} twice: {' and '.join(sorted(files))}", "keep one of them")
    if found and "deliveries" not in found:
        there = ", ".join(sorted(found))
        raise LogError(where, f"no deliveries beside {there}", "add deliveries (.jsonl, .csv or .parquet)")


def check_is_one_run(where: str, folders: Iterable[str]) -> None:
    """Refuse a folder whose runs are in folders below it: read as one they would be compared with each other."""
    if below := sorted(set(folders)):
        more = f" and {len(below) - 3} more" if len(below) > 3 else ""
        problem = f"no deliveries in this folder itself, but in {', '.join(below[:3])}{more}"
        raise LogError(where, problem, "give one of these: an audit is about one run")


def called_alike(file: str, other: str, name: str) -> LogError:
    """Two files of one name, where the name is the subscriber's."""
    fix = "name the files differently, or take the subscriber from a column"
    return LogError(file, f"{other} is called {name} too", fix)


def mixed_order(where: str, column: str) -> LogError:
    """Numbers and times in the column that gives the order."""
    what = f"mixed types in {column}: some are numbers, some are times"
    return LogError(where, what, "correct the column; they cannot be compared")


def in_several_files(where: str, subscriber: str) -> LogError:
    """The lines of two files are in no order."""
    fix = "give a column with --order-by, or one file for each subscriber (--subscriber-from file)"
    return LogError(where, f"rows of {subscriber} are in several files: lines give no order", fix)


def runs_mixed(where: str, runs: Iterable[str]) -> LogError:
    """Rows of several runs compared with each other would make violations that never happened, and hide some."""
    return LogError(where, f"rows of several runs: {listed(sorted(runs))}", "audit one at a time: --run NAME")


def no_such_run(where: str, run: str, runs: Iterable[str]) -> LogError:
    """A run is asked for, and all rows that name one name others."""
    return LogError(where, f"no row of run {run}", f"its runs are {listed(sorted(runs))}")


def listed(names: Sequence[str], at_most: int = 20) -> str:
    """Names in a message: not more than fit."""
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return (", ".join(names[:at_most]) or "none") + more


is_time = re.compile(TIME).match
_half = re.compile(HALF)
has_half = _half.search


def replace_halves(line: str) -> str:
    """JSON that can be read in spite of half characters, to see whether anything else is wrong with it."""
    return _half.sub("?", line)
