"""Logs as files: a history is a folder of four JSON-lines files; deliveries alone may also be one .jsonl or .csv file.

Only `deliveries.jsonl` must be there. One row per line, the fields of `seriatim.model`, unknown fields ignored. A line
that is not a row is an error that names file, line, field and fix: half a log must not pass for the whole.
"""

import csv
import re
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seriatim.audit.foreign import format_of, read_foreign
from seriatim.audit.mapping import ColumnMapping, no_such_run, runs_mixed
from seriatim.model import Delivery, History, LogError, Message, Publication, Subscription

TABLES = ("deliveries", "publications", "subscriptions", "messages")

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
        return History(deliveries=read_foreign(files, mapping))
    run = mapping.run if mapping is not None else None
    if path.is_dir():
        if not (path / "deliveries.jsonl").exists():
            if files := [file for file in find_files(path) if format_of(file)]:
                return History(deliveries=read_foreign(files, ColumnMapping(run=run)))
            raise LogError(str(path), "no deliveries.jsonl in this folder", "give the folder that has one, or a file")
        return History(
            deliveries=_read_if_there(path / "deliveries.jsonl", Delivery, run),
            publications=_read_if_there(path / "publications.jsonl", Publication, run),
            subscriptions=_read_if_there(path / "subscriptions.jsonl", Subscription, run),
            messages=_read_if_there(path / "messages.jsonl", Message, run),
        )
    if not path.exists():
        raise LogError(str(path), "no such file or folder", "correct the path")
    return History(deliveries=read_deliveries(path, run))


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
    if path.suffix == ".jsonl":
        return list(_read_lines(path, Delivery, run))
    if path.suffix == ".csv":
        return list(_read_csv(path, run))
    raise LogError(str(path), f"cannot read {path.suffix or 'a file without suffix'}", "give a .jsonl or .csv file")


def write_history(history: History, folder: Path | str) -> None:
    """Write all four files, so that nothing of an earlier run stays behind. The same rows give the same bytes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder(order="deterministic")
    for name in TABLES:
        (folder / f"{name}.jsonl").write_bytes(encoder.encode_lines(getattr(history, name)))


def _read_if_there(path: Path, kind: type[T], run: str | None) -> list[T]:
    return list(_read_lines(path, kind, run)) if path.exists() else []


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
                    raise _wrong_field(path, number, error) from None
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise _wrong_line(path, number, line, error) from None
                yield _checked(row, path, number)
    except OSError as error:
        raise _unreadable(path, error) from None
    runs.close()


def _read_csv(path: Path, run: str | None) -> Iterator[Delivery]:
    known = {field.name for field in msgspec.structs.fields(Delivery)}
    runs = _Runs(path, run)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or []
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
                    row = msgspec.convert(filled, Delivery, strict=False)
                except msgspec.ValidationError as error:
                    raise _wrong_field(path, number, error) from None
                except msgspec.DecodeError as error:
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


def _wrong_field(path: Path, line: int, error: msgspec.ValidationError) -> LogError:
    text = str(error)
    found = _FIELD.search(text)
    field = (found.group(1) or found.group(2)) if found else None
    problem = text.partition(" - at ")[0].replace("`", "")
    fix = "add it to the row" if "missing required" in text else "correct it; docs/audit.md lists the fields"
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
