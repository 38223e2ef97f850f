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
    """One holding of one topic, and the line that tells of it."""

    subscription: Subscription
    offset: int
    length: int
    last: Number | None = None  # the last number of which an event was handed out


class DeliveryLog:
    """One subscriber's deliveries and holdings. Positions go on where an earlier process of a durable one ended.

    `is_numbered`: whether events have numbers in their topic (on a broker), so that rows tell them.
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
        self._gathered: list[Delivery] = []  # accepted, and written soon: many rows at once, and none waits for long
        self._timer: asyncio.TimerHandle | None = None
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

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """The application is given these events of one message, but for those whose index is in `left_out`.

        LogError: they are not accepted, and can come again. So everything that can fail comes first; only then is
        anything counted.
        """
        if len(self._gathered) >= FLUSH_ROWS:
            self.flush()
        # what is known has its row: the process before this one wrote it
        new = [each for each in events if not (each.replayed and (each.topic, each.number, each.index) in self._known)]
        for position, event in enumerate(new, self.position):
            if event.topic not in self._holdings:  # its change is not complete, but the topic has begun
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

    def renew(self, subscriber: str) -> None:
        """From here on it is another subscriber."""
        self.end()
        self._subscriber = subscriber
        self.position = 0

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

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gathered:
            self._deliveries.append(_encoder.encode_lines(self._gathered))
            self._gathered = []

    def _flush_late(self) -> None:
        """By the clock. If it fails the rows are kept, and written with those that follow."""
        self._timer = None
        try:
            self.flush()
        except LogError as error:
            logger.error("deliveries not logged yet: rows=%d reason=%s", len(self._gathered), error)

    async def written(self, timeout_s: float) -> None:
        """Until everything is in the log. LogError: it is not, in that time."""
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
    """What one bus publishes: rows before their message leaves, which change or vanish when its fate is known."""

    def __init__(self, table: RowTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._open: dict[str, tuple[int, list[Publication], list[int]]] = {}  # by the id of the message

    def sending(self, message_id: str, publisher: str, events: Sequence[Pending], ids: Sequence[str]) -> None:
        """These events leave in one message now."""
        now = self._clock.now_ms()
        rows = [
            Publication(id, event.topic, publisher, now, event.sequence, event.seen, None, index)
            for index, (event, id) in enumerate(zip(events, ids, strict=True))
        ]
        lines = [padded(row) for row in rows]
        offset = self._table.append(b"".join(lines))
        self._open[message_id] = (offset, rows, [len(line) for line in lines])

    def settled(self, message_id: str, **changes: object) -> None:
        """The message is published, or that is not known. `changes`: what its rows say now."""
        opened = self._open.pop(message_id, None)
        if opened is not None and changes:
            offset, rows, lengths = opened
            self._table.change(offset, [msgspec.structs.replace(row, **changes) for row in rows], lengths)

    def withdraw(self, message_id: str) -> None:
        """It is not published, and never will be."""
        self._table.withdraw(*self._open.pop(message_id))

    async def close(self, timeout_s: float) -> None:
        """Until everything is in the log, for so long. May be called twice."""
        try:
            await self._table.written(timeout_s)
        finally:
            self._table.close()


def open_tables(log: Path) -> tuple[RowFile, RowFile]:
    """Deliveries and subscriptions. `log`: a folder, or the name of the file of deliveries in it."""
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
