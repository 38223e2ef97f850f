"""Topics and durable subscriptions of a running cluster on a real NATS server: listed, removed, made anew."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from seriatim import Bus, connect
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.live.server import SequencerServer
from seriatim.model import Behind
from seriatim.server.config import ClusterConfig, parse_config
from tests.cli.processes import run
from tests.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer() as server:
        yield server


def config(server: NatsServer, folder: Path, **more: Any) -> ClusterConfig:
    nodes = {
        "root": {"address": "127.0.0.1:0", "journal": f"file:{folder}/root"},
        "eu": {"address": "127.0.0.1:0", "journal": f"file:{folder}/eu", "parent": "root"},
    }
    return parse_config({"broker": server.url, "nodes": nodes, "homes": {"orders": "eu"}, **more})


async def seriatim(*words: str, url: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(run, *words, "--url", url, "--timeout", "20")
    return done.returncode, done.stdout, done.stderr


async def move(url: str, topic: str, to: str) -> None:
    async with find_cluster(url, "seriatim", 30.0) as found:
        await Mover(found).move(topic, to, 30.0)


async def listed(url: str, what: str = "topics", key: str = "topic") -> dict[str, dict[str, Any]]:
    code, out, err = await seriatim(what, "--json", url=url)
    assert code == 0, err
    return {row[key]: row for row in map(json.loads, out.splitlines())}


async def publish(bus: Bus, topic: str, count: int) -> list[int]:
    receipts = [await bus.publish(topic, b"event %d" % n) for n in range(count)]
    return [receipt.number for receipt in receipts]


async def test_a_removed_topic_leaves_nothing_and_goes_on_behind_its_last_number(
    server: NatsServer, tmp_path: Path
) -> None:
    url, cluster = server.url, config(server, tmp_path)
    async with SequencerServer(cluster), connect(url) as bus:
        async with bus.subscribe("orders", "prices") as events:
            assert await publish(bus, "orders", 3) == [1, 2, 3]
            await publish(bus, "prices", 1)
            async with asyncio.timeout(30):
                assert [(await events.next()).topic for _ in range(4)] == ["orders"] * 3 + ["prices"]
            row = (await listed(url))["orders"]
            assert (row["home"], row["issued"], row["subscribers"], row["behind"]) == ("eu", 3, 1, 0)
            assert row["log"]["stream"] == "seriatim-topic-orders"
            code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
            assert code == 1
            assert "it is held by" in err
        code, out, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert (code, out) == (0, "orders: removed\n"), err
        assert list(await listed(url)) == ["prices"]
        streams = {each.config.name: each async for each in jetstream_streams(url)}
        assert "seriatim-topic-orders" not in streams
        assert streams["seriatim-stamps-eu"].state.messages == 1  # how far the stamps went
    async with SequencerServer(cluster):  # nothing makes it again by itself, though the file lists it
        assert list(await listed(url)) == ["prices"]
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert (code, "there is no topic 'orders'" in err) == (2, True)
        async with connect(url) as bus, bus.subscribe("orders", "prices") as events:
            assert await publish(bus, "orders", 2) == [4, 5]
            async with asyncio.timeout(30):
                assert [(await events.next()).number for _ in range(2)] == [4, 5]
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert code == 0, err
        async with connect(url) as bus:
            assert await publish(bus, "orders", 1) == [6]


async def jetstream_streams(url: str) -> AsyncIterator[Any]:
    client = await nats.connect(url)
    try:
        for each in await client.jetstream().streams_info():
            yield each
    finally:
        await client.close()


async def test_what_was_published_and_not_numbered_is_numbered_first(server: NatsServer, tmp_path: Path) -> None:
    """Plain events on a topic that nobody watches: the home hears of them from the broker, and asks again."""
    cluster = config(server, tmp_path)
    async with SequencerServer(cluster), connect(server.url, confirm="stored") as bus:
        await publish(bus, "unwatched", 3)
        code, _, err = await seriatim("topics", "remove", "unwatched", "--yes", url=server.url)
        assert code == 0, err
        order = await seriatim("order", "--json", url=server.url)
        rows = [json.loads(line) for line in order[1].splitlines()]
        assert ("unwatched", 1, 3) in [(row["topic"], row["first"], row["last"]) for row in rows]


async def test_a_stream_deleted_by_hand_is_accepted_and_one_of_somebody_else_is_not_touched(
    server: NatsServer, tmp_path: Path
) -> None:
    url = server.url
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="THEIRS", subjects=["theirs"])
    async with SequencerServer(config(server, tmp_path)) as sequencers, connect(url) as bus:
        await publish(bus, "theirs", 2)
        await publish(bus, "orders", 2)
        code, _, err = await seriatim("topics", "remove", "theirs", "--yes", url=url)
        assert code == 2
        assert "nats stream rm THEIRS" in err
        async with bus.subscribe("orders"):
            pass
        await client.jetstream().delete_stream("seriatim-topic-orders")
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert code == 0, err
        await until(lambda: not any("orders" in str(each) for each in sequencers.problems()), "it is no trouble")
        async with bus.subscribe("orders") as events:
            assert await publish(bus, "orders", 1) == [3]
            assert (await events.next()).number == 3
    await client.close()


async def test_in_ticket_mode_the_slots_are_deleted(server: NatsServer, tmp_path: Path) -> None:
    url = server.url
    async with SequencerServer(config(server, tmp_path, mode="ticket")), connect(url) as bus:
        assert await publish(bus, "orders", 2) == [1, 2]
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert code == 0, err
        assert not [each async for each in jetstream_streams(url) if "slots" in each.config.name]
        async with bus.subscribe("orders") as events:
            assert await publish(bus, "orders", 1) == [3]
            assert (await events.next()).number == 3


async def test_a_topic_can_be_made_before_a_plain_client_publishes(server: NatsServer, tmp_path: Path) -> None:
    url = server.url
    async with SequencerServer(config(server, tmp_path)):
        code, out, err = await seriatim("topics", "add", "plain", url=url)
        assert (code, out) == (0, "plain: ready\n"), err
        client = await nats.connect(url)
        await client.publish("plain", b"kept")
        await client.drain()

        async def stamped() -> bool:
            return bool((await listed(url))["plain"]["settled"] == 1)

        await until(stamped, "the event of a plain client is stamped")


async def test_a_durable_subscription_is_listed_and_removed(server: NatsServer, tmp_path: Path) -> None:
    url = server.url
    async with SequencerServer(config(server, tmp_path)), connect(url, journals=tmp_path / "durables") as bus:
        async with bus.subscribe("orders", "prices", durable="billing") as events:
            await publish(bus, "orders", 1)
            await events.next()
            row = (await listed(url, "durables", "name"))["billing"]
            assert (row["topics"], row["is_connected"]) == (["orders", "prices"], True)
            code, _, err = await seriatim("durables", "remove", "billing", "--yes", url=url)
            assert code == 1
            assert "billing is connected from 127.0.0.1:" in err
        await publish(bus, "orders", 2)
        row = (await listed(url, "durables", "name"))["billing"]
        assert row["behind"] == 3, row  # nothing is acknowledged: the next one was not asked for

        async def is_away() -> bool:
            return not (await listed(url, "durables", "name"))["billing"]["is_connected"]

        await until(is_away, "its connection is closed")
        assert (await listed(url))["orders"]["durables"] == 1
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert (code, "held by durable/billing" in err) == (1, True)
        code, out, err = await seriatim("durables", "remove", "billing", "--yes", url=url)
        assert (code, out) == (0, "billing: removed\n"), err
        assert await listed(url, "durables", "name") == {}
        assert (await listed(url))["orders"]["subscribers"] == 0
        code, _, err = await seriatim("durables", "remove", "billing", "--yes", url=url)
        assert (code, "there is no durable subscription 'billing'" in err) == (2, True)
        with pytest.raises(Behind, match="an operator has removed the subscription"):
            async with bus.subscribe("orders", durable="billing") as events:
                await events.next()
        async with bus.subscribe("orders", durable="billing", accept=True) as events:
            await publish(bus, "orders", 1)
            assert (await events.next()).number == 4


async def test_what_is_published_after_a_removal_survives_a_move(server: NatsServer, tmp_path: Path) -> None:
    """The new home tells its broker of the removal, too: that must not remove what was stored meanwhile."""
    url = server.url
    async with SequencerServer(config(server, tmp_path)) as sequencers, connect(url, confirm="stored") as bus:
        async with bus.subscribe("orders") as events:
            await publish(bus, "orders", 3)
            async with asyncio.timeout(30):
                assert [(await events.next()).number for _ in range(3)] == [1, 2, 3]
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert code == 0, err
        assert await publish(bus, "orders", 2) == [4, 5]
        code, _, err = await seriatim("move", "orders", "--to", "root", url=url)
        assert code == 0, err
        host: Any = sequencers.served["root"].host
        await until(lambda: host.machine.state.sequencer.removed == {"orders": True}, "its broker to know")
        async with bus.subscribe("orders") as events:
            assert await publish(bus, "orders", 1) == [6]
            async with asyncio.timeout(30):
                assert (await events.next()).number == 6
        rows = [json.loads(line) for line in (await seriatim("order", "--json", url=url))[1].splitlines()]
        assert [(row["first"], row["last"]) for row in rows if row["topic"] == "orders"][-2:] == [(4, 5), (6, 6)]
        stream = {each.config.name: each async for each in jetstream_streams(url)}["seriatim-topic-orders"]
        assert (stream.state.first_seq, stream.state.messages) == (4, 3), "they are still there"


@pytest.mark.parametrize("count", [0, 3])
async def test_a_topic_that_was_removed_elsewhere_comes_back_to_an_earlier_home(
    server: NatsServer, tmp_path: Path, count: int
) -> None:
    """The channel of that home ends with a mark of the log that is no more. The present one is told by the channels
    where the topic has been since."""
    url = server.url
    async with SequencerServer(config(server, tmp_path)) as sequencers, connect(url) as bus:
        first = sequencers.config.homes["orders"]
        (other,) = sequencers.config.nodes.keys() - {first}
        await publish(bus, "orders", count)
        await move(url, "orders", other)
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert code == 0, err
        assert await publish(bus, "orders", 2) == [count + 1, count + 2]
        await move(url, "orders", first)
        async with bus.subscribe("orders") as events:
            assert await publish(bus, "orders", 2) == [count + 3, count + 4]
            assert [(await events.next(30)).number for _ in range(2)] == [count + 3, count + 4]
        assert not [each for each in sequencers.problems() if each.kind == "log"]


async def test_a_log_that_is_made_anew_after_removal_and_move_begins_behind_its_last_number(
    server: NatsServer, tmp_path: Path
) -> None:
    """The topic moved twice since; each channel that it left says that it was removed."""
    url = server.url
    async with SequencerServer(config(server, tmp_path)), connect(url) as bus:
        await publish(bus, "orders", 3)
        code, _, err = await seriatim("topics", "remove", "orders", "--yes", url=url)
        assert code == 0, err
        for node in ("root", "eu", "root"):
            code, _, err = await seriatim("move", "orders", "--to", node, url=url)
            assert code == 0, err
        assert await publish(bus, "orders", 2) == [4, 5]
