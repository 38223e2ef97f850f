"""Clusters whose nodes lose their journals, and a load that checks what clients are promised then."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats

from seriatim import Bus, Gap, connect
from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.nats.server import NatsServer
from seriatim.model import RequestRefused
from tests.cli.processes import Running
from tests.ports import free_ports
from tests.waiting import until

CHAIN = {"n1": None, "n2": "n1", "n3": "n2"}
STAR = {"n1": None, "n2": "n1", "n3": "n1"}
PLACES = {"news": "n1", "prices": "n2", "orders": "n3"}
WAIT_S = 120.0  # a bound for a busy machine


class Cluster:
    """Three nodes, each a process with a journal of its own: in a folder, or on the broker with a second place."""

    def __init__(
        self, server: NatsServer, folder: Path, name: str, nodes: dict[str, str | None], on_broker: bool = False
    ) -> None:
        self.server, self.folder, self.name, self.nodes, self.on_broker = server, folder, name, nodes, on_broker
        lines = [f'broker = "{server.url}"', f'cluster = "{name}"']
        ports = iter(free_ports(2 * len(nodes)))
        for node, parent in nodes.items():
            places = [f"127.0.0.1:{next(ports)}" for _ in range(2 if on_broker else 1)]
            journal = "broker" if on_broker else f"file:{folder / node}"
            lines += [f"[nodes.{node}]", f"address = {json.dumps(places)}", f'journal = "{journal}"']
            lines += [f'parent = "{parent}"'] if parent is not None else []
        self.topics = {word: f"{name}-{word}" for word in PLACES}  # other clusters use the server, too
        lines += ["[homes]", *(f'"{self.topics[word]}" = "{node}"' for word, node in PLACES.items())]
        # Nobody is forgotten while a node is away: on a busy machine that takes longer than usual.
        lines += ["[times]", "retry_ms = 200", "subscriber_lease_ms = 3600000", "takeover_ms = 3000"]
        self.file = folder / "cluster.toml"
        self.file.write_text("\n".join(lines))
        self.running: dict[str, Running] = {}

    def serve(self, node: str, *more: str) -> Running:
        return Running("serve", "--config", self.file, "--node", node, *more)

    async def start(self, node: str, *more: str) -> Running:
        running = self.running[node] = self.serve(node, *more)
        await asyncio.to_thread(running.wait_for_line, "node started")
        return running

    async def stand_by(self, node: str, *more: str) -> Running:
        running = self.running[f"standby of {node}"] = self.serve(node, "--standby", *more)
        await asyncio.to_thread(running.wait_for_line, "serving")
        return running

    async def refuses(self, node: str, *words: str, options: tuple[str, ...] = ()) -> None:
        """The process ends, with these words in its last line."""
        running = self.serve(node, *options)
        assert await asyncio.to_thread(running.wait) == 1, running
        last = running.err[-1]
        running.__exit__()
        assert all(word in last for word in words), last

    async def end(self, node: str) -> None:
        running = self.running.pop(node)
        assert await asyncio.to_thread(running.stop) == 0, running
        running.__exit__()

    def kill(self, node: str) -> None:
        running = self.running.pop(node)
        running.process.kill()
        running.__exit__()

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            self.kill(node)
            shutil.rmtree(self.folder / node)

    async def lose_stream(self, node: str) -> None:
        """Of the node's journal."""
        client = await nats.connect(self.server.url)
        assert await client.jetstream().delete_stream(f"{self.name}-journal-{node}")
        await client.close()

    def bus(self, name: str, log: Path | None = None) -> Bus:
        return connect(self.server.url, cluster=self.name, name=name, timeout_s=WAIT_S, publication_log=log)

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
            topic = topics[count % len(topics)]
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


@asynccontextmanager
async def loaded(cluster: Cluster, log: Path) -> AsyncIterator[Load]:
    """A publisher and two subscribers, with logs. In the end everybody has seen what was confirmed, in one order."""
    load = Load()
    async with (
        cluster.bus("p", log) as publisher,
        cluster.bus("s") as one,
        cluster.bus("t") as other,
        one.subscribe(*cluster.topics.values(), log=log, show_gaps=True) as everything,
        other.subscribe(cluster.topics["orders"], cluster.topics["news"], log=log, show_gaps=True) as some,
    ):
        takers = [
            asyncio.create_task(load.take("everything", everything)),
            asyncio.create_task(load.take("some", some)),
        ]
        publishing = asyncio.create_task(load.publish(publisher, list(cluster.topics.values())))
        try:
            yield load
            load.end()
            await publishing
            wanted = [each for each in load.confirmed if "-prices." not in each]
            await until(lambda: load.got["everything"][-1:] == load.confirmed[-1:], "all events", timeout_s=WAIT_S)
            await until(lambda: load.got["some"][-1:] == wanted[-1:], "all of two topics", timeout_s=WAIT_S)
        finally:
            for task in (publishing, *takers):
                task.cancel()
            await asyncio.gather(publishing, *takers, return_exceptions=True)
    confirmed = set(load.confirmed)
    assert [each for each in load.got["everything"] if each in confirmed] == load.confirmed
    assert [each for each in load.got["some"] if each in confirmed] == wanted
    assert load.got["everything"] == load.confirmed or load.refused
    assert all("publish it again" in each for each in load.refused)
    assert {gap.reason for gap in load.gaps} <= {"lost in a node that has lost its journal"}
    report = audit(read_history(log))
    for name in ("acyclic", "tno", "fifo", "integrity"):
        assert report.verdicts[name].answer == "valid", report.verdicts[name].reason
    told = sum(gap.last - gap.first + 1 for gap in load.gaps)
    assert report.counts.get("gap", 0) <= told, "what the auditor misses was told as a gap"
