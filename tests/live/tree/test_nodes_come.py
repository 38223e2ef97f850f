"""Nodes come and go on a running cluster while events flow, and clients follow by themselves."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from seriatim import connect
from seriatim.cli.changing import Changer
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.cli.node import add_node
from seriatim.live import agreement
from seriatim.model import RequestRefused
from seriatim.server.config import ClusterConfig, parse_config
from seriatim.server.layout import Change
from tests.brokers.nats.world import new_cluster, shared_server
from tests.live.test_agreement import described
from tests.live.test_health import serving
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
            await remove(cluster, "us")
            await load.more()
            await load.end()
            await until(lambda: load.got["s"] == load.sent, "everything to arrive")
        async with serving(config) as third:
            assert sorted(third.served) == ["asia", "eu", "root", "top"]
