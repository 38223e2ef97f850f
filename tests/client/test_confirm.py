"""`await publish` returns when the event has its place: what anybody publishes afterwards comes after it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from nats.js.errors import NotFoundError

import seriatim
from seriatim.brokers.nats.server import NatsServer
from seriatim.client import Bus
from seriatim.client.brokered import discovery
from seriatim.live.server import SequencerServer
from seriatim.model import InputError, RequestRefused, TimedOut
from seriatim.order import SequencingTree
from seriatim.server.config import parse_config
from tests.brokers.nats.servers import connected, running_server
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client import test_cluster as over_tcp
from tests.client.world import data, hurry, take, until, world
from tests.ports import free_port

TRIES = 300
REPOSITORY = Path(__file__).parent.parent.parent
TREE = SequencingTree.star({"a": 1, "b": 2}, 2)


def three_nodes(cluster: str, ports: tuple[int, int, int] = (0, 0, 0)) -> dict[str, Any]:
    """A root, with the homes of two topics below it."""
    root, east, west = (f"127.0.0.1:{port}" for port in ports)
    nodes = {
        "root": {"address": root},
        "east": {"parent": "root", "address": east},
        "west": {"parent": "root", "address": west},
    }
    return {"nodes": nodes, "homes": {f"{cluster}.a": "east", f"{cluster}.b": "west"}, "default_home": "root"}


def one_node(cluster: str) -> dict[str, Any]:
    return {"nodes": {"root": {"address": "127.0.0.1:0"}}, "default_home": "root"}


@asynccontextmanager
async def sequencers(server: NatsServer, cluster: str, folder: Path, **config: Any) -> AsyncIterator[SequencerServer]:
    running = SequencerServer(parse_config({"cluster": cluster, "broker": server.url, **config}, folder))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


async def publish_by_turns(buses: list[Bus], topics: tuple[str, str]) -> None:
    """One of the buses awaits an event on the first topic, the next one another event on the second."""
    turn = 0
    for n in range(TRIES):
        for topic in topics:
            await buses[turn % len(buses)].publish(topic, b"%d" % n)
            turn += 1


def inversions(seen: list[str]) -> int:
    """How many neighbours are in the wrong order; each number comes twice, once from each topic."""
    numbers = [int(each) for each in seen]
    return sum(one > other for one, other in pairwise(numbers))


async def check_turns(buses: list[Bus], topics: tuple[str, str]) -> None:
    """Two subscribers of both topics, so that they are coupled also where the order is pairwise."""
    async with buses[0].subscribe(*topics) as one, buses[-1].subscribe(*topics) as other:
        await publish_by_turns(buses, topics)
        first, second = await take(one, 2 * TRIES), await take(other, 2 * TRIES)
        assert [event.topic for event in first] == list(topics) * TRIES
        assert data(first) == data(second) and inversions(data(first)) == 0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("tree", [None, TREE], ids=["one node", "three nodes"])
async def test_awaited_events_keep_their_order_across_topics_in_memory(tree: SequencingTree | None, count: int) -> None:
    async with world(tree=tree) as cluster, AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(cluster.bus()) for _ in range(count)]
        await check_turns(buses, ("a", "b"))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("shape", [one_node, three_nodes])
async def test_awaited_events_keep_their_order_across_topics_on_nats(tmp_path: Path, shape: Any, count: int) -> None:
    server, cluster = shared_server(), new_cluster()
    async with sequencers(server, cluster, tmp_path, **shape(cluster)), AsyncExitStack() as stack:
        buses = [
            await stack.enter_async_context(seriatim.connect(server.url, cluster=cluster, timeout_s=50.0))
            for _ in range(count)
        ]
        await check_turns(buses, (f"{cluster}.a", f"{cluster}.b"))


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_own_order_is_kept_by_events_that_nobody_awaits(mode: str) -> None:
    async with (
        world(mode=mode, tree=TREE) as cluster,
        cluster.bus(own_order=True) as bus,
        bus.subscribe("a", "b") as one,
        bus.subscribe("a", "b") as other,
    ):
        pairs = [("a" if n % 5 < 3 else "b", b"%d" % n) for n in range(200)]
        await bus.publish_many(pairs[:100])
        receipts = [bus.publish_nowait(topic, each) for topic, each in pairs[100:]]
        await asyncio.gather(*receipts)
        seen = data(await take(one, 200))
        assert seen == [each.decode() for _, each in pairs] == data(await take(other, 200))


async def test_own_order_on_nats(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = (f"{cluster}.a", f"{cluster}.b")
    async with (
        sequencers(server, cluster, tmp_path, **three_nodes(cluster)),
        seriatim.connect(server.url, cluster=cluster, timeout_s=50.0, own_order=True) as bus,
        bus.subscribe(*topics) as one,
        bus.subscribe(*topics) as other,
    ):
        pairs = [(topics[n // 4 % 2], b"%d" % n) for n in range(200)]
        published = await bus.publish_many(pairs)
        assert [each.topic for each in published] == [topic for topic, _ in pairs]
        assert data(await take(one, 200)) == [str(n) for n in range(200)] == data(await take(other, 200))


async def test_a_topic_that_nobody_has_subscribed_to_is_ordered_too(tmp_path: Path) -> None:
    """Its home does not watch its log before a publisher asks for it."""
    async with world() as cluster, cluster.bus() as bus:
        assert (await bus.publish("unheard", b"1")).number == 1
    server, name = shared_server(), new_cluster()
    async with (
        sequencers(server, name, tmp_path, **one_node(name)),
        seriatim.connect(server.url, cluster=name, timeout_s=50.0) as bus,
    ):
        assert [each.number for each in await bus.publish_many([(f"{name}.{n}", b"") for n in range(20)])] == [1] * 20


async def test_without_its_home_an_event_is_stored_and_has_no_place(tmp_path: Path) -> None:
    async with world(tree=TREE) as cluster, cluster.bus() as bus, cluster.bus(confirm="stored") as hasty:
        await bus.publish("a", b"1")
        home = next(host for host in cluster.cluster.hosts if host.node == TREE.home("a"))
        await home.stop()
        hurry(bus, timeout_s=0.5)
        known = r"stored as a 2, and has no place in the order yet \(node n1 has not answered\)"
        with pytest.raises(TimedOut, match=known):
            await bus.publish("a", b"2")
        assert "a 2: stored, waits for its place in the order" in str(bus.explain())
        assert (await hasty.publish("a", b"3")).number == 3, "stored is enough for this one"
        await bus.publish("b", b"1")


async def test_a_home_that_is_not_connected_is_named(tmp_path: Path) -> None:
    async with over_tcp.server("unplaced", tmp_path) as running, over_tcp.bus("unplaced") as bus:
        await bus.publish_many([("a", b"1"), ("b", b"1")])
        await running.served["east"].stop()
        await until("the loss is noticed", lambda: bool(bus.explain().down))
        hurry(bus, timeout_s=0.5)
        with pytest.raises(TimedOut, match=r"stored as a 2, and has no place .* \(node east is not connected: "):
            await bus.publish("a", b"2")
        await bus.publish("b", b"2")


async def test_a_node_above_the_home_that_is_not_connected_is_named(tmp_path: Path) -> None:
    """The home answers that the stamp is on its way: only the client can say that the root is away."""
    async with (
        over_tcp.server("climbing", tmp_path) as running,
        over_tcp.bus("climbing") as bus,
        bus.subscribe("a", "b"),
    ):
        await bus.publish_many([("a", b"1"), ("b", b"1")])
        await running.served["root"].stop()
        await until("the loss is noticed", lambda: bool(bus.explain().down))
        hurry(bus, timeout_s=1.0)
        away = r"\(.*; node root is not connected: .*, and its place may be decided there\)"
        with pytest.raises(TimedOut, match=rf"stored as a 2, and has no place in the order yet {away}"):
            await bus.publish("a", b"2")


async def test_a_node_that_does_not_run_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "OTHERS_S", 50.0)
    async with over_tcp.server("refusing", tmp_path) as running:
        await running.served["east"].stop()
        async with asyncio.timeout(30.0), over_tcp.bus("refusing", timeout_s=55.0) as bus:
            await bus.publish("b", b"1")


async def test_what_waits_when_the_bus_closes_is_known_to_be_stored() -> None:
    async with world(tree=TREE) as cluster:
        async with cluster.bus(timeout_s=1.0) as bus:
            for host in cluster.cluster.hosts:
                await host.stop()
            waiting = bus.publish_nowait("a", b"1")
            await until("it is stored", lambda: "stored" in str(bus.explain()))
        with pytest.raises((seriatim.Closed, TimedOut), match="stored as a 1, and has no place in the order yet"):
            await waiting


async def test_an_id_that_is_published_again_is_confirmed_again() -> None:
    async with world() as cluster, cluster.bus() as bus:
        await bus.publish("a", b"1", id="mine")
        await bus.publish("a", b"2")
        assert (await bus.publish("a", b"1", id="mine")).number == 1
        assert (await bus.publish("a", b"3")).number == 3


async def test_events_that_wait_for_their_place_count_as_unanswered() -> None:
    async with world(tree=TREE) as cluster, cluster.bus(limits=seriatim.Limits(queue_events=3)) as bus:
        await cluster.cluster.hosts[1].stop()
        receipts = [bus.publish_nowait("a", b"%d" % n) for n in range(3)]
        await until("they are stored", lambda: "a 1" in str(bus.explain()))
        with pytest.raises(seriatim.QueueFull):
            bus.publish_nowait("a", b"one too many")
        assert bus.metrics().unpublished == 3
        hurry(bus, timeout_s=0.1)
        for receipt in receipts:
            receipt.cancel()


async def test_a_log_that_was_made_anew_confirms_nothing(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.a"
    async with (
        sequencers(server, cluster, tmp_path, **one_node(cluster)),
        seriatim.connect(server.url, cluster=cluster, timeout_s=20.0) as bus,
        seriatim.connect(server.url, cluster=cluster, timeout_s=20.0) as late,
        connected(server.url) as admin,
    ):
        for n in range(5):
            await bus.publish(topic, b"%d" % n)
        name = await admin.jetstream().find_stream_name_by_subject(topic)
        config = (await admin.jetstream().stream_info(name)).config
        await admin.jetstream().delete_stream(name)
        with pytest.raises(NotFoundError):
            await admin.jetstream().stream_info(name)
        await admin.jetstream().add_stream(config)
        for each in (bus, late):
            with pytest.raises(RequestRefused, match=r"stored as .*\.a [12], .* was deleted and created again"):
                await each.publish(topic, b"again")


NO_STAMPS = """
authorization {
  users: [
    { user: sequencer, password: "sequencer-password" }
    { user: shop, password: "shop-password", permissions: { subscribe: { deny: ["_seriatim.stamps.>"] } } }
  ]
}
"""


async def test_who_may_not_listen_to_stamps_is_told_what_to_allow(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats", config=NO_STAMPS) as server:
        host = server.url.removeprefix("nats://")
        config = {"broker": f"nats://sequencer:sequencer-password@{host}", **one_node("")}
        running = SequencerServer(parse_config(config, tmp_path))
        await running.start()
        url = f"nats://shop:shop-password@{host}"
        try:
            async with seriatim.connect(url, timeout_s=50.0) as bus:
                for _ in range(2):
                    with pytest.raises(RequestRefused, match=r'"_seriatim\.stamps\.\*\.a".*allow it.*confirm="stored"'):
                        await bus.publish("a", b"1")
            async with seriatim.connect(url, timeout_s=50.0, confirm="stored", own_order=True) as bus:
                assert len(await bus.publish_many([("a", b"2"), ("b", b"3")])) == 2
        finally:
            await running.stop()


async def test_the_home_is_killed_while_publishes_wait(tmp_path: Path) -> None:
    """They complete when it is back: nothing is lost, and nothing has another order."""
    ports = [free_port() for _ in range(3)]
    async with running_server(tmp_path) as server:
        topics = ("shop.a", "shop.b")
        config = [f'broker = "{server.url}"', 'default_home = "root"', "[nodes]"]
        for node, port in zip(("root", "east", "west"), ports, strict=True):
            parent = "" if node == "root" else 'parent = "root", '
            config.append(f'{node} = {{ {parent}address = "127.0.0.1:{port}" }}')
        config += ["[homes]", '"shop.a" = "east"', '"shop.b" = "west"']
        file = tmp_path / "cluster.toml"
        file.write_text("\n".join(config))

        def serve(*nodes: str) -> "subprocess.Popen[bytes]":
            named = [word for node in nodes for word in ("--node", node)]
            arguments = [
                sys.executable,
                "-m",
                "seriatim.cli",
                "serve",
                "--config",
                str(tmp_path / "cluster.toml"),
                *named,
            ]
            path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
            return subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL)

        children = [serve("root", "west"), serve("east")]
        try:
            async with (
                seriatim.connect(server.url, timeout_s=50.0) as bus,
                bus.subscribe(*topics) as one,
                bus.subscribe(*topics) as other,
            ):
                done = 0

                async def publish() -> None:
                    nonlocal done
                    for n in range(40):
                        for topic in topics:
                            await bus.publish(topic, b"%d" % n)
                            done += 1

                publishing = asyncio.create_task(publish())
                for lives in range(2):
                    await until("publishing goes on", lambda lives=lives: done > 10 + 30 * lives)  # type: ignore[misc]
                    children[1].kill()
                    children[1].wait()
                    await until("publishes wait", lambda: "waits for its place" in str(bus.explain()))
                    children[1] = serve("east")
                await publishing
                first, second = data(await take(one, 80)), data(await take(other, 80))
                assert first == second == [str(n) for n in range(40) for _ in topics]
        finally:
            for child in children:
                child.kill()
                child.wait()


@pytest.mark.parametrize(("option", "value"), [("confirm", "soon"), ("own_order", "yes")])
def test_wrong_values_are_refused(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{option}: "):
        seriatim.connect("memory://", **{option: value})


@pytest.mark.parametrize(("option", "value"), [("confirm", "placed"), ("own_order", True)])
async def test_atoms_promise_it_only_in_causal_order(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"{option}: without causal order .* use a cluster with causal order"):
        async with seriatim.connect("memory://", order="atoms", **{option: value}):
            pass
    options: dict[str, Any] = {option: value}
    async with (
        seriatim.connect("memory://", order="atoms", causal=True, **options) as bus,
        bus.subscribe("a", "b") as s,
    ):
        await bus.publish_many([("a", b"1"), ("b", b"2"), ("a", b"3")])
        assert data(await take(s, 3)) == ["1", "2", "3"]
