"""Messages of a stream as Arrow: one function per table. Columns are built whole, not row by row, where rows are many.

What others have written into a stream is not trusted: a pack, slot, stamp or log line that cannot be read becomes a
row that says so, at its position.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql.pandas.types import to_arrow_schema

from seriatim.brokers.bulk import BulkReader, Messages
from seriatim.brokers.naming import unescape
from seriatim.model import UNREADABLE, Delivery, GapError, Publication, RemoteError, Subscription
from seriatim.order import TopicNames
from seriatim.pipeline.source.events import EventColumns, times_of
from seriatim.pipeline.source.options import SourceOptions
from seriatim.pipeline.source.planning import Range
from seriatim.protocols.with_broker import Stamped

LOST = "the stream does not have it any more"
WITHDRAWN = "withdrawn"  # the row of this key is taken back

_MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
_KINDS: dict[str, type[Struct]] = {
    "deliveries": Delivery,
    "publications": Publication,
    "subscriptions": Subscription,
}
_ARROW: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


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
        self._convert: Callable[[Messages, Range], Rows] = {
            "events": self._events,
            "stamps": self._stamps,
        }.get(options.table, self._logged)

    def convert(self, messages: Messages, part: Range) -> Iterable[pa.RecordBatch]:
        """Batches with the columns of the table, and those of the bookkeeping if gaps are rows."""
        if messages.positions:
            yield from self._finished(self._convert(messages, part), part)
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
        more = [
            pa.repeat(part.stream.name, count),
            rows.positions,
            rows.lines,
            rows.times,
            pa.nulls(count, pa.int64()),
            problem,
        ]
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
        raise GapError(part.stream.name, first, last, f'{problem}; .option("gaps", "rows") reads on behind it')

    # ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────

    def _events(self, messages: Messages, part: Range) -> Rows:
        columns = EventColumns(part.stream, self._options.reader, self._options.topics)
        columns.add(messages)
        table, positions = columns.built()
        lines = table.column("index").cast(pa.int64())
        return Rows(table, positions, lines, table.column("received_at"), columns.problems)

    def _stamps(self, messages: Messages, part: Range) -> Rows:
        return stamp_rows(messages, part, self._options.reader, self._names)

    def _logged(self, messages: Messages, part: Range) -> Rows:
        return log_rows(messages, _KINDS[self._options.table])


STAMP_COLUMNS: dict[str, pa.DataType] = {
    "log": pa.string(),
    "first": pa.int64(),
    "last": pa.int64(),
    "entries": _MAP,
    "node": pa.string(),
    "received_at": pa.float64(),
}


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
    positions, lines = _places(messages.positions, counts)
    times = _times(messages, counts)
    logs, firsts, lasts, entries = zip(*rows, strict=True) if rows else ((), (), (), ())
    table = pa.RecordBatch.from_arrays(
        [
            pa.array(logs, pa.string()),
            pa.array(firsts, pa.int64()),
            pa.array(lasts, pa.int64()),
            pa.array(entries, _MAP),
            pa.repeat(part.stream.holds if part.stream.kind == "stamps" else "", len(rows)),
            times,
        ],
        names=list(STAMP_COLUMNS),
    )
    return Rows(table, positions, lines, times, problems)


def log_rows(messages: Messages, kind: type[Struct]) -> Rows:
    """Rows of a client's log: lines of JSON. A line may begin with `-`: the row of this key is withdrawn."""
    decoder = msgspec.json.Decoder(kind)
    rows: list[Any] = []
    counts, problems, withdrawn = [], [], []
    for position, body in zip(messages.positions, messages.bodies, strict=True):
        found: list[Any] = []
        flags: list[bool] = []
        try:
            for line in body.split(b"\n"):
                if line:
                    found.append(decoder.decode(line[1:] if line[:1] == b"-" else line))
                    flags.append(line[:1] == b"-")
        except UNREADABLE as error:
            problems.append((position, position, f"not rows of a log: {error}"))
            found, flags = [], []
        counts.append(len(found))
        rows += found
        withdrawn += flags
    positions, lines = _places(messages.positions, counts)
    columns = _log_columns(kind)
    arrays = [_column(rows, name, type_) for name, type_ in columns.items()]
    table = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return Rows(table, positions, lines, _times(messages, counts), problems, np.array(withdrawn, dtype=bool))


def _column(rows: list[Any], name: str, kind: pa.DataType) -> pa.Array:
    values = [getattr(row, name) for row in rows]
    if kind == _MAP:
        values = [list(value.items()) if value is not None else None for value in values]
    return pa.array(values, kind)


def _log_columns(kind: type[Struct]) -> dict[str, pa.DataType]:
    columns = {}
    for each in msgspec.structs.fields(kind):
        alternatives = getattr(each.type, "__args__", (each.type,))
        found = next((_ARROW[one] for one in alternatives if one in _ARROW), None)
        columns[each.name] = _MAP if each.name == "stamp" else found
    columns |= {name: pa.int32() for name in columns if name == "index"}
    return columns


def _times(messages: Messages, counts: list[int]) -> pa.Array:
    return times_of(messages.times).take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _places(positions: list[int], counts: list[int]) -> tuple[pa.Array, pa.Array]:
    """The position of each row's message, and the row's place in it."""
    repeated = np.repeat(np.asarray(positions, dtype=np.int64), counts)
    ends = np.cumsum(counts)
    starts = np.repeat(ends - counts, counts)
    return pa.array(repeated), pa.array(np.arange(len(repeated), dtype=np.int64) - starts)
