"""The order log of a run: read from files, checked, and asked where an event is.

It is a table of `Placement`s. A sound one gives each position of one range of positions to one number of one topic, and
gives each topic's numbers in rising order, none left out, from its first one on. It may begin anywhere: retention
removes its beginning, and a cluster that is older than its order log has numbers from before it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from seriatim.audit.mapping import ColumnMapping
from seriatim.audit.reading import Table
from seriatim.audit.report import Anomaly
from seriatim.audit.rules import ORDER, format_of
from seriatim.model import LogError, Number, Placement, Position, Topic

BACKWARDS = "ends before it begins"
NOT_FROM_1 = "begins at 0"
FROM_1 = "count positions and numbers from 1"


def read_order_log(path: Path | str, run: str | None = None) -> list[Placement]:
    """Read an order log: a file of JSON lines or CSV, or a folder of such files."""
    path = Path(path)
    if not path.exists():
        raise LogError(str(path), "no such file or folder", "correct the path of the order log")
    files = [path]
    if path.is_dir():
        below = (file for file in path.rglob("*") if not file.name.startswith((".", "_")))
        files = sorted(file for file in below if file.is_file() and format_of(file) is not None)
        if not files:
            raise LogError(str(path), "no order log in this folder", "give its .jsonl, .csv or .parquet files")
    rows: list[Placement] = Table(ORDER, path, files, ColumnMapping(run=run)).rows()
    check_ranges(rows, str(path))
    return rows


def check_ranges(rows: Iterable[Placement], where: str) -> None:
    """Refuse rows that are no ranges."""
    for row in rows:
        if row.last < row.first or not row.position or not row.first:
            raise misplaced(where, row)


def misplaced(where: str, row: Placement) -> LogError:
    """A row of an order log that is no range."""
    shown = f"position {row.position}, topic {row.topic}, first {row.first}, last {row.last}"
    if row.last < row.first:
        return LogError(where, f"the row of {shown} {BACKWARDS}", "give rows as `seriatim order --json` prints them")
    return LogError(where, f"the row of {shown} {NOT_FROM_1}", FROM_1)


class Extent(NamedTuple):
    """From which position to which an order log goes; none, if it is empty."""

    first: Position = 0
    last: Position = 0

    def __str__(self) -> str:
        return f"positions {self.first:,}…{self.last:,} of the order log" if self.last else "an empty order log"


class OrderLog:
    """Where each number of each topic is. `faults` says first whether that can be trusted."""

    def __init__(self, rows: Iterable[Placement]) -> None:
        self._rows = sorted(rows, key=placement_key)
        self.extent = Extent()
        if self._rows:
            self.extent = Extent(self._rows[0].position, max(end_of(row) for row in self._rows))
        self._by_topic: dict[Topic, list[Placement]] = {}
        for row in self._rows:
            self._by_topic.setdefault(row.topic, []).append(row)
        self._firsts = {topic: [row.first for row in rows] for topic, rows in self._by_topic.items()}

    def row(self, topic: Topic, number: Number) -> Placement | None:
        """The row that has this number, if the order log has it. Only of one without faults."""
        at = bisect_right(self._firsts.get(topic, ()), number) - 1
        found = self._by_topic[topic][at] if at >= 0 else None
        return found if found is not None and number <= found.last else None

    def faults(self) -> Iterator[Anomaly]:
        """The defects of the order log itself: positions first, then the numbers of each topic."""
        before: Placement | None = None
        for row in self._rows:
            if before is not None and row.position != end_of(before) + 1:
                yield position_fault(before, row)
            before = row if before is None or end_of(row) > end_of(before) else before
        for _, rows in sorted(self._by_topic.items()):
            before = rows[0]
            for row in rows[1:]:
                if row.first != before.last + 1:
                    yield number_fault(before, row)
                before = row if row.last > before.last else before


def placement_key(row: Placement) -> tuple[Position, Topic, Number, Number]:
    """Sort placements by position, independently of the order of the rows."""
    return row.position, row.topic, row.first, row.last


def end_of(row: Placement) -> Position:
    """The last position of a row."""
    return row.position + row.last - row.first


def position_fault(before: Placement, row: Placement) -> Anomaly:
    """The positions of a row do not follow those before it."""
    end = end_of(before)
    if row.position > end:
        sentence = (
            f"the order log continues at position {row.position} after position {end}: the rows between are missing"
        )
        return Anomaly("order-log-gap", sentence, (before, row))
    one = f"number {before.first + row.position - before.position} of topic {before.topic}"
    other = f"number {row.first} of topic {row.topic}"
    sentence = f"position {row.position} of the order log stands for {one} and for {other}"
    return Anomaly("order-log-overlap", sentence, (before, row))


def number_fault(before: Placement, row: Placement) -> Anomaly:
    """The numbers of a row do not follow those of its topic before it."""
    where = f"at position {row.position} of the order log"
    if row.first > before.last:
        sentence = f"number {row.first} of topic {row.topic} comes right after number {before.last}, {where}"
        return Anomaly("order-log-skip", sentence, (before, row))
    sentence = f"number {row.first} of topic {row.topic} comes again or too late, after number {before.last}, {where}"
    return Anomaly("order-log-back", sentence, (before, row))
