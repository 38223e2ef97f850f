"""What the processes of a run write down, one JSON object per line, in a file of their own.

A row is in the kernel when `write` returns: it survives `kill -9` of its writer (a power failure is not simulated). A
writer that comes back cuts off the torn line its last life may have left. All times are `time.monotonic()` in seconds:
one clock for all processes of a machine, which no fault moves.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from seriatim.model import LogError, Number, Position, Topic


class Began(Struct, frozen=True, tag="began"):
    """A process starts its n-th life."""

    name: str
    life: int
    pid: int
    at: float


class Attempted(Struct, frozen=True, tag="attempted", omit_defaults=True):
    """A publisher is about to publish. Without an `Acknowledged` the event may exist or not."""

    id: str
    topic: Topic
    publisher: str
    sequence: int
    at: float


class Acknowledged(Struct, frozen=True, tag="acknowledged", omit_defaults=True):
    """The publisher was told that the event is safe, under this number."""

    id: str
    number: Number
    at: float
    index: int = 0


class Failed(Struct, frozen=True, tag="failed"):
    """The publisher was told something else. Nothing is promised about the event."""

    id: str
    reason: str
    at: float


class Held(Struct, frozen=True, tag="held", omit_defaults=True):
    """A subscriber holds these topics, or (`complete` False) has just asked to: nothing is owed of what changes.

    `start`: it begins with the past, at this position of the order log; then it is complete when it is live.
    """

    topics: list[Topic]
    at: float
    complete: bool = True
    start: Position | None = None


class Handed(Struct, frozen=True, tag="handed", omit_defaults=True):
    """An event was handed to the application, written before it asks for the next one.

    `position`: its place in the order of all events, if the subscriber was told.
    """

    id: str
    topic: Topic
    number: Number
    at: float
    index: int = 0
    replayed: bool = False
    out_of_order: bool = False
    position: Position | None = None


class Missed(Struct, frozen=True, tag="missed"):
    """The subscription reported a gap: numbers that will never come."""

    topic: Topic
    first: Number
    last: Number
    reason: str
    at: float


class Rested(Struct, frozen=True, tag="rested"):
    """A publisher pauses between rounds, and nothing of what it published is unanswered."""

    at: float


class Ended(Struct, frozen=True, tag="ended"):
    """The process ends because it was asked to. A life without this row was killed."""

    at: float


class Injected(Struct, frozen=True, tag="injected"):
    """One fault, by the nemesis: from `began_at` until the victim was started again, or the network healed.

    `topics` and `subscribers` are those it can hold up; `publisher`: only this one's events say that it is over.
    `fresh`: only events published since it began do, because older ones may have been on their way.
    `alone`: no other fault overlapped, so the recovery time is this fault's.
    """

    fault: str
    target: str
    began_at: float
    ended_at: float
    topics: list[Topic]
    subscribers: list[str]
    publisher: str | None = None
    fresh: bool = True
    alone: bool = True


Row: TypeAlias = Began | Attempted | Acknowledged | Failed | Held | Handed | Missed | Rested | Ended | Injected

LINE_BYTES_MAX = 4096

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Row] = msgspec.json.Decoder(Row)


def now() -> float:
    """The time of every row."""
    return time.monotonic()


class RowFile:
    """Appends rows. The file may be emptied by somebody else between rows: appending goes on at its new end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        _cut_torn_line(self._file)

    def write(self, *rows: Row) -> None:
        """Write a row. The kernel has it when this returns."""
        data = b"".join([_encoder.encode(row) + b"\n" for row in rows])
        while data:  # a full disk shows as an error at the next call
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_rows(path: Path) -> list[Row]:
    """All whole rows of a file; none if the file does not exist. Only the last line may be torn."""
    return list(_rows(path, path.read_bytes())) if path.exists() else []


def last_row(path: Path) -> Row | None:
    """The last whole row of a file, if it has one."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_BYTES_MAX))
        lines = file.read().split(b"\n")
    return _decoder.decode(lines[-2]) if len(lines) > 1 else None


class Tail:
    """Reads what was added to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new(self) -> list[Row]:
        """Whole rows since the last call. A file that became shorter is read from its beginning."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._position:
                    self._position = 0
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data.rfind(b"\n") + 1
        self._position += whole
        return list(_rows(self._path, data[:whole]))


def _rows(path: Path, data: bytes) -> Iterator[Row]:
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # the last piece is empty, or torn
        try:
            yield _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise LogError(
                f"{path} line {number}", f"not a row ({error})", "keep the file: a writer is broken"
            ) from None


def _cut_torn_line(file: int) -> None:
    size = os.fstat(file).st_size
    keep = size
    while keep and os.pread(file, 1, keep - 1) != b"\n":
        keep -= 1
    if keep < size:
        os.ftruncate(file, keep)
