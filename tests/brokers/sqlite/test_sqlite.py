"""A log in SQLite passes the suite for what it declares, orders two topics end to end, and is refused for the rest."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import seriatim
from seriatim.brokers import Broker, urls
from seriatim.brokers.urls import bulk_reader, kind_of, open_broker, register
from seriatim.cli.cluster import find_cluster
from seriatim.live.server import SequencerServer
from seriatim.model import InputError, RequestRefused, Topic
from seriatim.protocols.with_broker import Write
from seriatim.server.config import parse_config
from tests.brokers.conformance import Conformance, Probe, World
from tests.brokers.sqlite.kind import SQLITE


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a program would, once; other tests know nothing of it."""
    monkeypatch.setattr(urls, "_KINDS", dict(urls._KINDS))
    register("sqlite", SQLITE)


class SqliteWorld(World):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.brokers: list[Broker] = []

    async def connect(self) -> Broker:
        broker = open_broker(f"sqlite://{self.path}")
        await broker.open()
        self.brokers.append(broker)
        return broker

    async def trim(self, topic: Topic, first: int) -> None:
        self._change("DELETE FROM events WHERE topic = ? AND number < ?", topic, first)
        self._change("UPDATE logs SET first = ? WHERE topic = ?", first, topic)

    async def erase(self, topic: Topic, first: int, last: int) -> None:
        self._change("DELETE FROM events WHERE topic = ? AND number BETWEEN ? AND ?", topic, first, last)

    async def publish_plainly(self, subject: Topic, payload: bytes) -> None:
        self._change("INSERT INTO logs VALUES (?, 1, 1) ON CONFLICT DO UPDATE SET last = last + 1", subject)
        query = "INSERT INTO events SELECT topic, last, NULL, ? FROM logs WHERE topic = ?"
        self._change(query, payload.decode(), subject)

    def _change(self, query: str, *values: Any) -> None:
        with sqlite3.connect(self.path) as file:
            file.execute(query, values)


@asynccontextmanager
async def sqlite_world() -> AsyncIterator[World]:
    with TemporaryDirectory() as folder:
        world = SqliteWorld(Path(folder) / "logs.db")
        yield world
        for broker in world.brokers:
            await broker.close()


class TestSqlite(Conformance):
    has_slots = False
    has_requests = False
    has_stages = False
    has_records = True

    def world(self):  # type: ignore[no-untyped-def]
        return sqlite_world()


# ── end to end ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/logs.db"


def server(url: str, folder: Path, **more: Any) -> SequencerServer:
    nodes = {"root": {"address": "127.0.0.1:0"}, "leaf": {"address": "127.0.0.1:0", "parent": "root"}}
    return SequencerServer(parse_config({"broker": url, "nodes": nodes, "homes": {"prices": "leaf"}, **more}, folder))


async def test_two_topics_are_ordered_for_everybody(url: str, tmp_path: Path) -> None:
    """Two subscribers and two publishers find the sequencers by a record in the file; most positions hold no events."""

    async def publish(bus: seriatim.Bus, topic: str, numbers: range) -> None:
        for number in numbers:
            await bus.publish(topic, f"{topic} {number}".encode())

    async def read(events: Any) -> list[bytes]:
        return [(await anext(events)).data for _ in range(120)]

    async with (
        server(url, tmp_path),
        seriatim.connect(url) as one,
        seriatim.connect(url) as two,
        one.subscribe("orders", "prices") as first,
        two.subscribe("orders", "prices") as second,
    ):
        reading = asyncio.gather(read(first), read(second))
        for numbers in (range(50), range(50, 60)):
            await asyncio.gather(publish(one, "orders", numbers), publish(two, "prices", numbers))
            with sqlite3.connect(url.removeprefix("sqlite://")) as file:
                file.execute("UPDATE logs SET last = last + 1000000")
        seen = await reading
        assert seen[0] == seen[1]
        assert len(set(seen[0])) == 120, "each once"


# ── what it cannot do is refused ──────────────────────────────────────────────────────────────────────────────────


async def test_what_it_cannot_do_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no journals"):
        server(url, tmp_path, nodes={"root": {"journal": "broker"}}, homes={})
    with pytest.raises(InputError, match="has no buckets"):
        server(url, tmp_path, streams={"buckets": 4}, homes={})
    with pytest.raises(InputError, match="not a broker that can be read in bulk"):
        bulk_reader(url)
    with pytest.raises(InputError, match="no such option"):
        open_broker(f"{url}?streams=4")
    assert kind_of(url).server(tmp_path) is None

    broker = open_broker(url)
    await broker.open()
    probe = Probe(broker, "p")
    with pytest.raises(InputError, match="no slots"):
        broker.check_slots("a")
    probe.send(Write("a", 1, {}))
    await probe.until(lambda: probe.errors, "an error")
    assert isinstance(probe.errors[0][1], RequestRefused) and "order in log mode" in str(probe.errors[0][1])
    await broker.close()
    async with server(url, tmp_path), seriatim.connect(url) as bus:
        with pytest.raises(InputError, match="keeps no logs of clients"):
            async with bus.subscribe("a", log="broker:"):
                pass
        with pytest.raises(InputError, match="journals"):
            async with bus.subscribe("a", durable="me"):
                pass
        async with find_cluster(url, "seriatim", 5.0) as cluster:
            with pytest.raises(InputError, match="no request and reply; ask the admin port"):
                await cluster.status()
