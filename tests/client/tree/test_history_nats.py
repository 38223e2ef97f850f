"""Beginning with the past on a real NATS server, also while processes are killed."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

import seriatim
from seriatim.client.tree.source import TreeSource
from seriatim.live.server import SequencerServer
from seriatim.model import TimedOut
from seriatim.runtime.with_parent import ending_with_parent
from seriatim.server.config import load_config
from tests.brokers.nats.servers import running_server
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.crashes import Store, kill
from tests.client.test_nats import sequencer
from tests.client.world import data, feed_of, take, until
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


UNREAD = 8  # events that may wait for the application


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


async def is_in_the_middle(events: seriatim.Subscription) -> None:
    """Wait until no more fits into the room. Then the past is being read, and cannot be read to its end."""
    await until("the room to be full", lambda: feed_of(events).is_paused)
    progress = events.progress()
    assert not progress.is_live and progress.position < progress.end - UNREAD, progress


def read_in_small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client fetches all of a short past at once."""
    usual = TreeSource._options
    monkeypatch.setattr(TreeSource, "_options", lambda self: structs.replace(usual(self), history_window=UNREAD))


@pytest.mark.long
async def test_kills_while_somebody_reads_the_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, home, subscriber and broker are killed in the middle: nothing is lost, repeated or in another order."""
    read_in_small_windows(monkeypatch)
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
                for i in range(135):
                    await bus.publish(topics[i % 3], b"%d" % i)
                expected = data(await take(early, 135))
                strikes = ["root", "subscriber", "east", "subscriber", "nats", "subscriber"]
                for strike in [*strikes, ""]:
                    async with seriatim.connect(
                        server.url,
                        cluster=cluster,
                        timeout_s=50.0,
                        journals=store.open_journal,
                        limits=seriatim.Limits(unread_events=UNREAD),
                    ) as reader:
                        subscribing = reader.subscribe(*topics, durable="d", start="first", acknowledge="manual")
                        async with subscribing as events:
                            await is_in_the_middle(events)
                            if strike in nodes:
                                nodes[strike].kill()
                            elif strike == "nats":
                                server.kill()
                                await server.start()
                            if strike:
                                got += data(await take(events, 15))
                                await events.acknowledge()
                                await is_in_the_middle(events)
                                await kill(events)
                            else:
                                got += data(await take(events, 45))
                                await events.caught_up()
                                await bus.publish(topics[0], b"live")
                                got += data(await take(events, 1))
                    if strike in nodes:
                        nodes[strike].start()
                assert got == [*expected, "live"]
        finally:
            for node in nodes.values():
                node.kill()


async def test_the_root_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live events of topics that do not meet at the root go on, also those of somebody who reads the past. Who begins
    with the past now waits, and is told for whom."""
    read_in_small_windows(monkeypatch)
    server, cluster = shared_server(), new_cluster()
    far, near, beside = topics = [f"{cluster}.{each}" for each in ("far", "near", "beside")]
    config = load_config(cluster_file(tmp_path, server.url, cluster, topics))
    root, east = SequencerServer(config, ["root"]), SequencerServer(config, ["east"])
    await asyncio.gather(root.start(), east.start())
    again: SequencerServer | None = None
    connect = partial(seriatim.connect, server.url, cluster=cluster)
    try:
        async with (
            connect(timeout_s=50.0) as bus,
            connect(timeout_s=50.0, limits=seriatim.Limits(unread_events=UNREAD)) as slow,
            connect(timeout_s=1.0) as hasty,
            bus.subscribe(near, beside) as live,
        ):
            for i in range(60):
                await bus.publish((near, beside)[i % 2], b"%d" % i)
            assert data(await take(live, 60)) == [str(i) for i in range(60)]
            async with bus.subscribe(near, beside, start=60) as events:
                assert data(await take(events, 1)) == ["59"], "the order log has all of them"
            async with slow.subscribe(near, beside, start="first") as reading:
                await is_in_the_middle(reading)
                await root.stop()
                await until("the loss is noticed", lambda: "node root is not connected" in str(bus.explain()))
                for i in range(60, 80):
                    await bus.publish((near, beside)[i % 2], b"%d" % i)
                assert data(await take(live, 20)) == [str(i) for i in range(60, 80)]
                assert data(await take(reading, 80)) == [str(i) for i in range(80)], "the past, and then live"
                assert reading.progress().is_live

            waits = rf"node east has not answered for {near} \(to begin with the past it asks node root\)"
            with pytest.raises(TimedOut, match=f"{waits}.*node root is not connected"):
                await hasty.subscribe(near, beside, start="first").__aenter__()
            beginning = asyncio.create_task(bus.subscribe(near, beside, start="first").__aenter__())
            named = f"node east has not answered for {near} (to begin with the past it asks node root)"
            await until("explain names the root", lambda: named in str(bus.explain()))
            with pytest.raises(TimedOut, match="node root"):  # what lives there has to wait
                await hasty.publish(far, b"x")
            assert not beginning.done()
            again = SequencerServer(config, ["root"])
            await again.start()
            async with asyncio.timeout(50.0):
                events = await beginning
            assert data(await take(events, 80)) == [str(i) for i in range(80)]
            await events.caught_up()
            await bus.publish(near, b"80")
            assert data(await take(events, 1)) == data(await take(live, 1)) == ["80"]
    finally:
        for each in (east, again, root):
            if each is not None:
                await each.stop()
