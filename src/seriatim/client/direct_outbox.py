"""Events on their way from this process to a machine that answers for each: a peer here, or a broker of an overlay.

Room, receipts and deadlines are the same for all of them; what it means to hand an event over is for the subclass.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import ClassVar

from seriatim.client.events import Published
from seriatim.client.options import Limits, check_headers, check_portable_topic
from seriatim.client.pending import Pending, Receipts
from seriatim.client.room import Room
from seriatim.model import Address, Closed, InputError, LogError, QueueFull, SeriatimError, TimedOut, Topic, event_bytes

ID_BYTES_MAX = 255
SWEEPS = 4  # within one timeout: how often it is looked whose time is over


class DirectOutbox(ABC):
    """`name`: what the ids of events begin with that were given none."""

    unfinished: ClassVar[str]  # of an event that has no answer: "... 3 events <unfinished>"
    late: ClassVar[str]  # of one whose time is over: "<late> <id> within ..."
    unknown: ClassVar[str]  # ... "; <unknown>"
    too_late: ClassVar[str]  # ... when the bus is closed

    def __init__(self, name: Address, *, limits: Limits, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._room = Room(limits)
        self._loop = asyncio.get_running_loop()
        self._counter = 0
        self._pending: dict[str, Pending] = {}  # not settled, by id
        self._unanswered: deque[Pending] = deque()  # by deadline
        self._waiting = 0  # without an answer
        self._for_all: asyncio.Future[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed: SeriatimError | None = None

    # ── for subclasses ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def bytes_max(self) -> int:
        """Of one event, with its headers."""

    @abstractmethod
    def _hand_over(self, pending: Pending, id: str) -> None:
        """To the machine. SeriatimError, LogError: it was not, and nothing is left of it."""

    @abstractmethod
    def _dropped(self, event_id: str) -> None:
        """It is settled: nothing of it need be kept."""

    @property
    def events_waiting(self) -> int:
        """Without an answer."""
        return self._waiting

    # ── from the application ──────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self, topic: Topic, data: bytes, headers: Mapping[str, str] | None, id: str | None, seen: int | None
    ) -> Published:
        pending = self._checked(topic, data, headers, id)
        await self._room.wait(self._timeout_s)
        future: asyncio.Future[Published] = self._loop.create_future()
        pending.receipt = future
        self._send(pending)
        return await future

    def publish_nowait(
        self, topic: Topic, data: bytes, headers: Mapping[str, str] | None, id: str | None, seen: int | None
    ) -> "asyncio.Future[Published]":
        pending = self._checked(topic, data, headers, id)
        if not self._room.is_free:
            raise QueueFull(
                f"{self._room.events} events of {self._room.bytes} bytes wait to be published; "
                "await some of them first, or use publish(), which waits"
            )
        future: asyncio.Future[Published] = self._loop.create_future()
        pending.receipt = future
        self._send(pending)
        return future

    async def publish_many(
        self, events: Iterable[tuple[Topic, bytes]], seen: int | None
    ) -> list[Published | SeriatimError]:
        checked = [self._checked(topic, data, None, None) for topic, data in events]  # all, before anything is sent
        if not checked:
            return []
        receipts = Receipts(len(checked))
        for place, pending in enumerate(checked):
            pending.place, pending.receipt = place, receipts
            try:
                await self._room.wait(self._timeout_s)
                self._send(pending)
            except SeriatimError as error:
                for left in range(place, len(checked)):
                    receipts.put(left, error)
                break
        await receipts.complete
        return receipts.results

    async def ready(self) -> None:
        """Wait for room."""
        if self._closed is not None:
            raise self._closed
        await self._room.wait(self._timeout_s)

    async def flush(self) -> None:
        """Wait until the fate of everything is known."""
        while self._waiting and self._closed is None:
            if self._for_all is None:
                self._for_all = self._loop.create_future()
            await asyncio.shield(self._for_all)

    def explain(self) -> list[str]:
        """What is not published yet."""
        count: dict[Topic, int] = {}
        for pending in self._pending.values():
            count[pending.topic] = count.get(pending.topic, 0) + 1
        return [f"{topic}: {number} events {self.unfinished}" for topic, number in sorted(count.items())]

    def close(self, error: SeriatimError | None = None) -> None:
        """What has no answer gets this one."""
        if self._closed is not None:
            return
        self._closed = error if error is not None else Closed("the bus is closed")
        if self._sweeper is not None:
            self._sweeper.cancel()
        reason = error if error is not None else Closed(f"the bus was closed before {self.too_late}")
        for pending in list(self._pending.values()):
            self._answer(pending, reason)
        self._room.close(reason)
        self._settle_all()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, topic: Topic, data: bytes, headers: Mapping[str, str] | None, id: str | None) -> Pending:
        if self._closed is not None:
            raise self._closed
        check_portable_topic(topic)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InputError("data", f"{type(data).__name__} is not bytes", "encode it first")
        if id is not None and (not isinstance(id, str) or not id or not id.isprintable()):
            raise InputError("id", f"{id!r} is not an id", "give a printable string, or None for one of our making")
        if id is not None and len(id.encode()) > ID_BYTES_MAX:
            raise InputError("id", f"{len(id.encode())} bytes in one id", f"use at most {ID_BYTES_MAX}")
        if id is not None and id in self._pending:
            raise InputError("id", f"{id!r} is used twice", "give every event its own")
        pending = Pending(topic, bytes(data), check_headers(headers) if headers else None, id)
        size = event_bytes(pending.data, pending.headers)
        if size > self.bytes_max:
            problem = f"{size} bytes in one event"
            fix = f"send at most {self.bytes_max}, split it, or raise options.payload_bytes_max"
            raise InputError("data", problem, fix)
        return pending

    def _send(self, pending: Pending) -> None:
        """Hand it over. An error leaves nothing behind."""
        if self._closed is not None:
            raise self._closed
        if pending.id is None:
            self._counter += 1
            pending.id = f"{self._name}-{self._counter}"
        pending.deadline = self._loop.time() + self._timeout_s
        self._pending[pending.id] = pending
        self._unanswered.append(pending)
        self._waiting += 1
        self._room.take(pending.size)
        try:
            self._hand_over(pending, pending.id)
        except (SeriatimError, LogError):
            self._settled(pending.id)
            pending.deadline = None
            self._waiting -= 1
            raise
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)

    def _settled(self, event_id: str) -> Pending | None:
        pending = self._pending.pop(event_id, None)
        self._dropped(event_id)
        if pending is not None:
            self._room.give(pending.size)
        return pending

    def _answer(self, pending: Pending, answer: Published | SeriatimError) -> None:
        """Once. Who published is told, and who waits for everything if this was the last."""
        if pending.deadline is None:
            return
        pending.deadline = None
        receipt = pending.receipt
        if isinstance(receipt, Receipts):
            receipt.put(pending.place, answer)
        elif not receipt.done():
            if isinstance(answer, Published):
                receipt.set_result(answer)
            else:
                receipt.set_exception(answer)
        self._waiting -= 1
        if self._waiting == 0:
            self._settle_all()

    def _settle_all(self) -> None:
        if self._for_all is not None and not self._for_all.done():
            self._for_all.set_result(None)
        self._for_all = None

    def _sweep(self) -> None:
        """Whose time is over hears so; it still counts as waiting until the machine is done with it."""
        self._sweeper = None
        now = self._loop.time()
        while self._unanswered and (self._unanswered[0].deadline is None or self._unanswered[0].deadline <= now):
            pending = self._unanswered.popleft()
            waited = f"{self.late} {pending.id} within {self._timeout_s:g} s"
            self._answer(pending, TimedOut(f"{waited}; {self.unknown}"))
        if self._unanswered and self._closed is None:
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)
