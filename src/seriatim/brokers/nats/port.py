"""JetStream as one machine sees it: its messages to the broker are carried to streams and subjects, and answered.

Appending, slots, listening and the rest each have a file of their own; this one knows which message goes where.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from seriatim.brokers.naming import check_topic, ordered_topic
from seriatim.brokers.nats.api import (
    EXPECTED,
    STORE_FAILED,
    WRONG_LAST_SEQUENCE,
    ApiRefused,
    PubAck,
    decode_ack,
    failure,
    patiently,
)
from seriatim.brokers.nats.fetch import Fetching, LogFetching, SlotFetching
from seriatim.brokers.nats.follow import Follower
from seriatim.brokers.nats.link import Reply, no_responders
from seriatim.brokers.nats.listen import LogListening, SlotListening, TopicListening, slot_subject
from seriatim.brokers.nats.messages import decode_slot, encode_slot, event_headers, written
from seriatim.brokers.nats.order import OrderChannel, OrderReading
from seriatim.brokers.nats.removal import remove_topic
from seriatim.brokers.nats.stamps import StampChannel
from seriatim.brokers.nats.watch import Watcher
from seriatim.brokers.seam import Deliver, OnError, Port
from seriatim.model import (
    Address,
    ConnectionFailed,
    InputError,
    RemoteError,
    RequestRefused,
    SeriatimError,
    Topic,
)
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Attend,
    Begin,
    Begun,
    Cede,
    Discard,
    Fetch,
    Follow,
    Listen,
    Ordered,
    ReadOrder,
    Renew,
    Staged,
    Stamped,
    Unfollow,
    Unlisten,
    Unwatch,
    Watch,
    Write,
    Written,
)

if TYPE_CHECKING:
    from seriatim.brokers.nats.jetstream import JetStreamBroker

logger = logging.getLogger(__name__)

SLOT_HEADERS = {EXPECTED: "0"}  # a slot is written only if it is empty
SLOT_HEADERS_BYTES = len(EXPECTED) + 24
FIRST_SENT_MAX = 10_000  # events whose first attempt is remembered, to warn of those that may be in the log twice


class JetStreamPort(Port):
    """The server as one machine sees it."""

    def __init__(self, broker: "JetStreamBroker", address: Address, deliver: Deliver, on_error: OnError | None) -> None:
        super().__init__(address, deliver, on_error)
        self._broker = broker
        self._link = broker.link
        self._streams = broker.streams
        self._names = broker.names
        self._listening: dict[Topic, TopicListening] = {}
        self._followed: set[Topic] = set()
        self._fetching: dict[Topic, Fetching] = {}
        self._removing: set[Topic] = set()
        self._paused = False
        self._held: set[Topic] = set()  # topics whose events are paused
        self._preparing: dict[tuple[str, Topic], list[Append | Write]] = {}  # what waits for a stream, in order
        self._first_sent: dict[str, float] = {}  # event id → when it was handed over first, until it is answered
        self._sent_again: set[str] = set()  # what found no stream, and was sent a second time
        self._stamps: StampChannel | None = None
        self._begun: Begin | None = None  # the life of the node that is attached here
        self._beginning: asyncio.Task[None] | None = None
        self._watcher: Watcher | None = None
        self._order: OrderChannel | None = None
        self._reading: OrderReading | None = None

    def send(self, message: Payload) -> None:
        if self._closed:
            return
        match message:
            case Append():
                self._append(message)
            case Write():
                self._write(message)
            case Begin():
                if self._begun is None:
                    self._link.on_up.append(self._on_up)
                self._begun = message
                self._begin(message)
            case Stamped():
                self.stamps.send(message)
                self.watcher.stamped(message.topic, message.last)
            case Staged():
                self._broker.stages.tell(message)
                if self._watcher is not None:
                    self._watcher.stamped(message.topic, message.last)
            case Attend():
                self._broker.stages.attend(self, message.topic, message.node, self._on_staged)
            case Follow():
                self._follow(message)
            case Unfollow():
                self._followed.discard(message.topic)
                self._broker.following.leave(message.topic, self)
            case Ordered():
                self.order.send(message)
            case Cede():
                self.order.cede(message)
            case ReadOrder():
                self.reading.ask(message)
            case Listen():
                self._listen(message)
            case Unlisten():
                self._broker.stages.attend(self, message.topic, "", self._on_staged)
                if (listening := self._listening.pop(message.topic, None)) is not None:
                    listening.close()
                if (fetching := self._fetching.pop(message.topic, None)) is not None:
                    fetching.close()
            case Fetch():
                self._fetch(message)
            case Unwatch():
                if self._watcher is not None:
                    self._watcher.forget(message.topic)
                self.stamps.leave(message)
            case Discard():
                self._removal(message)
            case Renew():
                self.watcher.renew(message)
            case Watch():
                for topic in sorted(message.topics):
                    self.watcher.watch(topic, message.issued.get(topic, 0))
            case _:
                self._refuse_soon(message, RemoteError(f"unknown message: {type(message).__name__}"))

    def pause(self, topic: Topic | None = None) -> None:
        if topic is None:
            self._paused = True
        else:
            self._held.add(topic)
        self._regulate(topic)

    def resume(self, topic: Topic | None = None) -> None:
        if topic is None:
            self._paused = False
        else:
            self._held.discard(topic)
        self._regulate(topic)

    def _regulate(self, topic: Topic | None) -> None:
        # What waited is handed over here, and may make the machine listen, or stop: then these change.
        for each in tuple(self._listening) if topic is None else (topic,):
            if (listening := self._listening.get(each)) is not None:
                listening.pause(self._paused, each in self._held)
        if topic is None:
            for fetching in tuple(self._fetching.values()):
                fetching.pause(self._paused)

    async def close(self) -> None:
        if self._closed:
            return
        await super().close()
        self._broker.detach(self)
        if self._begun is not None:
            self._link.on_up.remove(self._on_up)
        if self._beginning is not None:
            self._beginning.cancel()
        for listening in self._listening.values():
            listening.close()
        self._broker.stages.leave(self)
        for topic in self._followed:
            self._broker.following.leave(topic, self)
        for fetching in self._fetching.values():
            fetching.close()
        if self._watcher is not None:
            self._watcher.close()
        for channel in (self._stamps, self._order, self._reading):
            if channel is not None:
                channel.close()

    @property
    def stamps(self) -> StampChannel:
        """Made when the machine turns out to be a home."""
        if self._stamps is None:
            self._stamps = StampChannel(self.address, self._streams, self._deliver, self._refuse)
        return self._stamps

    @property
    def order(self) -> OrderChannel:
        """Made when the machine turns out to be the root."""
        if self._order is None:
            self._order = OrderChannel(self._streams, self._deliver, self._refuse)
        return self._order

    @property
    def reading(self) -> OrderReading:
        """Made when the machine reads the order log."""
        if self._reading is None:
            self._reading = OrderReading(self._broker.order_log(), self._deliver, self._refuse)
        return self._reading

    @property
    def watcher(self) -> Watcher:
        """Made when the machine turns out to be a home."""
        if self._watcher is None:
            self._watcher = Watcher(self._streams, self.stamps, self._deliver, self._refuse, self._broker.pace_ms)
        return self._watcher

    def _begin(self, message: Begin) -> None:
        if self._beginning is None or self._beginning.done():  # else a repeat
            self._beginning = asyncio.get_running_loop().create_task(self._compare(message))

    async def _compare(self, message: Begin) -> None:
        """Fence earlier lives, and report what is kept of this node."""
        try:
            begun = Begun(message.epoch, message.epoch)
            if self._broker.mode == "log":
                begun = await patiently(lambda: self.stamps.begin(message.epoch))
            if message.orders and begun.latest == message.epoch:
                since, latest, ordered = await patiently(lambda: self.order.begin(message.epoch, message.since))
                begun = structs.replace(begun, since=since)
                if since == message.since:  # else another root has written it
                    begun = structs.replace(begun, latest=max(latest, begun.latest), ordered=ordered)
            if message.heals and begun.latest == message.epoch:
                begun = await self._broker.with_details(self.address, begun, orders=message.orders)
                self._begun = structs.replace(message, heals=False)
        except SeriatimError as error:
            self._refuse(message, error)
        else:
            self._deliver(begun)

    def _on_up(self) -> None:
        """The connection is new: another life may have begun meanwhile, or somebody restored an older copy."""
        if self._begun is not None and not self._closed:
            self._begin(self._begun)

    def _listen(self, message: Listen) -> None:
        old = self._listening.get(message.topic)
        if old is not None:
            if old.listen == message and old.beginning:
                return  # a repeat, while the first is being carried out
            old.close()
        self._broker.know({message.topic})
        if (fetching := self._fetching.pop(message.topic, None)) is not None:
            fetching.close()  # the past is over
        kind = LogListening if self._broker.mode == "log" else SlotListening
        listening = kind(message, self._broker, self._deliver, lambda error: self._refuse(message, error))
        listening.pause(self._paused, message.topic in self._held)
        self._listening[message.topic] = listening

    def _removal(self, message: Discard) -> None:
        """One at a time for each topic: the machine repeats what is not answered."""
        if message.topic not in self._removing:
            self._removing.add(message.topic)
            removal = remove_topic(message, self._broker, self.stamps, self.watcher)
            self._streams.in_background(self._remove(message, removal))

    async def _remove(self, message: Discard, removal: Awaitable[Payload]) -> None:
        try:
            self._deliver(await removal)
        except ConnectionFailed:
            pass  # asked again
        except SeriatimError as error:
            self._refuse(message, error)
        finally:
            self._removing.discard(message.topic)

    def _on_staged(self, message: Payload) -> None:
        """Stages that come while nothing is read are left out: the finished stamp is read when reading continues."""
        assert isinstance(message, Staged), "nothing else is told there"
        if not self._paused and message.topic not in self._held:
            self._deliver(message)

    def _follow(self, message: Follow) -> None:
        if self._broker.mode != "log":
            self._refuse_soon(message, RequestRefused("there are no stamp channels in ticket mode"))
            return
        self._followed.add(message.topic)
        follower = Follower(self._deliver, lambda error: self._refuse(message, error))
        self._broker.following.follow(message.topic, self, follower)

    def _fetch(self, message: Fetch) -> None:
        fetching = self._fetching.get(message.topic)
        if fetching is None:
            kind = LogFetching if self._broker.mode == "log" else SlotFetching
            fetching = kind(message.topic, self._broker, self._deliver, lambda error: self._refuse(message, error))
            fetching.pause(self._paused)
            self._fetching[message.topic] = fetching
        fetching.fetch(message)

    # ── appending ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, message: Append) -> None:
        event, subject = message.event, self._subject_of(message)
        waiting = self._preparing.get(("log", event.topic))
        if waiting is not None:
            waiting.append(message)
            return
        try:
            self._check(message)
            headers = event_headers(event)
        except SeriatimError as error:
            self._refuse_soon(message, error)
            return
        if self._streams.known_log(event.topic, subject) is None:
            self._streams.want(event.topic, subject)
            self._prepare("log", message)
            return
        self._first_sent.setdefault(event.id, time.monotonic())
        if len(self._first_sent) > FIRST_SENT_MAX:  # given up, and never answered: the server is away
            del self._first_sent[next(iter(self._first_sent))]
        self._link.ask(subject, event.payload, lambda reply: self._on_append_reply(message, reply), headers)

    def _subject_of(self, message: Append) -> str:
        event = message.event
        return event.subject if event.subject is not None else self._names.log_subject(event.topic)

    def _check(self, message: Append) -> None:
        event = message.event
        if event.subject is not None:
            check_topic(event.subject)
            if ordered_topic(event.subject, self._names.buckets) != event.topic:
                raise InputError(
                    "event.subject", f"{event.subject} is not ordered as {event.topic}", "ask ordered_topic"
                )
        elif not self._names.buckets:
            check_topic(event.topic)
        size = len(event.payload) + sum(len(k) + 4 * len(v) for k, v in (event.headers or {}).items())
        if size > self._broker.payload_bytes_max:
            raise RequestRefused(
                f"event {event.id} has {size} bytes; the server takes {self._broker.payload_bytes_max} (max_payload)"
            )

    def _on_append_reply(self, message: Append, reply: Reply) -> None:
        event = message.event
        ack = self._ack(message, reply, lambda: self._streams.forget(event.topic))
        if ack is None:
            return
        if ack.error is not None:
            problem = failure(f"appending {event.id} to {event.topic}", ack.error)
            if not isinstance(problem, ConnectionFailed):  # else asked again
                self._first_sent.pop(event.id, None)
                self._refuse(message, problem)
            return
        sent_at = self._first_sent.pop(event.id, time.monotonic())
        waited_s = time.monotonic() - sent_at
        if not ack.duplicate and waited_s > self._streams.options.duplicates_s:
            logger.warning(
                "event may be in the log twice, the server was away for too long: topic=%s event=%s waited_s=%.1f",
                event.topic,
                event.id,
                waited_s,
            )
        self._deliver(Appended(event.topic, event.id, ack.seq))

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, message: Write) -> None:
        waiting = self._preparing.get(("slots", message.topic))
        if waiting is not None:
            waiting.append(message)
            return
        body = encode_slot(message)
        if problem := self._problem_with(message, len(body) + SLOT_HEADERS_BYTES):
            self._refuse_soon(message, RequestRefused(problem))
            return
        try:
            is_known = self._streams.knows(self._names.slots_stream(message.topic))
        except InputError as error:
            self._refuse_soon(message, error)
            return
        if not is_known:
            self._prepare("slots", message)
            return
        subject = slot_subject(self._names, message.topic, message.number)
        self._link.ask(subject, body, lambda reply: self._on_write_reply(message, reply), SLOT_HEADERS)

    def _problem_with(self, message: Write, size: int) -> str | None:
        if message.number < 1:
            return f"{message.topic} has no slot {message.number}; numbers start at 1"
        payload = len(message.event.payload) if message.event is not None else 0
        if payload > self._broker.payload_bytes_max or size > self._link.max_payload:
            what = f"event {message.event.id}" if message.event is not None else "a void"
            number = f"{message.topic} {message.number}"
            return f"{what} for {number} has {size} bytes; the server takes {self._broker.payload_bytes_max}"
        return None

    def _on_write_reply(self, message: Write, reply: Reply) -> None:
        stream = self._names.slots_stream(message.topic)
        ack = self._ack(message, reply, lambda: self._streams.forget_other(stream))
        if ack is None:
            return
        if ack.error is None:
            self._deliver(written(message))
        elif ack.error.err_code in (WRONG_LAST_SEQUENCE, STORE_FAILED):
            self._streams.in_background(self._read_slot(message, ack))
        else:
            problem = failure(f"writing {message.topic} {message.number}", ack.error)
            if not isinstance(problem, ConnectionFailed):  # else asked again
                self._refuse(message, problem)

    async def _read_slot(self, message: Write, ack: PubAck) -> None:
        """Report what a slot holds, because another writer was first."""
        topic, number = message.topic, message.number
        try:
            question = {"last_by_subj": slot_subject(self._names, topic, number)}
            stored = await self._streams.api.message(self._names.slots_stream(topic), question)
            if stored is None:
                if ack.error is not None and ack.error.err_code == STORE_FAILED:  # it is empty: no room, perhaps
                    self._refuse(message, ApiRefused(f"writing {topic} {number}", ack.error))
                return  # else somebody's write is on its way to it: asked again
            held = decode_slot(stored.data, topic, number)
        except ConnectionFailed:
            return  # asked again
        except RemoteError as error:
            logger.error("slot cannot be read: topic=%s number=%s reason=%s", topic, number, error)
            self._deliver(Written(topic, number, None))
            return
        except SeriatimError as error:
            self._refuse(message, error)
            return
        self._deliver(written(held))

    def _ack(self, message: Append | Write, reply: Reply, forget: Callable[[], None]) -> PubAck | None:
        """The server's answer about a publication; None: there is none, and the machine asks again."""
        if self._closed or reply is None:
            return None
        if isinstance(reply, RequestRefused):
            self._refuse(message, reply)
            return None
        name = message.event.id if isinstance(message, Append) else f"{message.topic} {message.number}"
        if no_responders(reply):  # the stream is gone, or does not capture the subject any more
            forget()
            if name not in self._sent_again:
                self._sent_again.add(name)
                self.send(message)
                return None
        self._sent_again.discard(name)
        return decode_ack(reply.data) if not no_responders(reply) else None

    def _prepare(self, kind: Literal["log", "slots"], message: Append | Write) -> None:
        topic = message.event.topic if isinstance(message, Append) else message.topic
        self._preparing[kind, topic] = [message]
        self._streams.in_background(self._prepare_stream(kind, topic))

    async def _prepare_stream(self, kind: Literal["log", "slots"], topic: Topic) -> None:
        """Make the stream, then send what has waited for it, in its order."""
        error: SeriatimError | None = None
        refused: dict[str, InputError] = {}  # by subject
        try:
            if kind == "log":
                refused = await self._streams.capture(topic)
            else:
                await self._streams.slots(topic)
        except ConnectionFailed:
            del self._preparing[kind, topic]
            return  # asked again
        except SeriatimError as problem:
            error = problem
        for message in self._preparing.pop((kind, topic)):
            subject = self._subject_of(message) if isinstance(message, Append) else ""
            if (why := error or refused.get(subject)) is not None:
                self._refuse(message, why)
            else:
                self.send(message)
