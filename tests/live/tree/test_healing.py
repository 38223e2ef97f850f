"""Nodes of a tree lose their journals, by `kill -9` and a deleted folder, and come back with `serve --heal`."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim.brokers.nats.server import NatsServer
from tests.live.tree.lossy import CHAIN, STAR, Cluster, loaded


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("is_old", [False, True], ids=["empty", "old"])
async def test_nodes_without_their_journals_are_healed(nats: NatsServer, tmp_path: Path, is_old: bool) -> None:
    """A leaf, an inner node and the root, one after the other."""
    cluster = Cluster(nats, tmp_path, f"heal-{'old' if is_old else 'empty'}", CHAIN)
    try:
        for node in CHAIN:
            await cluster.start(node)
        async with loaded(cluster, tmp_path / "log") as load:
            for victim in ("n3", "n2", "n1"):
                await load.more()
                copy = tmp_path / f"copy-{victim}"
                if is_old:
                    shutil.copytree(tmp_path / victim, copy)
                    await load.more()
                cluster.lose(victim)
                if is_old:
                    shutil.copytree(copy, tmp_path / victim)
                running = await cluster.start(victim, "--heal")
                began = time.monotonic()
                await load.more(1)
                print(f"{victim}: {time.monotonic() - began:.2f} s until an event was confirmed; {load.refused}")
                assert any("healed without its journal" in line for line in running.err) or is_old
            await load.more()
    except BaseException:
        print(*cluster.running.values(), sep="\n")
        raise
    finally:
        cluster.stop()


@pytest.mark.long
async def test_what_a_tired_operator_does(nats: NatsServer, tmp_path: Path) -> None:
    cluster = Cluster(nats, tmp_path, "heal-tired", STAR)
    try:
        for node in STAR:
            await cluster.start(node)
        async with loaded(cluster, tmp_path / "log") as load:
            await load.more()
            await cluster.refuses("n3", "another process", options=("--heal",))
            await cluster.end("n3")
            healthy = await cluster.start("n3", "--heal")
            await load.more()
            assert not any("healed" in line for line in healthy.err)

            cluster.lose("n3")
            await cluster.refuses("n3", "node n3 has lost its journal", "seriatim serve --node n3 --heal")
            cluster.kill("n2")
            given_up = await cluster.start("n3", "--heal")
            async with cluster.bus("alone") as alone, alone.subscribe(alone_topic := f"{cluster.name}-alone") as events:
                await alone.publish(alone_topic, b"", id="not stopped")
                assert (await anext(aiter(events))).id == "not stopped"
            assert given_up.process.poll() is None
            cluster.kill("n3")
            await cluster.start("n3", "--heal")
            await cluster.start("n2")
            await load.more()

            cluster.lose("n2", "n3")
            await asyncio.gather(cluster.start("n3", "--heal"), cluster.start("n2", "--heal"))
            await load.more()
    except BaseException:
        print(*cluster.running.values(), sep="\n")
        raise
    finally:
        cluster.stop()
