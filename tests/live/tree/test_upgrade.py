"""A cluster is upgraded node by node: each is started again under load, and other wire versions are told apart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim import Bus, connect
from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.nats.server import NatsServer
from seriatim.live.server import SequencerServer
from seriatim.model import ConnectionFailed, SeriatimError
from seriatim.runtime.net import dialer
from seriatim.runtime.net.wire import VERSION
from seriatim.server.config import ClusterConfig, parse_config
from tests.ports import free_port
from tests.waiting import until

TOPICS = ("eu.orders", "us.orders", "prices")
HOMES = {"eu.orders": "eu", "us.orders": "us", "prices": "root"}


def cluster(broker: str, folder: Path) -> ClusterConfig:
    """A root and two leaves, each in a process of its own."""
    nodes: dict[str, Any] = {}
    for name in ("root", "eu", "us"):
        nodes[name] = {"address": f"127.0.0.1:{free_port()}", "journal": f"file:{folder / name}"}
        if name != "root":
            nodes[name]["parent"] = "root"
    return parse_config({"broker": broker, "nodes": nodes, "homes": HOMES})


async def publish_until(stop: asyncio.Event, bus: Bus, offset: int) -> int:
    count = 0
    while not stop.is_set():
        await bus.publish(TOPICS[(count + offset) % 3], b"event %d" % count)
        count += 1
    return count


async def test_every_node_is_started_again_while_events_flow(tmp_path: Path) -> None:
    async with NatsServer() as nats:
        config, log = cluster(nats.url, tmp_path), tmp_path / "run"
        servers = {name: SequencerServer(config, [name]) for name in config.nodes}
        for server in servers.values():
            await server.start()
        stop = asyncio.Event()
        async with (
            connect(nats.url, publication_log=log, timeout_s=60) as one,
            connect(nats.url, publication_log=log, timeout_s=60) as two,
            one.subscribe(*TOPICS, log=log) as everything,
            two.subscribe("eu.orders", "us.orders", log=log) as orders,
        ):
            seen = [0, 0]

            async def count(place: int, events: Any) -> None:
                async for _ in events:
                    seen[place] += 1

            readers = [asyncio.create_task(count(0, everything)), asyncio.create_task(count(1, orders))]
            publishers = [asyncio.create_task(publish_until(stop, bus, k)) for k, bus in enumerate((one, two))]
            for name in ("eu", "root", "us"):
                before = seen[0]
                await until(lambda before=before: seen[0] > before + 50, "events flow")
                epoch = servers[name].status().nodes[0].epoch
                await servers[name].stop()
                servers[name] = SequencerServer(config, [name])
                await servers[name].start()
                assert servers[name].status().nodes[0].epoch == epoch + 1
            before = seen[0]
            await until(lambda: seen[0] > before + 50, "events flow after the last node")
            stop.set()
            published = sum(await asyncio.gather(*publishers))
            await until(lambda: seen[0] == published, "all events are notified")
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        for server in servers.values():
            await server.stop()
    report = audit(read_history(log))
    for name in ("acyclic", "tno", "fifo", "integrity", "completeness"):
        assert report.verdicts[name].answer == "valid", report.verdicts[name].reason


async def test_another_wire_version_is_refused_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with NatsServer() as nats:
        config = cluster(nats.url, tmp_path)
        async with SequencerServer(config, ["root"]) as root:
            monkeypatch.setattr(dialer, "VERSION", VERSION + 1)
            told = f"it speaks version {VERSION + 1}, and this server {VERSION}"
            async with SequencerServer(config, ["eu"]) as eu:
                await until(lambda: told in str(eu.explain()), "explain of the node says it")
                assert any("root" in line for line in eu.explain()[0].waits)
                with pytest.raises(SeriatimError, match=told) as refused:
                    async with connect(nats.url, timeout_s=5) as bus:
                        await bus.publish("prices", b"")
            assert isinstance(refused.value, ConnectionFailed)
            assert root.served["root"].listener.refused["version"] >= 2
