"""Messages of a stream as Arrow: one function per table. Columns are built whole, not row by row, where rows are many.

Messages that others have written into a stream are not trusted: a pack, slot, stamp or log line that cannot be read
becomes a row that says so, at its position.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql.pandas.types import to_arrow_schema

from seriatim.audit.rules import ROWS
from seriatim.brokers.bulk import BulkReader, Messages
from seriatim.brokers.naming import unescape
from seriatim.model import UNREADABLE, GapError, RemoteError
from seriatim.order import TopicNames
from seriatim.pipeline.schemas import ARCHIVE
from seriatim.pipeline.source.events import COUNTER_MAX, EventColumns, times_of
from seriatim.pipeline.source.options import SourceOptions
from seriatim.pipeline.source.planning import Range
from seriatim.protocols.with_broker import Stamped

RANGE_MAX = 1 << 32  # numbers in one range of the order log
LOST = "the stream does not have it any more"
WITHDRAWN = "withdrawn"  # the row of this key is taken back


class Rows(Struct):
    """The rows of some messages, and what could not be read."""

    table: pa.RecordBatch
    positions: pa.Array  # of the message each row came from
    lines: pa.Array
    times: pa.Array
    problems: list[tuple[int, int, str]]  # first and last position, and what is wrong
    withdrawn: np.ndarray[Any, Any] | None = None


class Converter:
    """From messages to what Spark is given, for one read."""

    def __init__(self, options: SourceOptions, topics: Iterable[str]) -> None:
        self._options = options
        self._schema = to_arrow_schema(options.schema)
        self._names = TopicNames()
        if options.table == "stamps":
            self._names.know(topics)

    def convert(self, messages: Messages, part: Range) -> Iterable[pa.RecordBatch]:
        """Batches with the columns of the table, and those of the bookkeeping if gaps are rows."""
        if messages.positions:
            yield from self._finished(self._rows(messages, part), part)
        yield from self.lost(part, messages.holes)

    def lost(self, part: Range, holes: Iterable[tuple[int, int]]) -> Iterable[pa.RecordBatch]:
        """Positions that the stream does not have: as rows, or as an error."""
        problems = [(first, last, LOST) for first, last in holes]
        if problems:
            yield self._problem_rows(part, problems)

    def _finished(self, rows: Rows, part: Range) -> Iterable[pa.RecordBatch]:
        if self._options.gaps == "fail":
            if rows.problems:
                self._fail(part, rows.problems)
            yield pa.RecordBatch.from_arrays(rows.table.columns, schema=self._schema)
            return
        count = rows.table.num_rows
        problem = pa.nulls(count, pa.string())
        if rows.withdrawn is not None:
            problem = pc.if_else(pa.array(rows.withdrawn), pa.scalar(WITHDRAWN), pa.scalar(None, pa.string()))
        place = [pa.repeat(part.stream.name, count), rows.positions, rows.lines, rows.times]
        more = [*place, pa.nulls(count, pa.int64()), problem]
        yield pa.RecordBatch.from_arrays([*rows.table.columns, *more], schema=self._schema)
        if rows.problems:
            yield self._problem_rows(part, rows.problems)

    def _problem_rows(self, part: Range, problems: list[tuple[int, int, str]]) -> pa.RecordBatch:
        if self._options.gaps == "fail":
            self._fail(part, problems)
        count = len(problems)
        columns = {each.name: pa.nulls(count, each.type) for each in self._schema}
        columns |= {
            "stream": pa.repeat(part.stream.name, count),
            "stream_position": pa.array([first for first, _, _ in problems], pa.int64()),
            "line": pa.repeat(0, count).cast(pa.int64()),
            "lost_to": pa.array([last for _, last, _ in problems], pa.int64()),
            "problem": pa.array([problem for _, _, problem in problems], pa.string()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema)

    def _fail(self, part: Range, problems: list[tuple[int, int, str]]) -> None:
        first, last, problem = problems[0]
        raise GapError(part.stream.name, first, last, f'{problem}; .option("gaps", "rows") continues after it')

    def _rows(self, messages: Messages, part: Range) -> Rows:
        options = self._options
        match options.table:
            case "events":
                columns = EventColumns(part.stream, options.reader, options.topics)
                columns.add(messages)
                table, positions = columns.built()
                lines = table.column("index").cast(pa.int64())
                return Rows(table, positions, lines, table.column("received_at"), columns.problems)
            case "stamps":
                return stamp_rows(messages, part, options.reader, self._names)
            case "order":
                return order_rows(messages, options.reader)
        return log_rows(messages, options.table)


def stamp_rows(messages: Messages, part: Range, reader: BulkReader, names: TopicNames) -> Rows:
    """Stamps as their home wrote them: a message holds some of one topic; a slot holds that of its own number."""
    rows: list[tuple[str, int, int, list[tuple[str, int]]]] = []
    counts, problems = [], []
    for position, subject, body in zip(messages.positions, messages.subjects, messages.bodies, strict=True):
        try:
            if part.stream.kind == "slots":
                topic = part.stream.holds
                slot = reader.slot(body, topic, names)
                stamps = [Stamped(topic, slot.number, slot.number, slot.entries or {}, 0)]
            else:
                topic = unescape(subject.decode("utf-8", "replace").rpartition(".")[2])
                stamps = reader.stamps(body, topic, names)
        except RemoteError as error:
            problems.append((position, position, str(error)))
            stamps = []
        counts.append(len(stamps))
        rows += [(topic, each.first, each.last, list(each.entries.items())) for each in stamps]
    places = _places(messages, counts)
    node = part.stream.holds if part.stream.kind == "stamps" else ""
    columns = [*(zip(*rows, strict=True) if rows else [()] * 4), [node] * len(rows), places[2].to_numpy()]
    return Rows(_table("stamps", columns), *places, problems)


def order_rows(messages: Messages, reader: BulkReader) -> Rows:
    """Ranges of the order log, each with its position."""
    rows: list[tuple[int, str, int, int, int]] = []
    counts, problems = [], []
    for position, body in zip(messages.positions, messages.bodies, strict=True):
        before = len(rows)
        try:
            ordered = reader.order(body)
            if max(ordered.after, ordered.epoch, *(each.last for each in ordered.ranges)) > COUNTER_MAX or any(
                each.count > RANGE_MAX for each in ordered.ranges
            ):
                raise RemoteError("the order log holds numbers that no root would write")
        except RemoteError as error:
            problems.append((position, position, str(error)))
        else:
            at = ordered.after + 1
            for each in ordered.ranges:
                rows.append((at, each.topic, each.first, each.last, ordered.epoch))
                at += each.count
        counts.append(len(rows) - before)
    places = _places(messages, counts)
    columns = [*(zip(*rows, strict=True) if rows else [()] * 5), places[2].to_numpy()]
    return Rows(_table("order", columns), *places, problems)


def log_rows(messages: Messages, table: str) -> Rows:
    """Rows of a client's log: lines of JSON. A line may begin with `-`: the row of this key is withdrawn."""
    decoder = msgspec.json.Decoder(ROWS[table])
    rows: list[Any] = []
    counts, problems, withdrawn = [], [], []
    for position, body in zip(messages.positions, messages.bodies, strict=True):
        lines = [line for line in body.split(b"\n") if line]
        try:
            rows += [decoder.decode(line.removeprefix(b"-")) for line in lines]
        except UNREADABLE as error:
            problems.append((position, position, f"not rows of a log: {error}"))
            lines = []
        counts.append(len(lines))
        withdrawn += [line.startswith(b"-") for line in lines]
    columns = [[_cell(getattr(row, name)) for row in rows] for name in ARCHIVE[table].names]
    flags = np.array(withdrawn, dtype=bool)
    return Rows(_table(table, columns), *_places(messages, counts), problems, flags)


def _cell(value: object) -> object:
    return list(value.items()) if isinstance(value, dict) else value


def _table(table: str, columns: Sequence[Any]) -> pa.RecordBatch:
    schema = to_arrow_schema(ARCHIVE[table])
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _places(messages: Messages, counts: list[int]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Of each row: the position of its message, its place in it, and when the message was stored."""
    message = np.repeat(np.arange(len(counts)), counts)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    positions = np.asarray(messages.positions, dtype=np.int64)[message]
    lines = np.arange(len(message), dtype=np.int64) - starts
    return pa.array(positions), pa.array(lines), times_of(messages.times).take(pa.array(message))
