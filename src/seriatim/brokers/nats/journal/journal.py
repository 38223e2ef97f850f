"""A journal in a JetStream stream: kept by as many servers as the stream has replicas, for nodes that move.

messages.py defines what is in the stream, and stream.py how a message gets there, whatever happens to its answer.

*One writer.* Every message names the last sequence its writer has seen, and the stream refuses it if there is a later
one. Opening the journal appends such a message, so the previous writer is refused at its next append (Fenced). No lock,
no lease, no clock.

*Snapshots* are appended in pieces between appends, then a message that says that they are complete, then everything
before is purged. A crash anywhere in between leaves the previous snapshot and all messages after it.

*How durable* an acknowledged append is, the servers decide: a stream with one replica survives a crash of its server,
and of the machine only if the server runs with `sync_interval: always`. Three replicas survive the loss of one machine.
"""

import asyncio
import logging
import re
import secrets
import time
import zlib
from collections.abc import Callable, Sequence

from seriatim.brokers.naming import escape
from seriatim.brokers.nats.api import Api, StreamNotFound
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.brokers.nats.journal.messages import (
    Beat,
    Chunk,
    JournalMessage,
    Opened,
    Records,
    Snapshot,
    assemble,
    damage,
    encode,
    pieces,
    split_records,
)
from seriatim.brokers.nats.journal.stream import RETRY_S, JournalStream
from seriatim.brokers.nats.link import NatsLink
from seriatim.model import Closed, Fenced, InputError, JournalError, Node
from seriatim.runtime.journal.interface import Recovered

logger = logging.getLogger(__name__)

CLAIMS_MAX = 3
READINGS_MAX = 3


class NatsJournal:
    """One node's journal. The stream is made if it is not there.

    `link` is open, and stays the caller's; with `connection`, that one is opened and closed here. `timeout_s` bounds
    each request, `patience_s` everything that has to be repeated. `beat_s`: append a beat whenever nothing else was
    appended for that time, so that a standby sees life, and an idle writer notices that it was replaced.
    """

    def __init__(
        self,
        link: NatsLink,
        stream: str,
        *,
        subject: str | None = None,
        replicas: int = 1,
        beat_s: float | None = None,
        timeout_s: float = 1.0,
        patience_s: float = 30.0,
        connection: "NatsJournals | None" = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", stream):
            raise InputError("stream", f"{stream!r} cannot be a stream's name", "use letters, digits, - and _")
        for name, value in (("beat_s", beat_s), ("timeout_s", timeout_s), ("patience_s", patience_s)):
            if value is not None and value <= 0:
                raise InputError(name, f"{value} is not positive", "give a number of seconds above 0")
        subject = subject if subject is not None else f"seriatim.journal.{stream}"
        self.failed: asyncio.Future[JournalError] = asyncio.get_running_loop().create_future()
        self._stream = JournalStream(
            link, stream, subject, replicas=replicas, timeout_s=timeout_s, patience_s=patience_s
        )
        self._beat_s = beat_s
        self._connection = connection
        self._patience_s = patience_s
        self._writer = ""
        self._number = 0
        self._beats = 0
        self._bytes = 0
        self._open = False
        self._turn = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None

    @property
    def bytes_since_snapshot(self) -> int:
        return self._bytes

    async def open(self) -> Recovered:
        if self._open:
            raise JournalError(f"stream {self._stream.name}: this journal is open already; close it first")
        self.failed = asyncio.get_running_loop().create_future()
        if self._connection is not None:
            await self._connection.open()
        await self._stream.ensure()
        messages: dict[int, JournalMessage] = {}
        last = await self._stream.last_sequence()
        await self._read_on(messages, last)  # a journal that cannot be read is not claimed
        self._writer = secrets.token_hex(8)
        recovered = await self._read_on(messages, await self._claim(last), complete=True)
        self._number = 1
        self._bytes = sum(len(record) for record in recovered.records)
        self._open = True
        if self._beat_s is not None:
            self._beating = asyncio.get_running_loop().create_task(self._beat_forever(self._beat_s))
        return recovered

    async def read(self) -> Recovered | None:
        """Read everything, without becoming the writer. None: there is no such journal."""
        if self._connection is not None:
            await self._connection.open()
        try:
            if not await self._stream.exists():
                return None
            return await self._read_on({}, await self._stream.last_sequence())
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def fill(self, recovered: Recovered) -> None:
        """Make the journal, with this in it: whole, or not to be opened. RequestRefused: there is one already."""
        if self._connection is not None:
            await self._connection.open()
        try:
            await self._stream.begin_filling()
            writer, body_bytes_max = secrets.token_hex(8), self._stream.body_bytes_max()
            await self._stream.publish("log", encode(Opened(writer)), writer)
            opened, number = self._stream.last, 1
            records = split_records(writer, number + 1, recovered.records, body_bytes_max) if recovered.records else []
            for message in records:
                await self._stream.publish("log", encode(message), writer)
            number += len(records)
            if recovered.snapshot is not None:
                bodies = pieces(recovered.snapshot, body_bytes_max)
                for index, body in enumerate(bodies, number + 1):
                    await self._stream.publish("log", encode(Chunk(writer, index, number + 1, body)), writer)
                fields = (number + 1, len(bodies), zlib.crc32(recovered.snapshot), opened, 1)
                marker = Snapshot(writer, number + len(bodies) + 1, *fields)
                await self._stream.publish("snapshot", encode(marker), writer)
            await self._stream.end_filling()
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def append(self, records: Sequence[bytes]) -> None:
        self._check_usable()
        if not records:
            return
        async with self._turn:
            self._check_usable()
            messages = split_records(self._writer, self._number + 1, list(records), self._stream.body_bytes_max())
            for message in messages:
                self._bytes += await self._append(message)

    async def snapshot(self, state: bytes) -> None:
        self._check_usable()
        if self._snapshotting is not None:
            await asyncio.wait([self._snapshotting])
        self._check_usable()
        self._bytes = 0
        job = self._write_snapshot(state, self._stream.last, self._number)
        self._snapshotting = asyncio.get_running_loop().create_task(job)

    async def close(self) -> None:
        """Close. A snapshot that is being written is abandoned: only a complete one counts."""
        self._open = False
        try:
            for task in (self._beating, self._snapshotting):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
            self._beating = self._snapshotting = None
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def wait_until_silent(self, silent_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """For a standby: returns when the stream has had no new message for `silent_s`.

        While NATS does not answer, the stream may not be silent, so the time starts again. The wait has no limit.
        """
        last: int | None = None
        since = clock()
        while True:
            now = clock()
            found = await self._stream.look()
            if found is None or found != last:
                last, since = found, now
            elif now - since >= silent_s:
                return
            await asyncio.sleep(silent_s / 8)

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_on(self, messages: dict[int, JournalMessage], last: int, complete: bool = False) -> Recovered:
        """Read up to `last`, and put everything together. `complete`: the message at `last` must be there.

        The previous writer may take a snapshot meanwhile and purge the messages that it replaces. Then reading starts
        again behind that snapshot, and goes on up to the message that completes it.
        """
        readings = 0
        give_up_at = time.monotonic() + self._patience_s
        while True:
            snapshot = replaced, completed = await self._stream.newest_snapshot()
            if not complete:
                last = max(last, completed)
            messages |= await self._stream.read(max([replaced, *messages]) + 1, last)
            if complete and last not in messages:  # a replica that is behind
                if time.monotonic() > give_up_at:
                    raise damage(self._stream.name, last, "was acknowledged but is not there")
                await asyncio.sleep(RETRY_S)
                continue
            try:
                return assemble(self._stream.name, {at: each for at, each in messages.items() if at <= last})
            except JournalError:
                if await self._stream.newest_snapshot() == snapshot:
                    readings += 1
                if readings == READINGS_MAX or time.monotonic() > give_up_at:
                    raise
                messages.clear()

    async def _claim(self, last: int) -> int:
        """Become the writer: append `Opened` at the end. Everything before it is final then.

        An active writer is faster than we are, because we must look first. So we stop looking after a few attempts.
        """
        data = encode(Opened(self._writer))
        for _ in range(CLAIMS_MAX):
            self._stream.last = last
            try:
                await self._stream.publish("log", data, self._writer)
                return self._stream.last
            except Fenced:
                last = await self._stream.last_sequence()
        await self._stream.publish("log", data, self._writer, anywhere=True)
        return self._stream.last

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _append(self, message: Records | Chunk | Snapshot) -> int:
        """Append while we hold the turn. Returns the size in bytes."""
        data = encode(message)
        await self._publish_or_break("snapshot" if isinstance(message, Snapshot) else "log", data)
        self._number = message.number
        return len(data)

    async def _publish_or_break(self, kind: str, data: bytes) -> None:
        try:
            await self._stream.publish(kind, data, self._writer)
        except JournalError as error:
            self._break(error)
            raise
        except asyncio.CancelledError:
            self._break(JournalError(f"stream {self._stream.name}: an append was interrupted; open the journal again"))
            raise

    async def _write_snapshot(self, state: bytes, until: int, until_number: int) -> None:
        try:
            bodies = pieces(state, self._stream.body_bytes_max())
            snapshot = 0
            for body in bodies:
                async with self._turn:
                    if not self._open:
                        return
                    number = self._number + 1
                    snapshot = snapshot or number
                    await self._append(Chunk(self._writer, number, snapshot, body))
            async with self._turn:
                fields = (snapshot, len(bodies), zlib.crc32(state), until, until_number)
                await self._append(Snapshot(self._writer, self._number + 1, *fields))
        except JournalError as error:
            self._break(error)
            return
        await self._stream.purge(until)

    async def _beat_forever(self, beat_s: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._stream.written_at + beat_s - time.monotonic()))
            async with self._turn:
                if self._stream.written_at + beat_s > time.monotonic():
                    continue
                self._beats += 1
                try:
                    await self._publish_or_break("beat", encode(Beat(self._writer, self._beats)))
                except JournalError:
                    return  # `failed` has it

    def _check_usable(self) -> None:
        if self.failed.done():
            error = self.failed.result()
            if isinstance(error, Fenced):
                raise Fenced(str(error))
            raise JournalError(f"stream {self._stream.name}: accepts nothing more after an earlier failure: {error}")
        if not self._open:
            raise Closed(f"stream {self._stream.name}: the journal is not open")

    def _break(self, error: JournalError) -> None:
        if self._open and not self.failed.done():
            self.failed.set_result(error)
            logger.error("journal closed after an error: stream=%s reason=%s", self._stream.name, error)


class NatsJournals:
    """The journals of a process's nodes. Open it, then ask for journals. Close the journals before this.

    They share one connection. It is not the broker's, so that appends do not wait behind events.
    """

    def __init__(
        self, servers: list[str], credentials: NatsCredentials | None = None, *, cluster: str, replicas: int = 1
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._link = NatsLink(servers, credentials, name=f"seriatim journals {cluster}")
        self._is_open = False

    async def open(self) -> None:
        await self._link.open()
        self._is_open = True

    def journal(self, node: Node, *, beat_s: float | None = None, connects: bool = False) -> NatsJournal:
        if not self._is_open and not connects:
            raise Closed("the journals are not connected")
        name = escape(node)
        return NatsJournal(
            self._link,
            f"{self._cluster}-journal-{name}",
            subject=f"_{self._cluster}.journal.{name}",
            replicas=self._replicas,
            beat_s=beat_s,
            connection=self if connects else None,
        )

    async def remove(self, node: Node) -> bool:
        """Delete a journal with all that it holds. False: there was none."""
        api, stream = Api(self._link), f"{self._cluster}-journal-{escape(node)}"
        try:
            await api.info(stream)
        except StreamNotFound:
            return False
        await api.remove_stream(stream)
        return True

    async def close(self) -> None:
        self._is_open = False
        await self._link.close()
