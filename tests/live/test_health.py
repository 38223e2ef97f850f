"""The answers of /health to each kind of problem, on a real NATS server: each problem is caused, seen, and repaired."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from seriatim.client.connect import connect
from seriatim.live.server import SequencerServer
from seriatim.live.tree import troubles
from seriatim.model import Node
from seriatim.server.config import parse_config
from seriatim.server.health import Kind, Problem
from tests.brokers.nats.servers import running_server
from tests.brokers.nats.world import new_cluster, shared_server
from tests.live.test_server import get
from tests.ports import free_port
from tests.waiting import a_moment, until

TREE: dict[str, dict[str, Any]] = {"root": {}, "eu": {"parent": "root"}}
HOMES = {"orders": "root", "prices": "eu"}


def configured(folder: Path, url: str, nodes: dict[str, dict[str, Any]], **more: Any) -> Any:
    given = {name: {"address": f"127.0.0.1:{free_port()}", **node} for name, node in nodes.items()}
    admin = {"address": "127.0.0.1:0"}
    return parse_config({"cluster": new_cluster(), "broker": url, "nodes": given, "admin": admin, **more}, folder)


@asynccontextmanager
async def serving(config: Any, nodes: list[Node] | None = None, place: int = 0) -> AsyncIterator[SequencerServer]:
    server = SequencerServer(config, nodes, place=place)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def plain(url: str) -> AsyncIterator[tuple[Client, JetStreamContext]]:
    """A client that knows nothing of Seriatim."""
    client = await nats.connect(url, connect_timeout=60)
    try:
        yield client, client.jetstream()
    finally:
        await client.close()


def found(server: SequencerServer, kind: Kind, what: str = "") -> Problem | None:
    return next((each for each in server.problems() if each.kind == kind and each.what in (what, each.what)), None)


async def healthy(server: SequencerServer) -> None:
    await until(lambda: not server.problems(), "health")
    assert await get(server, "/health") == (200, "ok\n")


async def unhealthy(server: SequencerServer, kind: Kind, what: str, *, ready: bool = True) -> Problem:
    problem: Problem | None = None

    async def is_told() -> bool:  # the reason may become another one between two looks
        nonlocal problem
        if found(server, kind, what) is None:
            return False
        status, body = await get(server, "/health")
        problem = found(server, kind, what)
        return problem is not None and status == 503 and problem.reason in body

    await until(is_told, f"a problem: {kind} {what}")
    assert problem is not None
    assert (await get(server, "/ready"))[0] == (200 if ready else 503)
    assert (await get(server, "/live"))[0] == 200
    assert (
        problem.kind in [each.kind for status in server.status().nodes for each in status.problems] or not problem.node
    )
    return problem


async def test_a_node_without_its_parent(tmp_path: Path) -> None:
    config = configured(tmp_path, shared_server().url, TREE, homes=HOMES)
    async with serving(config, ["eu"]) as child:
        problem = await unhealthy(child, "link", "root")
        assert "parent root is not connected: tried 127.0.0.1:" in problem.reason
        async with serving(config, ["root"]) as parent:
            await healthy(child)
            await healthy(parent)
        await unhealthy(child, "link", "root")
        async with connect(shared_server().url, cluster=config.cluster) as bus:
            async with asyncio.timeout(60):
                task = asyncio.ensure_future(bus.subscribe("prices", "orders").__aenter__())
                backlog = "messages wait for it"
                await until(lambda: backlog in str(found(child, "link")), "a join that waits")
                await until(lambda: "; 0 messages" not in str(found(child, "link")), "a backlog")
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        assert found(child, "link") is not None


async def test_a_parent_in_the_same_process_that_has_failed(tmp_path: Path) -> None:
    config = configured(tmp_path, shared_server().url, TREE, homes=HOMES)
    async with serving(config) as server:
        await healthy(server)
        host = server.served["root"].host
        assert host is not None
        host.driver.end(OSError("no space left"))
        await until(lambda: found(server, "failed"), "the failure")
        assert "parent root is not connected: it is failed" in str(found(server, "link", "root"))


async def test_a_stream_that_was_deleted_is_named_at_once_and_is_fine_when_it_is_restored(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as nats_server:
        config = configured(tmp_path, nats_server.url, {"root": {}}, homes={"orders": "root"})
        async with serving(config) as server, connect(nats_server.url, cluster=config.cluster) as bus:
            async with bus.subscribe("orders") as events:
                await bus.publish("orders", b"one")
                assert (await events.next(60)).data == b"one"
            await healthy(server)
            async with plain(nats_server.url) as (_, jetstream):
                stream = await jetstream.find_stream_name_by_subject("orders")
                await jetstream.delete_stream(stream)
                problem = await unhealthy(server, "log", "orders")
                assert f"the log of orders (stream {stream}) was deleted; restore it" in problem.reason
                await jetstream.add_stream(name=stream, subjects=["orders"], allow_direct=True)
                await until(lambda: "ends at 0" in str(found(server, "log", "orders")), "the new one to be seen")
                for _ in range(3):
                    await jetstream.publish("orders", b"new")
                await until(lambda: "was created" in str(found(server, "log", "orders")), "another one")


PERMISSIONS = """
authorization {{ users: [
  {{ user: sequencer, password: "p", permissions: {{ publish: {{ deny: [{denied}] }} }} }}
  {{ user: other, password: "p" }}
] }}
"""


@pytest.mark.parametrize(
    ("denied", "kind", "what"),
    [('"_*.stamps.>", "*.stamps.>", "_shop.stamps.>"', "stamps", "orders"), ('"_shop.order"', "order log", "")],
)
async def test_a_home_that_may_not_write(tmp_path: Path, denied: str, kind: Kind, what: str) -> None:
    async with running_server(tmp_path / "nats", PERMISSIONS.format(denied=denied)) as nats_server:
        host = nats_server.url.removeprefix("nats://")
        url = f"nats://sequencer:p@{host}"
        config = configured(tmp_path, url, {"root": {}}, cluster="shop", homes={"orders": "root"})
        url = f"nats://other:p@{host}"
        async with (
            serving(config) as server,
            connect(url, cluster="shop", confirm="stored") as bus,
            bus.subscribe("orders"),
        ):
            await healthy(server)
            await bus.publish("orders", b"one")
            problem = await unhealthy(server, kind, what)
            assert "permissions violation" in problem.reason


async def test_a_full_stream_of_stamps(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as nats_server:
        times = {"patience_ms": 300.0}
        config = configured(tmp_path, nats_server.url, {"root": {}}, homes={"orders": "root"}, times=times)
        async with (
            serving(config) as server,
            connect(nats_server.url, cluster=config.cluster, confirm="stored") as bus,
            bus.subscribe("orders") as events,
            plain(nats_server.url) as (_, jetstream),
        ):
            await bus.publish("orders", b"one")
            await events.next(60)
            stream = f"{config.cluster}-stamps-root"
            info = await jetstream.stream_info(stream)
            full = info.config.evolve(max_msgs=info.state.messages, discard=nats.js.api.DiscardPolicy.NEW)
            await jetstream.update_stream(full)
            await bus.publish("orders", b"two")
            problem = await unhealthy(server, "stamps", "orders")
            assert "maximum messages exceeded" in problem.reason
            told = "has waited for orders 2 for "
            await until(
                lambda: any(told in line for line in server.explain()[0].waits), "what the subscriber waits for"
            )
            assert server.status().nodes[0].waiting == 1
            await jetstream.update_stream(full.evolve(max_msgs=-1))
            assert (await events.next(60)).data == b"two"
            await healthy(server)
            await until(lambda: server.status().nodes[0].waiting == 0, "who waits no more to be forgotten")


async def test_stamps_that_come_back_from_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link to the parent is there. Its parent is away. The topics are of this test alone: other tests publish to
    `prices` on this server, and its numbers would go on behind theirs."""
    monkeypatch.setattr(troubles, "LATE_S", 1.0)
    nodes = {"root": {}, "eu": {"parent": "root"}, "de": {"parent": "eu"}}
    config = configured(tmp_path, shared_server().url, nodes, homes={"late-orders": "root", "late-prices": "de"})
    async with serving(config, ["eu"]) as middle, serving(config, ["de"]) as leaf:
        async with serving(config, ["root"]):
            bus = connect(shared_server().url, cluster=config.cluster, confirm="stored")
            await bus.__aenter__()
            subscription = bus.subscribe("late-orders", "late-prices")
            await subscription.__aenter__()
            await healthy(leaf)
        await bus.publish("late-prices", b"one")
        problem = await unhealthy(leaf, "stamps", "climbing")
        assert "1 ranges of numbers wait for their stamps, first late-prices 1..1" in problem.reason
        assert problem.seconds >= 1.0
        await unhealthy(middle, "link", "root")
        await subscription.close()
        await bus.close()


async def test_a_broker_that_is_away(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as nats_server:
        config = configured(tmp_path, nats_server.url, {"root": {}}, homes={"orders": "root"})
        async with serving(config) as server:
            await healthy(server)
            nats_server.kill()
            problem = await unhealthy(server, "broker", "", ready=False)
            assert f"no NATS server answers at 127.0.0.1:{nats_server.port}" in problem.reason
            await nats_server.start()
            await healthy(server)


async def test_an_order_log_that_falls_behind() -> None:
    lag = troubles.Lag()
    assert list(lag.troubles(5, 0, 0.0)) == []
    assert list(lag.troubles(5, 3, troubles.LATE_S + 1)) == []
    assert list(lag.troubles(9, 3, 2 * troubles.LATE_S)) == []
    (trouble,) = lag.troubles(9, 3, 2 * troubles.LATE_S + 2)
    assert "ends at position 3, 6 are not in it" in trouble.reason
    assert list(lag.troubles(9, 9, 3 * troubles.LATE_S)) == []


STANDBYS: dict[str, Any] = {"journal": "broker"}


def with_standby(folder: Path, url: str) -> Any:
    addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    token = folder / "node.token"
    token.write_text("a-token-of-some-length-for-nodes")
    more = {"times": {"takeover_ms": 500.0}, "security": {"node_token_file": str(token)}}
    return configured(folder, url, {"root": {**STANDBYS, "address": addresses}}, **more)


async def test_a_standby_that_cannot_reach_the_process_it_stands_by_for(tmp_path: Path) -> None:
    config = with_standby(tmp_path, shared_server().url)
    async with serving(config) as active:
        await until(lambda: active.served["root"].role == "active", "the first process")
        async with serving(config, place=1) as standby:
            await healthy(standby)
            assert standby.served["root"].role == "standby"
            await active.served["root"].listener.stop()
            problem = await unhealthy(standby, "silent", "")
            assert f"is not reached from here at {active.addresses['root']}" in problem.reason


async def test_a_standby_of_a_process_that_writes_its_journal_and_does_not_answer(tmp_path: Path) -> None:
    """It keeps the journal busy, so nobody takes over, and nobody is served."""
    config = with_standby(tmp_path, shared_server().url)
    async with plain(shared_server().url) as (client, _):
        async with serving(config, place=1) as first:
            await until(lambda: first.served["root"].role == "active", "the node, to make its journal")
        subject = f"_{config.cluster}.journal.root.beat"

        async def beat() -> None:
            while True:
                await client.publish(subject, b"\x00")
                await a_moment(0.05)

        beating = asyncio.ensure_future(beat())
        async with serving(config, place=1) as standby:
            problem = await unhealthy(standby, "silent", "")
            assert "no process runs root, or it does not answer on the broker" in problem.reason
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)


async def test_it_is_not_ready_before_it_serves(tmp_path: Path) -> None:
    """The admin port is open while the broker is looked for."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        server = SequencerServer(configured(tmp_path, url, {"root": {}}))
        starting = asyncio.ensure_future(server.start())
        await until(lambda: server.admin_url is not None and not server.admin_url.endswith(":0"), "the admin port")
        assert await get(server, "/ready") == (503, "the process is starting (for 0 s)\n")
        assert (await get(server, "/live"))[0] == 200
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
