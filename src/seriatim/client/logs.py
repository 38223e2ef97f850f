"""Delivery and publication logs: the rows of model/records.py, written as things happen, for `seriatim audit <folder>`.

A folder holds `deliveries.jsonl`, `subscriptions.jsonl` and `publications.jsonl`; any number of subscribers, publishers
and processes may write to the same folder, each line in one piece. Deliveries are gathered and written every second and
every 1,000 rows. Rows that change later (a subscription ends, a publication gets its number) are written at once, with
spaces behind them, and changed in place. So a process that is killed leaves a log that can be read: its last deliveries
may be missing, but no line is cut off. (A machine that loses power may cut off the last line; whoever opens the log for
writing next, and is alone, cuts it away.)

A log that cannot be written (a full disk) raises LogError and has changed nothing: the event stays in the inbox, and
the next attempt says the same again. So no event is without a row, and no row is there twice.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import BROKER
from seriatim.client.broker_logs import BrokerTable
from seriatim.client.events import Event
from seriatim.client.inbox import NOTHING
from seriatim.client.outbox import Pending
from seriatim.model import UNREADABLE, Delivery, LogError, Number, Publication, Subscription, Topic
from seriatim.runtime import Clock

logger = logging.getLogger(__name__)

FLUSH_ROWS = 1_000
FLUSH_S = 1.0
ROOM = {Subscription: 72, Publication: 48}  # bytes kept free in a line for what is not known yet

T = TypeVar("T", bound=Struct)

_encoder = msgspec.json.Encoder()


class RowTable(Protocol):
    """Where the rows of one table go: a file, or a stream on the broker (broker_logs.py)."""

    def append(self, lines: bytes) -> int:
        """Write whole lines; where they begin. LogError: none of them is there."""

    def change(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        """These rows take the place of those that begin here."""

    def withdraw(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        """These rows, which begin here, never happened."""

    async def load(self) -> None:
        """Get ready to be asked for `rows`."""

    def rows(self, kind: type[T]) -> Iterable[tuple[int, int, T]]:
        """What was written before: where its line begins, how long it is, what it says."""

    async def written(self, timeout_s: float) -> None:
        """Until everything is where it belongs. LogError: it is not, in that time."""

    def close(self) -> None:
        """May be called twice."""


class RowFile:
    """One table. Lines are appended whole; lines with room in them can be changed in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn: tuple[int, int] | None = None  # where something begins that must not stay, and how long it is
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._change = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LogError(
                str(path), error.strerror or "cannot be written", "check the path and its permissions"
            ) from None
        self._repair()
        fcntl.flock(self._append, fcntl.LOCK_SH)

    def _repair(self) -> None:
        """Cut off half a line at the end, if nobody else is writing."""
        size = os.fstat(self._append).st_size
        if size == 0 or os.pread(self._append, 1, size - 1) == b"\n":
            return
        try:
            fcntl.flock(self._append, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        data = os.pread(self._append, size, 0)
        os.ftruncate(self._append, data.rfind(b"\n") + 1)

    def append(self, lines: bytes) -> int:
        """Write whole lines; where they begin. LogError: none of them is there, and they can be written again.

        If the disk takes only some bytes, blanks take their place: others may have written behind them already, so they
        can neither be cut off nor be completed. A row that follows blanks is still a row.
        """
        self._blank()
        try:
            written = os.write(self._append, lines)
            begin = os.lseek(self._append, 0, os.SEEK_CUR) - written
        except OSError as error:
            raise LogError(str(self.path), error.strerror or "cannot be written", "make room on the disk") from None
        if written < len(lines):
            self._torn = (begin, written)
            self._blank()
            problem = f"the disk takes only {written:,} of {len(lines):,} bytes"
            raise LogError(str(self.path), problem, "make room on the disk")
        return begin

    def _blank(self) -> None:
        """No trace of what was not written whole. If that fails too, it comes first with the next attempt."""
        if self._torn is not None:
            offset, length = self._torn
            self._overwrite(offset, b" " * length)
            self._torn = None

    def change(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        """Put other rows into the lines that begin here."""
        lines = [padded(row, length) for row, length in zip(rows, lengths, strict=True)]
        self._overwrite(offset, b"".join(lines))

    def withdraw(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        """The rows that begin here never happened."""
        self._overwrite(offset, b"".join(b" " * (length - 1) + b"\n" for length in lengths))

    def _overwrite(self, offset: int, lines: bytes) -> None:
        try:
            written = 0
            while written < len(lines):
                written += os.pwrite(self._change, lines[written:], offset + written)
        except OSError as error:
            raise LogError(str(self.path), error.strerror or "cannot be written", "make room on the disk") from None

    def rows(self, kind: type[T]) -> Iterable[tuple[int, int, T]]:
        """Every row so far: where its line begins, how long it is, what it says."""
        decoder = msgspec.json.Decoder(kind)
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    try:
                        yield offset, len(line), decoder.decode(line)
                    except UNREADABLE as error:
                        fix = "move the file away, or correct the line"
                        raise LogError(f"{self.path} line {number}", f"not a row ({error})", fix) from None
                offset += len(line)

    async def load(self) -> None:
        """A file is read when its rows are asked for."""

    async def written(self, timeout_s: float) -> None:
        """What is appended to a file is there at once."""

    def close(self) -> None:
        """May be called twice."""
        if self._append >= 0:
            with suppress(LogError):  # then whoever opens it next cuts it off
                self._blank()
            os.close(self._append)
            os.close(self._change)
            self._append = self._change = -1


def padded(row: Struct, length: int | None = None) -> bytes:
    """A line with room to grow, or of the length that it has already."""
    text = _encoder.encode(row)
    if length is None:
        length = len(text) + ROOM[type(row)] + 1
    return text.ljust(length - 1) + b"\n"


class Gathered:
    """Deliveries on their way to their table: many rows are written at once, and none waits for long."""

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._rows: list[Delivery] = []
        self._timer: asyncio.TimerHandle | None = None

    def make_room(self) -> None:
        """Before more rows are counted. LogError: those that wait are too many, and cannot be written."""
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()

    def put(self, rows: Iterable[Delivery]) -> None:
        """Accepted: they are written soon."""
        self._rows.extend(rows)
        if self._timer is None and self._rows:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush_late)

    def flush(self) -> None:
        """Write what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._rows:
            self._table.append(_encoder.encode_lines(self._rows))
            self._rows = []

    def _flush_late(self) -> None:
        """By the clock. If it fails the rows are kept, and written with those that follow."""
        self._timer = None
        try:
            self.flush()
        except LogError as error:
            logger.error("deliveries not logged yet: rows=%d reason=%s", len(self._rows), error)


class _Row(Struct):
    """One holding of one topic, and the line that tells of it."""

    subscription: Subscription
    offset: int
    length: int
    last: Number | None = None  # the last number of which an event was handed out


class DeliveryLog:
    """One subscriber's deliveries and holdings. Positions go on where an earlier process of a durable one ended."""

    def __init__(
        self, deliveries: RowTable, subscriptions: RowTable, subscriber: str, clock: Clock, where: str | None = None
    ) -> None:
        self._where = where
        self._deliveries = deliveries
        self._subscriptions = subscriptions
        self._subscriber = subscriber
        self._clock = clock
        self.position = 0
        self._gathered = Gathered(deliveries)
        self._holdings: dict[Topic, _Row] = {}
        self._known: set[tuple[Topic, Number, int]] = set()  # logged by an earlier process, and may come again

    async def resume(self, holdings: Mapping[Topic, tuple[Number, Number]]) -> None:
        """A durable subscriber goes on. Of each topic it holds: after which number it began, and how far it is.

        A topic that has no row yet is in another log. One that began elsewhere than its row says was left and joined
        again by a process that was killed before it could log it (or its journal was shortened, which looks the same).
        """
        await self._deliveries.load()
        await self._subscriptions.load()
        self._read_back({topic: done for topic, (_, done) in holdings.items()})
        for topic in [topic for topic in self._holdings if topic not in holdings]:
            self._end(topic)
        for topic, (start, done) in sorted(holdings.items()):
            holding = self._holdings.get(topic)
            if holding is None:
                self._begin(topic, done, self.position)
            elif holding.subscription.start != start:
                self.begins({topic: max(start, holding.last or 0)})

    def _read_back(self, done: Mapping[Topic, Number]) -> None:
        """What an earlier process has logged. Only what is not done can come again, and must be known."""
        last: dict[Topic, Number] = {}
        for _, _, row in self._deliveries.rows(Delivery):
            if row.subscriber == self._subscriber:
                self.position = max(self.position, row.position + 1)
                if row.number is not None and row.number > done.get(row.topic, row.number):
                    self._known.add((row.topic, row.number, row.index))
                if row.number is not None and not row.out_of_order:
                    last[row.topic] = row.number
        for offset, length, holding in self._subscriptions.rows(Subscription):
            if holding.subscriber == self._subscriber and holding.until is None:
                self._holdings[holding.topic] = _Row(holding, offset, length, last.get(holding.topic))

    # ── what happens, in its order ────────────────────────────────────────────────────────────────────────────────

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """The application is given these events of one message, but for those whose index is in `left_out`.

        LogError: they are not accepted, and can come again. So everything that can fail comes first; only then is
        anything counted.
        """
        self._gathered.make_room()
        # what is known has its row: the process before this one wrote it
        new = [each for each in events if not (each.replayed and (each.topic, each.number, each.index) in self._known)]
        for position, event in enumerate(new, self.position):
            if event.topic not in self._holdings:  # its change is not complete, but the topic has begun
                self._begin(event.topic, None, position)
        now = self._clock.now_ms()
        rows = []
        for event in new:
            if not event.out_of_order:
                self._holdings[event.topic].last = event.number
            rows.append(
                Delivery(
                    self._subscriber,
                    self.position,
                    event.id,
                    event.topic,
                    event.number,
                    event.stamp if event.index == 0 else None,
                    received_at,
                    now,
                    event.out_of_order,
                    event.index,
                    event.index in left_out,
                )
            )
            self.position += 1
        self._gathered.put(rows)

    def holds(self, starts: Mapping[Topic, Number | None]) -> None:
        """From here on the subscriber holds exactly these topics; with a number: it begins after that number."""
        for topic in [topic for topic in self._holdings if topic not in starts]:
            self._end(topic)
        for topic, start in sorted(starts.items()):
            holding = self._holdings.get(topic)
            if holding is None:
                self._begin(topic, start, self.position)
            elif start is not None and holding.subscription.start is None:
                self._change(holding, start=start)
            elif start is not None and start != holding.subscription.start:
                self.begins({topic: start})

    def begins(self, starts: Mapping[Topic, Number]) -> None:
        """These topics begin anew here, after these numbers."""
        for topic, start in starts.items():
            holding = self._holdings.get(topic)
            if holding is not None:
                row = holding.subscription
                if holding.last is None and (row.since, row.start) == (self.position, start):
                    continue  # it just has, before another topic failed to
                self._end(topic)
            self._begin(topic, start, self.position)

    def end(self) -> None:
        """The subscriber leaves everything."""
        for topic in list(self._holdings):
            self._end(topic)

    def _begin(self, topic: Topic, start: Number | None, since: int) -> None:
        row = Subscription(self._subscriber, topic, since, None, start, None, self._where)
        line = padded(row)
        self._holdings[topic] = _Row(row, self._subscriptions.append(line), len(line))

    def _end(self, topic: Topic) -> None:
        """Deliveries first: what is said to have been notified must be found, even if this process is killed now."""
        self.flush()
        holding = self._holdings[topic]
        end = holding.subscription.start if holding.last is None else holding.last
        self._change(holding, until=self.position, end=end)
        del self._holdings[topic]

    def _change(
        self, holding: _Row, *, start: Number | None = None, until: int | None = None, end: Number | None = None
    ) -> None:
        old = holding.subscription
        new_start = old.start if start is None else start
        new = Subscription(old.subscriber, old.topic, old.since, until, new_start, end, old.where)
        self._subscriptions.change(holding.offset, [new], [holding.length])
        holding.subscription = new

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Write what has gathered."""
        self._gathered.flush()

    async def written(self, timeout_s: float) -> None:
        """Until everything is in the log. LogError: it is not, in that time."""
        self.flush()
        await self._subscriptions.written(timeout_s)
        await self._deliveries.written(timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Write everything. May be called twice."""
        try:
            await self.written(timeout_s)
        finally:
            self._deliveries.close()
            self._subscriptions.close()


class PublicationFile:
    """One publisher's publications: a row before its message leaves, its number when that is known."""

    def __init__(self, file: RowTable, publisher: str, clock: Clock) -> None:
        self._file = file
        self._publisher = publisher
        self._clock = clock
        self._open: dict[int, tuple[int, list[Publication], list[int]]] = {}  # by the sequence of the first

    def sending(self, events: Sequence[Pending], ids: Sequence[str]) -> None:
        """These leave in one message now."""
        now = self._clock.now_ms()
        rows = [
            Publication(id, event.topic, self._publisher, now, event.sequence, event.seen, None, index)
            for index, (event, id) in enumerate(zip(events, ids, strict=True))
        ]
        lines = [padded(row) for row in rows]
        offset = self._file.append(b"".join(lines))
        self._open[events[0].sequence] = (offset, rows, [len(line) for line in lines])

    def settled(self, events: Sequence[Pending], number: Number | None, is_known: bool) -> None:
        """They are on the broker under this number; or they are not, and never will be; or that is not known."""
        offset, rows, lengths = self._open.pop(events[0].sequence)
        if number is not None:
            self._file.change(offset, [msgspec.structs.replace(row, number=number) for row in rows], lengths)
        elif is_known:
            self._file.withdraw(offset, rows, lengths)

    async def close(self, timeout_s: float) -> None:
        """Until everything is in the log, for so long. May be called twice."""
        try:
            await self._file.written(timeout_s)
        finally:
            self._file.close()


def table_paths(log: Path) -> tuple[Path, Path]:
    """Where deliveries and subscriptions go: a folder, or the name of the file of deliveries in it."""
    if log.suffix == ".jsonl":
        stem = log.name.removesuffix(".jsonl")
        beside = "subscriptions.jsonl" if stem == "deliveries" else f"{stem}.subscriptions.jsonl"
        return log, log.with_name(beside)
    return log / "deliveries.jsonl", log / "subscriptions.jsonl"


def open_delivery_log(
    place: Path | str, broker: Broker, subscriber: str, clock: Clock, where: str | None = None
) -> DeliveryLog:
    """`place`: a folder, a file of deliveries, or "broker:". `where`: the subscription's filter."""
    if place == BROKER:
        deliveries, subscriptions = (BrokerTable(broker, name, subscriber) for name in ("deliveries", "subscriptions"))
        return DeliveryLog(deliveries, subscriptions, subscriber, clock, where)
    paths = table_paths(Path(place))
    return DeliveryLog(RowFile(paths[0]), RowFile(paths[1]), subscriber, clock, where)


def open_publication_log(place: Path | str, broker: Broker, publisher: str, clock: Clock) -> PublicationFile:
    """`place`: a folder, or "broker:"."""
    if place == BROKER:
        return PublicationFile(BrokerTable(broker, "publications", publisher), publisher, clock)
    return PublicationFile(RowFile(Path(place) / "publications.jsonl"), publisher, clock)
