"""Logs as files: a history is a folder of four tables, each a .jsonl or .csv file; deliveries alone may be one file.

Only `deliveries` must be there. One row per line, the fields of `seriatim.model`, unknown fields ignored. A line
that is not a row is an error that names file, line, field and fix: half a log must not pass for the whole.
"""

import csv
import re
from collections.abc import Container, Iterable, Iterator
from glob import glob
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seriatim.audit.foreign import check_heading, format_of, read_foreign
from seriatim.audit.mapping import OPTIONS, ColumnMapping, no_such_run, runs_mixed
from seriatim.model import UNREADABLE, Delivery, History, LogError, Message, Publication, Subscription

TABLES = ("deliveries", "publications", "subscriptions", "messages")
PLAIN = (".jsonl", ".csv")  # how all of them may be written; deliveries also in the ways of other systems

# What the types do not say: these are never empty, and those never negative.
NAMES: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Delivery: ("subscriber", "event_id", "topic"),
    Publication: ("event_id", "topic", "publisher"),
    Subscription: ("subscriber", "topic"),
    Message: ("run", "source", "target", "kind"),
}
COUNTS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Delivery: ("position", "number", "index"),
    Publication: ("sequence", "seen", "number", "index"),
    Subscription: ("since", "until", "start", "end"),
    Message: ("bytes",),
}

_FIELD = re.compile(r"`\$\.(\w+)|field `(\w+)`")

T = TypeVar("T", bound=msgspec.Struct)


def read_history(path: Path | str, mapping: ColumnMapping | None = None) -> History:
    """Read a folder of logs, or a single file of deliveries (.jsonl or .csv).

    With a mapping: files of deliveries of any origin, one, a folder of them, or a pattern such as `logs/*.csv`.
    """
    path = Path(path)
    if mapping is not None and mapping.is_foreign:
        if not (files := find_files(path)):
            raise LogError(str(path), "no files in this folder", "give the folder that has the logs, or a file")
        return History(deliveries=_read_files(path, files, mapping))
    run = mapping.run if mapping is not None else None
    if path.is_dir():
        return _read_folder(path, run)
    if not path.exists():
        raise LogError(str(path), "no such file or folder", "correct the path")
    return History(deliveries=read_deliveries(path, run))


def _read_folder(path: Path, run: str | None) -> History:
    tables = {name: found for name in TABLES if (found := _table_in(path, name))}
    if (only_spark := table_for_spark(path)) is not None:
        fix = "leave out --engine python, or write the table as .jsonl or .csv"
        raise LogError(str(only_spark), "only Spark reads this table", fix)
    if "deliveries" not in tables:
        check_is_one_run(path, [file.parent for file in path.rglob("deliveries.*") if file.is_file()])
        if tables:
            there = ", ".join(sorted(tables))
            raise LogError(str(path), f"no deliveries beside {there}", "add deliveries (.jsonl, .csv or .parquet)")
        if files := [file for file in find_files(path) if format_of(file)]:
            return History(deliveries=_read_files(path, files, ColumnMapping(run=run)))
        fix = "give the folder that has them (.jsonl, .csv or .parquet), or a file"
        raise LogError(str(path), "no deliveries in this folder", fix)
    deliveries = tables["deliveries"]
    return History(
        deliveries=_read_table(deliveries, Delivery, run)
        if deliveries.suffix in PLAIN and deliveries.is_file()
        else _read_files(deliveries, find_files(deliveries), ColumnMapping(run=run)),
        publications=_read_table(tables.get("publications"), Publication, run),
        subscriptions=_read_table(tables.get("subscriptions"), Subscription, run),
        messages=_read_table(tables.get("messages"), Message, run),
    )


def _read_files(path: Path, files: list[Path], mapping: ColumnMapping) -> list[Delivery]:
    """Files of one log are all written alike: what is not may be another table, or another log."""
    formats: dict[str, str] = {}
    for file in files:
        if (kind := format_of(file)) is not None:
            formats.setdefault(kind, file.name)
    if len(formats) > 1:
        shown = " and ".join(f"{kind} ({name})" for kind, name in sorted(formats.items()))
        fix = "give one of them: a folder, a file or a pattern"
        raise LogError(str(path), f"files of different formats: {shown}", fix)
    return read_foreign(files, mapping, path)


def _table_in(folder: Path, name: str) -> Path | None:
    found = sorted(child for child in folder.iterdir() if _is_table(child, {name}))
    if len(found) > 1:
        both = " and ".join(child.name for child in found)
        raise LogError(str(folder), f"{name} twice: {both}", "keep one of them")
    return found[0] if found else None


def table_for_spark(path: Path | str) -> Path | None:
    """A table of the run in this folder that is not read here: in another format, or a folder of files."""
    path = Path(path)
    for child in sorted(path.iterdir()) if path.is_dir() else ():
        if _is_table(child, TABLES[1:]) and not (child.is_file() and child.suffix in PLAIN):
            return child
    return None


def _is_table(path: Path, names: Container[str]) -> bool:
    """By its name and format: people keep other files beside their logs."""
    return path.name.partition(".")[0] in names and (path.is_dir() or format_of(path) is not None)


def check_is_one_run(path: Path | str, folders: Iterable[Path | str]) -> None:
    """Refuse a folder whose runs are in folders below it: read as one they would be compared with each other."""
    if below := sorted({str(folder) for folder in folders}):
        more = f" and {len(below) - 3} more" if len(below) > 3 else ""
        problem = f"no deliveries in this folder itself, but in {', '.join(below[:3])}{more}"
        raise LogError(str(path), problem, "give one of these: an audit is about one run")


def find_files(path: Path | str) -> list[Path]:
    """The files of deliveries that a path stands for: itself, those below it, or those that fit the pattern."""
    path = Path(path)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and not _is_hidden(file.relative_to(path)))
        tables = [file for file in found if file.name.partition(".")[0] in TABLES]
        return [file for file in tables if file.name.partition(".")[0] == "deliveries"] if tables else found
    found = sorted(Path(name) for name in glob(str(path), recursive=True) if Path(name).is_file())
    if not found:
        raise LogError(str(path), "no such file or folder", "correct the path")
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def read_deliveries(path: Path | str, run: str | None = None) -> list[Delivery]:
    """Read one file of deliveries: .jsonl, or .csv with the field names in its first line."""
    path = Path(path)
    if path.suffix in PLAIN:
        return _read_table(path, Delivery, run)
    if format_of(path) == "parquet":
        raise LogError(
            str(path), "only Spark reads Parquet", "leave out --engine python, or give a .jsonl or .csv file"
        )
    if format_of(path) is not None:
        return read_foreign([path], ColumnMapping(run=run), path)
    problem = f"cannot read {path.suffix or 'a file without suffix'}"
    raise LogError(str(path), problem, "give a .jsonl, .csv, .tsv or .parquet file; name it so if it is one")


def write_history(history: History, folder: Path | str) -> None:
    """Write all four files, so that nothing of an earlier run stays behind. The same rows give the same bytes."""
    folder = Path(folder)
    encoder = msgspec.json.Encoder(order="deterministic")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            (folder / f"{name}.jsonl").write_bytes(encoder.encode_lines(getattr(history, name)))
    except OSError as error:
        raise LogError(str(folder), error.strerror or "cannot be written", "give another folder") from None


def _read_table(path: Path | None, kind: type[T], run: str | None) -> list[T]:
    if path is None:
        return []
    return list(_read_csv(path, kind, run) if path.suffix == ".csv" else _read_lines(path, kind, run))


class _Run(msgspec.Struct):
    run: str | int | None = None


class _Runs:
    """Whether rows say which run they are of, and which: rows of two runs must not be compared with each other."""

    def __init__(self, path: Path, wanted: str | None) -> None:
        self._path, self._wanted = path, wanted
        self._seen: set[str] = set()

    def takes(self, run: str | int | None) -> bool:
        """Whether a row of this run is to be read. A row that does not say is of every run."""
        if run is None:
            return True
        self._seen.add(str(run))
        return self._wanted is None or str(run) == self._wanted

    def close(self) -> None:
        """All rows are read: complain if they cannot be told apart."""
        if self._wanted is None and len(self._seen) > 1:
            raise runs_mixed(str(self._path), self._seen)
        if self._wanted is not None and self._seen and self._wanted not in self._seen:
            raise no_such_run(str(self._path), self._wanted, self._seen)


def _read_lines(path: Path, kind: type[T], run: str | None) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    run_decoder = msgspec.json.Decoder(_Run)
    runs = _Runs(path, run)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.isspace():
                    continue
                try:
                    if b'"run"' in line and not runs.takes(run_decoder.decode(line).run):
                        continue
                    row = decoder.decode(line)
                except msgspec.ValidationError as error:
                    raise _wrong_field(path, number, kind, error) from None
                except UNREADABLE as error:
                    raise _wrong_line(path, number, line, error) from None
                yield _checked(row, path, number)
    except OSError as error:
        raise _unreadable(path, error) from None
    runs.close()


def _read_csv(path: Path, kind: type[T], run: str | None) -> Iterator[T]:
    known = {field.name for field in msgspec.structs.fields(kind)}
    runs = _Runs(path, run)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = list(reader.fieldnames or [])
            _check_columns(path, kind, columns)
            for cells in reader:
                number = reader.line_num
                if None in cells:
                    fix = "quote the cells that have commas in them"
                    raise LogError(_place(path, number), f"more cells than the {len(columns)} of the first line", fix)
                if None in cells.values():
                    if next(reader, None) is None:
                        raise _cut_off(path, number)
                    fix = "add the missing cells, empty if need be"
                    raise LogError(_place(path, number), f"fewer cells than the {len(columns)} of the first line", fix)
                if not runs.takes(cells.get("run") or None):
                    continue
                filled: dict[str, Any] = {name: cell for name, cell in cells.items() if cell != "" and name in known}
                try:
                    if "stamp" in filled:
                        filled["stamp"] = msgspec.json.decode(filled["stamp"])
                    row = msgspec.convert(filled, kind, strict=False)
                except msgspec.ValidationError as error:
                    raise _wrong_field(path, number, kind, error) from None
                except UNREADABLE as error:
                    fix = 'write it as JSON, such as {"topic": 3}, or leave it empty'
                    raise LogError(_place(path, number, "stamp"), f"not a stamp ({error})", fix) from None
                yield _checked(row, path, number)
    except csv.Error as error:
        raise LogError(_place(path, reader.reader.line_num), str(error), "correct the quotes of this line") from None
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"not UTF-8 ({error.reason})", "write the file as UTF-8") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    runs.close()


def _check_columns(path: Path, kind: type[T], columns: list[str]) -> None:
    """Before the first row: a log of another system needs an option, not another row."""
    check_heading(columns, str(path))
    if kind is Delivery and columns:
        ColumnMapping().sources(columns, str(path))
    missing = [field.name for field in msgspec.structs.fields(kind) if field.required and field.name not in columns]
    if columns and missing:
        fix = f"its columns are {', '.join(columns)}; docs/audit.md lists the fields"
        raise LogError(str(path), f"no column {', '.join(missing)}", fix)


def _checked(row: T, path: Path, line: int) -> T:
    for name in NAMES[type(row)]:
        if not getattr(row, name):
            raise LogError(_place(path, line, name), "empty", "give it a name")
    for name in COUNTS[type(row)]:
        count = getattr(row, name)
        if count is not None and count < 0:
            raise LogError(_place(path, line, name), f"{count} is negative", "count from 0 (numbers from 1)")
    return row


def _place(path: Path, line: int, field: str | None = None) -> str:
    return f"{path} line {line}" + (f", field {field}" if field else "")


def _wrong_field(path: Path, line: int, kind: type[T], error: msgspec.ValidationError) -> LogError:
    text = str(error)
    found = _FIELD.search(text)
    field = (found.group(1) or found.group(2)) if found else None
    problem = text.partition(" - at ")[0].replace("`", "")
    fix = "correct it; docs/audit.md lists the fields"
    if "missing required" in text:
        option = OPTIONS.get(field or "") if kind is Delivery else None
        fix = "add it to the row" + (f", or say what it is called there: {option}" if option else "")
    return LogError(_place(path, line, field), problem, fix)


def _wrong_line(path: Path, line: int, text: bytes, error: Exception) -> LogError:
    if not text.endswith(b"\n"):
        return _cut_off(path, line)
    return LogError(_place(path, line), f"not a JSON object ({error})", "write one JSON object per line")


def _cut_off(path: Path, line: int) -> LogError:
    fix = "copy the file again, or delete that line if its writer was stopped there"
    return LogError(_place(path, line), "the last line is cut off", fix)


def _unreadable(path: Path, error: OSError) -> LogError:
    return LogError(str(path), error.strerror or "cannot be read", "check the path and its permissions")
