"""A replay published again: rows of Spark, in their order, one partition after the other, to a broker.

One process publishes, because order is the point. Rows are fetched by a thread while the last ones are on their way, so
the driver holds a partition or two, never the replay.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import IN_FLIGHT, Reached, ReplayedEvent, ReplayPlace, paced, required
from seriatim.brokers.urls import open_broker, shown
from seriatim.model import InputError, Topic
from seriatim.pipeline.replay.sequences import ORDER, in_sequence
from seriatim.pipeline.schemas import REPLAY

FETCH_ROWS = 500
RECORD_EVERY = 1_000  # events, between two notes of progress in a file


class Publishing(Struct, frozen=True, kw_only=True):
    """Where to and how. `prefix` None: onto the topics themselves, and `progress` is the file that says how far."""

    url: str
    digest: str
    prefix: Topic | None = "replay"
    factor: float | None = None  # of the pace at which the events happened; None: as fast as the broker takes them
    in_flight: int = IN_FLIGHT
    progress: Path | None = None


class Republished(Struct, frozen=True):
    """The result of publishing. `passed`: archived only after an earlier run had passed their place, so not
    published."""

    events: int
    before: int
    passed: int
    late: int


def digest_of(*what: object) -> str:
    """A name for what is replayed."""
    return blake2b(json.dumps(what, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


async def publish_again(
    events: DataFrame, publishing: Publishing, on_stored: Callable[[int], None] = lambda count: None
) -> Republished:
    """Publish the events of a replay, from where an earlier run of the same one ended. Those without data are not."""
    broker = open_broker(publishing.url)
    await broker.open()
    try:
        return await _publish(broker, events.where(~F.col("missing")), publishing, on_stored)
    finally:
        await broker.close()


async def _publish(
    broker: Broker, events: DataFrame, publishing: Publishing, on_stored: Callable[[int], None]
) -> Republished:
    note = ProgressFile(publishing, on_stored)
    publisher = required(
        broker.replay(publishing.digest, publishing.prefix, in_flight=publishing.in_flight, on_stored=note.stored),
        "url",
        f"({shown(publishing.url)}) cannot take a replay",
        "use one that can, such as nats://host:port (JetStream)",
    )
    reached = await publisher.reached() or note.reached()
    before = passed = 0
    if reached is not None:
        here = F.struct(*ORDER)
        there = F.struct(
            *(F.lit(part).cast(REPLAY[name].dataType) for name, part in zip(ORDER, astuple(reached.place), strict=True))
        )
        earlier = await asyncio.to_thread(events.where(here <= there).count)
        before, passed = reached.count, max(0, earlier - reached.count)
        events = events.where(here > there)
        note.before = before
    rows = await asyncio.to_thread(in_sequence(events).toLocalIterator, True)
    count = await publisher.publish(paced(_batches(rows), publishing.factor))
    note.write()
    return Republished(count, before, passed, publisher.late)


async def _batches(rows: Iterator[Row]) -> AsyncIterator[Sequence[ReplayedEvent]]:
    """Fetched by a thread: a job of Spark's may take longer than a broker waits for its client."""

    def fetch() -> list[ReplayedEvent]:
        return [event_of(row) for row in islice(rows, FETCH_ROWS)]

    ahead = asyncio.create_task(asyncio.to_thread(fetch))
    try:
        while batch := await ahead:
            ahead = asyncio.create_task(asyncio.to_thread(fetch))
            yield batch
    finally:
        ahead.cancel()


def event_of(row: Row) -> ReplayedEvent:
    """A row of `schemas.REPLAY`."""
    at_ms = row["notified_at"] if row["notified_at"] is not None else row["received_at"]
    headers, data = row["headers"], bytes(row["data"])
    place = ReplayPlace(row["order_key"], row["log"], row["number"], row["index"])
    return ReplayedEvent(place, row["topic"], row["event_id"], row["publisher"], headers, data, at_ms)


class ProgressFile:
    """The progress of a replay onto the topics themselves, in a file, because no stream records it."""

    def __init__(self, publishing: Publishing, on_stored: Callable[[int], None]) -> None:
        self.before = 0
        self._digest = publishing.digest
        self._path = publishing.progress if publishing.prefix is None else None
        self._on_stored = on_stored
        self._place: ReplayPlace | None = None
        self._count = self._written = 0

    def reached(self) -> Reached | None:
        """What the file says. Raises InputError if it is of another replay."""
        if self._path is None or not self._path.exists():
            return None
        try:
            noted = json.loads(self._path.read_text(encoding="utf-8"))
            place, count, digest = ReplayPlace.parse(noted["place"]), int(noted["count"]), str(noted["digest"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(str(self._path), "it is not a record of a replay", "name another file") from None
        if digest != self._digest:
            raise InputError(str(self._path), "it is the record of another replay", "name another file")
        self._place, self._count = place, 0
        return Reached(place, count)

    def stored(self, place: ReplayPlace, count: int) -> None:
        """Note that everything up to this place is on the broker."""
        self._place, self._count = place, count
        self._on_stored(self.before + count)
        if count - self._written >= RECORD_EVERY:
            self.write()

    def write(self) -> None:
        """Write the whole file, or nothing."""
        if self._path is None or self._place is None:
            return
        self._written = self._count
        noted = {"digest": self._digest, "place": str(self._place), "count": self.before + self._count}
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_text(json.dumps(noted), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            raise InputError(str(self._path), f"it cannot be written: {error.strerror}", "name another file") from None
