"""Standbys come and go on a running cluster, and clients find them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim import connect
from seriatim.cli.changing import Changer
from seriatim.cli.cluster import find_cluster
from seriatim.live import agreement
from seriatim.live.server import SequencerServer
from seriatim.model import InputError, RequestRefused
from seriatim.server.changing import Wish
from seriatim.server.config import ClusterConfig, parse_config
from seriatim.server.layout import Change
from tests.brokers.nats.world import new_cluster, shared_server
from tests.live.test_agreement import described
from tests.live.test_health import serving
from tests.ports import free_ports
from tests.waiting import until

WAIT_S = 60.0


def configured(folder: Path, cluster: str, addresses: dict[str, Any], **more: Any) -> ClusterConfig:
    """A root and two leaves. The journal of the root is on the broker, the others are files."""
    nodes: dict[str, Any] = {name: {"address": at, "parent": "root"} for name, at in addresses.items()}
    nodes["root"] = {"address": addresses["root"], "journal": "broker"}
    times = {"retry_ms": 200, "takeover_ms": 3_000}
    given = {"broker": shared_server().url, "cluster": cluster, "nodes": nodes, "times": times}
    homes = {"orders": "root", "prices": "eu"}
    return parse_config({**given, "homes": homes, "admin": {"address": "127.0.0.1:0"}, **more}, folder)


async def change(cluster: str, wish: Wish, node: str, address: str) -> Change:
    async with find_cluster(shared_server().url, cluster, WAIT_S) as found:
        return await Changer(found).change(wish, node, WAIT_S, addresses=[address])


def roles(server: SequencerServer) -> list[str]:
    return [served.role for served in server.served.values()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LOOK_S", 0.2)


async def test_a_standby_is_added_to_a_running_node_and_takes_over(tmp_path: Path) -> None:
    """The first process is stopped when the standby is there. Clients and the other node find it; nothing is lost."""
    cluster, (root, eu, other) = new_cluster(), map("127.0.0.1:{}".format, free_ports(3))
    config = configured(tmp_path, cluster, {"root": root, "eu": eu})
    async with (
        serving(config, ["eu"]) as below,
        connect(config.broker, cluster=cluster, timeout_s=WAIT_S) as bus,
    ):
        first = SequencerServer(config, ["root"])
        await first.start()
        async with bus.subscribe("orders", "prices") as events:
            for n in range(3):
                await bus.publish("orders", b"%d" % n)
            made = await change(cluster, "standby", "root", other)
            assert (made.number, made.addresses) == (1, [root, other])
            await until(lambda: below.config.nodes["root"].addresses == (root, other), "the leaf to know it")
            now = configured(tmp_path, cluster, {"root": [root, other], "eu": eu})
            async with serving(now, ["root"], place=1) as standby:
                await until(lambda: roles(standby) == ["standby"] and not standby.problems(), "the standby to be well")
                await first.stop()
                await until(lambda: roles(standby) == ["active"], "the standby to take over")
                for n in range(3, 6):
                    await bus.publish("prices", b"%d" % n)
                    await bus.publish("orders", b"%d" % n)
                seen = [(await events.next(WAIT_S)).data for _ in range(9)]
                assert seen[:3] == [b"0", b"1", b"2"] and sorted(seen[3:]) == [b"3", b"3", b"4", b"4", b"5", b"5"]
                assert not below.problems()
                found = await described(cluster)
                assert found is not None and found.addresses["root"] == [root, other]


async def test_who_has_run_a_node_alone_stands_by_when_its_standby_has_taken_over(tmp_path: Path) -> None:
    """The first process is silent for too long. When it writes again, it is fenced and stands by instead of ending."""
    cluster, (root, other) = new_cluster(), map("127.0.0.1:{}".format, free_ports(2))
    config = configured(tmp_path, cluster, {"root": root}, homes={})
    async with serving(config) as first:
        served: Any = first.served["root"]
        await change(cluster, "standby", "root", other)
        async with serving(configured(tmp_path, cluster, {"root": [root, other]}, homes={}), ["root"], 1) as second:
            assert served.host is not None
            async with served.host._journal._turn:  # it writes nothing, as if its process were frozen
                await until(lambda: roles(second) == ["active"], "the second to take over")
            await until(lambda: roles(first) == ["standby"], "the first to stand by")
            await second.stop()
            await until(lambda: roles(first) == ["active"], "the first to take over again")
            assert not served.failed.done()


async def test_a_standby_is_removed_unless_it_is_active(tmp_path: Path) -> None:
    cluster, (root, other) = new_cluster(), map("127.0.0.1:{}".format, free_ports(2))
    async with serving(configured(tmp_path, cluster, {"root": [root, other]}, homes={}), ["root"]) as first:
        await until(lambda: roles(first) == ["active"], "the first to be active")
        second = SequencerServer(configured(tmp_path, cluster, {"root": [root, other]}, homes={}), ["root"], place=1)
        await second.start()
        running = asyncio.create_task(second.run())
        with pytest.raises(RequestRefused, match=f"{root} is the active process of root; stop it"):
            await change(cluster, "no standby", "root", root)
        made = await change(cluster, "no standby", "root", other)
        assert made.addresses == [root] and made.former == [root, other]
        await asyncio.wait_for(running, WAIT_S)
        assert second.served == {}, "its process has ended by itself"
        await second.stop()
        found = await described(cluster)
        assert found is not None and found.addresses["root"] == [root]
        with pytest.raises(RequestRefused, match=f"{root} is the only address of root"):
            await change(cluster, "no standby", "root", root)
        with pytest.raises(InputError, match=r"--standby: node root has no standby number 1.*standby add root"):
            await SequencerServer(
                configured(tmp_path, cluster, {"root": [root, other]}, homes={}), ["root"], place=1
            ).start()


async def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    cluster, (root, eu, other) = new_cluster(), map("127.0.0.1:{}".format, free_ports(3))
    async with serving(configured(tmp_path, cluster, {"root": root, "eu": eu})) as server:
        for wish, node, address, problem in (
            ("standby", "eu", other, "the journal of eu is 'file:journal-.*', which no other machine can read"),
            ("standby", "root", eu, f"{eu} is an address of eu already; give root another one"),
            ("standby", "root", "127.0.0.1:0", "others cannot know the port of 127.0.0.1:0"),
            ("no standby", "root", other, f"root is not at {other}; its addresses are {root}"),
            ("standby", "asia", other, "there is no node 'asia'; use one of eu, root"),
        ):
            with pytest.raises(RequestRefused, match=problem):
                await change(cluster, wish, node, address)  # type: ignore[arg-type]
        assert server.agreement.layout.changes == 0


async def test_a_file_from_before_is_told_and_the_layout_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that starts again with the file from before a change goes by the layout, and says so."""
    cluster, (root, eu, other) = new_cluster(), map("127.0.0.1:{}".format, free_ports(3))
    config = configured(tmp_path, cluster, {"root": root, "eu": eu})
    async with serving(config):
        await change(cluster, "standby", "root", other)
    async with serving(config) as again:
        assert again.config.nodes["root"].addresses == (root, other)
        assert "the file is older than the layout of the cluster, and the layout counts" in caplog.text
        assert f"changes=node root is at {root}, {other} fix=`seriatim layout --config FILE --out FILE`" in caplog.text
    other_shape = configured(tmp_path, cluster, {"root": root, "us": eu}, homes={})
    with pytest.raises(InputError, match="has another layout, registered on the broker: it has a node 'eu'"):
        await SequencerServer(other_shape).start()
