"""Nothing acts on old state: journals that are older copies, and two processes that run one node. Real processes."""

import shutil
import signal
from pathlib import Path

import pytest

import seriatim
from seriatim.brokers.nats.server import NatsServer
from tests.brokers.nats.world import new_cluster, shared_server
from tests.cli.processes import Running
from tests.ports import free_port

WAIT_S = 60.0


class Cluster:
    """A root and a leaf below it, each a process of its own. Orders live on the leaf, prices on the root."""

    def __init__(self, server: NatsServer, folder: Path, scheme: str = "nats", mode: str = "log") -> None:
        self.name = new_cluster()
        self.folder = folder
        self.url = server.url.replace("nats", scheme, 1)
        self.topics = [f"{self.name}.orders", f"{self.name}.prices"]
        self.running: list[Running] = []
        self.file = folder / "cluster.toml"
        homes = f'"{self.topics[0]}" = "eu"\n"{self.topics[1]}" = "root"\n'
        self.file.write_text(
            f'cluster = "{self.name}"\nbroker = "{self.url}"\nmode = "{mode}"\ntimes.patience_ms = 500\n'
            f'nodes.root.address = "127.0.0.1:{free_port()}"\n'
            f'nodes.eu = {{ parent = "root", address = "127.0.0.1:{free_port()}" }}\n[homes]\n{homes}'
        )

    def __enter__(self) -> "Cluster":
        try:
            for node in ("root", "eu"):
                self.serve(node).wait_for_line("serving: ")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.running:
            each.process.send_signal(signal.SIGCONT)
            each.__exit__()

    def serve(self, node: str, file: Path | None = None, *words: str) -> Running:
        running = Running("serve", "--config", file or self.file, "--node", node, *words)
        self.running.append(running)
        return running

    def process(self, node: str) -> Running:
        return next(each for each in reversed(self.running) if each.words.endswith(f"--node {node}"))

    def journal(self, node: str) -> Path:
        return self.folder / f"journal-{self.name}.{node}"

    def elsewhere(self, address: bool = True) -> Path:
        """The same file in another folder, so that journals are there."""
        other = self.folder / "other"
        other.mkdir(exist_ok=True)
        lines = self.file.read_text().splitlines(keepends=True)
        if address:  # the port of a process that lives is in use
            lines = [
                line.rpartition(":")[0] + f':{free_port()}"' + (" }" if "{" in line else "") + "\n"
                if line.startswith("nodes.eu")
                else line
                for line in lines
            ]
        (other / "cluster.toml").write_text("".join(lines))
        return other / "cluster.toml"

    def refused(self, running: Running, *said: str) -> None:
        """It ends by itself, with 1, and says why."""
        assert running.wait() == 1, running
        last = running.err[-1]
        for each in said:
            assert each in last, running

    async def published(self, bus: seriatim.Bus, count: int) -> None:
        for n in range(count):
            await bus.publish(self.topics[n % 2], b"%d" % n)

    def connect(self) -> seriatim.Bus:
        return seriatim.connect(self.url, cluster=self.name, timeout_s=WAIT_S)


async def seen(events: seriatim.Subscription, count: int) -> list[tuple[str, int]]:
    found = []
    for _ in range(count):
        event = await events.next(WAIT_S)
        found.append((event.topic, event.number))
    return found


@pytest.mark.parametrize(
    ("node", "scheme", "mode", "end"),
    [
        ("eu", "nats", "log", signal.SIGTERM),
        ("eu", "nats", "log", signal.SIGKILL),
        ("root", "nats", "log", signal.SIGKILL),
        ("eu", "nats", "ticket", signal.SIGKILL),
        ("eu", "nats+core", "ticket", signal.SIGKILL),  # nothing is registered: its parent knows
    ],
)
async def test_an_older_copy_of_a_journal_ends_the_process(
    tmp_path: Path, node: str, scheme: str, mode: str, end: signal.Signals
) -> None:
    """And with the newest journal everybody goes on in one order."""
    with Cluster(shared_server(), tmp_path, scheme, mode) as cluster:
        copy, newest = tmp_path / "copy", tmp_path / "newest"
        async with (
            cluster.connect() as bus,
            bus.subscribe(*cluster.topics) as one,
            bus.subscribe(*cluster.topics) as other,
        ):
            await cluster.published(bus, 6)
            shutil.copytree(cluster.journal(node), copy, ignore=shutil.ignore_patterns("lock*"))
            await cluster.published(bus, 6)
            cluster.process(node).stop(end)
            cluster.journal(node).rename(newest)
            shutil.copytree(copy, cluster.journal(node))
            cluster.refused(cluster.serve(node), "journal", "Nothing was changed", f"serve --node {node}")
            shutil.rmtree(cluster.journal(node))
            newest.rename(cluster.journal(node))
            cluster.serve(node).wait_for_line("node started")
            await cluster.published(bus, 6)
            assert await seen(one, 18) == await seen(other, 18)


async def test_a_second_process_of_a_running_node_is_refused(tmp_path: Path) -> None:
    with Cluster(shared_server(), tmp_path) as cluster:
        first = cluster.process("eu")
        second = cluster.serve("eu", cluster.elsewhere())
        cluster.refused(second, f"node eu is run by another process (process {first.pid} ", "stop that one first")
        async with cluster.connect() as bus, bus.subscribe(*cluster.topics) as events:
            await cluster.published(bus, 4)
            assert len(await seen(events, 4)) == 4
        assert first.process.poll() is None


async def test_a_process_that_does_not_answer_is_fenced_by_one_with_the_same_journal(tmp_path: Path) -> None:
    """It is frozen, as if its machine were cut off. With an empty journal nobody takes over."""
    with Cluster(shared_server(), tmp_path) as cluster:
        first = cluster.process("eu")
        async with (
            cluster.connect() as bus,
            bus.subscribe(*cluster.topics) as one,
            bus.subscribe(*cluster.topics) as other,
        ):
            await cluster.published(bus, 6)
            first.process.send_signal(signal.SIGSTOP)
            file = cluster.elsewhere(address=False)
            cluster.elsewhere()
            cluster.refused(
                cluster.serve("eu", file), "node eu has lost its journal", str(cluster.journal("eu")), "--heal"
            )
            there = file.parent / cluster.journal("eu").name
            shutil.rmtree(there)
            shutil.copytree(cluster.journal("eu"), there, ignore=shutil.ignore_patterns("lock*"))
            cluster.serve("eu", file).wait_for_line("node started")
            first.process.send_signal(signal.SIGCONT)
            cluster.refused(first, "another process")
            assert await seen(one, 6) == await seen(other, 6)


async def test_a_restart_after_a_kill_does_not_wait(tmp_path: Path) -> None:
    with Cluster(shared_server(), tmp_path) as cluster:
        async with cluster.connect() as bus, bus.subscribe(*cluster.topics) as events:
            await cluster.published(bus, 4)
            for node in ("eu", "root"):
                cluster.process(node).stop(signal.SIGKILL)
                cluster.serve(node).wait_for_line("node started")
            await cluster.published(bus, 4)
            assert len(await seen(events, 8)) == 8
