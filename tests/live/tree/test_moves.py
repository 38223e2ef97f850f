"""Topics move between running nodes while events flow, and clients follow by themselves."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from seriatim import Bus, connect
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.client.brokered.discovery import ask_for_description
from seriatim.live.server import SequencerServer
from seriatim.model import RemoteError, RequestRefused, TimedOut
from seriatim.server.config import ClusterConfig, parse_config
from seriatim.server.description import decode_description, encode_description
from tests.ports import free_ports
from tests.waiting import until

TOPICS = ("orders", "prices", "news")
HOMES = {"orders": "us", "prices": "eu", "news": "root"}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


def config(nats: NatsServer, folder: Path, cluster: str, **more: Any) -> ClusterConfig:
    nodes: dict[str, Any] = {name: {"address": "127.0.0.1:0"} for name in ("root", "eu", "us")}
    for name in ("eu", "us"):
        nodes[name]["parent"] = "root"
    given = {"broker": nats.url, "cluster": cluster, "nodes": nodes, "homes": HOMES, "times": {"retry_ms": 200}}
    return parse_config(given | more, folder)


async def move(nats: NatsServer, cluster: str, topic: str, to: str, timeout_s: float = WAIT_S) -> float | None:
    async with find_cluster(nats.url, cluster, WAIT_S) as found:
        return (await Mover(found).move(topic, to, timeout_s)).waited_ms


def bus(nats: NatsServer, cluster: str, name: str, **more: Any) -> Bus:
    return connect(nats.url, cluster=cluster, name=name, timeout_s=WAIT_S, **more)


class Load:
    """Publishes to all topics in turns, and keeps what each subscriber was given."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.got: dict[str, list[str]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: asyncio.Task[None] | None = None
        self._is_over = False

    def publish(self, bus: Bus) -> None:
        async def publish() -> None:
            while not self._is_over:
                topic = TOPICS[len(self.sent) % len(TOPICS)]
                self.sent.append((await bus.publish(topic, b".")).id)

        self._publishing = asyncio.create_task(publish())

    def take(self, name: str, events: Any) -> None:
        got = self.got.setdefault(name, [])

        async def take() -> None:
            async for event in events:
                got.append(event.id)

        self._tasks.append(asyncio.create_task(take()))

    async def end(self) -> None:
        self._is_over = True
        assert self._publishing is not None
        await self._publishing

    async def more(self, count: int = 30) -> None:
        """Wait until so many more events are published."""
        enough = len(self.sent) + count
        await until(lambda: len(self.sent) >= enough, f"{count} more events")

    @asynccontextmanager
    async def taking(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_everybody_follows_and_sees_one_order(nats: NatsServer, tmp_path: Path, mode: str) -> None:
    """Some are there from the beginning, one comes in between. The publisher awaits each event: its order is theirs."""
    cluster = f"follow-{mode}"
    load = Load()
    async with (
        SequencerServer(config(nats, tmp_path, cluster, mode=mode)),
        bus(nats, cluster, "p") as publisher,
        bus(nats, cluster, "s") as one,
        bus(nats, cluster, "t") as other,
        one.subscribe(*TOPICS) as everything,
        other.subscribe("orders", "news") as some,
        load.taking(),
    ):
        load.take("everything", everything)
        load.take("some", some)
        load.publish(publisher)
        for to in ("eu", "root", "us", "eu"):
            await load.more()
            assert await move(nats, cluster, "orders", to) is not None
        await load.more()
        joined = len(load.sent)
        async with one.subscribe("orders", "prices") as late:
            load.take("late", late)
            await load.more()
            await move(nats, cluster, "prices", "us")
            await load.more()
            await load.end()
            await until(lambda: len(load.got["everything"]) == len(load.sent), "all events")
            assert load.got["everything"] == load.sent
            wanted = [each for place, each in enumerate(load.sent) if TOPICS[place % 3] != "prices"]
            await until(lambda: len(load.got["some"]) == len(wanted), "all of two topics")
            assert load.got["some"] == wanted
            after = [
                each for place, each in enumerate(load.sent) if place >= joined + 6 and TOPICS[place % 3] != "news"
            ]
            await until(lambda: load.got["late"][-1:] == after[-1:], "the last one")
            assert load.got["late"][-len(after) :] == after


async def test_a_durable_subscription_that_was_away_goes_on(nats: NatsServer, tmp_path: Path) -> None:
    """Its journal says where topics lived before they moved; one of them has moved twice, and is back."""
    cluster, journals = "away", tmp_path / "durables"
    got: list[str] = []
    sent: list[str] = []

    async def publish(count: int) -> None:
        async with bus(nats, cluster, "p") as publisher:
            for place in range(count):
                sent.append((await publisher.publish(TOPICS[place % 3], b".")).id)

    async def take() -> None:
        async with (
            bus(nats, cluster, "s", journals=journals) as one,
            one.subscribe(*TOPICS, durable="billing") as events,
        ):
            while len(got) < len(sent):
                got.append((await events.next(WAIT_S)).id)
            await events.acknowledge()

    async with SequencerServer(config(nats, tmp_path, cluster)):
        async with bus(nats, cluster, "s", journals=journals) as one, one.subscribe(*TOPICS, durable="billing"):
            pass
        await publish(12)
        await take()
        await publish(6)
        for topic, to in (("orders", "eu"), ("prices", "us"), ("orders", "us"), ("news", "eu")):
            await move(nats, cluster, topic, to)
            await publish(6)
        await take()
        await move(nats, cluster, "news", "root")
        await publish(6)
        await take()
    assert got == sent


async def test_the_journals_say_where_topics_live_and_the_file_where_they_began(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with NatsServer(tmp_path / "nats") as nats:  # of its own, because it reads topics from their beginning
        await restarted(nats, tmp_path, caplog)


async def restarted(nats: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = "restart"

    async def homes(server: SequencerServer) -> list[dict[str, str]]:
        """As each node knows them."""
        hosts = [each.host for each in server.served.values()]
        return [{topic: host.machine.inner.tree.home(topic) for topic in TOPICS} for host in hosts if host is not None]

    async with SequencerServer(config(nats, tmp_path, cluster)) as server:
        async with bus(nats, cluster, "p") as publisher:
            await publisher.publish("orders", b"1")
            await move(nats, cluster, "orders", "eu")
            await move(nats, cluster, "news", "us")
            await publisher.publish("orders", b"2")
        moved = {"orders": "eu", "prices": "eu", "news": "us"}
        assert await homes(server) == [moved] * 3
    caplog.clear()
    caplog.set_level(logging.WARNING)
    others = HOMES | {"prices": "root"}
    async with SequencerServer(config(nats, tmp_path, cluster, homes=others)) as server:
        assert await homes(server) == [moved] * 3
        told = [each.getMessage() for each in caplog.records if "homes are not those of the file" in each.message]
        assert len(told) == 3
        assert "live=news on us, not root, orders on eu, not us, prices on eu, not root" in told[0]
        async with (
            bus(nats, cluster, "p") as publisher,
            bus(nats, cluster, "s") as one,
            one.subscribe("orders", start="first") as events,
        ):
            await publisher.publish("orders", b"3")
            assert [(await events.next(WAIT_S)).data for _ in range(3)] == [b"1", b"2", b"3"]
            async with find_cluster(nats.url, cluster, WAIT_S) as found:
                described = found.description
            assert {topic: described.tree.home(topic) for topic in TOPICS} == moved
            assert decode_description(encode_description(described)) == described
            with pytest.raises(RemoteError, match="describe their cluster in version 4"):
                decode_description(encode_description(structs.replace(described, version=4)))


async def test_a_move_that_takes_too_long_is_undone(nats: NatsServer, tmp_path: Path) -> None:
    """Its new home is away. Events of the topic wait no longer than the move."""
    cluster = "undone"
    async with SequencerServer(config(nats, tmp_path, cluster)) as server, bus(nats, cluster, "p") as publisher:
        await publisher.publish("orders", b"1")
        served = server.served["eu"]
        cut = [each.switchboard for each in server.served.values()]
        sends = [each.send for each in cut]
        for each, send in zip(cut, sends, strict=True):
            each.send = lambda source, target, message, send=send: (  # type: ignore[method-assign, misc]
                None if "eu" in (source, target) else send(source, target, message)
            )
        undone = "took longer than 1 s; it was undone, and orders .*; it had waited for us to hand it over to eu"
        with pytest.raises(TimedOut, match=f"the move of orders to eu {undone}"):
            await move(nats, cluster, "orders", "eu", 1.0)
        await publisher.publish("orders", b"2")
        for each, send in zip(cut, sends, strict=True):
            each.send = send  # type: ignore[method-assign]
        assert await move(nats, cluster, "orders", "eu") is not None
        await publisher.publish("orders", b"3")
        assert served.host is not None
        assert served.host.machine.inner.tree.home("orders") == "eu"


async def test_what_cannot_move_is_refused(nats: NatsServer, tmp_path: Path) -> None:
    cluster = "refused"
    async with SequencerServer(config(nats, tmp_path, cluster, default_home="none")):
        with pytest.raises(RequestRefused, match="the root root refused: there is no node 'asia'"):
            await move(nats, cluster, "orders", "asia")
        with pytest.raises(RequestRefused, match="topic 'sales' has no home"):
            await move(nats, cluster, "sales", "eu")


async def test_as_many_topics_move_as_the_description_has_room_for(tmp_path: Path) -> None:
    """Clients find a cluster by its description, which must fit into a message of the broker."""
    cluster, name = "full", "a" * 185
    listed = [f"{name}.{number}" for number in range(10)]
    with NatsServer(tmp_path / "nats", config="max_payload: 20000") as small:
        given = config(small, tmp_path, cluster, homes=dict.fromkeys(listed, "us"))
        async with SequencerServer(given), find_cluster(small.url, cluster, WAIT_S) as found:
            mover = Mover(found)
            for topic in listed:
                await mover.move(topic, "eu", WAIT_S)  # what began elsewhere is told once, as it is now
            with pytest.raises(RequestRefused, match=r"too long for a message of the broker \(3,435 bytes\)"):
                for number in range(10):
                    await mover.move(f"{name}.more{number}", "us", WAIT_S)
            await mover.move(listed[0], "root", WAIT_S)
            async with find_cluster(small.url, cluster, WAIT_S) as again:
                tree = again.description.tree
                assert len(encode_description(again.description)) < 20_000
            homes = [tree.home(topic) for topic in (*listed[:2], f"{name}.more0", f"{name}.more9")]
            assert homes == ["root", "eu", "us", "root"]


async def test_a_process_whose_nodes_stand_by_does_not_describe_the_cluster(nats: NatsServer, tmp_path: Path) -> None:
    """It does not know what has moved."""
    cluster = "standby"
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    nodes = {"root": {"address": addresses, "journal": "broker"}}
    given = config(nats, tmp_path, cluster, nodes=nodes, homes={}, times={"takeover_ms": 600_000})
    async with SequencerServer(given, place=1) as second:
        assert second.served["root"].role == "standby"
        assert await ask_for_description(second.broker, cluster, 1.0) is None
