"""Publishes archived events again, in their order, each once, however often it is interrupted.

*Into a separate stream* (the default). All events of the replay `prefix` go to one stream, on the subjects
`<prefix>.<topic>`. Every message says which position it must get (`Nats-Expected-Last-Sequence`), so one that is lost
on the way takes down those sent behind it. Then the end of the stream is read, and the rest is sent again. The stream
is also the record of progress: its last message says how far the replay is.

*Onto the topics themselves*. Others use the stream too. A message is sent only when all events of other topics before
it are stored. A lost message is sent again under its id, and within the server's window for repeats it is stored once.
Within a topic, an event that was lost on the way comes behind those sent with it; `late` counts these events.

Headers mark every message as a replay:

    Seriatim-Replayed: <digest>    of what is replayed: the same for the same topics and bounds
    Seriatim-Order-Key: <place>    in the sequence: order_key, log, number and index
    Seriatim-Event-Id: <id>        of the event; Nats-Msg-Id is made of digest and place, so that repeats are known

All waits are bounded. A replay that makes no progress for `patience_s` ends with TimedOut and can be started again.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from seriatim.brokers.capabilities import IN_FLIGHT, Reached, ReplayedEvent, ReplayPlace
from seriatim.brokers.naming import check_topic, escape
from seriatim.brokers.nats.api import (
    NANOSECONDS,
    Api,
    ApiRefused,
    StreamNotFound,
    SubjectsOverlap,
    WrongLastSequence,
    ack_of,
)
from seriatim.brokers.nats.link import Reply
from seriatim.brokers.nats.messages import MESSAGE_ID, PUBLISHER, stored_headers
from seriatim.model import ConnectionFailed, InputError, RequestRefused, SeriatimError, TimedOut, Topic

PATIENCE_S = 60.0
RETRY_S = 0.2
REPEATS_S = 3_600.0  # so long the server knows repeats in a stream of ours
EXPECTED = "Nats-Expected-Last-Sequence"
REPLAYED = "Seriatim-Replayed"
ORDER_KEY = "Seriatim-Order-Key"
EVENT_ID = "Seriatim-Event-Id"


class _Sent(Struct):
    """A message that was sent and is not known to be stored yet."""

    event: ReplayedEvent
    is_stored: bool = False


class NatsReplay:
    """See `ReplayPublisher`. `digest` names what is replayed; `prefix` None: onto the topics themselves."""

    def __init__(
        self,
        api: Api,
        digest: str,
        prefix: Topic | None = "replay",
        *,
        in_flight: int = IN_FLIGHT,
        patience_s: float = PATIENCE_S,
        on_stored: Callable[[ReplayPlace, int], None] | None = None,
    ) -> None:
        if prefix is not None:
            check_topic(prefix)
        if in_flight < 1:
            raise InputError("in_flight", f"{in_flight} is too small", "give at least 1")
        self.stored = 0
        self.late = 0
        self._link = api.link
        self._api = api
        self._digest = digest
        self._prefix = prefix
        self._stream = f"replay-{escape(prefix)}" if prefix is not None else ""
        self._in_flight = in_flight
        self._patience_s = patience_s
        self._on_stored = on_stored
        self._window: deque[_Sent] = deque()
        self._next = 0  # chained: the position that the next message follows
        self._unanswered = 0
        self._is_broken = False
        self._refusal: SeriatimError | None = None
        self._news = asyncio.Event()
        self._moved_s = time.monotonic()

    async def reached(self) -> Reached | None:
        if self._prefix is None:
            return None
        try:
            return await self._end_of_stream()
        except StreamNotFound:
            await self._create()
            self._next = 0
            return None

    async def _end_of_stream(self) -> Reached | None:
        info = await self._api.info(self._stream)
        self._next = info.state.last_seq
        if info.state.messages == 0:
            return None
        last = await self._api.message(self._stream, {"seq": info.state.last_seq})
        headers = stored_headers(last.hdrs) if last is not None else {}
        try:
            place = ReplayPlace.parse(headers.get(ORDER_KEY, ""))
        except ValueError:
            place = None
        if headers.get(REPLAYED) != self._digest or place is None:
            fix = f"choose another prefix, or remove the stream {self._stream}"
            raise InputError(f"prefix {self._prefix}", f"the stream {self._stream} holds other messages", fix)
        return Reached(place, info.state.messages)

    async def _create(self) -> None:
        config = {
            "name": self._stream,
            "subjects": [f"{self._prefix}.>"],
            "retention": "limits",
            "storage": "file",
            "allow_direct": True,
            "duplicate_window": int(REPEATS_S * NANOSECONDS),
        }
        try:
            await self._api.create_stream(config)
        except SubjectsOverlap:
            others = ", ".join(await self._api.streams_with(f"{self._prefix}.>"))
            problem = f"the subjects {self._prefix}.> are captured by {others} already"
            raise InputError(f"prefix {self._prefix}", problem, "choose a prefix that nobody uses") from None

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, batches: AsyncIterator[Sequence[ReplayedEvent]]) -> int:
        topic: Topic | None = None
        async for batch in batches:
            for event in batch:
                if self._prefix is None and event.topic != topic:
                    await self._wait_until_under_way(0)
                topic = event.topic
                await self._wait_until_under_way(self._in_flight - 1)
                if not self._window:
                    self._moved_s = time.monotonic()  # patience begins when there is something to wait for
                sent = _Sent(event)
                self._window.append(sent)
                self._send(sent)
            await self._wait_until_under_way(self._in_flight - 1)
        await self._wait_until_under_way(0)
        return self.stored

    async def _wait_until_under_way(self, count: int) -> None:
        """Wait until at most this many are not known to be stored. Sends lost messages again."""
        self._settle()
        while len(self._window) > count:
            self._check()
            if self._is_broken and self._unanswered == 0:
                await self._send_again()
            else:
                self._news.clear()
                with contextlib.suppress(TimeoutError):  # `_check` looks at the time
                    await asyncio.wait_for(self._news.wait(), self._patience_s)
            self._settle()

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if time.monotonic() - self._moved_s > self._patience_s:
            first = self._window[0].event
            raise TimedOut(
                f"the server has stored nothing for {self._patience_s:g} s; {first.topic} {first.event_id} was next; "
                "start the replay again, and it continues there"
            )

    def _send(self, sent: _Sent) -> None:
        event = sent.event
        headers = {key: value for key, value in (event.headers or {}).items() if not key.lower().startswith("nats-")}
        if event.publisher:
            headers[PUBLISHER] = event.publisher
        headers[MESSAGE_ID] = f"{self._digest} {event.place}"
        headers[REPLAYED], headers[ORDER_KEY], headers[EVENT_ID] = self._digest, str(event.place), event.event_id
        subject = event.topic
        if self._prefix is not None:
            subject = f"{self._prefix}.{event.topic}"
            headers[EXPECTED] = str(self._next)
            self._next += 1
        self._unanswered += 1
        self._link.ask(subject, event.data, lambda reply: self._on_reply(sent, subject, reply), headers)

    def _on_reply(self, sent: _Sent, subject: str, reply: Reply) -> None:
        self._unanswered -= 1
        self._news.set()
        try:
            ack_of(reply, f"publishing {sent.event.topic} {sent.event.event_id} again")
            sent.is_stored = True
        except (ConnectionFailed, WrongLastSequence):
            self._is_broken = True
        except StreamNotFound:
            if self._prefix is not None:  # our stream is there; the server, or its leader, is not ready
                self._is_broken = True
            else:
                fix = "make a stream for it, or replay into a stream of its own"
                self._refusal = RequestRefused(f"no stream captures the subject {subject}; {fix}")
        except RequestRefused as refused:
            self._refusal = refused

    def _settle(self) -> None:
        """Count the stored messages at the beginning of the window."""
        place: ReplayPlace | None = None
        while self._window and self._window[0].is_stored:
            place = self._window.popleft().event.place
            self.stored += 1
        if place is not None:
            self._moved_s = time.monotonic()
            if self._on_stored is not None:
                self._on_stored(place, self.stored)

    async def _send_again(self) -> None:
        """Send messages again that were not stored, or may not have been. Called when all answers are in."""
        try:
            if self._prefix is not None:
                found = await self._end_of_stream()
                for sent in self._window:
                    sent.is_stored = found is not None and sent.event.place <= found.place
        except StreamNotFound:
            fix = "start the replay again for all of it"
            raise RequestRefused(f"the stream {self._stream} was removed during the replay; {fix}") from None
        except ApiRefused:
            raise
        except (ConnectionFailed, RequestRefused):  # nobody answers, or nobody who knows of streams yet
            await asyncio.sleep(RETRY_S)
            return
        if not self._link.is_up:
            await asyncio.sleep(RETRY_S)
            return
        self._is_broken = False
        self._settle()
        unknown = [(place, sent) for place, sent in enumerate(self._window) if not sent.is_stored]
        last_stored = max((place for place, sent in enumerate(self._window) if sent.is_stored), default=-1)
        self.late += sum(place < last_stored for place, _ in unknown)
        for _, sent in unknown:
            self._send(sent)
