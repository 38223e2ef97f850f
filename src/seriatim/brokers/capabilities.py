"""Features that some brokers have and others do not. A broker says which of these it has (seam.py).

README.md says what does not work without each. Reading in bulk is in bulk.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from seriatim.model import InputError, JournalError, Number, Position, RequestRefused, Topic
from seriatim.protocols.with_broker import OrderRead
from seriatim.runtime import Journal, Recovered

BROKER = "broker:"  # in place of a folder: the log is kept on the broker
IN_FLIGHT = 2_000
OTHERS_S = 0.1  # how long other answers are waited for, after the first

C = TypeVar("C")


def required(capability: C | None, field: str, what: str, fix: str) -> C:
    """The capability. InputError: the broker does not have it."""
    if capability is None:
        raise InputError(field, f"this broker {what}", fix)
    return capability


class AnotherLog(RequestRefused):
    """The log of a topic is not the one that was numbered: it was deleted. `events`: how many its successor holds."""

    def __init__(self, text: str, events: int = 0) -> None:
        super().__init__(text)
        self.events = events


class Requests(Protocol):
    """Questions and answers on subjects."""

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        """Ask. None: nobody answered."""

    async def request_all(
        self, subject: str, data: bytes, timeout_s: float, enough: Callable[[list[bytes]], bool]
    ) -> list[bytes]:
        """Ask everybody, and wait a moment longer for other answers after the first, until these are `enough`."""

    async def answer(self, subject: str, reply: Callable[[bytes], bytes | None]) -> None:
        """Answer such questions until the broker is closed; None: say nothing."""


class Records(Protocol):
    """Small records that every client of the broker can read."""

    async def keep(self, name: str, data: bytes) -> None:
        """Keep this under the name, replacing the earlier value."""

    async def kept(self, name: str) -> bytes | None:
        """The last record under this name. None: there is none."""


class LogFacts(Struct, frozen=True, kw_only=True):
    """The log of one topic, as the broker describes it. `limits`: what bounds it, in words; empty: nothing does."""

    stream: str
    first: Number
    last: Number
    last_at: str = ""  # when the last event was stored; empty: there is none
    events: int = 0
    bytes: int = 0
    limits: str = ""
    is_ours: bool = True  # made by this cluster, and not by somebody else


class KeptNumbers(Struct, frozen=True):
    """The numbers of a topic that the broker still has: from `first`, which it has or will have next, to `last`."""

    first: Number = 1
    last: Number = 0


class Register(Protocol):
    """One small record that all processes of a cluster go by. It is replaced by compare-and-set."""

    async def read(self) -> tuple[bytes, int] | None:
        """The record and its version, from 1. None: there is none."""

    async def write(self, data: bytes, after: int) -> int | None:
        """Put this behind the version that was read; 0: there was none. Returns its version. None: it was changed."""


class FencedJournal(Journal, Protocol):
    """A journal that other processes can look at. It refuses every writer but the last one that opened it."""

    failed: "asyncio.Future[JournalError]"
    """Done when it takes nothing more: also while nobody appends, if it has a beat."""

    async def wait_until_silent(self, silent_s: float) -> None:
        """Return when nobody has written for `silent_s`. The wait has no limit."""

    async def read(self) -> Recovered | None:
        """Read everything, without becoming the writer: also while somebody writes. None: there is no such journal."""

    async def fill(self, recovered: Recovered) -> None:
        """Make the journal, with this in it: whole, or not to be opened. RequestRefused: there is one already."""


class FencedJournals(Protocol):
    """Journals on the broker. They have a connection of their own, which is opened and closed here."""

    async def open(self) -> None:
        """Connect. ConnectionFailed says what was tried."""

    def journal(self, name: str, *, beat_s: float | None = None, connects: bool = False) -> FencedJournal:
        """The journal of this name, to be opened. `beat_s`: the seconds between signs of life, for standbys.

        `connects`: the connection is opened and closed with this journal.
        """

    async def remove(self, name: str) -> bool:
        """Delete a journal with all that it holds. False: there was none."""

    async def close(self) -> None:
        """Disconnect, after the journals are closed. May be called twice."""


class Part(Struct, frozen=True, kw_only=True):
    """One part of what a broker keeps of a cluster. `first` and `last`: positions of its `messages`.

    `topic`: whose log it is; empty: it is written by sequencers, or by clients about themselves. `about`: what the
    broker needs to make it again.
    """

    name: str
    topic: Topic = ""
    about: bytes = b""
    first: int = 0
    last: int = 0
    messages: int = 0
    bytes: int = 0


class Copies(Protocol):
    """Copies everything that a broker keeps of a cluster, and puts it back as it was."""

    async def parts(self) -> list[Part]:
        """Everything there is, in the order in which it is to be put back: until all is there, no node acts.

        InputError: a part cannot be copied.
        """

    async def look(self, name: str) -> Part | None:
        """The part of this name, as it is there now. None: there is none."""

    def read(self, name: str) -> "CopyStream":
        """One part, piece by piece."""

    async def write(self, part: Part, pieces: AsyncIterator[bytes]) -> None:
        """Put a part back, whole or not at all. RequestRefused: the broker does not take it, or it is there already."""


class CopyStream(Protocol):
    """A part that is being copied. `part` is known once the last piece was read."""

    part: Part

    def pieces(self) -> AsyncIterator[bytes]:
        """What to keep. ConnectionFailed, RequestRefused: it is not complete."""


class OrderBounds(Struct, frozen=True):
    """The order log holds the positions from `first` to `end`."""

    first: Position
    end: Position


class OrderLog(Protocol):
    """The order of all events of a cluster with global order, as the root has written it."""

    async def bounds(self) -> OrderBounds | None:
        """The first and last position of the log. None: it is empty, or does not exist."""

    async def read(self, after: Position, ranges_max: int = 1_000) -> OrderRead:
        """Return at most `ranges_max` ranges behind position `after`; none at the end.

        The `after` of the answer is later if retention has removed the ranges in between. InputError: there is no such
        position.
        """

    async def position_at(self, moment: datetime) -> Position:
        """How many positions were in the log at that time. InputError: there is no log."""

    async def wait(self, after: Position, timeout_s: float) -> bool:
        """Wait until something follows position `after`. False: nothing did in that time."""


def check_after(after: Position, bounds: OrderBounds | None) -> OrderBounds:
    """The bounds of a log that can be read behind this position. InputError: it cannot."""
    if bounds is None:
        problem = "it is empty, or was deleted"
        raise InputError(
            "order log", problem, "publish something; a deleted order log begins again with the next event"
        )
    if after < 0:
        raise InputError("position", f"{after} is negative", "positions begin with 1; 0 is before the first")
    if after > bounds.end:
        problem = f"{after} is beyond the end of the order log"
        raise InputError("position", problem, f"it ends with {bounds.end}")
    return bounds


class RowChannel(Protocol):
    """One client's rows of one table, in order. Lines are JSON; `-` before one withdraws the row of that key."""

    def send(self, lines: bytes) -> None:
        """Hand over whole lines; returns at once. LogError: too much waits, because the broker does not take it."""

    async def written(self, timeout_s: float) -> None:
        """Wait until the broker has everything. LogError: it does not have it in that time."""

    async def read(self) -> list[bytes]:
        """The earlier messages of this client, individually."""

    def close(self) -> None:
        """Hand over no more; what waits is forgotten."""


class ReplayPlace(Struct, frozen=True, order=True, gc=False):
    """Where an event is in a replay. Places compare as the events follow each other."""

    order_key: int
    log: Topic
    number: Number
    index: int

    def __str__(self) -> str:
        return f"{self.order_key} {self.log} {self.number} {self.index}"

    @classmethod
    def parse(cls, text: str) -> "ReplayPlace":
        """The text for `str`. ValueError: it is something else."""
        order_key, log, number, index = text.split(" ")
        return cls(int(order_key), log, int(number), int(index))


class ReplayedEvent(Struct, frozen=True, gc=False):
    """One event to publish again. `at_ms`: when it happened, to keep the pace."""

    place: ReplayPlace
    topic: Topic
    event_id: str
    publisher: str | None
    headers: dict[str, str] | None
    data: bytes
    at_ms: float | None = None


class Reached(Struct, frozen=True):
    """How far a replay is: the place of its last event, and how many events are stored."""

    place: ReplayPlace
    count: int


class ReplayPublisher(Protocol):
    """Publishes one replay, in its order, each event once, however often it is interrupted."""

    late: int  # events that were lost on the way and came behind later ones

    async def reached(self) -> Reached | None:
        """Prepare. Returns how far an earlier run of this replay came; None: not started, or the broker cannot tell.

        InputError: the stream or prefix is used by something else.
        """

    async def publish(self, batches: AsyncIterator[Sequence[ReplayedEvent]]) -> int:
        """Store these events in order. Returns their number. Leave out the events up to what `reached` returned."""


async def paced(
    batches: AsyncIterator[Sequence[ReplayedEvent]], factor: float | None
) -> AsyncIterator[Sequence[ReplayedEvent]]:
    """Yield the events as far apart as they happened, `factor` times as fast. None: without waiting."""
    started_s, begin_ms = time.monotonic(), None
    async for batch in batches:
        if factor is None:
            yield batch
            continue
        due: list[ReplayedEvent] = []
        for event in batch:
            if event.at_ms is not None:
                begin_ms = event.at_ms if begin_ms is None else begin_ms
                wait_s = started_s + (event.at_ms - begin_ms) / 1000 / factor - time.monotonic()
                if wait_s > 0:
                    if due:
                        yield due
                        due = []
                    await asyncio.sleep(wait_s)
            due.append(event)
        if due:
            yield due


class BrokerServer(Protocol):
    """A server of our own, as a child process."""

    @property
    def url(self) -> str:
        """The URL at which clients connect."""

    @property
    def pid(self) -> int:
        """The id of the server's process."""

    @property
    def running(self) -> bool:
        """Whether the process lives."""

    @property
    def log_file(self) -> Path:
        """The file that the server logs to."""

    def launch(self) -> None:
        """Start it and wait until it answers. ConnectionFailed says why it does not."""

    async def stop(self) -> None:
        """End it in an orderly way."""

    def kill(self) -> None:
        """End it at once."""
