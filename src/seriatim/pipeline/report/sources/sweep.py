"""Reads the curves that `seriatim reproduce` and `seriatim sweep` keep: a few hundred rows, so plain files.

OUT/ID/measurements holds JSON lines, one row per curve, x and measure; OUT/ID/comparisons.jsonl, if it is there, what
the paper states and ours beside it. Titles and units come from the caller, which knows the experiments.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from seriatim.model import UNREADABLE, InputError
from seriatim.pipeline.report.pages import Comparison, Experiment, Measurement, SweepSection

MEASUREMENTS, COMPARISONS = "measurements", "comparisons"
SUFFIXES = (".json", ".jsonl")

T = TypeVar("T", bound=msgspec.Struct)


class Compared(Comparison, frozen=True, kw_only=True):
    """A row of the file: a statement of the paper, and which experiment it is about."""

    experiment: str


def has_measurements(path: Path) -> bool:
    """Whether there are curves in or below a folder."""
    return bool(_files(path, MEASUREMENTS))


def _files(path: Path, table: str) -> list[Path]:
    """All files of a table: the folder's own, or those of its experiments."""
    if path.is_file():
        return [path]
    found = []
    for place in sorted(path.rglob(table), key=_natural):
        found += sorted(file for file in place.iterdir() if file.suffix in SUFFIXES) if place.is_dir() else []
    return found + sorted((file for file in path.rglob(f"{table}.*") if file.suffix in SUFFIXES), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """fig7 before fig11."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", str(path))]


def read_sweep(source: str, name: str, described: Callable[[str], Experiment]) -> SweepSection:
    """All curves of a source. `described` tells what is known about an experiment: title, units, places on x."""
    rows = [row for file in _files(Path(source), MEASUREMENTS) for row in _rows(file, Measurement)]
    if not rows:
        raise InputError(source, "no measurements in it", "give the --out folder of `seriatim reproduce`")
    compared: dict[str, list[Comparison]] = {}
    for file in _files(Path(source), COMPARISONS) if Path(source).is_dir() else ():
        for row in _rows(file, Compared):
            compared.setdefault(row.experiment, []).append(msgspec.convert(msgspec.to_builtins(row), Comparison))
    known = {
        id: msgspec.structs.replace(described(id), comparisons=tuple(compared.get(id, ())))
        for id in dict.fromkeys(row.experiment for row in rows)
    }
    drawn = [row for row in rows if not known[row.experiment].measures or row.measure in known[row.experiment].measures]
    return SweepSection(name=name, measurements=tuple(_placed(drawn, known)), experiments=known)


def _rows(file: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise InputError(str(file), error.strerror or "cannot be read", "check its permissions") from None
    for number, line in enumerate(lines, start=1):
        if line.isspace() or not line:
            continue
        try:
            yield decoder.decode(line)
        except UNREADABLE as error:
            fix = "give what `seriatim reproduce --out` wrote"
            raise InputError(f"{file} line {number}", f"not a {kind.__name__.lower()} ({error})", fix) from None


def _placed(rows: list[Measurement], known: Mapping[str, Experiment]) -> Iterator[Measurement]:
    """Places on the x axis are text in the files. They are numbers if all of a measure's are, and names if they are not
    values of the experiment's parameter: then they are parts of the system, such as servers."""
    are_numbers: dict[tuple[str, str], bool] = {}
    for row in rows:
        key, places = (row.experiment, row.measure), known[row.experiment].places
        is_number = _number(row.x) is not None and (not places or str(row.x) in places)
        are_numbers[key] = are_numbers.get(key, True) and is_number
    for row in rows:
        value = _number(row.x) if are_numbers[row.experiment, row.measure] else None
        yield msgspec.structs.replace(row, x=str(row.x) if value is None else value)


def _number(text: float | str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
