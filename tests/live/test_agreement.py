"""All processes of a cluster go by one layout: a stranger is refused, and is found by nobody."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seriatim.brokers.urls import open_broker
from seriatim.client.brokered.discovery import ask_for_description
from seriatim.client.connect import connect
from seriatim.live import agreement
from seriatim.live.server import SequencerServer
from seriatim.model import InputError
from seriatim.server.config import ClusterConfig, parse_config
from seriatim.server.description import ClusterDescription, describe_subject, encode_description
from seriatim.server.layout import Disagreement, Layout, encode_layout, of_config
from tests.brokers.nats.world import new_cluster, shared_server
from tests.live.test_health import serving
from tests.live.test_server import get
from tests.ports import free_port
from tests.proxy import TO_CLIENT, TO_TARGET, FaultProxy
from tests.waiting import until


def layout_of(folder: Path, cluster: str, nodes: dict[str, Any], url: str = "", **more: Any) -> ClusterConfig:
    given = {name: {"address": f"127.0.0.1:{free_port()}", **node} for name, node in nodes.items()}
    folder.mkdir(exist_ok=True)
    url, admin = url or shared_server().url, {"address": "127.0.0.1:0"}
    return parse_config({"broker": url, "cluster": cluster, "nodes": given, "admin": admin, **more}, folder)


async def described(cluster: str, url: str = "") -> ClusterDescription | None:
    broker = open_broker(url or shared_server().url)
    await broker.open()
    try:
        return await ask_for_description(broker, cluster, 60.0)
    finally:
        await broker.close()


@pytest.mark.parametrize("scheme", ["nats", "nats+core"])
@pytest.mark.parametrize(
    ("nodes", "more", "told"),
    [
        ({"root": {}, "eu": {"parent": "root"}, "us": {"parent": "root"}}, {}, "node 'us' is not in it"),
        ({"us": {}}, {}, "it has a node 'eu'"),
        ({"eu": {}, "root": {"parent": "eu"}}, {}, "node 'eu' is below 'root' there, and the root here"),
        ({"root": {}, "eu": {"parent": "root"}}, {"order": "pairwise"}, "order is 'global' there, and 'pairwise' here"),
    ],
)
async def test_a_process_with_another_file_does_not_start_and_nobody_finds_it(
    tmp_path: Path, scheme: str, nodes: dict[str, Any], more: dict[str, Any], told: str
) -> None:
    cluster, url = new_cluster(), shared_server().url.replace("nats", scheme, 1)
    more = more | ({"mode": "ticket"} if scheme == "nats+core" else {})
    mode = {"mode": "ticket"} if scheme == "nats+core" else {}
    ours = layout_of(tmp_path / "ours", cluster, {"root": {}, "eu": {"parent": "root"}}, url, **mode)
    async with serving(ours):
        stranger = SequencerServer(layout_of(tmp_path / "other", cluster, nodes, url, **more))
        with pytest.raises(InputError, match=rf"cluster '{cluster}' has another layout.*{told}") as refused:
            await stranger.start()
        assert "start it with the file of that cluster" in str(refused.value)
        assert not list((tmp_path / "other").glob("journal*")), "no journal was made"
        found = await described(cluster, url)
        assert found is not None and found.parents == {"root": None, "eu": "root"}


async def test_the_layout_outlives_the_processes(tmp_path: Path) -> None:
    cluster = new_cluster()
    ours = layout_of(tmp_path / "ours", cluster, {"root": {}})
    async with serving(ours) as first:
        assert first.agreement.version == 1
    with pytest.raises(InputError, match=f"delete the stream {cluster}-layout"):
        await SequencerServer(layout_of(tmp_path / "other", cluster, {"eu": {}})).start()
    async with serving(ours) as again:
        assert again.agreement.version == 1


async def test_two_that_start_at_once_agree_on_one_layout(tmp_path: Path) -> None:
    cluster = new_cluster()
    servers = [SequencerServer(layout_of(tmp_path / each, cluster, {each: {}})) for each in ("eu", "us", "asia")]
    ends = await asyncio.gather(*(each.start() for each in servers), return_exceptions=True)
    assert [type(end) for end in ends].count(InputError) == 2
    found = await described(cluster)
    assert found is not None and len(found.parents) == 1
    for each in servers:
        await each.stop()


async def test_whoever_is_behind_a_newer_layout_is_found_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairwise order becomes global, one process after the other: clients hear of it from the new one only."""
    monkeypatch.setattr(agreement, "LOOK_S", 0.1)
    cluster = new_cluster()
    nodes = {"root": {"address": f"127.0.0.1:{free_port()}"}, "eu": {"parent": "root"}}
    nodes["eu"]["address"] = f"127.0.0.1:{free_port()}"
    before = layout_of(tmp_path, cluster, nodes, order="pairwise")
    after = layout_of(tmp_path, cluster, nodes)
    async with serving(before, ["root"]) as old:
        async with serving(before, ["eu"]):
            assert (found := await described(cluster)) is not None and found.order == "pairwise"
        async with serving(after, ["eu"]) as new:
            assert (found := await described(cluster)) is not None and found.order == "global"
            await until(lambda: old.agreement.problem, "the old one to see it")
            assert (found := await described(cluster)) is not None and (found.by, found.order) == (["eu"], "global")
            status, body = await get(old, "/health")
            assert status == 503 and "order is 'global' there, and 'pairwise' here; start this process with" in body
            assert (await get(old, "/ready"))[0] == 503
            await until(lambda: (get_layout := new.agreement).version == 2 and not get_layout.problem, "the new one")
    with pytest.raises(InputError, match="order is 'global' there, and 'pairwise' here"):
        await SequencerServer(before, ["root"]).start()
    async with serving(after, ["root"]):
        pass


async def test_clients_notice_processes_of_before_that_tell_another_layout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not compare, so they answer. What is registered counts more; if nothing is, nobody can tell."""
    cluster = new_cluster()
    stranger = ClusterDescription(cluster=cluster, parents={"asia": None}, tree_order="global")
    broker = open_broker(shared_server().url)
    await broker.open()
    assert broker.requests is not None
    await broker.requests.answer(describe_subject(cluster), lambda _: encode_description(stranger))
    try:
        async with serving(layout_of(tmp_path, cluster, {"root": {}, "eu": {"parent": "root"}}, homes={"a": "root"})):
            for _ in range(5):
                async with connect(shared_server().url, cluster=cluster) as bus, bus.subscribe("a") as events:
                    await bus.publish("a", b"one")
                    assert (await events.next(60)).data == b"one"
            assert "another process describes the cluster differently, and is ignored" in caplog.text
            assert "node 'root' is not in it" in caplog.text or "it has a node 'asia'" in caplog.text
        another = msgspec.structs.replace(stranger, parents={"africa": None}, by=["africa"])
        await broker.requests.answer(describe_subject(cluster), lambda _: encode_description(another))
        with pytest.raises(Disagreement, match=r"do not agree: .*; stop the process that was started with the wrong"):
            async with connect(shared_server().url, cluster=cluster, timeout_s=2.0):
                pass
    finally:
        await broker.close()


async def test_a_layout_that_was_deleted_is_registered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LOOK_S", 0.1)
    config = layout_of(tmp_path, new_cluster(), {"root": {}})
    async with serving(config) as server:
        broker = open_broker(shared_server().url, cluster=config.cluster)
        await broker.open()
        register: Any = broker.register("layout")
        try:
            assert await register.read() == (encode_layout(server.agreement.layout), 1)
            api: Any = broker
            await api.api.link.call(f"$JS.API.STREAM.DELETE.{config.cluster}-layout", b"")
            await until(lambda: register.read(), "it is there again")
            assert (
                Layout.of(await described(config.cluster) or pytest.fail("nobody answers")) == server.agreement.layout
            )
        finally:
            await broker.close()


async def test_a_silent_broker_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = new_cluster()
    async with FaultProxy.before(shared_server().url.removeprefix("nats://")) as proxy:
        config = layout_of(tmp_path, cluster, {"root": {}}, f"nats://{proxy.address}")
        broker = open_broker(config.broker, cluster=cluster)
        await broker.open()
        try:
            proxy.dropped = {TO_CLIENT}
            ours = agreement.Agreement(broker, of_config(config))
            reaching = asyncio.create_task(ours.reach())
            asked = proxy.passed[TO_TARGET]
            await until(lambda: proxy.passed[TO_TARGET] > asked, "a question")
            proxy.heal()
            await reaching
            assert ours.version == 1 and "layout not agreed yet" in caplog.text
        finally:
            await broker.close()
