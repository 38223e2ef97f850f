"""Reading a stream in order, from a position on, whatever goes wrong on the way.

A reader owns a consumer on the server: short-lived, in memory, without acknowledgements. It *pulls*: a bounded number
of messages is asked for, and none while paused, so a slow subscriber costs the server nothing and us a bounded buffer.
Every message carries its place in the stream and its place among what the consumer has sent. A hole in the latter means
that something got lost on the way. Then the reader begins again, with a new consumer, after the last message it handed
on. The same happens when the connection was lost, when the server says that the consumer is gone, and when it is silent
longer than its heartbeat. A reader that begins again fails if the stream was deleted and created again (identity.py).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

from nats.aio.msg import Msg

from seriatim.brokers.nats.api import NANOSECONDS, Api, StreamNotFound
from seriatim.brokers.nats.identity import Sighting, difference, stored_at
from seriatim.model import ConnectionFailed, RequestRefused, SeriatimError

logger = logging.getLogger(__name__)

BATCH = 256
BATCH_BYTES = 1024 * 1024
EXPIRES_S = 30.0
HEARTBEAT_S = 3.0
SILENT_S = 2.5 * HEARTBEAT_S
FORGOTTEN_S = 60.0  # by the server, when we ask for nothing: paused for long, or gone
RETRY_S = 0.25
UNKNOWN_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # when to ask again if our server knows no such consumer
AT_ONCE = 64  # readers that begin at the same time: after a reconnect there may be thousands

OnMessage: TypeAlias = Callable[[int, Msg], None]  # (position in the stream, the message)


class Reader:
    """One stream, or one subject of it, from `position` on, of the stream created then. `begin` begins."""

    def __init__(
        self,
        readers: "Readers",
        stream: str,
        subject: str | None,
        position: int,
        on_message: OnMessage,
        on_error: Callable[[SeriatimError], None],
        created: str = "",
    ) -> None:
        self.stream = stream
        self.position = position  # the next one to be read
        self.closed = False
        self._readers = readers
        self._number = readers.add(self)
        self._subject = subject
        self._on_message = on_message
        self._on_error = on_error
        self._created = created  # of the stream that `position` belongs to; empty: the first that is found
        self._stored_at = ""  # when the last message was stored, in nanoseconds
        self._consumer = ""
        self._expected = 1  # the next place among what the consumer sends
        self._under_way = 0  # asked for and neither come nor given up
        self._bytes_max = BATCH_BYTES
        self._came = False  # something since the last question
        self._unknown = 0  # questions in a row that reached no consumer
        self._heard_at = 0.0
        self._paused = False
        self._starting: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None

    async def ready(self) -> None:
        """Wait until everything written from now on will be handed on. Raises what makes that impossible."""
        if not self._consumer:
            self._ready = asyncio.get_running_loop().create_future()
            await self._ready

    def pause(self, is_paused: bool) -> None:
        """Ask for nothing more; what was asked for may still come. False: ask for messages again."""
        self._paused = is_paused
        self._pull()

    def close(self) -> None:
        """Stop: nothing is handed on after this."""
        if self.closed:
            return
        self.closed = True
        self._readers.by_number.pop(self._number, None)
        self._drop_consumer()
        if self._starting is not None:
            self._starting.cancel()

    def begin(self) -> None:
        """Begin, or begin again, with a new consumer after the last message that was handed on."""
        if self.closed:
            return
        self._drop_consumer()
        if self._starting is None or self._starting.done():
            self._starting = asyncio.get_running_loop().create_task(self._start())

    def _drop_consumer(self) -> None:
        if self._consumer:
            self._readers.by_consumer.pop(self._consumer, None)
            self._readers.api.delete_consumer(self.stream, self._consumer)
            self._consumer = ""

    async def _start(self) -> None:
        pause_s = RETRY_S / 4
        while not self.closed:
            try:
                async with self._readers.turns:
                    await self._create()
                return
            except ConnectionFailed:
                if not self._readers.api.link.is_up:
                    return  # begun again when there is a connection
            except StreamNotFound:
                pass  # it is not there yet
            except RequestRefused as refused:
                self._fail(refused)
                return
            pause_s = min(2 * pause_s, 4 * RETRY_S)
            await asyncio.sleep(pause_s)

    def _fail(self, error: SeriatimError) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
        else:
            self._on_error(error)

    async def _create(self) -> None:
        api = self._readers.api
        name = next(self._readers.names)
        config: dict[str, Any] = {
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position,
            "inactive_threshold": int(FORGOTTEN_S * NANOSECONDS),
            "max_waiting": 16,
        }
        if self._subject is not None:
            config["filter_subject"] = self._subject
        await api.create_consumer(self.stream, name, config)
        answer = await api.info(self.stream)  # afterwards: a stream that is created from here on has no such consumer
        known = Sighting(self._created, stored_at(self._stored_at))
        if (problem := difference(answer, self.position - 1, known)) is not None:
            api.delete_consumer(self.stream, name)
            raise RequestRefused(f"stream {self.stream} {problem}")
        self._created = answer.created
        if self.closed:
            api.delete_consumer(self.stream, name)
            return
        self._consumer, self._expected, self._under_way, self._unknown = name, 1, 0, 0
        self._heard_at = time.monotonic()
        self._readers.by_consumer[name] = self
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        self._pull()

    def take(self, message: Msg, position: int, place: int, stored_at: str) -> None:
        """One message of the current consumer."""
        self._heard_at = time.monotonic()
        self._unknown = 0
        self._came = True
        if place != self._expected:
            logger.warning("messages lost, reading again: stream=%s position=%s", self.stream, self.position)
            self.begin()
            return
        self._expected = place + 1
        self._under_way -= 1
        self.position, self._stored_at = position + 1, stored_at
        self._on_message(position, message)
        if self._under_way <= BATCH // 2:
            self._pull()

    def take_status(self, headers: dict[str, str]) -> None:
        """A heartbeat, or the end of one of our questions."""
        self._heard_at = time.monotonic()
        status = headers.get("Status", "")
        if status == "100":
            self._unknown = 0
            return
        description = headers.get("Description", "")
        if status == "503" and self._unknown < len(UNKNOWN_S):
            # A consumer at another site is known there first, and on our server a moment later.
            asyncio.get_running_loop().call_later(UNKNOWN_S[self._unknown], self._ask_again, self._consumer)
            self._unknown += 1
            return
        if status == "503" or "Deleted" in description or "Shutdown" in description or "Leadership" in description:
            self.begin()
            return
        left = headers.get("Nats-Pending-Messages", "")
        self._under_way = self._under_way - int(left) if left.isdigit() else 0
        if "Exceeds MaxBytes" in description and not self._came:
            self._bytes_max *= 4  # the next message alone is larger
        self._pull()

    def _ask_again(self, consumer: str) -> None:
        if consumer == self._consumer:
            self._under_way = 0
            self._pull()

    def check(self, now: float) -> None:
        """Start again if the server is silent although messages were asked for. Called regularly."""
        if self._consumer and self._under_way > 0 and now - self._heard_at > SILENT_S:
            logger.warning("consumer silent, reading again: stream=%s position=%s", self.stream, self.position)
            self.begin()

    def _pull(self) -> None:
        if self._paused or self.closed or not self._consumer or self._under_way > BATCH // 2:
            return
        batch = BATCH - max(0, self._under_way)
        self._under_way = BATCH
        self._came = False
        question = (
            f'{{"batch":{batch},"max_bytes":{self._bytes_max},"expires":{int(EXPIRES_S * NANOSECONDS)},'
            f'"idle_heartbeat":{int(HEARTBEAT_S * NANOSECONDS)}}}'
        )
        api, inbox = self._readers.api, self._readers.inbox
        subject = f"{api.prefix}.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}"
        api.link.publish(subject, question.encode(), reply=f"{inbox}.{self._number}")


class Readers:
    """All readers of one connection: one inbox for all of them."""

    def __init__(self, api: Api, owner: str) -> None:
        self.api = api
        self.turns = asyncio.Semaphore(AT_ONCE)
        self._numbers = count(1)
        secret = f"{random.SystemRandom().getrandbits(48):012x}"  # two processes never use one name
        self.names = (f"{owner}-{secret}-{number}" for number in count(1))  # of consumers; the server's tools show them
        self.by_number: dict[int, Reader] = {}
        self.by_consumer: dict[str, Reader] = {}
        self.inbox = api.link.inbox("r")
        self._task: asyncio.Task[None] | None = None
        api.link.listen(f"{self.inbox}.*", self._on_message)
        api.link.on_up.append(self._on_up)
        api.link.on_down.append(self._on_down)

    def add(self, reader: Reader) -> int:
        """A new reader. Returns its number."""
        number = next(self._numbers)
        self.by_number[number] = reader
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._check_forever())
        return number

    def close(self) -> None:
        for reader in list(self.by_number.values()):
            reader.close()
        if self._task is not None:
            self._task.cancel()

    def _on_message(self, message: Msg) -> None:
        """The reply subject of a message names its consumer and its position. A status has no reply subject."""
        words = message.reply.split(".")
        if len(words) >= 9 and words[1] == "ACK":
            # $JS.ACK.<stream>.<consumer>.<deliveries>.<position>.<place>.<time>.…, domain and account before the stream
            start = 2 if len(words) == 9 else 4
            reader = self.by_consumer.get(words[start + 1])
            if reader is not None:
                reader.take(message, int(words[start + 3]), int(words[start + 4]), words[start + 5])
        elif message.headers is not None:
            reader = self.by_number.get(int(message.subject.rpartition(".")[2]))
            if reader is not None:
                reader.take_status(message.headers)

    def _on_up(self) -> None:
        for reader in self.by_number.values():
            reader.begin()

    def _on_down(self) -> None:
        self.by_consumer.clear()

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S / 2)
            now = time.monotonic()
            for reader in list(self.by_number.values()):
                reader.check(now)
