"""Reads the curves that `seriatim reproduce` and `seriatim sweep` keep: a few hundred rows, so plain files.

OUT/ID/measurements holds JSON lines, one row per curve, x and measure. What the paper states, and in which units things
are measured, the experiments themselves know.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from seriatim.model import InputError
from seriatim.pipeline.report.pages import Measurement, SweepSection

FOLDER = "measurements"
SUFFIXES = (".json", ".jsonl")


def measurement_files(path: Path) -> list[Path]:
    """All files of curves in or below a folder: its own, or those of its experiments."""
    if path.is_file():
        return [path]
    found = []
    for folder in sorted(path.rglob(FOLDER)):
        found += sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES) if folder.is_dir() else []
    return found + sorted(file for file in path.rglob(f"{FOLDER}.*") if file.suffix in SUFFIXES)


def read_sweep(source: str, name: str) -> SweepSection:
    """All curves of a source."""
    rows = [row for file in measurement_files(Path(source)) for row in _rows(file)]
    if not rows:
        raise InputError(source, "no measurements in it", "give the --out folder of `seriatim reproduce`")
    return SweepSection(name=name, measurements=tuple(_with_numbers(rows)))


def _rows(file: Path) -> Iterator[Measurement]:
    decoder = msgspec.json.Decoder(Measurement)
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise InputError(str(file), error.strerror or "cannot be read", "check its permissions") from None
    for number, line in enumerate(lines, start=1):
        if line.isspace() or not line:
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fix = "give what `seriatim reproduce --out` wrote"
            raise InputError(f"{file} line {number}", f"not a measurement ({error})", fix) from None


def _with_numbers(rows: list[Measurement]) -> Iterator[Measurement]:
    """Places on the x axis are text in the files; where all of a curve's are numbers, they are numbers."""
    are_numbers: dict[tuple[str, str], bool] = {}
    for row in rows:
        key = row.experiment, row.measure
        are_numbers[key] = are_numbers.get(key, True) and _number(row.x) is not None
    for row in rows:
        value = _number(row.x)
        if are_numbers[row.experiment, row.measure] and value is not None:
            yield msgspec.structs.replace(row, x=value)
        else:
            yield msgspec.structs.replace(row, x=str(row.x))


def _number(text: float | str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
