"""Read delivery logs of other systems without Spark: CSV and JSON lines, by a `ColumnMapping`.

The Spark reader follows the same rules; this one is for files that fit into memory and machines without Java. The first
row that does not fit is an error that names file, line and value: half a log must not pass for the whole.
"""

import csv
import gzip
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from seriatim.audit.folders import check_folders, folder_columns
from seriatim.audit.mapping import LINES, ColumnMapping, no_such_run, runs_mixed
from seriatim.model import UNREADABLE, Delivery, LogError

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}
PARQUET = (".parquet", ".pq")
HEAD = 1_000  # lines of JSON looked at to know the columns
SEPARATORS = {"csv": ",", "tsv": "\t"}
YES, NO = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """A row that fits, before it has a position: where it stands, and what orders it."""

    file: int
    line: int
    order: Decimal | None
    delivery: Delivery


def format_of(path: Path | str) -> str | None:
    """csv, tsv, jsonl or parquet, from a file's name; None if it does not tell."""
    path = Path(path)
    suffix = (Path(path.stem).suffix if path.suffix in (".gz",) else path.suffix).lower()
    return "parquet" if suffix in PARQUET else FORMATS.get(suffix)


def read_foreign(paths: Iterable[Path], mapping: ColumnMapping, below: Path) -> list[Delivery]:
    """All deliveries of these files, with positions. Raises LogError at the first row that does not fit.

    `below` is what was asked for. If it is a folder, the folders in it may be columns (`folders.py`).
    """
    rows: list[Row] = []
    runs: set[str] = set()
    kinds: dict[str, str] = {}  # number or time → where the order column was first seen to hold one
    names: dict[str, Path] = {}
    paths = list(paths)
    folders = {path: path.relative_to(below).parts[:-1] if below.is_dir() else () for path in paths}
    check_folders(str(below), folders.values())
    for file, path in enumerate(paths):
        if mapping.subscriber_from_file:
            other = names.setdefault(name_of(path), path)
            if other != path:
                fix = "name the files differently, or take the subscriber from a column"
                raise LogError(str(path), f"{other} is called {name_of(path)} too", fix)
        for line, cells in _rows_of(path, mapping, folder_columns(folders[path])):
            place = f"{path} line {line}"
            run = _cell(cells, mapping.run_column)
            if run is not None:
                runs.add(shown(run))
                if mapping.run is not None and shown(run) != mapping.run:
                    continue
            row, kind = _fitted(file, line, cells, mapping, name_of(path), place)
            if kind:
                kinds.setdefault(kind, place)
            rows.append(row)
    if len(kinds) > 1:
        both = " and ".join(f"a {kind} at {place}" for kind, place in sorted(kinds.items()))
        raise LogError(str(mapping.order_by), f"mixed types: {both}", "correct the column; they cannot be compared")
    if mapping.run is None and len(runs) > 1:
        raise runs_mixed(str(below), runs)
    if mapping.run is not None and mapping.run not in runs:
        raise no_such_run(str(below), mapping.run, runs)
    return [row.delivery for row in rows] if mapping.order_by is None else _placed(rows, mapping)


def name_of(path: Path) -> str:
    """A file's name without its suffixes: what its subscriber is called."""
    name = path.name
    for suffix in (".gz", *FORMATS, *PARQUET, ".log", ".txt"):
        name = name.removesuffix(suffix)
    return name


def _placed(rows: list[Row], mapping: ColumnMapping) -> list[Delivery]:
    """Give each subscriber's rows positions without holes; rows whose order is not known share one."""
    by_subscriber: dict[str, list[Row]] = {}
    for row in rows:
        by_subscriber.setdefault(row.delivery.subscriber, []).append(row)
    placed = []
    for subscriber, own in by_subscriber.items():
        if mapping.order_by == LINES:
            if len({row.file for row in own}) > 1:
                fix = "give a column with --order-by, or one file for each subscriber (--subscriber-from file)"
                raise LogError(f"subscriber {subscriber}", "its rows are in several files: lines give no order", fix)
            placed += [msgspec.structs.replace(row.delivery, position=i) for i, row in enumerate(own)]
            continue
        reach = _reaches(own, mapping)
        position, latest = -1, None
        for i in sorted(range(len(own)), key=lambda i: own[i].order or Decimal(0)):
            order = own[i].order
            assert order is not None
            if latest is None or order > latest:
                position += 1
            latest = reach[i] if latest is None else max(latest, reach[i])
            placed.append(msgspec.structs.replace(own[i].delivery, position=position))
    return placed


def _reaches(own: list[Row], mapping: ColumnMapping) -> list[Decimal]:
    """Up to which value of the order column a row's place is not known: the largest of an earlier line of its file."""
    reaches = []
    latest: dict[int, Decimal] = {}
    for row in own:
        assert row.order is not None
        if not mapping.trust_order:
            latest[row.file] = max(latest.get(row.file, row.order), row.order)
        reaches.append(latest.get(row.file, row.order))
    return reaches


def _fitted(
    file: int, line: int, cells: dict[str, Any], mapping: ColumnMapping, name: str, place: str
) -> tuple[Row, str]:
    fields: dict[str, Any] = {"position": 0}
    if mapping.subscriber_from_file:
        fields["subscriber"] = name
    if mapping.topic_value is not None:
        fields["topic"] = mapping.topic_value
    for target in ("subscriber", "event_id", "topic"):
        if target not in fields:
            fields[target] = _text(target, cells, mapping.columns_of(target), place)
    for target in ("position", "number", "index"):
        columns = mapping.columns_of(target)
        value = _cell(cells, columns[0])
        is_needed = target == "position" and mapping.order_by is None
        if is_needed or (value is not None and target != "position"):
            fields[target] = whole(value, f"{place}, column {columns[0]}")
    for target in ("received_at", "notified_at"):
        column = mapping.columns_of(target)[0]
        if (value := _cell(cells, column)) is not None:
            time, kind = moment(value, f"{place}, column {column}")
            fields[target] = float(time / 1000 if kind == "time" else time)
    column = mapping.columns_of("out_of_order")[0]
    if (value := _cell(cells, column)) is not None:
        fields["out_of_order"] = flag(value, f"{place}, column {column}")
    order, kind = None, ""
    if mapping.order_by not in (None, LINES):
        order, kind = moment(_cell(cells, str(mapping.order_by)), f"{place}, column {mapping.order_by}")
    return Row(file, line, order, Delivery(**fields)), kind


def _text(target: str, cells: dict[str, Any], columns: tuple[str, ...], place: str) -> str:
    parts = []
    for column in columns:
        value = _cell(cells, column)
        if value is None:
            raise LogError(f"{place}, column {column}", f"empty, and it is the {target}", "fill it, or map another one")
        parts.append(shown(value))
    return parts[0] if len(parts) == 1 else joined(parts)


def shown(value: Any) -> str:
    """A cell as text: what Spark makes of it too."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def joined(parts: Iterable[str]) -> str:
    """Several cells as one name; different cells give different names."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _cell(cells: dict[str, Any], column: str) -> Any:
    """A cell; of JSON also one inside an object. An empty one is one that is not there."""
    value: Any = cells.get(column)
    if value is None and "." in column:
        value = cells
        for part in column.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    return None if value == "" else value


def whole(value: Any, place: str) -> int:
    """A count: 3, "3" or "3.0"."""
    number = _number(value)
    if number is None or number != number.to_integral_value():
        what = "empty" if value is None else f"{shown(value)} is not a whole number"
        raise LogError(place, what, "correct it, or map another column")
    if number < 0:
        raise LogError(place, f"{number} is negative", "count from 0 (numbers from 1)")
    return int(number)


def flag(value: Any, place: str) -> bool:
    """true, yes, 1 and their opposites."""
    text = shown(value).strip().lower()
    if text not in YES | NO:
        raise LogError(place, f"{shown(value)} is neither true nor false", "correct it, or map another column")
    return text in YES


def moment(value: Any, place: str) -> tuple[Decimal, str]:
    """What rows can be ordered by: a number as it is, a time as microseconds since 1970. And which of them it is."""
    if value is None:
        raise LogError(place, "empty", "fill it: the row has no place without it")
    number = _number(value)
    if number is not None:
        return number, "number"
    try:
        time = datetime.fromisoformat(shown(value).strip())
    except ValueError:
        fix = "write a number or a time such as 2026-01-31T12:00:00.5Z"
        raise LogError(place, f"{shown(value)} is neither a number nor a time", fix) from None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    since = time - EPOCH
    return Decimal(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds), "time"


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    try:
        number = Decimal(shown(value).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rows_of(path: Path, mapping: ColumnMapping, given: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cells of each row, and those that its folders give it, by line."""
    kind = format_of(path)
    if kind is None or kind == "parquet":
        fix = "give .csv, .tsv or .jsonl (Parquet is read by --engine spark)"
        raise LogError(str(path), f"cannot read {path.suffix or 'a file without suffix'}", fix)
    try:
        with _opened(path) as file:
            if kind == "jsonl":
                rows = _json_rows(path, file, mapping, given)
            else:
                rows = _csv_rows(path, file, kind, mapping, given)
            for line, cells in rows:
                yield line, cells | given
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"not UTF-8 ({error.reason})", "write the file as UTF-8") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise LogError(str(path), f"not a whole gzip file ({error})", "copy the file again") from None
    except OSError as error:
        raise LogError(str(path), error.strerror or "cannot be read", "check the path and its permissions") from None


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _json_rows(
    path: Path, file: IO[str], mapping: ColumnMapping, given: Iterable[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    # A fraction stays as it is written: two ids may differ in a digit that no float has.
    decoder = msgspec.json.Decoder(dict[str, Any], float_hook=msgspec.Raw)

    def decoded() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(file, start=1):
            if line.isspace():
                continue
            try:
                yield number, decoder.decode(line)
            except UNREADABLE as error:
                where = f"{path} line {number}"
                if not line.endswith("\n") and not isinstance(error, msgspec.ValidationError):
                    fix = "copy the file again, or delete that line if its writer was stopped there"
                    raise LogError(where, "the last line is cut off", fix) from None
                raise LogError(where, f"not a JSON object ({error})", "write one JSON object per line") from None

    rows = decoded()
    head = list(islice(rows, HEAD))
    if head:
        mapping.sources(chain(chain.from_iterable(cells for _, cells in head), given), str(path))
    yield from chain(head, rows)


def check_heading(columns: Iterable[str], where: str, is_exact: bool = True) -> None:
    """Refuse two columns of one name: which of them is meant, nobody can tell. If not exact, `A` and `a` are one."""
    names: dict[str, str] = {}
    for column in filter(None, columns):
        name = column if is_exact else column.lower()
        if name in names:
            both = column if names[name] == column else f"{names[name]} and {column}, which are one to Spark"
            raise LogError(where, f"two columns are called {both}", "rename one of them")
        names[name] = column


def _csv_rows(
    path: Path, file: IO[str], kind: str, mapping: ColumnMapping, given: Iterable[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(file, strict=True, delimiter=SEPARATORS[kind])
    try:
        columns = reader.fieldnames or []
        check_heading(columns, str(path))
        if columns:
            mapping.sources([*columns, *given], str(path))
        for cells in reader:
            wrong = "more" if None in cells else "fewer" if None in cells.values() else ""
            if wrong:
                fix = "quote cells that have separators in them; write empty ones too"
                where = f"{path} line {reader.line_num}"
                raise LogError(where, f"{wrong} cells than the {len(columns)} of the first line", fix)
            yield reader.line_num, cells
    except csv.Error as error:
        where = f"{path} line {reader.reader.line_num}"
        raise LogError(where, str(error), "correct the quotes of this line") from None
