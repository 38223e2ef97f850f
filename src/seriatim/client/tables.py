"""Tables of a client's log: files of JSON lines, or streams on the broker. logs.py decides what is written, and when.

A row that may change later is written with spaces after it. In a file it is then changed in place; on the broker it is
written again, and the last row of a key counts.
"""

import fcntl
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import required
from seriatim.model import UNREADABLE, LogError, Publication, Subscription

ROOM = {Subscription: 72, Publication: 48}  # bytes kept free in a line for what is not known yet

T = TypeVar("T", bound=Struct)

_encoder = msgspec.json.Encoder()


class RowFile:
    """One table. Lines are appended whole; lines with room in them can be changed in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn: tuple[int, int] | None = None  # offset and length of a partial write to blank out
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._change = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            problem = error.strerror or "cannot be written"
            raise LogError(str(path), problem, "check the path and its permissions") from None
        self._repair()
        fcntl.flock(self._append, fcntl.LOCK_SH)

    def _repair(self) -> None:
        """Cut off half a line at the end, if no other process is writing."""
        size = os.fstat(self._append).st_size
        if size == 0 or os.pread(self._append, 1, size - 1) == b"\n":
            return
        try:
            fcntl.flock(self._append, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        data = os.pread(self._append, size, 0)
        os.ftruncate(self._append, data.rfind(b"\n") + 1)

    def append(self, lines: bytes) -> int:
        """Write whole lines and return their offset. After LogError none is written, and the call can be repeated.

        If the disk takes only some bytes, they are overwritten with blanks: other processes may have appended after
        them, so they can be neither cut off nor completed. A row after blanks is still valid.
        """
        self._blank()
        try:
            written = os.write(self._append, lines)
            begin = os.lseek(self._append, 0, os.SEEK_CUR) - written
        except OSError as error:
            raise LogError(str(self.path), error.strerror or "cannot be written", "make room on the disk") from None
        if written < len(lines):
            self._torn = (begin, written)
            self._blank()
            problem = f"the disk takes only {written:,} of {len(lines):,} bytes"
            raise LogError(str(self.path), problem, "make room on the disk")
        return begin

    def _blank(self) -> None:
        """Overwrite a partial write with blanks. If that fails too, the next append tries it first."""
        if self._torn is not None:
            offset, length = self._torn
            self._overwrite(offset, b" " * length)
            self._torn = None

    def change(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        """Replace the rows that begin at this offset."""
        lines = [padded(row, length) for row, length in zip(rows, lengths, strict=True)]
        self._overwrite(offset, b"".join(lines))

    def withdraw(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        """Remove the rows that begin at this offset."""
        self._overwrite(offset, b"".join(b" " * (length - 1) + b"\n" for length in lengths))

    def _overwrite(self, offset: int, lines: bytes) -> None:
        try:
            written = 0
            while written < len(lines):
                written += os.pwrite(self._change, lines[written:], offset + written)
        except OSError as error:
            raise LogError(str(self.path), error.strerror or "cannot be written", "make room on the disk") from None

    def rows(self, kind: type[T]) -> Iterable[tuple[int, int, T]]:
        """Every row so far: where its line begins, how long it is, what it says."""
        decoder = msgspec.json.Decoder(kind)
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    try:
                        yield offset, len(line), decoder.decode(line)
                    except UNREADABLE as error:
                        fix = "move the file away, or correct the line"
                        raise LogError(f"{self.path} line {number}", f"not a row ({error})", fix) from None
                offset += len(line)

    async def load(self) -> None:
        """Prepare for `rows`. A file needs no preparation."""

    async def written(self, timeout_s: float) -> None:
        """Wait until everything is written. In a file, it already is."""

    def close(self) -> None:
        """May be called twice."""
        if self._append >= 0:
            with suppress(LogError):  # then the next process that opens it cuts it off
                self._blank()
            os.close(self._append)
            os.close(self._change)
            self._append = self._change = -1


def padded(row: Struct, length: int | None = None) -> bytes:
    """A row as a line: with room to grow, or of exactly `length` bytes."""
    text = _encoder.encode(row)
    if length is None:
        length = len(text) + ROOM[type(row)] + 1
    return text.ljust(length - 1) + b"\n"


class BrokerTable:
    """A table on the broker. It ignores offsets: a change is a new line."""

    def __init__(self, broker: Broker, table: str, client: str) -> None:
        self._table = table
        channel = broker.row_channel(table, client)
        self._channel = required(channel, "log", "keeps no logs of clients", 'give a folder instead of "broker:"')
        self._past: list[bytes] = []

    def append(self, lines: bytes) -> int:
        self._channel.send(b"".join(line.rstrip() + b"\n" for line in lines.splitlines()))
        return 0

    def change(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        self._channel.send(_encoder.encode_lines(rows))

    def withdraw(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        self._channel.send(b"".join(b"-" + _encoder.encode(row) + b"\n" for row in rows))

    async def load(self) -> None:
        self._past = await self._channel.read()

    def rows(self, kind: type[T]) -> Iterable[tuple[int, int, T]]:
        """Every row so far; of each subscription only the last one."""
        decoder = msgspec.json.Decoder(kind)
        last: dict[object, T] = {}
        for number, body in enumerate(self._past, 1):
            for line in body.splitlines():
                try:
                    row = decoder.decode(line)
                except UNREADABLE as error:
                    where = f"{self._table} on the broker, message {number}"
                    raise LogError(where, f"not a row ({error})", "use another name, or another log") from None
                key = (row.topic, row.since) if isinstance(row, Subscription) else len(last)
                last[key] = row
        self._past = []
        return [(0, 0, row) for row in last.values()]

    async def written(self, timeout_s: float) -> None:
        await self._channel.written(timeout_s)

    def close(self) -> None:
        self._channel.close()


RowTable: TypeAlias = RowFile | BrokerTable
