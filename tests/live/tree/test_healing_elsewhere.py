"""`serve --heal` where it does something else than in a tree with journals in folders, or is refused."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gap, connect
from seriatim.brokers.nats.server import NatsServer
from tests.cli.processes import Running, run
from tests.live.tree.lossy import CHAIN, WAIT_S, Cluster, loaded
from tests.ports import free_port
from tests.waiting import until


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.mark.long
async def test_journals_on_the_broker_are_healed(nats: NatsServer, tmp_path: Path) -> None:
    """A leaf, the root, and an inner node with a standby, which takes over from the healed one."""
    cluster = Cluster(nats, tmp_path, "heal-broker", CHAIN, on_broker=True)
    try:
        for node in CHAIN:
            await cluster.start(node)
        async with loaded(cluster, tmp_path / "log") as load:
            for victim in ("n3", "n1"):
                await load.more()
                cluster.kill(victim)
                await cluster.lose_stream(victim)
                running = await cluster.start(victim, "--heal")
                await load.more()
                assert any("healed without its journal" in line for line in running.err)

            standby = await cluster.stand_by("n2")
            cluster.kill("n2")
            await cluster.lose_stream("n2")
            refusal = await asyncio.to_thread(standby.wait_for_line, "cannot take over")
            assert "n2 has lost its journal" in refusal and "--heal" in refusal, refusal
            await cluster.start("n2", "--heal")
            await load.more()
            assert not any("node started" in line for line in standby.err)
            cluster.kill("n2")
            await asyncio.to_thread(standby.wait_for_line, "node started")
            await load.more()
    except BaseException:
        print(*cluster.running.values(), sep="\n")
        raise
    finally:
        cluster.stop()


async def test_if_all_nodes_are_lost_the_tree_says_so(nats: NatsServer, tmp_path: Path) -> None:
    cluster = Cluster(nats, tmp_path, "heal-all", {"n1": None, "n2": "n1", "n3": "n1"})
    try:
        for node in cluster.nodes:
            await cluster.start(node)
        async with cluster.bus("p") as bus:
            await bus.publish(cluster.topics["orders"], b"")
            await bus.publish(cluster.topics["news"], b"")
        cluster.lose(*cluster.nodes)
        for node in cluster.nodes:
            await cluster.start(node, "--heal")

        def explained() -> str:
            return run("explain", "--url", nats.url, "--cluster", cluster.name).stdout

        wanted = "all nodes have lost their journals: start anew, or restore a backup of everything"
        await until(lambda: asyncio.to_thread(lambda: wanted in explained()), wanted, timeout_s=WAIT_S)
    except BaseException:
        print(*cluster.running.values(), sep="\n")
        raise
    finally:
        cluster.stop()


def file_of_one(nats: NatsServer, folder: Path, name: str, *more: str) -> Path:
    lines = [
        f'broker = "{nats.url}"',
        f'cluster = "{name}"',
        *more,
        "[nodes.one]",
        f'journal = "file:{folder / "one"}"',
    ]
    path = folder / "cluster.toml"
    path.write_text("\n".join([*lines, f'address = "127.0.0.1:{free_port()}"']))
    return path


@pytest.mark.parametrize(
    ("kind", "option", "why"),
    [
        ("atoms", 'order = "atoms"', "start over, with empty journals on all nodes and a new cluster name"),
        ("ticket", 'mode = "ticket"', "in ticket mode a node cannot be healed"),
    ],
)
async def test_who_cannot_be_healed_is_refused(
    nats: NatsServer, tmp_path: Path, kind: str, option: str, why: str
) -> None:
    """With its journal, `--heal` changes nothing."""
    file, name = file_of_one(nats, tmp_path, f"heal-{kind}", option), f"heal-{kind}"
    order: dict[str, Any] = {"order": "atoms"} if kind == "atoms" else {}
    for _ in range(2):
        with Running("serve", "--config", file, "--heal") as running:
            running.wait_for_line("serving")
            async with connect(nats.url, cluster=name, timeout_s=WAIT_S, **order) as bus, bus.subscribe(name) as events:
                receipt = await bus.publish(name, b"")
                assert (await anext(aiter(events))).id == receipt.id
            running.process.kill()
    shutil.rmtree(tmp_path / "one")
    done = run("serve", "--config", file, "--heal")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and why in last and "--heal" not in last, done.stderr


async def test_one_node_goes_on_as_a_new_one(nats: NatsServer, tmp_path: Path) -> None:
    file, name = file_of_one(nats, tmp_path, "heal-one", "[times]", "subscriber_lease_ms = 3000"), "heal-one"
    with Running("serve", "--config", file) as running:
        running.wait_for_line("serving")
        async with (
            connect(nats.url, cluster=name, timeout_s=WAIT_S) as bus,
            bus.subscribe(name, show_gaps=True) as events,
        ):
            feed = aiter(events)
            first = await bus.publish(name, b"")
            assert getattr(await anext(feed), "id", None) == first.id
            running.process.kill()
            running.wait()
            shutil.rmtree(tmp_path / "one")
            refused = run("serve", "--config", file)
            assert refused.returncode == 1 and "node one has lost its journal" in refused.stderr, refused.stderr
            with Running("serve", "--config", file, "--heal") as healed:
                healed.wait_for_line("node goes on without its journal")
                second = await bus.publish(name, b"")
                assert second.number > first.number
                gap = await anext(feed)
                assert isinstance(gap, Gap) and "began anew" in gap.reason, gap
                last = await bus.publish(name, b"")
                assert getattr(await anext(feed), "id", None) == last.id
