"""Rows of a client's log in a JetStream stream: in their order, each once, and never in the way of events.

One message is under way at a time. It has its own id and is repeated until the server has it, so rows are neither
reordered nor stored twice. Rows that come meanwhile go into the next message. The waiting bytes are bounded; more rows
are refused, as on a full disk.
"""

import asyncio
import logging
import secrets
from collections import deque

from seriatim.brokers.nats.api import StreamNotFound
from seriatim.brokers.nats.messages import MESSAGE_ID
from seriatim.brokers.nats.streams import Streams
from seriatim.model import LogError, SeriatimError

logger = logging.getLogger(__name__)

WAITING_BYTES_MAX = 16 * 1024 * 1024
RETRY_S = (0.05, 2.0)


class NatsRowChannel:
    """See `RowChannel`."""

    def __init__(self, streams: Streams, table: str, client: str, message_bytes_max: int) -> None:
        self._streams = streams
        self._table = table
        self._subject = streams.names.logs_subject(table, client)
        self._message_bytes_max = message_bytes_max
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._problem = ""
        self._messages = 0
        self._token = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def send(self, lines: bytes) -> None:
        if self._waiting_bytes + len(lines) > WAITING_BYTES_MAX:
            raise self._failed(f"{self._waiting_bytes:,} bytes wait already")
        for part in _parts(lines, self._message_bytes_max):
            self._waiting.append(part)
            self._waiting_bytes += len(part)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def written(self, timeout_s: float) -> None:
        task = self._task
        if task is None:
            return
        done, _ = await asyncio.wait([task], timeout=timeout_s)
        if not done or self._waiting:
            raise self._failed(f"it has not taken {self._waiting_bytes:,} bytes within {timeout_s:g} s")

    async def read(self) -> list[bytes]:
        api, position = self._streams.api, 1
        found: list[bytes] = []
        stream = self._streams.names.logs_stream(self._table)
        while True:
            try:
                message = await api.message(stream, {"seq": position, "next_by_subj": self._subject})
            except StreamNotFound:
                return []
            if message is None:
                return found
            found.append(message.data)
            position = message.seq + 1

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    def _failed(self, problem: str) -> LogError:
        reason = f": {self._problem}" if self._problem else ""
        return LogError(f"{self._table} on the broker", f"{problem}{reason}", "check the broker and its limits")

    async def _send_all(self) -> None:
        while self._waiting and not self._closed:
            count, size = 0, 0
            for part in self._waiting:
                size += len(part)
                if count and size > self._message_bytes_max:
                    break
                count += 1
            data = b"".join(self._waiting[place] for place in range(count))
            self._messages += 1
            await self._send(data, f"{self._token}-{self._messages}")
            for _ in range(count):
                self._waiting_bytes -= len(self._waiting.popleft())

    async def _send(self, data: bytes, message_id: str) -> None:
        """Repeat until the server has stored it."""
        pause_s = RETRY_S[0]
        while True:
            try:
                await self._streams.logs(self._table)
                await self._streams.api.publish(self._subject, data, {MESSAGE_ID: message_id})
                self._problem = ""
                return
            except SeriatimError as error:
                if isinstance(error, StreamNotFound):  # it is made again
                    self._streams.forget_other(self._streams.names.logs_stream(self._table))
                if str(error) != self._problem:
                    logger.warning("rows of a log wait for the server: table=%s reason=%s", self._table, error)
                self._problem = str(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S[1])


def _parts(lines: bytes, bytes_max: int) -> list[bytes]:
    """Whole lines, in parts that fit into a message. A line alone may be too long; the server says so."""
    parts: list[bytes] = []
    while len(lines) > bytes_max:
        end = lines.rfind(b"\n", 0, bytes_max) + 1 or lines.find(b"\n") + 1 or len(lines)
        parts.append(lines[:end])
        lines = lines[end:]
    return [*parts, lines] if lines else parts
