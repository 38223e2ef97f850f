"""Read the files of a table without Spark: CSV, TSV and JSON lines, of ours or of another system, by a `ColumnMapping`.

For files that fit into memory and machines without Java; `rules.py` says what fits. All rows are read, and the first
few that do not fit are named with file, line and value.
"""

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seriatim.audit import fitting, rules
from seriatim.audit.fitting import Misfit
from seriatim.audit.mapping import LINES, ColumnMapping
from seriatim.audit.rules import format_of
from seriatim.model import UNREADABLE, Delivery, LogError

_TIME_MAX = 10.0 ** (rules.NUMBER_DIGITS - rules.FRACTION_DIGITS)
BOUNDS: dict[str, tuple[float, float]] = {
    "count": (0, rules.COUNT_MAX),
    "index": (0, rules.INDEX_MAX),
    "time": (-_TIME_MAX, _TIME_MAX),
}


class _Line(NamedTuple):
    """A line that is not blank. `is_cut`: the last one of its file, which does not end."""

    file: int
    number: int
    text: str
    is_cut: bool


class _Fitted(NamedTuple):
    """A row before it has a position: its file, what orders it (a number or a time), and the run it says it is of."""

    file: int
    order: Decimal | None
    kind: str
    run: str | None
    row: Any


class Table:
    """One table of a log: its files, and how they are read. `below` is the requested file or folder."""

    def __init__(self, name: str, below: Path, files: Iterable[Path], mapping: ColumnMapping) -> None:
        self._name, self._where, self._mapping = name, str(below), mapping
        self._files = list(files)
        self._fields = rules.FIELDS[name]
        kinds = [(_format(path), path.name) for path in self._files if path.stat().st_size]
        self._format = rules.check_formats(self._where, kinds) or "jsonl"
        folders = [path.relative_to(below).parts[:-1] if below.is_dir() else () for path in self._files]
        rules.check_folders(self._where, folders)
        self._given = [rules.folder_columns(names) for names in folders]
        self._names = [rules.name_of(path.name) for path in self._files]
        self._half: str | None = None  # the first line with half a character

    def rows(self) -> list[Any]:
        """All rows, deliveries with positions. Raises LogError if one does not fit, or they are of several runs."""
        self._check_names()
        if (ours := self._ours()) is not None:
            return ours
        found: list[_Fitted] = []
        runs: set[str] = set()
        kinds: set[str] = set()
        bad: list[str] = []
        count = total = 0
        lines = self._lines()
        for line, row in self._read_json(lines) if self._format == "jsonl" else self._read_csv(lines):
            total += 1
            if isinstance(row, Misfit):
                count += 1
                if len(bad) < rules.EXAMPLES:
                    bad.append(f"{self._files[line.file]} line {line.number}, {self._told(line, row)}")
                continue
            kinds.add(row.kind)
            if row.run is not None:
                runs.add(row.run)
            if row.run is None or self._mapping.run in (None, row.run):
                found.append(row)
        if bad:
            raise rules.misfits(self._where, count, total, bad)
        if self._half is not None:
            raise rules.half_character(self._where, self._half)
        if len(kinds) > 1:
            raise rules.mixed_order(self._where, str(self._mapping.order_by))
        if self._mapping.run is None and len(runs) > 1:
            raise rules.runs_mixed(self._where, runs)
        if self._mapping.run is not None and runs and self._mapping.run not in runs:
            raise rules.no_such_run(self._where, self._mapping.run, runs)
        return [each.row for each in found] if self._mapping.order_by is None else self._positioned(found)

    def _told(self, line: _Line, problem: Misfit) -> str:
        """A line that does not end and cannot be read was cut off."""
        words = str(problem)
        is_broken = words.startswith((rules.NOT_JSON, rules.OTHER_CELLS))
        return f"{rules.CUT_OFF}: {line.text[: rules.SHOWN_MAX]}" if line.is_cut and is_broken else words

    def _check_names(self) -> None:
        if self._mapping.subscriber_from_file:
            seen: dict[str, Path] = {}
            for name, path in zip(self._names, self._files, strict=True):
                if (other := seen.setdefault(name, path)) != path:
                    raise rules.called_alike(str(path), str(other), name)

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_json(self, lines: Iterator[_Line]) -> Iterator[tuple[_Line, _Fitted | Misfit]]:
        head = list(islice(lines, rules.HEAD))
        if not head:
            return
        known = [name for given in self._given for name in given]
        known += [name for line in head for name in rules.keys_of(line.text)]
        if not known:
            raise rules.not_json_lines(self._where)
        convert = self._converter(list(dict.fromkeys(known)), False, self._json_cells)
        for line in chain(head, lines):
            yield line, convert(line)

    def _read_csv(self, lines: Iterator[_Line]) -> Iterator[tuple[_Line, _Fitted | Misfit]]:
        file = -1
        heading: list[str] = []
        convert: Callable[[_Line], _Fitted | Misfit] | None = None
        for line in lines:
            if line.file == file and convert is not None:
                yield line, convert(line)
                continue
            cells = self._cells_of(line)
            if not heading:
                heading = cells
                rules.check_heading(heading, self._where)
                given = [name for name in self._given[line.file] if name not in heading]
                convert = self._converter([*filter(None, heading), *given], True, partial(self._csv_cells, heading))
            elif cells != heading:
                raise rules.other_heading(str(self._files[line.file]))
            file = line.file

    def _converter(
        self, known: list[str], are_all: bool, cells_of: Callable[[_Line], dict[str, str | None]]
    ) -> Callable[[_Line], _Fitted | Misfit]:
        """What makes rows of lines: which columns are which fields is known from now on."""
        mapping, fields = self._mapping, self._fields
        sources = mapping.sources_of(self._name, known, self._where, are_all)
        wanted = [column for columns in sources.values() for column in columns]
        wanted += [column for column in (mapping.order_by, mapping.run_column) if column not in (None, LINES)]
        self._wanted = list(dict.fromkeys(wanted))
        kind = rules.ROWS[self._name]

        def convert(line: _Line) -> _Fitted | Misfit:
            try:
                cells = cells_of(line) | self._given[line.file]
                values, order, order_kind = fitting.fit(fields, sources, cells, mapping, self._names[line.file])
            except Misfit as misfit:
                return misfit
            return _Fitted(line.file, order, order_kind, fitting.cell(cells, mapping.run_column), kind(**values))

        return convert

    def _json_cells(self, line: _Line) -> dict[str, str | None]:
        try:
            raw = msgspec.json.decode(line.text, type=dict[str, msgspec.Raw])
            return {name: fitting.text_of(value) for name, value in raw.items()}
        except (*UNREADABLE, UnicodeEncodeError):
            if rules.has_half(line.text):
                self._half = self._half or line.text
                return self._json_cells(line._replace(text=rules.replace_halves(line.text)))
            shown = line.text.encode(errors="surrogateescape").decode(errors="replace")
            raise Misfit(f"{rules.NOT_JSON}: {shown[: rules.SHOWN_MAX]}") from None

    def _csv_cells(self, heading: Sequence[str], line: _Line) -> dict[str, str | None]:
        cells = self._cells_of(line)
        if len(cells) != len(heading):
            raise Misfit(f"{rules.OTHER_CELLS}: {line.text[: rules.SHOWN_MAX]}")
        found: dict[str, str | None] = dict(zip(heading, cells, strict=True))
        if rules.REPLACED in line.text:
            for column in self._wanted:
                if rules.REPLACED in (found.get(column) or ""):
                    raise Misfit(rules.of_column([column], rules.NOT_UTF8))
        return found

    def _cells_of(self, line: _Line) -> list[str]:
        separator = rules.SEPARATORS[self._format]
        if '"' not in line.text:
            return line.text.split(separator)
        cells = _quoted(line.text, separator)
        if cells is None:
            raise rules.behind_quote(str(self._files[line.file]))
        return cells

    def _ours(self) -> list[Any] | None:
        """All rows at once, if they are as we write them ourselves; None if one of them needs a closer look."""
        if self._format != "jsonl" or self._mapping != ColumnMapping(run=self._mapping.run) or any(self._given):
            return None
        names_of = attrgetter(*(field.name for field in self._fields if field.kind == "text" and field.is_needed))
        bounded = [field for field in self._fields if field.kind in BOUNDS]
        numbers_of, bounds = attrgetter(*(field.name for field in bounded)), [BOUNDS[field.kind] for field in bounded]
        decoder = msgspec.json.Decoder(rules.ROWS[self._name])
        rows: list[Any] = []
        try:
            for path in self._files:
                data = path.read_bytes()
                if b'"run"' in data:
                    return None
                found = decoder.decode_lines(data)
                if len(found) != sum(map(bool, map(bytes.strip, data.split(b"\n")))):
                    return None  # two in a line
                rows += found
        except (*UNREADABLE, OSError):
            return None
        for row in rows:
            if "" in names_of(row):
                return None
            for value, (low, high) in zip(numbers_of(row), bounds, strict=True):
                if value is not None and not low <= value <= high:
                    return None
        return rows

    # ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _positioned(self, rows: list[_Fitted]) -> list[Delivery]:
        """Each subscriber's rows with positions without holes; rows whose order is not known share one."""
        by_subscriber: dict[str, list[_Fitted]] = {}
        for row in rows:
            by_subscriber.setdefault(row.row.subscriber, []).append(row)
        placed = []
        for subscriber, own in sorted(by_subscriber.items()):
            if self._mapping.order_by == LINES:
                if len({row.file for row in own}) > 1:
                    raise rules.in_several_files(self._where, subscriber)
                placed += [msgspec.structs.replace(row.row, position=i) for i, row in enumerate(own)]
                continue
            reach = _reaches(own, self._mapping.trust_order)
            position, latest = -1, None
            for i in sorted(range(len(own)), key=lambda i: own[i].order or Decimal(0)):
                order = own[i].order
                assert order is not None
                if latest is None or order > latest:
                    position += 1
                latest = reach[i] if latest is None else max(latest, reach[i])
                placed.append(msgspec.structs.replace(own[i].row, position=position))
        return placed

    # ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lines(self) -> Iterator[_Line]:
        errors = "surrogateescape" if self._format == "jsonl" else "replace"
        for file, path in enumerate(self._files):
            try:
                opener: Any = gzip.open if path.suffix == ".gz" else open
                with opener(path, "rt", encoding="utf-8-sig", errors=errors) as opened:
                    for number, text in enumerate(opened, start=1):
                        if not text.isspace():
                            is_cut = not text.endswith("\n") and path.suffix != ".gz"
                            yield _Line(file, number, text.removesuffix("\n"), is_cut)
            except (gzip.BadGzipFile, EOFError) as error:
                raise LogError(str(path), f"not a whole gzip file ({error})", "copy the file again") from None
            except OSError as error:
                problem = error.strerror or "cannot be read"
                raise LogError(str(path), problem, "check the path and its permissions") from None


def _format(path: Path) -> str:
    kind = format_of(path)
    if kind is None or kind == "parquet":
        fix = "give .csv, .tsv or .jsonl (Parquet is read by --engine spark)"
        raise LogError(str(path), f"cannot read {path.suffix or 'a file without suffix'}", fix)
    return kind


def _quoted(line: str, separator: str) -> list[str] | None:
    """The cells of a line with quotes in it; None if there is text after a closing quote.

    A quote that begins a cell and is never closed ends with its line. Blanks behind a closing quote do not count.
    """
    cells: list[str] = []
    at = 0
    while True:
        if line[at : at + 1] != '"':
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            cells.append(line[at:end])
        else:
            parts = []
            start = at + 1
            while (close := line.find('"', start)) >= 0 and line[close + 1 : close + 2] == '"':
                parts.append(line[start : close + 1])
                start = close + 2
            if close < 0:
                return [*cells, "".join([*parts, line[start:]])]
            cells.append("".join([*parts, line[start:close]]))
            end = close + 1
            while line[end : end + 1] in (" ", "\t") and line[end : end + 1] != separator:
                end += 1
            if end < len(line) and line[end] != separator:
                return None
        if end >= len(line):
            return cells
        at = end + 1


def _reaches(own: list[_Fitted], is_trusted: bool) -> list[Decimal]:
    """Up to which value of the order column a row's place is not known: the largest of an earlier line of its file."""
    reaches = []
    latest: dict[int, Decimal] = {}
    for row in own:
        assert row.order is not None
        if not is_trusted:
            latest[row.file] = max(latest.get(row.file, row.order), row.order)
        reaches.append(latest.get(row.file, row.order))
    return reaches
