"""Logs as files: a history is a folder of four JSON-lines files; deliveries alone may also be one .jsonl or .csv file.

Only `deliveries.jsonl` must be there. One row per line, the fields of `seriatim.model`, unknown fields ignored. A line
that is not a row is an error that names file, line, field and fix: half a log must not pass for the whole.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

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


def read_history(path: Path | str) -> History:
    """Read a folder of logs, or a single file of deliveries (.jsonl or .csv)."""
    path = Path(path)
    if path.is_dir():
        if not (path / "deliveries.jsonl").exists():
            raise LogError(str(path), "no deliveries.jsonl in this folder", "give the folder that has one, or a file")
        return History(
            deliveries=_read_if_there(path / "deliveries.jsonl", Delivery),
            publications=_read_if_there(path / "publications.jsonl", Publication),
            subscriptions=_read_if_there(path / "subscriptions.jsonl", Subscription),
            messages=_read_if_there(path / "messages.jsonl", Message),
        )
    if not path.exists():
        raise LogError(str(path), "no such file or folder", "correct the path")
    return History(deliveries=read_deliveries(path))


def read_deliveries(path: Path | str) -> list[Delivery]:
    """Read one file of deliveries: .jsonl, or .csv with the field names in its first line."""
    path = Path(path)
    if path.suffix == ".jsonl":
        return list(_read_lines(path, Delivery))
    if path.suffix == ".csv":
        return list(_read_csv(path))
    raise LogError(str(path), f"cannot read {path.suffix or 'a file without suffix'}", "give a .jsonl or .csv file")


def write_history(history: History, folder: Path | str) -> None:
    """Write all four files, so that nothing of an earlier run stays behind. The same rows give the same bytes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder(order="deterministic")
    for name in TABLES:
        (folder / f"{name}.jsonl").write_bytes(encoder.encode_lines(getattr(history, name)))


def _read_if_there(path: Path, kind: type[T]) -> list[T]:
    return list(_read_lines(path, kind)) if path.exists() else []


def _read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.isspace():
                    continue
                try:
                    row = decoder.decode(line)
                except msgspec.ValidationError as error:
                    raise _wrong_field(path, number, error) from None
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise _wrong_line(path, number, line, error) from None
                yield _checked(row, path, number)
    except OSError as error:
        raise _unreadable(path, error) from None


def _read_csv(path: Path) -> Iterator[Delivery]:
    known = {field.name for field in msgspec.structs.fields(Delivery)}
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
