"""The order log on JetStream: one stream per cluster, written by the root, read by whoever asks.

*Writing.* One message is under way. It says which message it follows (`Nats-Expected-Last-Subject-Sequence`), so a
repeat is refused however late it comes. When it is not known whether it has arrived (no answer, a new process), the
last message is read back: it says where the log ends. An empty log takes any beginning: positions before it had no log,
or retention has removed them. A log that ends before `after` was restored from an older copy: the positions between are
lost, for readers as if retention had removed them.

*Looking after it.* Every `CHECK_S` the writer looks whether the stream is still there, and ends where it ended. If
somebody has deleted, purged or restored it, the root is told where it ends now, and continues after what was kept: with
a message without ranges, if it has no others. So a waiting reader learns what is gone, even if nobody publishes.

*A message* is msgpack: `[version, epoch, after, topics, ranges, since]`. Its first range comes behind position `after`.
`topics` are names; `ranges` is flat: index of the topic, first number, count of numbers, and so on. `since` is the
number of the change by which the writer became the root; 0, and in older messages left out: it was from the beginning.

*Another root.* The last message tells who writes. A root is refused if that is of a later root, and a life of a root if
it is of a later life. A root that hands over says so in a message without ranges (`Cede`), also if the log is empty.

*Reading.* Messages are numbered without holes, so the one that holds a position, or was stored at a time, is found by
halving. Following messages are asked for together.
"""

import asyncio
import time
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from seriatim.brokers.capabilities import OrderBounds, check_after
from seriatim.brokers.nats.api import EXPECTED, Stored, StreamNotFound, WrongLastSequence, ack_of, patiently
from seriatim.brokers.nats.link import Reply
from seriatim.brokers.nats.streams import Streams
from seriatim.brokers.seam import Deliver, OnError
from seriatim.model import (
    UNREADABLE,
    ConnectionFailed,
    InputError,
    Number,
    Position,
    RemoteError,
    RequestRefused,
    SeriatimError,
    Topic,
)
from seriatim.order import OrderedRange, count_of, from_position
from seriatim.protocols.with_broker import Begun, Cede, Ceded, Ordered, OrderKept, OrderRead, ReadOrder

VERSION = 1
READ_TOGETHER = 16  # messages that are asked for at once
POLL_S = 0.05
WAIT_S = 10.0
CHECK_S = 3.0  # how often the writer looks whether the log is still what it wrote


class OrderBody(Struct, array_like=True, frozen=True):
    """The body of one message."""

    version: int
    epoch: int
    after: Position
    topics: list[Topic]
    ranges: list[Number]
    since: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OrderBody).decode


def encode_order(ordered: Ordered) -> bytes:
    """The body of the message that holds these ranges."""
    indices: dict[Topic, int] = {}
    ranges: list[Number] = []
    for each in ordered.ranges:
        index = indices.setdefault(each.topic, len(indices))
        ranges += (index, each.first, each.last - each.first + 1)
    return _encode(OrderBody(VERSION, ordered.epoch, ordered.after, list(indices), ranges, ordered.since))


def decode_order(data: bytes) -> Ordered:
    """What a message holds. RemoteError: no root wrote this, or a later version of this program did."""
    try:
        body = _decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the order log holds a message that is not a list of ranges: {error}") from None
    if body.version != VERSION:
        raise RemoteError(f"the order log was written in version {body.version} of its format, this reads {VERSION}")
    flat = iter(body.ranges)
    try:
        ranges = tuple(
            OrderedRange(body.topics[index], first, first + count - 1)
            for index, first, count in zip(flat, flat, flat, strict=True)
        )
    except (IndexError, ValueError):
        raise RemoteError("the order log holds a message whose ranges are cut off") from None
    if body.after < 0 or any(each.first < 1 or each.count < 1 for each in ranges):
        raise RemoteError("the order log holds a message with empty ranges, or with positions that do not exist")
    return Ordered(body.after, ranges, body.epoch, body.since)


def end_of(ordered: Ordered) -> Position:
    return ordered.after + count_of(ordered.ranges)


class OrderChannel:
    """Writes the order log, for the root."""

    def __init__(self, streams: Streams, deliver: Deliver, on_error: OnError) -> None:
        self._streams = streams
        self._deliver = deliver
        self._on_error = on_error
        self._waiting: Ordered | None = None
        self._last: int | None = None  # the last message in the stream; None: not known
        self._end: Position | None = None  # where it ends; None: the log is empty
        self._writer = (0, 0)  # since when who wrote its last message is the root, and in which epoch it did
        self._looked = False  # the two were just read from the server
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._ceding: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for task in (self._task, self._checking, self._ceding):
            if task is not None:
                task.cancel()

    async def begin(self, epoch: int, since: int = 0) -> tuple[int, int, Position]:
        """Refuse from now on what earlier lives of this root write. Returns since when the latest writer is the root,
        its epoch, and where the log ends.

        A message without ranges says so; an empty log gets none.
        """
        await self._fence((since, epoch), also_if_empty=False)
        return *self._writer, self._end or 0

    def cede(self, message: Cede) -> None:
        """Refuse from now on what earlier roots write. The answer is `Ceded`."""
        if self._ceding is None or self._ceding.done():  # else a repeat
            self._ceding = asyncio.get_running_loop().create_task(self._cede(message))

    async def _cede(self, message: Cede) -> None:
        try:
            await patiently(lambda: self._fence((message.since, 0), also_if_empty=True))
        except SeriatimError as error:
            self._on_error(message, error)
        else:
            self._deliver(Ceded(message.since, message.epoch))

    async def _fence(self, writer: tuple[int, int], *, also_if_empty: bool) -> None:
        while True:
            await self._read_back()
            if (not self._last or self._end is None) and not also_if_empty:
                return
            if self._writer >= writer:
                return
            since, epoch = writer
            fence = encode_order(Ordered(self._end or 0, (), epoch, since))
            try:
                subject, headers = self._streams.names.order_subject, {EXPECTED: str(self._last)}
                ack = await self._streams.api.publish(subject, fence, headers)
            except (WrongLastSequence, StreamNotFound):
                continue
            self._last, self._end, self._writer = ack.seq, self._end or 0, writer
            return

    def send(self, ordered: Ordered) -> None:
        """Store these ranges unless they are stored already. The answer, `OrderKept`, says where the log ends.

        Without ranges: only look, and note what is lost.
        """
        if self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_forever())
        self._waiting = ordered
        if not self._busy:
            self._pump()

    def _pump(self) -> None:
        ordered = self._waiting
        if self._closed or ordered is None:
            return
        if self._last is None or (ordered.after > (self._end or 0) and not self._looked):
            self._busy = True
            self._task = asyncio.get_running_loop().create_task(self._recover())
            return
        self._waiting = None
        since, epoch = self._writer
        if self._writer > (ordered.since, ordered.epoch):
            latest = epoch if since == ordered.since else ordered.epoch
            self._deliver(Begun(ordered.epoch, latest, since=since))
            return
        end = self._end or 0
        if (self._end is not None and ordered.after < end) or (ordered.after <= end and not ordered.ranges):
            asyncio.get_running_loop().call_soon(self._deliver, OrderKept(end))
            return
        if ordered.after > end:  # the root learns of what is lost, and then that it is noted
            self._deliver(OrderKept(end))
        self._busy, self._looked = True, False
        headers, subject = {EXPECTED: str(self._last)}, self._streams.names.order_subject

        def on_reply(reply: Reply) -> None:
            self._on_reply(ordered, reply)

        self._streams.api.link.ask(subject, encode_order(ordered), on_reply, headers)

    def _on_reply(self, ordered: Ordered, reply: Reply) -> None:
        self._busy = False
        if self._closed:
            return
        try:
            self._last, self._end = ack_of(reply, "keeping the order log").seq, end_of(ordered)
            self._writer = ordered.since, ordered.epoch
        except (ConnectionFailed, WrongLastSequence):
            self._last, self._waiting = None, self._waiting or ordered  # it may or may not have arrived
        except StreamNotFound:
            self._streams.forget_other(self._streams.names.order_stream)
            self._last, self._waiting = None, self._waiting or ordered
        except RequestRefused as refused:
            self._on_error(ordered, refused)
        else:
            self._deliver(OrderKept(self._end))
        self._pump()

    async def _check_forever(self) -> None:
        """Notice that somebody has deleted, emptied or restored the log, also while nothing is to be written."""
        while True:
            await asyncio.sleep(CHECK_S)
            if self._busy or self._last is None:
                continue
            known, last, end = self._last, None, 0
            stream = self._streams.names.order_stream
            try:
                last = await self._streams.api.message(stream, {"last_by_subj": self._streams.names.order_subject})
                end = end_of(decode_order(last.data)) if last is not None else 0
            except StreamNotFound:
                self._streams.forget_other(stream)
            except SeriatimError:
                continue  # the server is away, or refuses: the writer is told
            if not self._busy and self._last == known and (self._end or 0) != end:
                self._last = self._end = None  # read back before the next write
                self._deliver(OrderKept(end))

    async def _recover(self) -> None:
        """Find out where the log ends; tries until the server answers."""
        try:
            await patiently(self._read_back)
        except SeriatimError as error:
            waiting, self._waiting, self._busy = self._waiting, None, False
            if waiting is not None:
                self._on_error(waiting, error)
            return
        self._busy = False
        self._pump()

    async def _read_back(self) -> None:
        stream = await self._streams.order()
        try:
            last = await self._streams.api.message(stream, {"last_by_subj": self._streams.names.order_subject})
        except StreamNotFound:
            self._streams.forget_other(stream)
            raise ConnectionFailed(f"stream {stream} was deleted; it is being created again") from None
        self._last, self._end, self._writer = 0, None, (0, 0)
        if last is not None:
            ordered = decode_order(last.data)
            self._last, self._end = last.seq, end_of(ordered)
            self._writer = ordered.since, ordered.epoch
        self._looked = True


class NatsOrderLog:
    """Reads the order log."""

    def __init__(self, streams: Streams) -> None:
        self._api, self._stream = streams.api, streams.names.order_stream
        self._known: tuple[Position, int] = (0, 0)  # a position, and the message that it is behind of

    async def bounds(self) -> OrderBounds | None:
        while True:
            try:
                state = (await self._api.info(self._stream)).state
                if not state.messages:
                    return None
                first, last = await asyncio.gather(self._message(state.first_seq), self._message(state.last_seq))
            except StreamNotFound:  # also between the two questions
                return None
            if first is not None and last is not None:  # else retention was faster
                return OrderBounds(decode_order(first.data).after + 1, end_of(decode_order(last.data)))

    async def read(self, after: Position, ranges_max: int = 1_000) -> OrderRead:
        bounds = await self._bounds_for(after)
        if after >= bounds.end:
            return OrderRead(after, ())
        after = max(after, bounds.first - 1)
        found: list[OrderedRange] = []
        begin = after
        number = await self._message_behind(after)
        while len(found) < ranges_max:
            stored = await asyncio.gather(*(self._message(number + each) for each in range(READ_TOGETHER)))
            for each in stored:
                if each is None or len(found) >= ranges_max:
                    break
                ordered = decode_order(each.data)
                if found and ordered.after > begin + count_of(found):
                    return OrderRead(begin, tuple(found))  # what is between is lost: the next answer says so
                if not found and ordered.after > begin:
                    begin = ordered.after  # retention was faster, or it is lost
                some = from_position(ordered.ranges, ordered.after, begin, ranges_max - len(found))
                found += some
                number = each.seq
                self._known = (begin + count_of(found), number)
            if any(each is None for each in stored):
                break
            number += 1
        return OrderRead(begin, tuple(found))

    async def position_at(self, moment: datetime) -> Position:
        bounds = await self._bounds_for(0)
        state = (await self._api.info(self._stream)).state
        low, high = state.first_seq, state.last_seq + 1
        while low < high:
            middle = (low + high) // 2
            stored = await self._message(middle)
            if stored is None or _stored_at(stored) < moment:
                low = middle + 1
            else:
                high = middle
        stored = await self._message(low)
        return bounds.end if stored is None else decode_order(stored.data).after

    async def wait(self, after: Position, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while (bounds := await self.bounds()) is None or bounds.end <= after:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _bounds_for(self, after: Position) -> OrderBounds:
        bounds = await self.bounds()
        return check_after(after, bounds)

    async def _message_behind(self, after: Position) -> int:
        """The message that holds what follows this position."""
        state = (await self._api.info(self._stream)).state
        low, high = state.first_seq, state.last_seq
        position, number = self._known
        if low <= number <= high and position <= after:  # reading continues, nearly always
            low = number
            stored = await self._message(number + 1)
            if stored is None or decode_order(stored.data).after > after:
                return number
            low = number + 1
        while low < high:
            middle = (low + high + 1) // 2
            stored = await self._message(middle)
            if stored is None or decode_order(stored.data).after <= after:
                low = middle
            else:
                high = middle - 1
        return low

    async def _message(self, number: int) -> Stored | None:
        return await self._api.message(self._stream, {"seq": number})


class OrderReading:
    """Answers `ReadOrder` of one machine: when something follows, and one question at a time."""

    def __init__(self, log: NatsOrderLog, deliver: Deliver, on_error: OnError) -> None:
        self._log = log
        self._deliver = deliver
        self._on_error = on_error
        self._task: asyncio.Task[None] | None = None
        self._question: ReadOrder | None = None

    def ask(self, question: ReadOrder) -> None:
        if question == self._question and self._task is not None and not self._task.done():
            return  # a repeat; beginning again each time might never end
        self.close()
        self._question = question
        self._task = asyncio.get_running_loop().create_task(self._answer(question))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _answer(self, question: ReadOrder) -> None:
        try:
            found = OrderRead(question.after, ())
            while found.after == question.after and not found.ranges:
                if await patiently(lambda: self._log.wait(question.after, WAIT_S)):
                    found = await patiently(lambda: self._read(question.after))
        except SeriatimError as error:
            self._on_error(question, error)
            return
        self._deliver(OrderRead(found.after, found.ranges, question.version))

    async def _read(self, after: Position) -> OrderRead:
        """The following ranges; none, if somebody has just deleted it or put an older copy in its place."""
        try:
            return await self._log.read(after)
        except (InputError, StreamNotFound):
            return OrderRead(after, ())


def _stored_at(stored: Stored) -> datetime:
    """When the server stored it. It tells nanoseconds, Python reads microseconds."""
    whole, _, fraction = stored.time.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6].ljust(6, '0')}").replace(tzinfo=UTC)
