"""Events on their way from this process, which is a peer, to all others that hold their topic.

An event is published when every member has received it. Its number is the place among its source's own events of the
topic, known as soon as the peer has taken it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from seriatim.client.events import Published
from seriatim.client.options import Limits, check_headers, check_topic
from seriatim.client.peer_logs import PeerPublications
from seriatim.client.pending import Pending, Receipts
from seriatim.client.room import Room
from seriatim.model import (
    APPLICATION,
    Address,
    Closed,
    Event,
    InputError,
    LogError,
    QueueFull,
    SeriatimError,
    TimedOut,
    Topic,
    Unsettled,
)
from seriatim.peers import LivePeer
from seriatim.protocols.vcube.linked import event_bytes
from seriatim.protocols.vcube.messages import Publish

ID_BYTES_MAX = 255
SWEEPS = 4  # within one timeout: how often it is looked whose time is over
JOIN_FIX = "subscribe to it first, or connect(..., join=True), which does so by itself"


class PeerOutbox:
    """`join`: hold a topic before the first publication on it. `seen`: for the log, what was seen of a topic."""

    def __init__(
        self,
        name: Address,
        live: LivePeer,
        *,
        join: bool,
        limits: Limits,
        timeout_s: float,
        life: Callable[[], str],
        log: PeerPublications | None,
        seen: Callable[[Topic], int],
    ) -> None:
        self._name = name
        self._live = live
        self._join = join
        self._timeout_s = timeout_s
        self._life = life
        self._log = log
        self._seen = seen
        self._room = Room(limits)
        self._loop = asyncio.get_running_loop()
        self._counter = 0
        self._pending: dict[str, Pending] = {}  # not settled, by id
        self._events: dict[str, Event] = {}  # given to the peer, which has not given it a number yet
        self._numbers: dict[str, int] = {}
        self._unanswered: deque[Pending] = deque()  # by deadline
        self._waiting = 0  # without an answer
        self._for_all: asyncio.Future[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed: SeriatimError | None = None

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
        return [f"{topic}: {number} events are not received by everybody" for topic, number in sorted(count.items())]

    def close(self, error: SeriatimError | None = None) -> None:
        """What has no answer gets this one."""
        if self._closed is not None:
            return
        self._closed = error if error is not None else Closed("the bus is closed")
        if self._sweeper is not None:
            self._sweeper.cancel()
        reason = error if error is not None else Closed("the bus was closed before everybody had received this event")
        for pending in list(self._pending.values()):
            self._answer(pending, reason)
        self._room.close(reason)
        self._settle_all()

    # ── from the peer ─────────────────────────────────────────────────────────────────────────────────────────────

    def taken(self, event: Event, number: int, life: str) -> None:
        """The peer has given one of ours its number, and sends it. An event of others may have the same id."""
        if self._events.get(event.id) is event:
            del self._events[event.id]
            self._numbers[event.id] = number
            if self._log is not None:
                self._log.sent(event.id, life)

    def published(self, event_id: str) -> None:
        """Everybody has it."""
        pending = self._settled(event_id)
        if pending is not None:
            self._answer(pending, Published(pending.topic, self._numbers.pop(event_id), 0, event_id))

    def unsettled(self, event_id: str) -> None:
        """This peer was held for dead before everybody had it."""
        pending = self._settled(event_id)
        if pending is not None:
            self._numbers.pop(event_id, None)
            self._answer(
                pending,
                Unsettled(
                    f"this peer was held for dead before all had received {event_id}: all the others have it, or none"
                ),
            )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, topic: Topic, data: bytes, headers: Mapping[str, str] | None, id: str | None) -> Pending:
        if self._closed is not None:
            raise self._closed
        check_topic(topic)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InputError("data", f"{type(data).__name__} is not bytes", "encode it first")
        if id is not None and (not isinstance(id, str) or not id or not id.isprintable()):
            raise InputError("id", f"{id!r} is not an id", "give a printable string, or None for one of our making")
        if id is not None and len(id.encode()) > ID_BYTES_MAX:
            raise InputError("id", f"{len(id.encode())} bytes in one id", f"use at most {ID_BYTES_MAX}")
        if id is not None and id in self._pending:
            raise InputError("id", f"{id!r} is used twice", "give every event its own")
        pending = Pending(topic, bytes(data), check_headers(headers) if headers else None, id)
        most = self._live.config.options.payload_bytes_max
        size = event_bytes(pending.data, pending.headers)
        if size > most:
            problem = f"{size} bytes in one event"
            raise InputError("data", problem, f"send at most {most}, split it, or raise options.payload_bytes_max")
        return pending

    def _send(self, pending: Pending) -> None:
        """Give it to the peer. An error leaves nothing behind."""
        if self._closed is not None:
            raise self._closed
        if pending.id is None:
            self._counter += 1
            pending.id = f"{self._name}-{self._counter}"
        life = self._life()
        event = Event(pending.id, pending.topic, life, pending.data, pending.headers)
        if self._log is not None:
            self._log.sending(pending.id, pending.topic, life, self._seen(pending.topic))
        pending.deadline = self._loop.time() + self._timeout_s
        self._pending[pending.id] = pending
        self._events[pending.id] = event
        self._unanswered.append(pending)
        self._waiting += 1
        self._room.take(pending.size)
        try:
            self._live.command(APPLICATION, Publish(event, self._join))
        except (SeriatimError, LogError) as error:
            self._settled(pending.id)
            pending.deadline = None
            self._waiting -= 1
            if self._log is not None:
                self._log.withdraw(pending.id)
            if isinstance(error, InputError) and not self._join:
                raise InputError(error.field, error.problem, JOIN_FIX) from None
            raise
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)

    def _settled(self, event_id: str) -> Pending | None:
        pending = self._pending.pop(event_id, None)
        self._events.pop(event_id, None)
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
        """Whose time is over hears so; it still counts as waiting until the peer is done with it."""
        self._sweeper = None
        now = self._loop.time()
        while self._unanswered and (self._unanswered[0].deadline is None or self._unanswered[0].deadline <= now):
            pending = self._unanswered.popleft()
            self._answer(
                pending,
                TimedOut(
                    f"not everybody has received {pending.id} within {self._timeout_s:g} s; "
                    "whether they will is unknown"
                ),
            )
        if self._unanswered and self._closed is None:
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)
