"""A numbered log per topic, with its stamps, in one SQLite file. Every connection looks for news a few times a second.

It keeps a log, knows repeats and keeps records. It has no slots, no request and reply, no journals.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from seriatim.brokers.capabilities import Records
from seriatim.brokers.naming import ordered_topic
from seriatim.brokers.seam import Broker, Deliver, OnError, Port
from seriatim.model import Address, Closed, Event, InputError, Node, RequestRefused, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Follow,
    Grown,
    Kept,
    Listen,
    Listening,
    Stamped,
    StampedTo,
    Trimmed,
    Unfollow,
    Unlisten,
    Unwatch,
    Voids,
    Watch,
)

POLL_S = 0.01
AT_ONCE = 500
PAYLOAD_BYTES_MAX = 1_000_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (topic TEXT PRIMARY KEY, last INTEGER NOT NULL, first INTEGER NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS events (topic TEXT, number INTEGER, id TEXT, body BLOB, PRIMARY KEY (topic, number));
CREATE UNIQUE INDEX IF NOT EXISTS ids ON events (topic, id);
CREATE TABLE IF NOT EXISTS stamps (topic TEXT, first INTEGER, last INTEGER, entries BLOB, epoch INTEGER, node TEXT,
                                   PRIMARY KEY (topic, first));
CREATE TABLE IF NOT EXISTS records (name TEXT PRIMARY KEY, data BLOB);
"""


class SqliteBroker(Broker):
    """One connection."""

    payload_bytes_max = PAYLOAD_BYTES_MAX
    knows_repeats = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports: list[SqlitePort] = []
        self._file: sqlite3.Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def records(self) -> Records:
        return self

    @property
    def file(self) -> sqlite3.Connection:
        if self._file is None:
            raise Closed(f"{self._path} is not open")
        return self._file

    def ordered_topic(self, name: Topic) -> Topic:
        return ordered_topic(name, 0)

    def check_slots(self, topic: Topic) -> None:
        raise InputError(f"topic {topic!r}", "a log in SQLite has no slots", "order in log mode")

    async def stamped_epoch(self, node: Node) -> int | None:
        (epoch,) = self.file.execute("SELECT max(epoch) FROM stamps WHERE node = ?", (node,)).fetchone()
        return epoch  # type: ignore[no-any-return]

    async def open(self) -> None:
        if self._closed:
            raise Closed("this connection was closed; make a new one")
        self._file = sqlite3.connect(self._path, isolation_level=None)
        self._file.executescript("PRAGMA journal_mode = WAL;" + SCHEMA)
        self._task = asyncio.create_task(self._work())

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> "SqlitePort":
        if self._closed:
            raise Closed("this connection was closed; make a new one")
        port = SqlitePort(self, address, deliver, on_error)
        self._ports.append(port)
        return port

    async def keep(self, name: str, data: bytes) -> None:
        self.file.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", (name, data))

    async def kept(self, name: str) -> bytes | None:
        found = self.file.execute("SELECT data FROM records WHERE name = ?", (name,)).fetchone()
        return found[0] if found is not None else None

    async def close(self) -> None:
        self._closed = True
        for port in list(self._ports):
            await port.close()
        if self._task is not None:
            self._task.cancel()
        if self._file is not None:
            self._file.close()
            self._file = None

    def detach(self, port: "SqlitePort") -> None:
        self._ports.remove(port)

    async def _work(self) -> None:
        while True:
            for port in list(self._ports):
                port.work(self.file)
            await asyncio.sleep(POLL_S)


class _Reading(Struct):
    """How far one topic was delivered."""

    done: int
    stamped: int


class SqlitePort(Port):
    """The file as one machine sees it."""

    def __init__(self, broker: SqliteBroker, address: Address, deliver: Deliver, on_error: OnError | None) -> None:
        super().__init__(address, deliver, on_error)
        self._broker = broker
        self._requests: deque[Payload] = deque()
        self._reading: dict[Topic, _Reading] = {}
        self._watched: dict[Topic, tuple[int, int]] = {}
        self._followed: dict[Topic, int] = {}
        self._paused, self._held = False, set[Topic]()

    def send(self, message: Payload) -> None:
        if isinstance(message, Unlisten):
            self._reading.pop(message.topic, None)
        if not self._closed:
            self._requests.append(message)

    def pause(self, topic: Topic | None = None) -> None:
        if topic is None:
            self._paused = True
        else:
            self._held.add(topic)

    def resume(self, topic: Topic | None = None) -> None:
        if topic is None:
            self._paused = False
        else:
            self._held.discard(topic)

    async def close(self) -> None:
        if not self._closed:
            await super().close()
            self._broker.detach(self)

    def work(self, file: sqlite3.Connection) -> None:
        """Carry out what was asked, then deliver what is new."""
        answers: list[Callable[[], None]] = []
        if self._requests:
            file.execute("BEGIN IMMEDIATE")
            while self._requests:
                self._carry_out(file, self._requests.popleft(), answers)
            file.execute("COMMIT")
        for answer in answers:
            answer()
        for topic, known in list(self._watched.items()):
            self._watched[topic] = now = self._length(file, topic)
            self._tell_length(topic, now, known)
        for topic, stamped in list(self._followed.items()):
            self._followed[topic] = last = self._stamped_to(file, topic)
            if last > stamped:
                self._deliver(StampedTo(topic, last))
        if not self._paused:
            for topic, reading in list(self._reading.items()):
                self._read(file, topic, reading)

    def _carry_out(self, file: sqlite3.Connection, message: Payload, answers: list[Callable[[], None]]) -> None:
        def say(*said: Payload) -> None:
            answers.extend(partial(self._deliver, each) for each in said)

        match message:
            case Append(event) if len(event.payload) <= PAYLOAD_BYTES_MAX:
                say(Appended(event.topic, event.id, append(file, event)))
            case Stamped():
                row = (message.topic, message.first, message.last, msgspec.json.encode(message.entries))
                file.execute(
                    "INSERT OR IGNORE INTO stamps VALUES (?, ?, ?, ?, ?, ?)", (*row, message.epoch, self.address)
                )
                say(Kept(message.topic, message.first))
            case Watch(topics):
                for topic in sorted(topics):
                    self._watched[topic] = now = self._length(file, topic)
                    answers.append(partial(self._tell_length, topic, now, (-1, 1)))
            case Unwatch(topic):
                self._watched.pop(topic, None)
            case Listen(topic, after):
                last, first = self._length(file, topic)
                start = last if after is None else after
                trimmed = first if start < first - 1 else start + 2
                if start < first - 1 or (message.is_kept and not self._is_stamped(file, topic, start + 1)):
                    say(Trimmed(topic, trimmed))
                self._reading[topic] = _Reading(max(start, first - 1), start)
                say(Listening(topic, message.version))
            case Follow(topic):
                self._followed[topic] = -1
            case Unfollow(topic):
                self._followed.pop(topic, None)
            case Unlisten():
                pass
            case Append(event):
                problem = f"event {event.id} has {len(event.payload)} bytes; at most {PAYLOAD_BYTES_MAX} are taken"
                answers.append(partial(self._refuse, message, RequestRefused(problem)))
            case _:
                problem = f"a log in SQLite has no slots, so it cannot carry out {type(message).__name__}"
                answers.append(partial(self._refuse, message, RequestRefused(f"{problem}; order in log mode")))

    def _read(self, file: sqlite3.Connection, topic: Topic, reading: _Reading) -> None:
        """Events in order, and void ranges where there are none."""
        last, first = self._length(file, topic)
        if topic not in self._held:
            if reading.done < first - 1:
                self._deliver(Trimmed(topic, first))
                reading.done = first - 1
            query = "SELECT number, body FROM events WHERE topic = ? AND number > ? ORDER BY number LIMIT ?"
            rows = file.execute(query, (topic, reading.done, AT_ONCE)).fetchall()
            for number, body in rows:
                self._pass_voids(topic, reading, number - 1)
                reading.done = number
                self._deliver(Delivered(topic, number, None, _event(topic, number, body)))
            if len(rows) < AT_ONCE:
                self._pass_voids(topic, reading, last)
        query = "SELECT first, last, entries, epoch FROM stamps WHERE topic = ? AND last > ? ORDER BY first"
        for begin, end, entries, epoch in file.execute(query, (topic, reading.stamped)).fetchall():
            reading.stamped = end
            self._deliver(Stamped(topic, begin, end, msgspec.json.decode(entries), epoch))

    def _pass_voids(self, topic: Topic, reading: _Reading, last: int) -> None:
        if reading.done < last:
            self._deliver(Voids(topic, reading.done + 1, last))
            reading.done = last

    def _length(self, file: sqlite3.Connection, topic: Topic) -> tuple[int, int]:
        found = file.execute("SELECT last, first FROM logs WHERE topic = ?", (topic,)).fetchone()
        return found if found is not None else (0, 1)

    def _is_stamped(self, file: sqlite3.Connection, topic: Topic, number: int) -> bool:
        query = "SELECT 1 FROM stamps WHERE topic = ? AND first <= ? AND last >= ?"
        return file.execute(query, (topic, number, number)).fetchone() is not None

    def _stamped_to(self, file: sqlite3.Connection, topic: Topic) -> int:
        (last,) = file.execute("SELECT max(last) FROM stamps WHERE topic = ?", (topic,)).fetchone()
        return last or 0

    def _tell_length(self, topic: Topic, now: tuple[int, int], known: tuple[int, int]) -> None:
        if now[1] > known[1]:
            self._deliver(Trimmed(topic, now[1]))
        if now[0] > known[0]:
            self._deliver(Grown(topic, now[0]))


def append(file: sqlite3.Connection, event: Event) -> int:
    """The event's position; a repeat has the one that it had."""
    query = "SELECT number FROM events WHERE topic = ? AND id = ?"
    if (known := file.execute(query, (event.topic, event.id)).fetchone()) is not None:
        return int(known[0])
    query = "INSERT INTO logs VALUES (?, 1, 1) ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last"
    (number,) = file.execute(query, (event.topic,)).fetchone()
    body = msgspec.msgpack.encode(event)
    file.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (event.topic, number, event.id, body))
    return int(number)


def _event(topic: Topic, number: int, body: Any) -> Event:
    """What a plain client has written is an event without a publisher."""
    if isinstance(body, str):
        return Event(f"{topic}-{number}", topic, "", body.encode())
    return msgspec.msgpack.decode(body, type=Event)
