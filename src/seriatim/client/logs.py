"""Delivery and publication logs: the rows of model/records.py, written as things happen, for `seriatim audit <folder>`.

A folder holds `deliveries.jsonl`, `subscriptions.jsonl` and `publications.jsonl`; any number of subscribers, publishers
and processes may write to the same folder, each line in one piece. Deliveries are gathered and written every second and
every 1,000 rows. Rows that change later (a subscription ends, a publication gets its number) are written at once, with
spaces behind them, and changed in place. So a process that is killed leaves a readable log: its last deliveries
may be missing, but no line is cut off. (A power failure may cut off the last line; the next process that opens the log
as its only writer removes that line.)

If a log cannot be written (a full disk), LogError is raised and nothing has changed: the event stays in the inbox, and
the next attempt writes the same row. So every event has a row, and no row is there twice.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import BROKER
from seriatim.client.events import Event
from seriatim.client.inbox import NOTHING
from seriatim.client.outbox import Pending
from seriatim.client.tables import BrokerTable, RowFile, RowTable, padded
from seriatim.model import Delivery, LogError, Number, Publication, Subscription, Topic
from seriatim.runtime import Clock

logger = logging.getLogger(__name__)

FLUSH_ROWS = 1_000
FLUSH_S = 1.0

_encoder = msgspec.json.Encoder()


class _Row(Struct):
    """One holding of one topic, and the line that records it."""

    subscription: Subscription
    offset: int
    length: int
    last: Number | None = None  # the number of the last event handed out


class DeliveryLog:
    """One subscriber's deliveries and holdings. A durable subscriber's positions continue across processes.

    `is_numbered`: whether events have numbers in their topic (on a broker); then rows include them.
    """

    def __init__(
        self,
        deliveries: RowTable,
        subscriptions: RowTable,
        subscriber: str,
        clock: Clock,
        where: str | None = None,
        *,
        is_numbered: bool = True,
    ) -> None:
        self._where = where
        self._is_numbered = is_numbered
        self._deliveries = deliveries
        self._subscriptions = subscriptions
        self._subscriber = subscriber
        self._clock = clock
        self.position = 0
        self._gathered: list[Delivery] = []  # accepted; written soon, many rows at a time
        self._timer: asyncio.TimerHandle | None = None
        self._holdings: dict[Topic, _Row] = {}
        self._known: set[tuple[Topic, Number, int]] = set()  # logged by an earlier process; may be delivered again

    async def resume(self, holdings: Mapping[Topic, tuple[Number, Number]]) -> None:
        """Resume a durable subscriber. `holdings`: for each topic, the number it began after and the last number done.

        A topic without a row was logged elsewhere before. If a topic's start differs from its row, a process left and
        joined it again and was killed before it could log that (or its journal was shortened, which looks the same).
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
        """Read what an earlier process has logged. Only events that are not done can come again; remember those."""
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

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """Log that the application gets these events of one message, except those whose index is in `left_out`.

        After LogError none is logged, and the call can be repeated. So everything that can fail is done before
        anything is counted.
        """
        if len(self._gathered) >= FLUSH_ROWS:
            self.flush()
        # an earlier process wrote the rows of known events
        new = [each for each in events if not (each.replayed and (each.topic, each.number, each.index) in self._known)]
        for position, event in enumerate(new, self.position):
            if event.topic not in self._holdings:  # the topic has begun, although its change is not complete
                self._begin(event.topic, None, position)
        now, is_numbered = self._clock.now_ms(), self._is_numbered
        rows = []
        for event in new:
            if is_numbered and not event.out_of_order:
                self._holdings[event.topic].last = event.number
            rows.append(
                Delivery(
                    self._subscriber,
                    self.position,
                    event.id,
                    event.topic,
                    event.number if is_numbered else None,
                    event.stamp if is_numbered and event.index == 0 else None,
                    received_at,
                    now,
                    event.out_of_order,
                    event.index,
                    event.index in left_out,
                )
            )
            self.position += 1
        self._gathered += rows
        if self._timer is None and self._gathered:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush_late)

    def holds(self, starts: Mapping[Topic, Number | None]) -> None:
        """The subscriber now holds exactly these topics. A topic with a number begins after that number."""
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
        """These topics begin again here, after these numbers."""
        for topic, start in starts.items():
            holding = self._holdings.get(topic)
            if holding is not None:
                row = holding.subscription
                if holding.last is None and (row.since, row.start) == (self.position, start):
                    continue  # done by the last attempt, which then failed at another topic
                self._end(topic)
            self._begin(topic, start, self.position)

    def end(self) -> None:
        """The subscriber leaves everything."""
        for topic in list(self._holdings):
            self._end(topic)

    def renew(self, subscriber: str) -> None:
        """End everything, and continue as another subscriber."""
        self.end()
        self._subscriber = subscriber
        self.position = 0

    def _begin(self, topic: Topic, start: Number | None, since: int) -> None:
        row = Subscription(self._subscriber, topic, since, None, start, None, self._where)
        line = padded(row)
        self._holdings[topic] = _Row(row, self._subscriptions.append(line), len(line))

    def _end(self, topic: Topic) -> None:
        """Write deliveries first, so that the row's `end` has its delivery even if this process is killed now."""
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

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gathered:
            self._deliveries.append(_encoder.encode_lines(self._gathered))
            self._gathered = []

    def _flush_late(self) -> None:
        """Called by the timer. If writing fails, the rows are kept and written with the next ones."""
        self._timer = None
        try:
            self.flush()
        except LogError as error:
            logger.error("deliveries not logged yet: rows=%d reason=%s", len(self._gathered), error)

    async def written(self, timeout_s: float) -> None:
        """Wait until everything is in the log. Raises LogError if that takes longer."""
        self.flush()
        await self._subscriptions.written(timeout_s)
        await self._deliveries.written(timeout_s)

    async def close(self, timeout_s: float, *, ends: bool = True) -> None:
        """Write everything. `ends`: the subscriber leaves what it holds. May be called twice."""
        try:
            if ends:
                self.end()
            await self.written(timeout_s)
        finally:
            self._deliveries.close()
            self._subscriptions.close()


class PublicationLog:
    """The publications of one bus. Rows are written before their message is sent, and updated or removed afterwards."""

    def __init__(self, table: RowTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._open: dict[str, tuple[int, list[Publication], list[int]]] = {}  # by the id of the message

    def sending(self, message_id: str, publisher: str, events: Sequence[Pending], ids: Sequence[str]) -> None:
        """Log these events, which are about to be sent in one message."""
        now = self._clock.now_ms()
        rows = [
            Publication(id, event.topic, publisher, now, event.sequence, event.seen, None, index)
            for index, (event, id) in enumerate(zip(events, ids, strict=True))
        ]
        lines = [padded(row) for row in rows]
        offset = self._table.append(b"".join(lines))
        self._open[message_id] = (offset, rows, [len(line) for line in lines])

    def settled(self, message_id: str, **changes: object) -> None:
        """The message is published, or its outcome is unknown. `changes`: new values for its rows."""
        opened = self._open.pop(message_id, None)
        if opened is not None and changes:
            offset, rows, lengths = opened
            self._table.change(offset, [msgspec.structs.replace(row, **changes) for row in rows], lengths)

    def withdraw(self, message_id: str) -> None:
        """Remove the rows of a message that will never be published."""
        self._table.withdraw(*self._open.pop(message_id))

    async def close(self, timeout_s: float) -> None:
        """Wait until everything is in the log, at most this long. May be called twice."""
        try:
            await self._table.written(timeout_s)
        finally:
            self._table.close()


def open_tables(log: Path) -> tuple[RowFile, RowFile]:
    """Open the tables of deliveries and subscriptions. `log`: a folder, or the deliveries file."""
    if log.suffix == ".jsonl":
        stem = log.name.removesuffix(".jsonl")
        beside = "subscriptions.jsonl" if stem == "deliveries" else f"{stem}.subscriptions.jsonl"
        return RowFile(log), RowFile(log.with_name(beside))
    return RowFile(log / "deliveries.jsonl"), RowFile(log / "subscriptions.jsonl")


def open_delivery_log(
    place: Path | str, broker: Broker, subscriber: str, clock: Clock, where: str | None = None
) -> DeliveryLog:
    """`place`: a folder, a file of deliveries, or "broker:". `where`: the subscription's filter."""
    if place == BROKER:
        deliveries, subscriptions = (BrokerTable(broker, name, subscriber) for name in ("deliveries", "subscriptions"))
        return DeliveryLog(deliveries, subscriptions, subscriber, clock, where)
    return DeliveryLog(*open_tables(Path(place)), subscriber, clock, where)


def open_publication_log(
    place: Path | str | None, clock: Clock, broker: Broker | None = None, publisher: str = ""
) -> PublicationLog | None:
    """`place`: a folder, or "broker:"; None: there is no log."""
    if place is None:
        return None
    if place == BROKER and broker is not None:
        return PublicationLog(BrokerTable(broker, "publications", publisher), clock)
    return PublicationLog(RowFile(Path(place) / "publications.jsonl"), clock)
