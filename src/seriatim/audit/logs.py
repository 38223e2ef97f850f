"""Logs as files: a history is a folder of four tables, each a .jsonl or .csv file; deliveries alone may be one file.

Only `deliveries` must be there. One row per line, the fields of `seriatim.model`, unknown fields ignored. `rules.py`
defines which rows are refused.
"""

from collections.abc import Container
from glob import glob
from pathlib import Path

import msgspec

from seriatim.audit.folders import check_below
from seriatim.audit.mapping import ColumnMapping
from seriatim.audit.reading import Table
from seriatim.audit.rules import TABLES, check_is_one_run, check_tables, format_of
from seriatim.model import Delivery, History, LogError

PLAIN = (".jsonl", ".csv")  # how all tables may be written; deliveries also in the ways of other systems


class OnlySpark(LogError):
    """A log that only Spark reads; the problem says why."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem, "leave out --engine python: Spark reads it")


def read_history(path: Path | str, mapping: ColumnMapping | None = None) -> History:
    """Read a folder of logs, or a single file of deliveries (.jsonl or .csv).

    With a mapping: files of deliveries of any origin, one, a folder of them, or a pattern such as `logs/*.csv`.
    """
    path = Path(path)
    check_below(path)
    if mapping is not None and mapping.is_foreign:
        if not (files := find_files(path)):
            raise LogError(str(path), "no files in this folder", "give the folder that has the logs, or a file")
        return History(deliveries=Table("deliveries", path, files, mapping).rows())
    run = mapping.run if mapping is not None else None
    if path.is_dir():
        return _read_folder(path, ColumnMapping(run=run))
    if not path.exists():
        raise LogError(str(path), "no such file or folder", "correct the path")
    return History(deliveries=read_deliveries(path, run))


def tables_in(path: Path) -> dict[str, Path]:
    """The tables of the run in this folder: name → file or folder. None: it has deliveries alone, or nothing."""
    found: dict[str, list[Path]] = {}
    for child in sorted(path.iterdir()):
        if _is_table(child, TABLES):
            found.setdefault(child.name.partition(".")[0], []).append(child)
    if "deliveries" not in found:
        check_is_one_run(str(path), [str(file.parent) for file in path.rglob("deliveries.*") if file.is_file()])
    check_tables(str(path), {name: [child.name for child in children] for name, children in found.items()})
    return {name: child for name, (child,) in found.items()}


def _read_folder(path: Path, mapping: ColumnMapping) -> History:
    if (only_spark := table_for_spark(path)) is not None:
        fix = "leave out --engine python, or write the table as .jsonl or .csv"
        raise LogError(str(only_spark), "only Spark reads this table", fix)
    if not (found := tables_in(path)):
        if files := [file for file in find_files(path) if format_of(file)]:
            return History(deliveries=Table("deliveries", path, files, mapping).rows())
        fix = "give the folder that has them (.jsonl, .csv or .parquet), or a file"
        raise LogError(str(path), "no deliveries in this folder", fix)
    history = History()
    for name, child in found.items():
        setattr(history, name, Table(name, child, find_files(child), mapping).rows())
    return history


def table_for_spark(path: Path | str) -> Path | None:
    """A table of the run in this folder that is not read here: in another format, or a folder of files."""
    path = Path(path)
    for child in sorted(path.iterdir()) if path.is_dir() else ():
        if _is_table(child, TABLES[1:]) and not (child.is_file() and child.suffix in PLAIN):
            return child
    return None


def _is_table(path: Path, names: Container[str]) -> bool:
    """Whether a file is a table, by its name and format: people keep other files beside their logs."""
    return path.name.partition(".")[0] in names and (path.is_dir() or format_of(path) is not None)


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
    if not path.exists():
        raise LogError(str(path), "no such file or folder", "correct the path")
    if format_of(path) == "parquet":
        fix = "leave out --engine python, or give a .jsonl or .csv file"
        raise LogError(str(path), "only Spark reads Parquet", fix)
    if format_of(path) is None:
        problem = f"cannot read {path.suffix or 'a file without suffix'}"
        raise LogError(str(path), problem, "give a .jsonl, .csv, .tsv or .parquet file; name it so if it is one")
    return Table("deliveries", path, [path], ColumnMapping(run=run)).rows()


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
