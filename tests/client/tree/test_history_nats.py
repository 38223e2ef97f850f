"""Beginning with the past on a real NATS server, also while processes are killed."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import seriatim
from seriatim.runtime.with_parent import ending_with_parent
from tests.brokers.nats.servers import running_server
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.crashes import Store, kill
from tests.client.test_nats import sequencer
from tests.client.world import data, take, until
from tests.ports import free_ports


@pytest.mark.parametrize(("mode", "buckets"), [("log", 0), ("log", 3), ("ticket", 0)])
async def test_a_late_subscriber_gets_what_an_early_one_got(tmp_path: Path, mode: str, buckets: int) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.{each}" for each in ("orders", "payments", "stock")]
    async with (
        sequencer(server, cluster, tmp_path, mode=mode, causal=True, streams={"buckets": buckets}),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(*topics) as early,
    ):
        for i in range(100):
            await asyncio.gather(
                bus.publish_many(topics[i % 3], [b"%d" % i, b"again"]), bus.publish(topics[i % 2], b"x")
            )
        seen = await take(early, 300)
        async with bus.subscribe(*topics, start="first") as late:
            past = await take(late, 300)
            assert [event.id for event in past] == [event.id for event in seen]
            positions = [event.position or 0 for event in past]
            assert positions == sorted(positions)
            await late.caught_up()
            await bus.publish_many([(topic, b"last") for topic in topics])
            assert [event.id for event in await take(late, 3)] == [event.id for event in await take(early, 3)]
        async with bus.subscribe(*topics, start=positions[150]) as middle:
            first = positions.index(positions[150])
            assert data(await take(middle, 300 - first)) == data(past[first:])


def is_full(events: seriatim.Subscription) -> bool:
    return events.unread >= 4


async def test_the_past_ends_while_a_slow_application_is_waited_for(tmp_path: Path) -> None:
    """Going on after a pause hands over the last of the past, and the subscription listens to its topics meanwhile."""
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.{each}" for each in ("orders", "payments", "stock")]
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0, limits=seriatim.Limits(unread_events=4)) as bus,
        bus.subscribe(*topics) as early,
    ):
        wanted = [str(i) for i in range(30)]
        for i, each in enumerate(wanted):
            await bus.publish(topics[i % 3], each.encode())
            await early.next()
        for _ in range(10):
            async with bus.subscribe(*topics, start="first") as late:
                await until("the room to be full", partial(is_full, late))
                assert data(await take(late, 30)) == wanted
                await late.caught_up()


class Serving:
    """One node as a process of its own, to be killed and started again."""

    def __init__(self, config: Path, node: str) -> None:
        self._command = [sys.executable, "-m", "seriatim.cli", "serve", "--config", str(config), "--node", node]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        output = subprocess.DEVNULL
        self._process = subprocess.Popen(ending_with_parent(self._command), stdout=output, stderr=output)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


def cluster_file(folder: Path, url: str, cluster: str, topics: list[str]) -> Path:
    ports = free_ports(2)
    token = folder / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o600)
    homes = "\n".join(f'"{topic}" = "{node}"' for topic, node in zip(topics, ("root", "east", "east"), strict=True))
    path = folder / "cluster.toml"
    path.write_text(
        f'cluster = "{cluster}"\nbroker = "{url}"\ncausal = true\nmode = "log"\ndefault_home = "root"\n'
        f'[security]\nnode_token_file = "{token}"\n'
        f'[nodes.root]\naddress = "127.0.0.1:{ports[0]}"\njournal = "file:{folder / "root"}"\n'
        f'[nodes.east]\naddress = "127.0.0.1:{ports[1]}"\nparent = "root"\njournal = "file:{folder / "east"}"\n'
        f"[homes]\n{homes}\n"
    )
    return path


async def test_kills_while_somebody_reads_the_past(tmp_path: Path) -> None:
    """Root, home, subscriber and broker are killed: nothing is lost, repeated or in another order."""
    cluster = new_cluster()
    topics = [f"{cluster}.{each}" for each in ("orders", "payments", "stock")]
    store, got = Store(), list[str]()
    async with running_server(tmp_path / "nats") as server:
        config = cluster_file(tmp_path, server.url, cluster, topics)
        nodes = {name: Serving(config, name) for name in ("root", "east")}
        for node in nodes.values():
            node.start()
        try:
            async with (
                seriatim.connect(server.url, cluster=cluster, timeout_s=50.0) as bus,
                bus.subscribe(*topics) as early,
            ):
                for i in range(120):
                    await bus.publish(topics[i % 3], b"%d" % i)
                expected = data(await take(early, 120))
                strikes = ["root", "subscriber", "east", "subscriber", "nats", "subscriber"]
                for strike in [*strikes, ""]:
                    async with seriatim.connect(
                        server.url, cluster=cluster, timeout_s=50.0, journals=store.open_journal
                    ) as reader:
                        subscribing = reader.subscribe(*topics, durable="d", start="first", acknowledge="manual")
                        async with subscribing as events:
                            if strike in nodes:
                                nodes[strike].kill()
                            elif strike == "nats":
                                server.kill()
                                await server.start()
                            if strike:
                                got += data(await take(events, 15))
                                await events.acknowledge()
                                await kill(events)
                            else:
                                got += data(await take(events, 30))
                                await bus.publish(topics[0], b"live")
                                got += data(await take(events, 1))
                    if strike in nodes:
                        nodes[strike].start()
                assert got == [*expected, "live"]
        finally:
            for node in nodes.values():
                node.kill()
