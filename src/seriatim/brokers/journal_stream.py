"""The stream a journal is kept in: read it, append with an expectation, purge. Everything is bounded.

An append names the last sequence that its writer knows; the stream refuses it if there is a later one. A request that
is not answered may or may not have been carried out. Then the place where it would be is read: it is ours (done),
somebody else's (Fenced), or empty: it is sent again *with the same expectation*, so that at most one of the two can
ever be taken. This goes on for `patience_s`; after that nobody knows, and the journal is broken.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.js import JetStreamContext, api

from seriatim.brokers.journal_messages import (
    ENVELOPE_BYTES_MAX,
    FORMAT_VERSION,
    JournalMessage,
    Snapshot,
    damage,
    decode,
)
from seriatim.model import UNREADABLE, Fenced, JournalError, Unreachable

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

VERSION_KEY = "seriatim-journal"
WRONG_LAST_SEQUENCE = {10071, 10164}  # error codes of JetStream
READ_AT_ONCE = 64
BODY_BYTES_MIN = 1024
RETRY_S = 0.05
RETRY_S_MAX = 1.0
UNAVAILABLE = 503  # no leader, or shutting down: for a while
STORE_FAILED = 10077  # comes with the same code, but is about limits and disks
CONSUMER_S = 60.0  # a reader's traces vanish after this time if it crashes

# Nobody says whether it was done. Everything else is an answer.
UNANSWERED = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.StaleConnectionError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.ConnectionReconnectingError,
    nats.js.errors.ServiceUnavailableError,
    nats.js.errors.NoStreamResponseError,
    OSError,
)


class ApiError(Struct):
    """Why JetStream said no."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Answer(Struct):
    """What JetStream says to an append."""

    seq: int = 0
    error: ApiError | None = None


_decode_answer = msgspec.json.Decoder(Answer).decode


async def heeding(answer: Awaitable[Result]) -> Result:
    """Wait for an answer, and let no cancellation get lost: whoever has cancelled a task waits for its end.

    The client library waits by `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that comes together
    with the answer.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await answer
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class JournalStream:
    """One stream and its subjects. `last` is its last sequence as far as we know: what our next message expects."""

    def __init__(
        self, client: Client, name: str, subject: str, *, replicas: int, timeout_s: float, patience_s: float
    ) -> None:
        self.name = name
        self.subject = subject
        self.last = 0
        self.written_at = 0.0
        self._client = client
        self._jetstream: JetStreamContext = client.jetstream(timeout=timeout_s)
        self._replicas = replicas
        self._timeout_s = timeout_s
        self._patience_s = patience_s

    def body_bytes_max(self) -> int:
        """The largest body of one message."""
        body_bytes_max = self._client.max_payload - ENVELOPE_BYTES_MAX
        if body_bytes_max < BODY_BYTES_MIN:
            raise JournalError(
                f"stream {self.name}: the server takes messages of {self._client.max_payload} bytes; "
                f"set its max_payload to at least {BODY_BYTES_MIN + ENVELOPE_BYTES_MAX}"
            )
        return body_bytes_max

    async def ensure(self) -> None:
        """Make the stream if it is not there. JournalError: there is another one under this name."""
        wanted = api.StreamConfig(
            name=self.name,
            description="journal of a Seriatim node; only the node itself may write to it",
            subjects=[f"{self.subject}.*"],
            retention=api.RetentionPolicy.LIMITS,
            discard=api.DiscardPolicy.NEW,  # a limit somebody sets must refuse what is new, not drop what is old
            storage=api.StorageType.FILE,
            num_replicas=self._replicas,
            deny_delete=True,
            allow_rollup_hdrs=True,
            metadata={VERSION_KEY: FORMAT_VERSION},
        )
        try:
            info = await self._patiently("look at", lambda: self._jetstream.stream_info(self.name))
        except nats.js.errors.NotFoundError:
            info = await self._patiently("make", lambda: self._jetstream.add_stream(wanted))
        found = info.config
        version = (found.metadata or {}).get(VERSION_KEY)
        if version is None or found.subjects != wanted.subjects:
            raise JournalError(
                f"stream {self.name}: is not a journal on {self.subject}; name another stream for this node's journal"
            )
        if version != FORMAT_VERSION:
            raise JournalError(
                f"stream {self.name}: journal format {version}, this program reads and writes format "
                f"{FORMAT_VERSION}; start the version of the program that wrote it"
            )
        if found.num_replicas != self._replicas:
            changed = found.evolve(num_replicas=self._replicas)
            await self._patiently("change the replicas of", lambda: self._jetstream.update_stream(changed))

    async def last_sequence(self) -> int:
        """Of the stream, now."""
        info = await self._patiently("look at", lambda: self._jetstream.stream_info(self.name))
        return info.state.last_seq

    async def look(self) -> int | None:
        """Its last sequence, 0 if it is not there; None: nobody answers."""
        try:
            return (await heeding(self._jetstream.stream_info(self.name))).state.last_seq
        except nats.js.errors.NotFoundError:
            return 0
        except nats.errors.ConnectionClosedError as error:
            raise self._disconnected("watch") from error
        except UNANSWERED:
            return None

    async def first_needed(self) -> int:
        """Where reading has to begin: behind what the newest snapshot stands for."""
        subject = f"{self.subject}.snapshot"
        try:
            message = await self._patiently("read", lambda: self._jetstream.get_last_msg(self.name, subject))
        except nats.js.errors.NotFoundError:
            return 1
        marker = decode(self.name, message.seq or 0, message.data)
        if not isinstance(marker, Snapshot):
            raise damage(self.name, message.seq or 0, "is not a snapshot")
        return marker.until + 1

    async def read(self, first: int, last: int) -> dict[int, JournalMessage]:
        """Everything from `first` to `last`, by sequence, as far as it is (still, or already) there."""
        messages: dict[int, JournalMessage] = {}
        give_up_at = time.monotonic() + self._patience_s
        while first <= last:
            config = api.ConsumerConfig(
                name=secrets.token_hex(8),
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=first,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=CONSUMER_S,
                mem_storage=True,
                num_replicas=1,
            )
            name, pending = await self._patiently("read", partial(self._make_consumer, config))
            reader = await self._jetstream.pull_subscribe_bind(consumer=name, stream=self.name)
            try:
                while pending and first <= last:
                    for found in await heeding(reader.fetch(READ_AT_ONCE, timeout=self._timeout_s)):
                        sequence, pending = found.metadata.sequence.stream, found.metadata.num_pending
                        messages[sequence] = decode(self.name, sequence, found.data)
                        first = sequence + 1
                break
            except nats.errors.ConnectionClosedError as error:
                raise self._disconnected("read") from error
            except (*UNANSWERED, nats.js.errors.APIError) as error:
                # It was purged under our eyes, or the server went away: see what is left with a new consumer.
                if time.monotonic() > give_up_at:
                    raise self._given_up("read", str(error) or type(error).__name__) from error
            finally:
                await self._forget(reader, name)
        return messages

    async def _make_consumer(self, config: api.ConsumerConfig) -> tuple[str, int]:
        info = await self._jetstream.add_consumer(self.name, config)
        return info.name, info.num_pending or 0

    async def _forget(self, reader: JetStreamContext.PullSubscription, consumer: str) -> None:
        try:
            await reader.unsubscribe()
            await self._jetstream.delete_consumer(self.name, consumer)
        except (*UNANSWERED, nats.errors.ConnectionClosedError, nats.js.errors.APIError) as error:
            logger.info("consumer left to expire", extra={"stream": self.name, "reason": str(error)})

    async def _patiently(self, what: str, ask: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat a request that may be carried out twice, until somebody answers."""
        give_up_at = time.monotonic() + self._patience_s
        delay_s = RETRY_S
        while True:
            try:
                return await heeding(ask())
            except nats.errors.ConnectionClosedError as error:
                raise self._disconnected(what) from error
            except nats.js.errors.NotFoundError:
                raise
            except UNANSWERED as error:
                if time.monotonic() + delay_s > give_up_at:
                    raise self._given_up(what, str(error) or type(error).__name__) from error
            except nats.js.errors.APIError as error:
                is_forming = "peer offline" in (
                    error.description or ""
                )  # servers of a cluster that do not all know each other yet
                if not is_forming or time.monotonic() + delay_s > give_up_at:
                    raise JournalError(f"stream {self.name}: cannot {what} it: {error.description}") from error
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)

    # ── appending ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, kind: str, data: bytes, writer: str) -> None:
        """Put it behind the last message we know. Fenced: somebody else's is there."""
        give_up_at = time.monotonic() + self._patience_s
        delay_s = RETRY_S
        while True:
            place = self.last + 1
            sequence, why_not = await self._request(kind, data, self.last)
            if sequence is None:
                found = await self._at(place, writer)
                if found == data:
                    sequence = place
                elif found is not None:  # our own claim, which came late and once more: it changes nothing
                    self.last = place
                    continue
            if sequence is not None:
                self._wrote(sequence)
                return
            if time.monotonic() + delay_s > give_up_at:
                raise self._given_up("append to", why_not)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)

    async def publish_anywhere(self, data: bytes) -> None:
        """Put it behind whatever is there: whoever is writing has no part in it."""
        give_up_at = time.monotonic() + self._patience_s
        delay_s = RETRY_S
        while True:
            sequence, why_not = await self._request("log", data, None)
            if sequence is not None:
                self._wrote(sequence)
                return
            if time.monotonic() + delay_s > give_up_at:
                raise self._given_up("append to", why_not)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)

    def _wrote(self, sequence: int) -> None:
        self.last = sequence
        self.written_at = time.monotonic()

    async def _request(self, kind: str, data: bytes, expected: int | None) -> tuple[int | None, str]:
        """Ask once: the sequence it got, or None and why it may not have been taken."""
        headers = {api.Header.EXPECTED_STREAM.value: self.name}
        if expected is not None:
            headers[api.Header.EXPECTED_LAST_SEQUENCE.value] = str(expected)
        if kind == "beat":
            headers[api.Header.ROLLUP.value] = "sub"  # only the last one is kept
        try:
            request = self._client.request(f"{self.subject}.{kind}", data, self._timeout_s, headers=headers)
            reply = await heeding(request)
            answer = _decode_answer(reply.data)
        except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError) as error:
            raise self._disconnected("append to") from error
        except (*UNANSWERED, *UNREADABLE) as error:
            return None, str(error) or type(error).__name__
        if answer.error is None:
            return answer.seq, ""
        may_be_taken = answer.error.err_code in WRONG_LAST_SEQUENCE or answer.error.code == UNAVAILABLE
        if not may_be_taken or answer.error.err_code == STORE_FAILED:
            raise JournalError(
                f"stream {self.name}: does not take an append: {answer.error.description}; "
                "see to the limits of the stream and of the server's storage"
            )
        return None, answer.error.description

    async def _at(self, place: int, writer: str) -> bytes | None:
        """What the stream has there; None: nothing yet, or nobody answers. Fenced: something that is not ours.

        Our own message may be on its way all the while, kept back by a connection that was lost: it may arrive between
        two of our questions. So whoever hears that the stream goes as far as that place looks there once more.
        """
        try:
            found = await self._message(place)
            if found is None:
                last = (await heeding(self._jetstream.stream_info(self.name))).state.last_seq
                if last < place - 1:
                    raise JournalError(
                        f"stream {self.name}: ends at message {last}, but had acknowledged {place - 1}: its server has "
                        "lost data; let servers keep it on several replicas, or run with sync_interval: always"
                    )
                if last < place:
                    return None
                found = await self._message(place)
                if found is None:  # it was there, and whoever has replaced us has purged it since
                    raise Fenced(f"stream {self.name}: is at message {last}, we are at {place - 1}")
        except nats.errors.ConnectionClosedError as error:
            raise self._disconnected("append to") from error
        except UNANSWERED:
            return None
        except nats.js.errors.NotFoundError:
            raise JournalError(f"stream {self.name}: was deleted while it was in use") from None
        message = decode(self.name, place, found)
        if message.writer != writer:
            raise Fenced(f"stream {self.name}: writer {message.writer} has taken over at message {place}")
        return found

    async def _message(self, sequence: int) -> bytes | None:
        try:
            return (await heeding(self._jetstream.get_msg(self.name, sequence))).data
        except nats.js.errors.NotFoundError:
            return None

    async def purge(self, until: int) -> None:
        """What the snapshot stands for. If it fails it stays until the next one: nothing reads it."""
        try:
            await self._patiently("purge", lambda: self._jetstream.purge_stream(self.name, seq=until + 1))
        except (JournalError, nats.js.errors.NotFoundError) as error:
            logger.warning("journal not purged", extra={"stream": self.name, "reason": str(error)})

    def _given_up(self, what: str, why: str) -> Unreachable:
        return Unreachable(
            f"stream {self.name}: cannot {what} it: no answer from NATS for {self._patience_s:g} s ({why}); "
            "see to the servers and to this user's permissions, then start again"
        )

    def _disconnected(self, what: str) -> JournalError:
        return JournalError(f"stream {self.name}: cannot {what} it: the connection to NATS is closed; connect again")
