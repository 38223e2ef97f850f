"""Real sequencers behind TCP: finding them, losing them, being let in. The broker is in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seriatim.client import Bus
from seriatim.client.brokered.discovery import open_remote
from seriatim.client.settings import Settings
from seriatim.client.tree.session import TreeSession
from seriatim.live.server import SequencerServer
from seriatim.live.tree.wire import TREE
from seriatim.model import ConnectionFailed, InputError, TimedOut
from seriatim.server.config import parse_config
from tests.client.world import data, hurry, take, until
from tests.ports import free_port

TOKEN = "a token of sixteen or more".replace(" ", "-")


def bus(name: str, **options: Any) -> Bus:
    """A bus that finds its sequencers through the broker, as with any broker that is not in memory."""
    settings = Settings(url=f"memory://{name}", **({"timeout_s": 60.0} | options))
    return Bus(TreeSession(settings, partial(open_remote, settings, TREE)))


@asynccontextmanager
async def server(
    name: str, folder: Path, ports: Sequence[int] = (0, 0, 0), **more: Any
) -> AsyncIterator[SequencerServer]:
    """A root and two leaves in one process, reached over TCP."""
    root, east, west = (f"127.0.0.1:{port}" for port in ports)
    nodes = {
        "root": {"address": root},
        "east": {"parent": "root", "address": east},
        "west": {"parent": "root", "address": west},
    }
    homes = {"a": "east", "b": "west"}
    config = parse_config(
        {"broker": f"memory://{name}", "nodes": nodes, "homes": homes, "default_home": "root", **more}, folder
    )
    running = SequencerServer(config)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_the_same_order_for_everybody(tmp_path: Path, mode: str) -> None:
    async with (
        server("order", tmp_path, mode=mode),
        bus("order") as one,
        bus("order", mode=mode) as two,
        one.subscribe("a", "b", "c") as first,
        two.subscribe("a", "b", "c") as second,
    ):
        for i in range(30):
            await asyncio.gather(one.publish("abc"[i % 3], b"one %d" % i), two.publish("ab"[i % 2], b"two %d" % i))
        assert data(await take(first, 60)) == data(await take(second, 60))
        assert not one.explain()


async def test_durable_subscriptions_have_a_name_of_their_own(tmp_path: Path) -> None:
    async with server("durable", tmp_path), bus("durable", journals=tmp_path / "j") as publisher:
        for life in range(3):
            async with (
                bus("durable", journals=tmp_path / "j") as reader,
                reader.subscribe("a", "b", durable="billing") as events,
            ):
                await publisher.publish_many([("a", b"%d" % life), ("b", b"%d" % life)])
                assert sorted(data(await take(events, 2))) == [str(life)] * 2
                await events.acknowledge()


async def test_a_durable_subscription_needs_a_place(tmp_path: Path) -> None:
    async with server("place", tmp_path), bus("place") as reader:
        with pytest.raises(InputError, match=r'needs a journal.* connect\(journals="folder"\)'):
            async with reader.subscribe("a", durable="billing"):
                pass


async def test_a_node_that_is_down_is_named(tmp_path: Path) -> None:
    async with (
        server("down", tmp_path) as running,
        bus("down") as client,
        client.subscribe("a", "b") as events,
    ):
        await running.served["east"].stop()
        await until("the loss is noticed", lambda: bool(client.explain().down))
        assert "node east is not connected" in str(client.explain())
        await client.publish("b", b"1")
        assert data(await take(events, 1)) == ["1"]
        with pytest.raises(TimedOut, match=r"node root has not answered for c, node east is not connected"):
            hurry(client, events, timeout_s=0.5)
            await events.add("c")  # a's home, which is down, must be told


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_sequencers_that_restart_are_found_again(tmp_path: Path, mode: str) -> None:
    ports = [free_port() for _ in range(3)]
    async with server("restart", tmp_path, ports, mode=mode) as first:
        one = await bus("restart", timeout_s=60.0).__aenter__()
        two = await bus("restart", timeout_s=60.0).__aenter__()
        events = await one.subscribe("a", "b").__aenter__()
        others = await two.subscribe("a", "b").__aenter__()
        await one.publish_many([("a", b"1"), ("b", b"2")] * 5)
        assert first.addresses
    await until("the loss is noticed", lambda: len(one.explain().down) == 3)
    adding = asyncio.ensure_future(events.add("c"))
    publishing = asyncio.ensure_future(two.publish_many([("a", b"3"), ("b", b"4")]))
    async with server("restart", tmp_path, ports, mode=mode):
        await adding
        await publishing
        await one.publish("c", b"5")
        got = await take(events, 13)
        assert [each for each in data(got) if each in "1234"] == data(await take(others, 12))
        assert data(got).count("5") == 1
        await one.close()
        await two.close()


async def test_a_wrong_token_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    async with server("token", tmp_path, security={"token_file": "token"}):
        with pytest.raises(InputError, match="token: the sequencers of seriatim require one"):
            await bus("token").__aenter__()
        with pytest.raises(ConnectionFailed, match="wrong token"):
            await bus("token", token=TOKEN[::-1]).__aenter__()
        async with bus("token", token=TOKEN) as client:
            assert (await client.publish("a", b"1")).number == 1


async def test_given_addresses_replace_those_of_the_description(tmp_path: Path) -> None:
    async with server("given", tmp_path) as running:
        given = list(running.addresses.values())
        async with bus("given", sequencers=given) as client, client.subscribe("a", "b") as events:
            await client.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:9"):
            await bus("given", sequencers=["127.0.0.1:9"], timeout_s=0.3).__aenter__()


async def test_no_sequencer(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="no sequencer answers for cluster 'seriatim' on memory://empty"):
        await bus("empty", timeout_s=0.1).__aenter__()


async def test_another_mode_than_the_clusters(tmp_path: Path) -> None:
    async with server("mode", tmp_path, mode="ticket"):
        with pytest.raises(InputError, match="cluster seriatim runs in ticket mode"):
            await bus("mode", mode="log").__aenter__()
