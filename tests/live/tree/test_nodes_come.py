"""Nodes come and go on a running cluster while events flow, and clients follow by themselves."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seriatim import connect
from seriatim.brokers.lives import new_life
from seriatim.cli.changing import Changer, check_tree
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.cli.node import add_node
from seriatim.live import agreement
from seriatim.live.server import SequencerServer
from seriatim.model import Closed, ConnectionFailed, InputError, RequestRefused, TimedOut
from seriatim.runtime.journal.file_journal import FileJournal
from seriatim.server.config import ClusterConfig, parse_config
from seriatim.server.layout import Change
from tests.brokers.nats.world import new_cluster, shared_server
from tests.live.test_agreement import described
from tests.live.test_health import found, serving
from tests.live.test_server import get
from tests.live.tree.test_moves import Load
from tests.ports import free_ports
from tests.waiting import until

WAIT_S = 60.0
HOMES = {"orders": "us", "prices": "eu", "news": "root"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LOOK_S", 0.2)


def configured(folder: Path, cluster: str, nodes: dict[str, Any] | None = None, **more: Any) -> ClusterConfig:
    """A root with two leaves, at free ports."""
    free = {"address": "127.0.0.1:0"}
    usual = {"root": free, "eu": {"parent": "root", **free}, "us": {"parent": "root", **free}}
    given = {"broker": shared_server().url, "cluster": cluster, "nodes": usual if nodes is None else nodes}
    times = {"retry_ms": 200}
    return parse_config({**given, "homes": HOMES, "times": times, "admin": {"address": "127.0.0.1:0"}, **more}, folder)


async def add(cluster: str, name: str, parent: str | None = None, above: str | None = None, **more: Any) -> Change:
    async with find_cluster(shared_server().url, cluster, WAIT_S) as found:
        return await add_node(found, name, parent, above, **{"address": None, "timeout_s": WAIT_S, **more})


async def remove(cluster: str, name: str) -> Change:
    async with find_cluster(shared_server().url, cluster, WAIT_S) as found:
        return await Changer(found).change("remove", name, WAIT_S)


async def move(cluster: str, topic: str, to: str) -> None:
    async with find_cluster(shared_server().url, cluster, WAIT_S) as found:
        await Mover(found).move(topic, to, WAIT_S)


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_leaf_comes_takes_topics_and_goes_while_events_flow(tmp_path: Path, mode: str) -> None:
    """One process runs all nodes, so it runs the new one too."""
    cluster, load = new_cluster(), Load()
    config = configured(tmp_path, cluster, mode=mode)
    url = config.broker
    async with (
        serving(config) as server,
        connect(url, cluster=cluster, name="p", timeout_s=WAIT_S) as publisher,
        connect(url, cluster=cluster, name="s", timeout_s=WAIT_S) as one,
        connect(url, cluster=cluster, name="t", timeout_s=WAIT_S) as other,
        one.subscribe(*HOMES) as everything,
        other.subscribe("orders", "news") as some,
        load.taking(),
    ):
        load.take("everything", everything)
        load.take("some", some)
        load.publish(publisher)
        await load.more()
        made = await add(cluster, "asia", "root")
        assert (made.number, made.kind, made.node, made.parent) == (1, "add", "asia", "root")
        await until(lambda: "asia" in server.served and server.served["asia"].role == "active", "the node to run")
        await load.more()
        for topic in HOMES:
            await move(cluster, topic, "asia")
            await load.more()
        async with (
            connect(url, cluster=cluster, name="u", timeout_s=WAIT_S) as third,
            third.subscribe(*HOMES) as late,
        ):
            load.take("late", late)
            await load.more()
            with pytest.raises(RequestRefused, match="news, orders, prices live on asia; move topics elsewhere first"):
                await remove(cluster, "asia")
            for topic in HOMES:
                await move(cluster, topic, "eu")
            assert (await remove(cluster, "asia")).text == "node asia was removed"
            await until(lambda: "asia" not in server.served, "the node to end")
            await load.more()
            await load.end()
            await until(lambda: load.got["everything"] == load.sent, "everything to arrive")
            rest = [each for each in load.sent if each in set(load.got["late"])]
            assert load.got["late"] == rest
        assert [each for each in load.sent if each in set(load.got["some"])] == load.got["some"]
        assert not server.problems()
        with pytest.raises(RequestRefused, match="there was a node asia, and names are not used again"):
            await add(cluster, "asia", "root")


async def test_a_new_root_grows_and_the_cluster_starts_again_with_the_file_from_before(tmp_path: Path) -> None:
    cluster, load = new_cluster(), Load()
    ports = free_ports(3)
    at = dict(zip(("root", "eu", "us"), map("127.0.0.1:{}".format, ports), strict=True))
    nodes = {name: {"address": address, "parent": "root"} for name, address in at.items()}
    del nodes["root"]["parent"]
    config = configured(tmp_path, cluster, nodes)
    async with AsyncExitStack() as stack, load.taking():
        async with serving(config) as server:
            publisher, subscriber = [
                await stack.enter_async_context(connect(config.broker, cluster=cluster, name=name, timeout_s=WAIT_S))
                for name in "ps"
            ]
            load.take("s", await stack.enter_async_context(subscriber.subscribe(*HOMES)))
            load.publish(publisher)
            await load.more()
            top = f"127.0.0.1:{free_ports(1)[0]}"
            made = await add(cluster, "top", above="root", address=top)
            assert made.text == "node top was added above root, as the root"
            await load.more()
            await move(cluster, "news", "top")
            await add(cluster, "asia", "top", address=f"127.0.0.1:{free_ports(1)[0]}")
            await move(cluster, "orders", "asia")
            await load.more()
            await until(lambda: not server.problems(), "everything to be well")
            found = await described(cluster)
            assert found is not None and found.tree.root == "top" and found.tree.default_home == "root"
            assert found.tree.parents == {"top": None, "root": "top", "eu": "root", "us": "root", "asia": "top"}
        async with serving(config) as again:  # clients wait, and go on
            await until(lambda: sorted(again.served) == ["asia", "eu", "root", "top", "us"], "all nodes")
            await load.more()
            await remove(cluster, "us")  # topics began there
            await add(cluster, "africa", "eu", address=f"127.0.0.1:{free_ports(1)[0]}")
            await move(cluster, "orders", "africa")
            await load.more()
            await load.end()
            await until(lambda: load.got["s"] == load.sent, "everything to arrive")
        async with serving(config) as third:
            assert sorted(third.served) == ["africa", "asia", "eu", "root", "top"]


@asynccontextmanager
async def serving_later(config: ClusterConfig, nodes: list[str]) -> AsyncIterator[SequencerServer]:
    """A process that has to wait before it serves."""
    server = SequencerServer(config, nodes)
    starting = asyncio.create_task(server.start())
    await until(lambda: server.agreement.awaited or starting.done(), "the process to wait")
    try:
        yield server
        await asyncio.wait_for(starting, WAIT_S)
    finally:
        await server.stop()


def apart(folder: Path, cluster: str, **more: Any) -> tuple[ClusterConfig, ClusterConfig]:
    """A root and a leaf at fixed ports, and the same with a further leaf, which the cluster does not have yet."""
    root, eu, asia = map("127.0.0.1:{}".format, free_ports(3))
    nodes = {"root": {"address": root}, "eu": {"address": eu, "parent": "root"}}
    homes = {"orders": "eu", "prices": "eu", "news": "root"}
    with_asia = {**nodes, "asia": {"address": asia, "parent": "eu"}}
    return (
        configured(folder, cluster, nodes, homes=homes, **more),
        configured(folder, cluster, with_asia, homes=homes, **more),
    )


async def test_a_process_waits_until_its_node_is_added(tmp_path: Path) -> None:
    cluster = new_cluster()
    file, new = apart(tmp_path, cluster)
    waiting = SequencerServer(new, ["asia"])
    async with serving(file, ["root"]) as root, serving(file, ["eu"]) as eu:
        starting = asyncio.create_task(waiting.start())
        await until(lambda: waiting.agreement.awaited == {"asia"}, "the process to wait")
        status, body = await get(waiting, "/ready")
        assert status == 503 and "the cluster does not have asia yet; `seriatim node add asia` adds it" in body
        with pytest.raises(InputError, match="has it below eu"):
            await add(cluster, "asia", "root")
        assert root.agreement.layout.changes == 0
        made = await add(cluster, "asia")
        assert (made.parent, made.addresses) == ("eu", [new.nodes["asia"].address])
        await asyncio.wait_for(starting, WAIT_S)
        assert (await get(waiting, "/ready"))[0] == 200
        await move(cluster, "orders", "asia")
        assert list(waiting.served["asia"].status().links) == ["eu"]
        await until(lambda: not [*root.problems(), *eu.problems(), *waiting.problems()], "everything to be well")
        async with connect(file.broker, cluster=cluster, timeout_s=WAIT_S) as bus, bus.subscribe("orders") as events:
            await bus.publish("orders", b"1")
            assert (await events.next(WAIT_S)).data == b"1"
        await waiting.stop()
        async with serving(new, ["asia"]) as again:  # from its journal
            assert again.served["asia"].host is not None and again.served["asia"].host.epoch == 2
            await move(cluster, "orders", "eu")
            running = asyncio.create_task(again.run())
            await remove(cluster, "asia")
            await asyncio.wait_for(running, WAIT_S)
    with pytest.raises(InputError, match=f"node 'asia' was removed from cluster '{cluster}'"):
        await SequencerServer(new, ["asia"]).start()


async def records_of(folder: Path) -> list[bytes]:
    journal = FileJournal(folder)
    try:
        return (await journal.open()).records
    finally:
        await journal.close()


async def test_a_new_leaf_with_a_journal_from_before_its_welcome_is_refused(tmp_path: Path) -> None:
    """Nothing is written to it, so nobody takes it for the newest. That one is put back, and everything goes on."""
    cluster = new_cluster()
    file, new = apart(tmp_path, cluster)
    folder = new.journal_folder("asia")
    assert folder is not None
    async with serving(file, ["root", "eu"]) as others, asyncio.TaskGroup() as tasks:
        async with serving_later(new, ["asia"]):
            await add(cluster, "asia")
        missed = "child asia is not connected: it has not dialed"
        await until(lambda: missed in str(others.explain()), "its parent to miss it")
        newest = folder.rename(tmp_path / "newest")
        (founded, *_) = await records_of(newest)
        copy = FileJournal(folder)
        await copy.open()
        await copy.append([founded])
        await copy.close()
        await killed_just_after_its_welcome(others, "asia")
        moving = tasks.create_task(move(cluster, "orders", "asia"))
        waits = "orders from eu to asia: waits for eu to hand it over, asia to take it"
        await until(lambda: waits in str(others.explain()), "the move to wait")
        older = SequencerServer(new, ["asia"])
        try:
            await older.start()
            said = "the journal of asia is behind what eu has seen: .*Nothing was changed.*Put the newest journal back"
            with pytest.raises(Closed, match=said):
                await asyncio.wait_for(older.run(), WAIT_S)
            problem = found(older, "failed")
            assert problem is not None and "Put the newest journal back" in problem.reason
        finally:
            await older.stop()
        assert await records_of(folder) == [founded]
        assert not moving.done()
        assert missed in str(others.explain())
        shutil.rmtree(folder)
        newest.rename(folder)
        async with serving(new, ["asia"]) as asia:
            await until(moving.done, "the move to end")
            await until(lambda: not [*others.problems(), *asia.problems()], "everything to be well")


async def killed_just_after_its_welcome(server: SequencerServer, node: str) -> None:
    """As if it had not registered yet how far its journal was."""
    assert server.broker.lives is not None
    claim = server.broker.lives.claim("node", node)
    last = await claim.look()
    assert last is not None
    await claim.register(new_life(last.epoch + 1, "killed", {}))
    await claim.close()


async def test_what_takes_too_long_is_undone_and_may_be_asked_again(tmp_path: Path) -> None:
    """No process comes. Meanwhile a second change is refused, and topics move when it is over."""
    cluster = new_cluster()
    file, new = apart(tmp_path, cluster)
    async with serving(file) as server, find_cluster(file.broker, cluster, WAIT_S) as found:
        changer, addresses = Changer(found), [new.nodes["asia"].addresses[0]]
        server.runs_all = False
        adding = asyncio.create_task(changer.change("add", "asia", 2.0, parent="eu", addresses=addresses))
        await until(lambda: server.agreement.layout.change is not None, "the change to begin")
        with pytest.raises(
            RequestRefused, match="another change is under way: node asia was added below eu; try again"
        ):
            await changer.change("add", "us", WAIT_S, parent="eu", addresses=["127.0.0.1:1"])
        assert any("asia" in line for each in server.explain() for line in each.waits)
        with pytest.raises(TimedOut, match="the change of asia took longer than 2 s; it was undone"):
            await adding
        assert server.agreement.layout.change is None and "asia" not in server.config.nodes
        await move(cluster, "orders", "root")
        async with serving_later(new, ["asia"]):
            assert (await add(cluster, "asia")).number == 1


async def test_a_change_under_way_outlives_the_root(tmp_path: Path) -> None:
    """It is registered and journaled: the next process that runs the root goes on with it."""
    cluster = new_cluster()
    file, new = apart(tmp_path, cluster)
    async with serving(file, ["eu"]) as eu:
        async with serving(file, ["root"]) as root, find_cluster(file.broker, cluster, WAIT_S) as found:
            addresses = [new.nodes["asia"].addresses[0]]
            adding = asyncio.create_task(Changer(found).change("add", "asia", WAIT_S, parent="eu", addresses=addresses))
            host: Any = root.served["root"].host
            await until(lambda: host.is_reshaping("asia"), "the machine to be told")
            adding.cancel()
        async with serving(file, ["root"]) as root:
            assert root.agreement.layout.change is not None
            async with serving(new, ["asia"]) as asia:
                await until(lambda: root.agreement.layout.changes == 1, "it to be made")
                await until(
                    lambda: asia.agreement.layout == eu.agreement.layout == root.agreement.layout, "all to know"
                )
                await move(cluster, "prices", "asia")


async def test_a_node_that_cannot_be_started_at_its_address_gets_another_one(tmp_path: Path) -> None:
    """A mistake in an address would otherwise be the end of the node: nobody can start it there, and whoever does not
    run could not be given another one."""
    cluster = new_cluster()
    file, new = apart(tmp_path, cluster)
    elsewhere = new.nodes["asia"].addresses[0]
    async with serving(file, ["root"]), find_cluster(file.broker, cluster, WAIT_S) as found:
        changer = Changer(found)
        async with serving(file, ["eu"]) as eu:
            running = asyncio.create_task(eu.run())
            await changer.change("address", "eu", WAIT_S, addresses=["203.0.113.1:7411"])
            await asyncio.wait_for(running, WAIT_S)
        with pytest.raises(ConnectionFailed, match=r"listen on 203.*`seriatim node address eu HOST:PORT` gives it an"):
            await SequencerServer(file, ["eu"]).start()
        with pytest.raises(RequestRefused, match="is an address of root already; give eu another one"):
            await changer.change("address", "eu", WAIT_S, addresses=list(file.nodes["root"].addresses))
        made = await changer.change("address", "eu", WAIT_S, addresses=[elsewhere])
        assert made.addresses == [elsewhere] and made.former == ["203.0.113.1:7411"]
        async with serving(file, ["eu"]) as eu, connect(file.broker, cluster=cluster, timeout_s=WAIT_S) as bus:
            assert eu.addresses == {"eu": elsewhere}
            async with bus.subscribe("orders", "news") as events:
                await bus.publish("orders", b"1")
                assert (await events.next(WAIT_S)).data == b"1"


async def test_other_clusters_say_why_nodes_do_not_come(tmp_path: Path) -> None:
    cluster = new_cluster()
    stations = {name: {"address": "127.0.0.1:0"} for name in ("one", "two")}
    async with serving(configured(tmp_path, cluster, stations, order="atoms", homes={}, times={})):
        found = await described(cluster)
        assert found is not None
        with pytest.raises(InputError, match="orders by atoms, and its nodes are placed by a plan"):
            check_tree(found)
