"""The part of publishing that all kinds of bus share: checks, room, receipts, deadlines.

Subclasses send the events: brokered/outbox.py gathers them into messages of a broker, direct/outbox.py hands each to a
machine in this process.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from seriatim.brokers.packs import OVERHEAD_BYTES
from seriatim.client.events import Published
from seriatim.client.options import Limits, check_headers
from seriatim.client.room import Room
from seriatim.model import Address, Closed, InputError, QueueFull, SeriatimError, Topic

logger = logging.getLogger(__name__)

SWEEPS = 20  # how often deadlines are checked within one timeout

Headers: TypeAlias = Mapping[str, str] | None


class Receipts:
    """The answers to one `publish_many`, in its order; `complete` is done when all have come."""

    __slots__ = ("complete", "left", "results")

    def __init__(self, count: int) -> None:
        self.results: list[Published | SeriatimError] = [Closed("not published")] * count
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = count

    def put(self, place: int, result: Published | SeriatimError) -> None:
        self.results[place] = result
        self.left -= 1
        if self.left == 0 and not self.complete.done():
            self.complete.set_result(None)


class Pending:
    """One event that is being published. `deadline` is None once it is answered; `sequence` and `seen` are for logs."""

    __slots__ = ("data", "deadline", "headers", "id", "place", "receipt", "seen", "sequence", "size", "topic")

    def __init__(self, topic: Topic, data: bytes, headers: dict[str, str] | None, id: str | None) -> None:
        self.topic = topic
        self.data = data
        self.headers = headers
        self.id = id
        size = len(data) + OVERHEAD_BYTES
        if headers is not None:
            size += sum(len(name) + len(value) + 2 * OVERHEAD_BYTES for name, value in headers.items())
        if id is not None:
            size += len(id) + OVERHEAD_BYTES
        self.size = size
        self.deadline: float | None
        self.sequence: int
        self.seen: int | None = None
        self.place: int
        self.receipt: asyncio.Future[Published] | Receipts

    def answer(self, answer: Published | SeriatimError) -> bool:
        """Tell the publisher, once. False: it was told before."""
        if self.deadline is None:
            return False
        self.deadline = None
        receipt = self.receipt
        if isinstance(receipt, Receipts):
            receipt.put(self.place, answer)
        elif not receipt.done():
            if isinstance(answer, Published):
                receipt.set_result(answer)
            else:
                receipt.set_exception(answer)
        return True


class Outbox(ABC):
    """Publishes for one bus. `name`: the publisher's name, which is never reused.

    `others`: returns how many further messages occupy room although no caller waits for them.
    """

    def __init__(
        self, name: Address, limits: Limits, timeout_s: float, others: Callable[[], int] | None = None
    ) -> None:
        self.name = name
        self.room = Room(limits.queue_events, limits.queue_bytes, others)
        self.unanswered = 0  # events whose publisher has no answer yet
        self._ordered: dict[Topic, Topic] = {}  # from names used so far to the topics that order them
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._for_all: asyncio.Future[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed: SeriatimError | None = None

    @abstractmethod
    def _check_topic(self, topic: Topic) -> Topic:
        """The topic that orders it. InputError: nothing can be published there."""

    @abstractmethod
    def _check(self, pending: Pending) -> None:
        """InputError: this event cannot be published."""

    @abstractmethod
    def _send(self, pending: Pending) -> None:
        """Count it with `_begin`, and send it now or soon."""

    @abstractmethod
    def _sweep_due(self, now: float) -> None:
        """Answer the events that are past their deadline."""

    @abstractmethod
    def _pending_events(self) -> Iterable[Pending]:
        """All events that may still lack an answer."""

    @abstractmethod
    def explain(self) -> list[str]:
        """The events that are not published yet, and which process has to answer."""

    async def publish(self, topic: Topic, data: bytes, headers: Headers, id: str | None) -> Published:
        pending = self._checked(topic, data, headers, id)
        if not self.room.is_free:
            await self._wait_for_room()
        pending.receipt = receipt = self._loop.create_future()
        self._send(pending)
        published: Published = await receipt
        return published

    def publish_nowait(
        self, topic: Topic, data: bytes, headers: Headers, id: str | None
    ) -> "asyncio.Future[Published]":
        """QueueFull: there is no room."""
        pending = self._checked(topic, data, headers, id)
        if not self.room.is_free:
            raise QueueFull(f"{self.room}; await some of them first, or use publish(), which waits")
        receipt: asyncio.Future[Published] = self._loop.create_future()
        pending.receipt = receipt
        self._send(pending)
        return receipt

    async def publish_many(self, events: Iterable[tuple[Topic, bytes]]) -> list[Published | SeriatimError]:
        """The answers, in the order of the events."""
        checked = [self._checked(topic, data, None, None) for topic, data in events]  # all, before anything is sent
        if not checked:
            return []
        receipts = Receipts(len(checked))
        for place, pending in enumerate(checked):
            pending.place, pending.receipt = place, receipts
            try:
                if not self.room.is_free:
                    await self._wait_for_room()
                self._send(pending)
            except SeriatimError as error:
                for left in range(place, len(checked)):
                    receipts.put(left, error)
                break
        await receipts.complete
        return receipts.results

    async def ready(self) -> None:
        """Wait for room, without taking it."""
        if self._closed is not None:
            raise self._closed
        if not self.room.is_free:
            await self._wait_for_room()
        self.room.wake()

    async def flush(self) -> None:
        """Wait until everything has its answer."""
        while self.unanswered and self._closed is None:
            if self._for_all is None:
                self._for_all = self._loop.create_future()
            await asyncio.shield(self._for_all)

    async def finish(self) -> None:
        """`flush`, but for no longer than the timeout."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.flush()
        except TimeoutError:
            logger.warning("bus closes with events unconfirmed: publisher=%s events=%d", self.name, self.unanswered)

    def end(self, reason: SeriatimError) -> None:
        """Stop publishing. Events without an answer fail with `reason`. May be called twice."""
        if self._closed is not None:
            return
        self._closed = reason
        if self._sweeper is not None:
            self._sweeper.cancel()
        for pending in list(self._pending_events()):
            self._answer(pending, reason)
        self.room.close(reason)

    def _checked(self, topic: Topic, data: bytes, headers: Headers, id: str | None) -> Pending:
        if self._closed is not None:
            raise self._closed
        if type(topic) is not str or topic not in self._ordered:
            self._ordered[topic] = self._check_topic(topic)
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InputError("data", f"expected bytes, got {type(data).__name__}", "encode it first")
            data = bytes(data)
        if id is not None and (not isinstance(id, str) or not id or not id.isprintable()):
            raise InputError("id", f"{id!r} is not an id", "give a printable string, or None for a generated id")
        pending = Pending(topic, data, check_headers(headers) if headers else None, id)
        self._check(pending)
        return pending

    def _begin(self, pending: Pending, deadline: float) -> None:
        """Count an event that now waits for its answer."""
        pending.deadline = deadline
        self.unanswered += 1
        self.room.take(1, pending.size)
        if self._sweeper is None:
            self._sweep_later()

    def _answer(self, pending: Pending, answer: Published | SeriatimError) -> bool:
        if not pending.answer(answer):
            return False
        self._count_answered(1)
        return True

    def _count_answered(self, count: int) -> None:
        self.unanswered -= count
        if not self.unanswered and self._for_all is not None:
            self._for_all.set_result(None)
            self._for_all = None

    async def _wait_for_room(self) -> None:
        if self._sweeper is None:  # `others` may end without an answer
            self._sweep_later()
        await self.room.wait(self._timeout_s)
        if self._closed is not None:
            raise self._closed

    def _sweep_later(self) -> None:
        self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        self._sweep_due(self._loop.time())
        self.room.wake()
        if (self.unanswered or self.room.waiters) and self._closed is None:
            self._sweep_later()
