"""Brokers with an old journal, with none, or twice: their neighbours know, and they end before they act."""

import asyncio
import shutil
from pathlib import Path

import pytest

from seriatim.live.overlay import LiveBroker, OverlayConfig, load_overlay
from seriatim.model import Behind, Gap
from tests.live.overlay.world import brokers, bus_of, session_of, until, write_overlay

PAIR = {"A": "", "B": "A"}
FIX = "Start it with its latest journal, and stop any other process of this name"


async def ended(broker: LiveBroker) -> str:
    """Why it has ended by itself."""
    error = await asyncio.wait_for(asyncio.shield(broker.failed), 30.0)
    assert isinstance(error, Behind), error
    assert FIX in str(error)
    return str(error)


async def two_lives(config: OverlayConfig, path: Path, stale: str, other: str, copy: Path, epochs: int) -> LiveBroker:
    """Both brokers, `stale` with a copy of what its journal was before the latest events. Returns the other one.

    `epochs`: how often the other one has seen it restart since the copy was made.
    """
    running = LiveBroker(config, other)
    await running.start()
    first = LiveBroker(config, stale)
    await first.start()
    async with (
        bus_of(path, stale) as here,
        bus_of(path, other) as there,
        here.subscribe("t") as mine,
        there.subscribe("t") as theirs,
    ):
        await here.publish("t", b"1")
        await there.publish("t", b"2")
        assert sorted([(await mine.next()).data, (await mine.next()).data]) == [b"1", b"2"]
        await first.stop()
        shutil.copytree(config.journal(stale), copy)
        for _ in range(epochs):
            again = LiveBroker(config, stale)
            await again.start()
            await here.publish("t", b"3")
            await there.publish("t", b"4")
            await until(lambda: mine.unread + theirs.unread >= 4, "both have been seen on both sides")
            while mine.unread or theirs.unread:
                await (mine if mine.unread else theirs).next()
            await again.stop()
    shutil.rmtree(config.journal(stale))
    shutil.copytree(copy, config.journal(stale))
    return running


@pytest.mark.parametrize(("stale", "other"), [("B", "A"), ("A", "B")], ids=["below", "root"])
@pytest.mark.parametrize("epochs", [1, 3])
async def test_a_broker_with_an_old_copy_of_its_journal_ends(
    tmp_path: Path, stale: str, other: str, epochs: int
) -> None:
    """After one restart its epoch is the same as that of the life it has forgotten; the links tell."""
    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    running = await two_lives(config, path, stale, other, tmp_path / "copy", epochs)
    broker = LiveBroker(config, stale)
    try:
        await broker.start()
        why = await ended(broker)
        told = ("has seen more of it", "has heard", "was in epoch")
        assert why.startswith(f"broker {stale} has stopped") and any(each in why for each in told), why
        assert not running.failed.done()
        if (stale, epochs) == ("A", 3):  # the one below finds out; the broker with the latest journal may come at once
            assert running._dialer is not None
            line = running._dialer.line(config.brokers["A"].address)
            await until(lambda: line.reason != "connected" and line.connection is None, "it is refused")
            assert not line.refused, line.reason
    finally:
        await broker.stop()
        await running.stop()


@pytest.mark.parametrize(("stale", "other"), [("B", "A"), ("A", "B")], ids=["below", "root"])
async def test_a_neighbour_that_was_restarted_itself_still_knows(tmp_path: Path, stale: str, other: str) -> None:
    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    running = await two_lives(config, path, stale, other, tmp_path / "copy", 2)
    await running.stop()
    broker, running = LiveBroker(config, stale), LiveBroker(config, other)
    try:
        await broker.start()
        await running.start()
        await ended(broker)
        assert not running.failed.done()
    finally:
        await broker.stop()
        await running.stop()


@pytest.mark.parametrize(("lost", "other"), [("B", "A"), ("A", "B")], ids=["below", "root"])
async def test_a_broker_that_lost_its_journal_ends(tmp_path: Path, lost: str, other: str) -> None:
    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    running = await two_lives(config, path, lost, other, tmp_path / "copy", 1)
    shutil.rmtree(config.journal(lost))
    broker = LiveBroker(config, lost)
    try:
        await broker.start()
        await ended(broker)
    finally:
        await broker.stop()
        await running.stop()


@pytest.mark.parametrize("lacks", ["all of it", "its client"])
async def test_clients_wait_for_the_latest_journal_and_miss_nothing(tmp_path: Path, lacks: str) -> None:
    """A broker that may be behind does not tell a client that it has forgotten it."""
    path = write_overlay(tmp_path, PAIR, options="suspect_after_ms = 600000\n")
    config = load_overlay(path)
    below, root = LiveBroker(config, "B"), LiveBroker(config, "A")
    await below.start()
    await root.start()
    if lacks == "its client":
        await until(lambda: root.unconfirmed == [] == below.unconfirmed, "they have heard each other")
        await root.stop()
        shutil.copytree(config.journal("A"), tmp_path / "copy")
        root = LiveBroker(config, "A")
        await root.start()
    async with bus_of(path, "B") as there, bus_of(path, "A") as here, here.subscribe("t", show_gaps=True) as events:
        await there.publish("t", b"1")
        assert (await events.next()).data == b"1"
        await below.stop()
        await root.stop()
        latest = config.journal("A").rename(tmp_path / "latest")
        if lacks == "its client":
            shutil.copytree(tmp_path / "copy", config.journal("A"))

        root = LiveBroker(config, "A")
        await root.start()
        await until(lambda: root.refusals.get("unconfirmed", 0) > 1, "the client is asked to wait")
        assert "forgotten" not in root.refusals
        below = LiveBroker(config, "B")
        await below.start()
        await ended(root)
        await root.stop()
        assert "forgotten" not in root.refusals

        shutil.rmtree(config.journal("A"))
        latest.rename(config.journal("A"))
        root = LiveBroker(config, "A")
        await root.start()
        await there.publish("t", b"2")
        event = await events.next()
        assert not isinstance(event, Gap) and event.data == b"2"
        await here.close()
        await there.close()
    await root.stop()
    await below.stop()


async def test_no_client_is_admitted_before_the_neighbours_were_heard(tmp_path: Path) -> None:
    """What an old copy acknowledged to a client would be lost."""
    path = write_overlay(tmp_path, PAIR, options="suspect_after_ms = 600000\n")
    config = load_overlay(path)
    broker = LiveBroker(config, "B")
    await broker.start()
    async with asyncio.timeout(50.0):
        bus = bus_of(path, "B", timeout_s=40.0)
        entering = asyncio.ensure_future(bus.__aenter__())
        await until(lambda: broker.refusals.get("unconfirmed", 0) > 0, "the client is asked to wait")
        assert broker.unconfirmed == ["A"] and not entering.done()
        root = LiveBroker(config, "A")
        await root.start()
        await entering
        async with bus.subscribe("t") as events:
            await bus.publish("t", b"1")
            assert (await events.next()).data == b"1"
        await bus.close()
    await broker.stop()
    await root.stop()


async def test_clients_that_know_more_than_their_only_broker_begin_anew(tmp_path: Path) -> None:
    """Nobody else can tell that its journal is a copy; they are told of a gap, instead of waiting for ever."""
    path = write_overlay(tmp_path, {"A": ""})
    config = load_overlay(path)
    first = LiveBroker(config, "A")
    await first.start()
    async with bus_of(path, "A") as bus, bus.subscribe("t", show_gaps=True) as events:
        await bus.publish("t", b"1")
        assert (await events.next()).data == b"1"
        await first.stop()
        shutil.copytree(config.journal("A"), tmp_path / "copy")
        second = LiveBroker(config, "A")
        await second.start()
        for n in range(5):
            await bus.publish("t", b"%d" % n)
            await events.next()
        await second.stop()
        shutil.rmtree(config.journal("A"))
        shutil.copytree(tmp_path / "copy", config.journal("A"))
        third = LiveBroker(config, "A")
        await third.start()
        gap = await events.next()
        assert isinstance(gap, Gap) and "has forgotten" in gap.reason
        await until(lambda: session_of(bus).attached is not None, "it is attached")
        while True:  # what is published before it has begun anew is missed
            await bus.publish("t", b"after")
            if events.unread:
                break
        assert (await events.next()).data == b"after"
        assert not third.failed.done()
        await bus.close()
        await third.stop()


async def test_restarts_with_the_right_journal_are_none_of_this(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, PAIR)
    config = load_overlay(path)
    async with brokers(path, "A") as running:
        for n in range(4):
            broker = LiveBroker(config, "B")
            await broker.start()
            async with bus_of(path, "B") as bus, bus.subscribe("t") as events:
                await bus.publish("t", b"%d" % n)
                assert (await events.next()).data == b"%d" % n
            await broker.stop()
            assert not broker.failed.done() and not running["A"].failed.done()
