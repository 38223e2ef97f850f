"""Sequencing atoms against the sequencing tree, live: the same clients on the same NATS server, by turns in one run.

One node each, as a process of its own with its journal on disk; four topics, two subscribers that hold all of them,
64-byte events. A rate is events divided by the time from the first publish to the last notification at the slower
subscriber; a latency is from `publish` to the notification of one lone event; a join is the time that entering a
subscription of two topics takes while two others hold them. The best round counts for rates, the median for times.

Run: python -m bench.atoms_live [--events 20000] [--rounds 3] [--lone 100]
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import seriatim
from seriatim.brokers.nats.server import NatsServer
from seriatim.runtime.loop import run

TOPICS = ("t0", "t1", "t2", "t3")
SIZE = 64
WAIT_S = 120.0
CHUNK = 2_000
CAUSAL_FEWER = 50  # a causal publisher has one message under way, and here each event has another topic than the last


class Kind(NamedTuple):
    """One row of the table."""

    name: str
    cluster: str
    order: str
    lines: tuple[str, ...]


KINDS = (
    Kind("tree, log mode", "log", "tree", ()),
    Kind("tree, ticket mode", "ticket", "tree", ('mode = "ticket"',)),
    Kind("tree, ticket mode, causal", "causaltree", "tree", ('mode = "ticket"', "causal = true")),
    Kind("atoms", "atoms", "atoms", ()),
    Kind("atoms, causal", "causalatoms", "atoms", ("causal = true",)),
)


@contextmanager
def served(kind: Kind, url: str, folder: Path) -> Iterator[None]:
    """A cluster of one node, until the block ends."""
    lines = [f'broker = "{url}"', f'cluster = "{kind.cluster}"', f'order = "{kind.order}"', *kind.lines]
    lines.append('nodes.root.address = "127.0.0.1:0"')
    file, ready = folder / f"{kind.cluster}.toml", folder / f"{kind.cluster}.ready"
    file.write_text("\n".join(lines).replace("nodes.root", f"nodes.{kind.cluster}") + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "seriatim.cli", "serve", "--config", str(file), "--ready-file", str(ready)]
    process = subprocess.Popen([*command, "--log-level", "error"])
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"{kind.name} does not start"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(WAIT_S)


def connect(url: str, kind: Kind) -> Any:
    order: Any = kind.order
    return seriatim.connect(url, cluster=kind.cluster, order=order, timeout_s=WAIT_S)


def topics_of(kind: Kind) -> list[str]:
    """Topics of this cluster only: streams of different clusters must not keep the same subjects."""
    return [f"{kind.cluster}.{topic}" for topic in TOPICS]


async def take(events: seriatim.Subscription, count: int) -> float:
    """The time at which the last of this many events had come."""
    left = count
    async for batch in events.batches(1_000):
        left -= len(batch)
        if left <= 0:
            break
    return time.perf_counter()


async def rate(url: str, kind: Kind, count: int) -> float:
    topics = topics_of(kind)
    async with (
        connect(url, kind) as bus,
        connect(url, kind) as other,
        bus.subscribe(*topics) as one,
        other.subscribe(*topics) as two,
    ):
        for topic in topics:
            await bus.publish(topic, b"warm up")
        await asyncio.gather(take(one, len(topics)), take(two, len(topics)))
        pairs = [(topics[index % len(topics)], b"." * SIZE) for index in range(count)]
        began = time.perf_counter()
        taking = asyncio.gather(take(one, count), take(two, count))
        for start in range(0, count, CHUNK):
            await bus.publish_many(pairs[start : start + CHUNK])
        return count / (max(await taking) - began)


async def latencies(url: str, kind: Kind, count: int) -> tuple[float, float]:
    """Milliseconds of a lone event, and of a join."""
    topics = topics_of(kind)
    lone, joins = [], []
    async with (
        connect(url, kind) as bus,
        connect(url, kind) as other,
        bus.subscribe(*topics) as one,
        other.subscribe(*topics) as two,
    ):
        for index in range(count):
            began = time.perf_counter()
            await bus.publish(topics[index % len(topics)], b"." * SIZE)
            await one.next(WAIT_S)
            lone.append(time.perf_counter() - began)
            await two.next(WAIT_S)
        for _ in range(max(3, count // 10)):
            began = time.perf_counter()
            async with bus.subscribe(topics[0], topics[1]):
                joins.append(time.perf_counter() - began)
    return 1000.0 * statistics.median(lone), 1000.0 * statistics.median(joins)


async def measure(events: int, rounds: int, lone: int) -> None:
    found: dict[str, list[tuple[float, float, float]]] = {kind.name: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as name:
        async with NatsServer(Path(name) / "nats") as server:
            for _ in range(rounds):
                for kind in KINDS:
                    with served(kind, server.url, Path(name)):
                        count = events // CAUSAL_FEWER if "causal = true" in kind.lines else events
                        each = await rate(server.url, kind, count)
                        found[kind.name].append((each, *await latencies(server.url, kind, lone)))
                    (Path(name) / f"{kind.cluster}.ready").unlink()
    best = {name: max(each for each, _, _ in rows) for name, rows in found.items()}
    log = best[KINDS[0].name]
    print(f"{'':<28}{'events/s':>10}{'ratio':>8}{'lone event ms':>15}{'join ms':>10}")
    for name, rows in found.items():
        lone_ms, join_ms = (statistics.median(row[index] for row in rows) for index in (1, 2))
        print(f"{name:<28}{best[name]:>10,.0f}{best[name] / log:>8.2f}{lone_ms:>15.1f}{join_ms:>10.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lone", type=int, default=100)
    given = parser.parse_args()
    run(measure(given.events, given.rounds, given.lone))
