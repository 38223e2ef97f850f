"""The publishing half of a bus: batches form by themselves.

Per topic one broker message is under way; whatever the application publishes meanwhile gathers, and goes out together
in the next one. Nothing lingers: a lone event goes out at once, as a plain message. In causal mode there is one line
for all topics, since the publisher's own order over topics counts.

Every event has a deadline. One that is still queued then was never sent. One that is in a message under way may be on
the broker or not, and TimedOut says so; the message is given up when nobody waits for it any more. With atoms it keeps
its place in the line to its ingress, and counts as one that waits until the ingress is past it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from seriatim.brokers import Broker, Port
from seriatim.client.atoms_publisher import AtomsPublisher
from seriatim.client.batch import BATCH_HEADER, BATCH_VERSION, EVENTS_MAX, derived_id, pack
from seriatim.client.events import Published
from seriatim.client.options import Limits, check_headers, check_topic
from seriatim.client.pending import Lane, Pending, PublicationLog, Receipts, UnderWay
from seriatim.model import (
    APPLICATION,
    BROKER,
    Address,
    Closed,
    InputError,
    LogError,
    QueueFull,
    RequestRefused,
    SeriatimError,
    TimedOut,
    Topic,
)
from seriatim.model import Event as Message
from seriatim.order import SequencingTree
from seriatim.protocols.atoms.live_messages import Declined
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import Publisher, TreeOptions
from seriatim.protocols.tree.messages import Append, Publish, Refused, Withdraw, Write
from seriatim.protocols.tree.messages import Published as MessagePublished
from seriatim.runtime import Clock, Driver, Switchboard

logger = logging.getLogger(__name__)

PACK_BYTES_MAX = 256 * 1024
HEADERS_BYTES = 1_024  # room in a broker message for its id, its publisher, and the mark of a pack
SWEEPS = 20  # how often deadlines are looked at within one timeout

Headers: TypeAlias = Mapping[str, str] | None


class Outbox:
    """Publishes for one bus. `name` is the publisher's: it is never used again by a later process.

    `machine`: the one that publishes, if it is not the tree's; `reserve_bytes`: what it adds to each message.
    """

    def __init__(
        self,
        name: Address,
        tree: SequencingTree,
        options: TreeOptions,
        *,
        broker: Broker,
        switchboard: Switchboard,
        clock: Clock,
        limits: Limits,
        timeout_s: float,
        log: PublicationLog | None = None,
        machine: Publisher | AtomsPublisher | None = None,
        reserve_bytes: int = 0,
    ) -> None:
        self.name = name
        self.refusal: dict[Topic, str] = {}  # why a sequencer last refused a request for numbers
        self._machine = machine if machine is not None else Publisher(tree, name, options)
        self._tree = tree
        self._causal = options.causal
        self._broker = broker
        self._switchboard = switchboard
        self._limits = limits
        self._timeout_s = timeout_s
        self._log = log
        self._event_bytes_max = broker.payload_bytes_max - HEADERS_BYTES - reserve_bytes
        self._pack_bytes_max = min(PACK_BYTES_MAX, self._event_bytes_max)
        self._ordered: dict[Topic, Topic] = {}  # names that were used, and the topics they are ordered under
        self._deadline: float | None = None  # of what is published in this turn of the loop
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[Topic, Lane] = {}
        self._under_way: dict[str, UnderWay] = {}
        self._counter = 1
        self._sequence = 0
        self.events_waiting = 0
        self.bytes_waiting = 0
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._for_all: asyncio.Future[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed: SeriatimError | None = None
        self._driver = Driver(name, self._machine, clock, send=self._send, notify=self._notified)
        self._driver.failed.add_done_callback(self._driver_failed)
        self._port: Port = broker.attach(name, self._from_broker, self._refused_by_broker)

    def start(self) -> None:
        """Begin to publish."""
        self._switchboard.attach(self.name, self._driver.deliver)
        self._driver.start()

    async def close(self) -> None:
        """Wait, bounded by the timeout, until everything is published; what is not fails. Then stop."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.flush()
        except TimeoutError:
            logger.warning("closed with events unconfirmed", extra={"events": self.events_waiting})
        self._end(Closed("the bus was closed before the broker had confirmed this event; whether it has it is unknown"))
        self._switchboard.unplug(self.name)
        await self._driver.stop()
        await self._port.close()

    # ── from the application ──────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, topic: Topic, data: bytes, headers: Headers, id: str | None, seen: int | None) -> Published:
        pending = self._checked(topic, data, headers, id)
        if self._for_room or not self._has_room():
            await self._room()
        future: asyncio.Future[Published] = self._loop.create_future()
        pending.receipt = future
        self._enqueue(pending, seen)
        return await future

    def publish_nowait(
        self, topic: Topic, data: bytes, headers: Headers, id: str | None, seen: int | None
    ) -> "asyncio.Future[Published]":
        pending = self._checked(topic, data, headers, id)
        if self._for_room or not self._has_room():
            raise QueueFull(
                f"{self._waiting()} events of {self.bytes_waiting} bytes wait to be published; "
                "await some of them first, or use publish(), which waits"
            )
        future: asyncio.Future[Published] = self._loop.create_future()
        pending.receipt = future
        self._enqueue(pending, seen)
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
            if self._for_room or not self._has_room():
                try:
                    await self._room()
                except TimedOut as error:
                    for left in range(place, len(checked)):
                        receipts.put(left, error)
                    break
            self._enqueue(pending, seen)
        await receipts.complete
        return receipts.results

    async def ready(self) -> None:
        """Wait for room."""
        if self._closed is not None:
            raise self._closed
        if not self._has_room() or self._for_room:
            await self._room()
        self._wake_for_room()  # who only asks takes nothing: the next in turn may go on too

    async def flush(self) -> None:
        """Wait until nothing is on its way."""
        while self.events_waiting and self._closed is None:
            if self._for_all is None:
                self._for_all = self._loop.create_future()
            await asyncio.shield(self._for_all)

    def explain(self) -> list[str]:
        """What is not published yet, and who has to answer."""
        queued: dict[Topic, int] = {}
        for lane in self._lanes.values():
            for pending in lane.queue:
                queued[pending.topic] = queued.get(pending.topic, 0) + 1
        lines = [f"{count} events of {topic}: gather for the next message" for topic, count in sorted(queued.items())]
        lines += self._machine.explain()
        lines += [f"{topic}: its sequencer refused: {reason}" for topic, reason in sorted(self.refusal.items())]
        return lines

    def _checked(self, topic: Topic, data: bytes, headers: Headers, id: str | None) -> Pending:
        if self._closed is not None:
            raise self._closed
        if type(topic) is not str or topic not in self._ordered:
            ordered = self._broker.ordered_topic(check_topic(topic))
            self._tree.home(ordered)  # raises, before anything changes
            self._ordered[topic] = ordered
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InputError("data", f"{type(data).__name__} is not bytes", "encode it first")
            data = bytes(data)
        if id is not None and (not isinstance(id, str) or not id or not id.isprintable()):
            raise InputError("id", f"{id!r} is not an id", "give a printable string, or None for one of our making")
        pending = Pending(topic, data, check_headers(headers) if headers else None, id)
        if pending.size > self._event_bytes_max:
            problem = f"{pending.size} bytes in one event"
            raise InputError("data", problem, f"send at most {self._event_bytes_max}, or split it")
        return pending

    def _has_room(self) -> bool:
        return self._waiting() < self._limits.queue_events and self.bytes_waiting < self._limits.queue_bytes

    def _waiting(self) -> int:
        return self.events_waiting + (self._machine.given_up if isinstance(self._machine, AtomsPublisher) else 0)

    async def _room(self) -> None:
        """In turn: who came first gets the room first."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._for_room.append(turn)
        if self._sweeper is None:  # room comes without an answer when an ingress is past what was given up
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)
        try:
            async with asyncio.timeout(self._timeout_s):
                await turn
        except TimeoutError:
            raise TimedOut(
                f"waited {self._timeout_s} s for room: {self._waiting()} events of {self.bytes_waiting} bytes wait "
                "to be published before this one; it was not sent"
            ) from None
        except asyncio.CancelledError:
            if turn.done():  # it was this one's turn: the next one's, then
                self._wake_for_room()
            raise
        finally:
            if turn in self._for_room:
                self._for_room.remove(turn)
        if self._closed is not None:
            raise self._closed

    def _wake_for_room(self) -> None:
        if self._for_room and self._has_room():
            turn = self._for_room.popleft()
            if not turn.done():
                turn.set_result(None)
            else:
                self._wake_for_room()

    def _enqueue(self, pending: Pending, seen: int | None) -> None:
        lane = self._lanes.get("" if self._causal else pending.topic)
        if lane is None:
            lane = self._lanes["" if self._causal else pending.topic] = Lane()
        if self._deadline is None:
            self._begin_turn()
        pending.deadline = self._deadline
        if self._log is not None:
            pending.sequence, pending.seen = self._sequence, seen
            self._sequence += 1
        self.events_waiting += 1
        self.bytes_waiting += pending.size
        lane.queue.append(pending)
        if not lane.scheduled and lane.under_way is None:
            self._flush_soon(lane)
        if self._for_room:
            self._wake_for_room()  # the one behind may fit too

    def _begin_turn(self) -> None:
        """The clock is looked at once in a turn of the loop."""
        self._deadline = self._loop.time() + self._timeout_s
        self._loop.call_soon(self._end_turn)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)

    def _end_turn(self) -> None:
        self._deadline = None

    # ── to the machine, and back ──────────────────────────────────────────────────────────────────────────────────

    def _flush(self, lane: Lane) -> None:
        """Make a message of what has gathered, if none is under way."""
        lane.scheduled = False
        if lane.under_way is not None or not lane.queue or self._closed is not None:
            return
        events = self._next_events(lane.queue)
        message, ids = self._message(events)
        if message.id in self._under_way:
            self._answer(events[0], InputError("id", f"{message.id!r} is used twice", "give every event its own"))
            self._flush_soon(lane)
            return
        if self._log is not None:
            try:
                self._log.sending(events, ids)
            except LogError as error:  # what is not in the log is not sent
                for event in events:
                    self._answer(event, error)
                self._flush_soon(lane)
                return
        lane.under_way = under_way = UnderWay(lane, message.id, message.topic, events, ids)
        self._under_way[message.id] = under_way
        self._driver.command(APPLICATION, Publish((message,)))

    def _flush_soon(self, lane: Lane) -> None:
        """In the next turn of the loop: what is published until then goes along."""
        if lane.queue and lane.under_way is None and not lane.scheduled:
            lane.scheduled = True
            self._loop.call_soon(self._flush, lane)

    def _next_events(self, queue: deque[Pending]) -> list[Pending]:
        """From the head, as many events of one topic as fit into one message.

        An event with an id of its own goes alone: the broker knows a repeat by the id of the *message*.
        """
        events = [queue.popleft()]
        if events[0].id is not None:
            return events
        topic, size, room = events[0].topic, events[0].size, self._pack_bytes_max
        while queue and len(events) < EVENTS_MAX:
            following = queue[0]
            size += following.size
            if following.topic != topic or size > room or following.id is not None:
                break
            events.append(queue.popleft())
        return events

    def _message(self, events: list[Pending]) -> tuple[Message, list[str]]:
        first = self._counter
        self._counter += len(events)
        name = self.name
        ids = [event.id or f"{name}-{first + index}" for index, event in enumerate(events)]
        topic = events[0].topic
        ordered = self._ordered[topic]
        subject = topic if topic != ordered else None
        if len(events) == 1:
            return Message(ids[0], ordered, name, events[0].data, events[0].headers, subject), ids
        headers = {index: event.headers for index, event in enumerate(events) if event.headers is not None}
        payload = pack(first, [event.data for event in events], headers)
        id = derived_id(name, first)
        return Message(id, ordered, name, payload, {BATCH_HEADER: BATCH_VERSION}, subject), ids

    def _notified(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            match notice:
                case MessagePublished():
                    under_way = self._under_way.get(notice.event.id)
                    if under_way is not None:
                        self.refusal.pop(notice.event.topic, None)
                        self._settle(under_way, notice.number)
                case Declined():
                    under_way = self._under_way.get(notice.event_id)
                    if under_way is not None:
                        self._settle(under_way, RequestRefused(f"topic {notice.topic}: {notice.reason}"))
                case Refused():
                    if self.refusal.get(notice.topic) != notice.reason:
                        logger.warning("request refused", extra={"topic": notice.topic, "reason": notice.reason})
                    self.refusal[notice.topic] = notice.reason

    def _from_broker(self, message: Payload) -> None:
        self._driver.deliver(BROKER, message)

    def _send(self, source: Address, target: Address, message: Payload) -> None:
        if target == BROKER:
            self._port.send(message)
        else:
            self._switchboard.send(source, target, message)

    def _refused_by_broker(self, message: Payload, error: SeriatimError) -> None:
        if not isinstance(message, (Append, Write)) or message.event is None:
            return
        under_way = self._under_way.get(message.event.id)
        if under_way is not None:
            reason = RequestRefused(f"the broker does not take events of {under_way.events[0].topic}: {error}")
            self._withdraw(under_way)
            self._settle(under_way, reason)

    def _withdraw(self, under_way: UnderWay) -> None:
        self._driver.deliver(APPLICATION, Withdraw(under_way.ordered, under_way.id))

    def _settle(self, under_way: UnderWay, outcome: int | SeriatimError) -> None:
        """The message is on the broker under this number, or will not be."""
        del self._under_way[under_way.id]
        lane = under_way.lane
        lane.under_way = None
        if self._log is not None:
            number = outcome if isinstance(outcome, int) else None
            try:
                self._log.settled(under_way.events, number, not isinstance(outcome, TimedOut))
            except LogError as error:  # the row stays without its number
                logger.error("a publication's number is not in the log", extra={"reason": str(error)})
        if isinstance(outcome, SeriatimError):
            for event in under_way.events:
                self._answer(event, outcome)
        else:
            self._confirm(under_way, outcome)
        self._flush_soon(lane)

    def _confirm(self, under_way: UnderWay, number: int) -> None:
        """The hot path: all events of a message at once."""
        for index, event in enumerate(under_way.events):
            if event.deadline is None:
                continue  # answered before: its time was over
            event.deadline = None
            self.events_waiting -= 1
            self.bytes_waiting -= event.size
            published = Published(event.topic, number, index, under_way.ids[index])
            receipt = event.receipt
            if isinstance(receipt, Receipts):
                receipt.put(event.place, published)
            elif not receipt.done():
                receipt.set_result(published)
        self._answered()

    def _answer(self, event: Pending, error: SeriatimError) -> None:
        if event.deadline is None:
            return
        event.deadline = None
        self.events_waiting -= 1
        self.bytes_waiting -= event.size
        if isinstance(event.receipt, Receipts):
            event.receipt.put(event.place, error)
        elif not event.receipt.done():
            event.receipt.set_exception(error)
        self._answered()

    def _answered(self) -> None:
        if self._for_room:
            self._wake_for_room()
        if not self.events_waiting and self._for_all is not None:
            self._for_all.set_result(None)
            self._for_all = None

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _sweep(self) -> None:
        """Fail what is past its deadline."""
        self._sweeper = None
        now = self._loop.time()
        for lane in list(self._lanes.values()):
            under_way = lane.under_way
            if under_way is not None:
                self._sweep_message(under_way, now)
            while lane.queue and (lane.queue[0].deadline or 0.0) <= now:
                event = lane.queue.popleft()
                reason = f"waited {self._timeout_s} s for the events of {event.topic} before it; it was not sent"
                self._answer(event, TimedOut(f"{reason}{self._why(event.topic)}"))
        self._wake_for_room()
        if self.events_waiting or self._for_room:
            self._sweeper = self._loop.call_later(self._timeout_s / SWEEPS, self._sweep)

    def _sweep_message(self, under_way: UnderWay, now: float) -> None:
        for event in under_way.events:
            if event.deadline is not None and event.deadline <= now:
                under_way.unanswered -= 1
                reason = f"waited {self._timeout_s} s for the broker to confirm an event of {event.topic}"
                self._answer(event, TimedOut(f"{reason}; whether it has it is unknown{self._why(event.topic)}"))
        if under_way.unanswered == 0:
            self._withdraw(under_way)
            self._settle(under_way, TimedOut("given up"))

    def _why(self, topic: Topic) -> str:
        reason = self.refusal.get(self._ordered[topic])
        if reason:
            return f" (its sequencer refused: {reason})"
        why = self._machine.why_not(self._ordered[topic]) if isinstance(self._machine, AtomsPublisher) else ""
        return f" ({why})" if why else ""

    def _driver_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        if not failed.cancelled():
            self._end(Closed(f"publishing has ended: {failed.result()}"))

    def _end(self, reason: SeriatimError) -> None:
        if self._closed is not None:
            return
        self._closed = reason
        if self._sweeper is not None:
            self._sweeper.cancel()
        for lane in self._lanes.values():
            if lane.under_way is not None:
                for event in lane.under_way.events:
                    self._answer(event, reason)
            for event in lane.queue:
                self._answer(event, reason)
        for turn in self._for_room:
            if not turn.done():
                turn.set_result(None)  # wakes up to find it closed
