"""Nodes of a tree lose their journals, by `kill -9` and a deleted folder, and come back with `serve --heal`."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim import Bus, Gap, connect
from seriatim.brokers.nats.server import NatsServer
from seriatim.model import RequestRefused
from tests.cli.processes import Running
from tests.ports import free_ports
from tests.waiting import until

NODES = {"n1": None, "n2": "n1", "n3": "n2"}
PLACES = {"news": "n1", "prices": "n2", "orders": "n3"}
WAIT_S = 30.0


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


class Cluster:
    """A chain of three nodes, each a process with a journal of its own."""

    def __init__(self, nats: NatsServer, folder: Path, name: str) -> None:
        self.nats, self.folder, self.name = nats, folder, name
        lines = [f'broker = "{nats.url}"', f'cluster = "{name}"']
        for (node, parent), port in zip(NODES.items(), free_ports(len(NODES)), strict=True):
            lines += [f"[nodes.{node}]", f'address = "127.0.0.1:{port}"', f'journal = "file:{folder / node}"']
            lines += [f'parent = "{parent}"'] if parent is not None else []
        self.topics = {word: f"{name}-{word}" for word in PLACES}  # other clusters use the server, too
        lines += ["[homes]", *(f'"{self.topics[word]}" = "{node}"' for word, node in PLACES.items())]
        lines += ["[times]", "retry_ms = 200"]
        self.file = folder / "cluster.toml"
        self.file.write_text("\n".join(lines))
        self.running: dict[str, Running] = {}

    async def start(self, node: str, *more: str) -> None:
        self.running[node] = await asyncio.to_thread(self._start, node, *more)

    def _start(self, node: str, *more: str) -> Running:
        running = Running("serve", "--config", self.file, "--node", node, *more)
        running.wait_for_line("node started")
        return running

    def kill(self, node: str) -> None:
        running = self.running.pop(node)
        running.process.kill()
        running.__exit__()

    def bus(self, name: str) -> Bus:
        return connect(self.nats.url, cluster=self.name, name=name, timeout_s=WAIT_S)

    def stop(self) -> None:
        for node in list(self.running):
            self.kill(node)


class Load:
    """One publisher awaits each event, so the order of what was confirmed is everybody's."""

    def __init__(self) -> None:
        self.confirmed: list[str] = []
        self.refused: list[str] = []
        self.got: dict[str, list[str]] = {}
        self.gaps: list[Gap] = []
        self._is_over = False

    async def publish(self, bus: Bus, topics: list[str]) -> None:
        count = 0
        while not self._is_over:
            count += 1
            topic = topics[count % 3]
            try:
                self.confirmed.append((await bus.publish(topic, b".", id=f"{topic}.{count}")).id)
            except RequestRefused as error:
                self.refused.append(str(error))

    async def take(self, name: str, events: object) -> None:
        got = self.got.setdefault(name, [])
        async for event in events:  # type: ignore[attr-defined]
            if isinstance(event, Gap):
                self.gaps.append(event)
            else:
                got.append(event.id)

    async def more(self, count: int = 20) -> None:
        enough = len(self.confirmed) + count
        await until(lambda: len(self.confirmed) >= enough, f"{count} more events", timeout_s=WAIT_S)

    def end(self) -> None:
        self._is_over = True


@pytest.mark.long
@pytest.mark.parametrize("is_old", [False, True], ids=["empty", "old"])
@pytest.mark.parametrize("victim", list(NODES))
async def test_a_node_without_its_journal_is_healed(
    nats: NatsServer, tmp_path: Path, victim: str, is_old: bool
) -> None:
    cluster = Cluster(nats, tmp_path, f"heal-{victim}-{'old' if is_old else 'empty'}")
    load = Load()
    try:
        for node in NODES:
            await cluster.start(node)
        async with (
            cluster.bus("p") as publisher,
            cluster.bus("s") as one,
            cluster.bus("t") as other,
            one.subscribe(*cluster.topics.values()) as everything,
            other.subscribe(cluster.topics["orders"], cluster.topics["news"]) as some,
        ):
            takers = [
                asyncio.create_task(load.take("everything", everything)),
                asyncio.create_task(load.take("some", some)),
            ]
            publishing = asyncio.create_task(load.publish(publisher, list(cluster.topics.values())))
            await load.more()
            if is_old:
                shutil.copytree(tmp_path / victim, tmp_path / "copy")
                await load.more()
            cluster.kill(victim)
            shutil.rmtree(tmp_path / victim)
            if is_old:
                shutil.copytree(tmp_path / "copy", tmp_path / victim)
            await cluster.start(victim, "--heal")
            await load.more()
            load.end()
            await publishing
            wanted = [each for each in load.confirmed if "-prices." not in each]
            await until(lambda: load.got["everything"][-1:] == load.confirmed[-1:], "all events", timeout_s=WAIT_S)
            await until(lambda: load.got["some"][-1:] == wanted[-1:], "all of two topics", timeout_s=WAIT_S)
            for task in takers:
                task.cancel()
            await asyncio.gather(*takers, return_exceptions=True)
        confirmed = set(load.confirmed)
        assert [each for each in load.got["everything"] if each in confirmed] == load.confirmed
        assert [each for each in load.got["some"] if each in confirmed] == wanted
        assert load.got["everything"] == load.confirmed or load.refused
        assert all("publish it again" in each for each in load.refused)
    except BaseException:
        print(*cluster.running.values(), sep="\n")
        raise
    finally:
        cluster.stop()
