"""Does a subscriber that holds everything make others wait? Three sites, with and without a monitor, by turns.

A node at each site: `hub` is the root, `near` is 20 ms away from it and `far` 40 ms (each way, and in order). Every
site has two topics of its own, a publisher, and two subscribers that hold both topics; all clients of a site are beside
its node, and so is a NATS server. The monitor is at the hub and holds all topics, so with global order every stamp
climbs to the root. Rows, by turns in each round: without the monitor; with it; with it and without stages, which is
what every subscriber would wait for otherwise. Of each row the median round counts, for p50 and for p99.

The monitor's own latency shows what stages do at the top of the way: it hears from the root directly, and not over the
home. The processor time of the nodes, per event, shows what telling stages costs.

Run: python -m bench.stages [--rounds 5] [--seconds 6] [--rate 25]
"""

import argparse
import asyncio
import multiprocessing.synchronize
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import seriatim
from bench.latency import Latency, latency_of
from bench.servers import SPAWN, WAIT_S, in_process, nats_alone, processor_seconds
from seriatim.live.served import Served
from seriatim.live.server import SequencerServer
from seriatim.model import Address, Node
from seriatim.protocols.machine import Payload
from seriatim.runtime.loop import run
from seriatim.server.config import parse_config

DISTANCE_MS = {"hub": 0.0, "near": 20.0, "far": 40.0}
TOPICS = {site: [f"{site}.orders", f"{site}.prices"] for site in DISTANCE_MS}
HOMES = {topic: site for site, topics in TOPICS.items() for topic in topics}
STAMP = struct.Struct(">d")
MONITOR = "monitor"
ALONE, UNORDERED, WATCHED = "without the monitor", "with one that asks for no order", "with the monitor"
LIMIT = 1.1


class Row(NamedTuple):
    """What one round measured: ages of events by site (and at the monitor), and processor time per event."""

    ages: dict[str, list[float]]
    processor_us: float


# ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _serve(url: str, cluster: str, stages: bool, ready: Any, stop: Any) -> None:
    nodes = {site: {"address": "127.0.0.1:0", "journal": "memory"} for site in DISTANCE_MS}
    for site in ("near", "far"):
        nodes[site]["parent"] = "hub"
    config = {"broker": url, "cluster": cluster, "nodes": nodes, "homes": HOMES, "streams": {"storage": "memory"}}
    with tempfile.TemporaryDirectory() as folder:
        server = SequencerServer(parse_config(config, Path(folder)))
        server.broker.has_stages = stages
        await server.start()
        for site in ("near", "far"):
            delay(server.served[site], server.served["hub"], DISTANCE_MS[site] / 1000.0)
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.stop()


def delay(one: Served[Any], other: Served[Any], delay_s: float) -> None:
    """Messages between two nodes take this long, and keep their order."""
    loop = asyncio.get_running_loop()

    def carry(target: Served[Any], source: Address, message: Payload) -> None:
        loop.call_later(delay_s, target.switchboard.deliver, source, target.node, message)

    one.switchboard.plug(other.node, partial(carry, other))
    other.switchboard.plug(one.node, partial(carry, one))


def serve(url: str, cluster: str, stages: bool, ready: Any, stop: Any) -> None:
    run(_serve(url, cluster, stages, ready, stop))


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────


def payload() -> bytes:
    return STAMP.pack(time.monotonic()).ljust(64, b".")


def age(data: bytes) -> float:
    return time.monotonic() - float(STAMP.unpack_from(data)[0])


async def _locals(url: str, cluster: str, rate: float, seconds: float) -> dict[Node, list[float]]:
    """The clients of all sites: a publisher and two subscribers at each."""
    ages: dict[Node, list[float]] = {site: [] for site in TOPICS}
    count = int(rate * seconds)

    async def take(events: seriatim.Subscription, into: list[float]) -> None:
        for _ in range(count):
            into.append(age((await events.next(WAIT_S)).data))

    async with AsyncExitStack() as stack:
        taking = []
        for site, topics in TOPICS.items():
            bus = await stack.enter_async_context(seriatim.connect(url, cluster=cluster, timeout_s=WAIT_S))
            for into in (ages[site], []):
                taking.append(take(await stack.enter_async_context(bus.subscribe(*topics)), into))
        publisher = await stack.enter_async_context(
            seriatim.connect(url, cluster=cluster, confirm="stored", timeout_s=WAIT_S)
        )
        tasks = asyncio.gather(*taking)
        started, sites = time.monotonic(), list(TOPICS)
        for index in range(count):
            for place, site in enumerate(sites):  # one after the other, evenly
                due = started + (index + place / len(sites)) / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                publisher.publish_nowait(TOPICS[site][index % 2], payload())
        await tasks
    return {site: each[int(rate) :] for site, each in ages.items()}  # the first second makes streams and consumers


def local_clients(url: str, cluster: str, rate: float, seconds: float) -> dict[Node, list[float]]:
    return run(_locals(url, cluster, rate, seconds))


async def _monitor(url: str, cluster: str, ordered: bool, ready: Any, stop: Any) -> list[float]:
    ages: list[float] = []
    async with (
        seriatim.connect(url, cluster=cluster, timeout_s=WAIT_S) as bus,
        bus.subscribe(*HOMES, ordered=ordered) as events,
    ):

        async def take() -> None:
            async for event in events:
                ages.append(age(event.data))

        taking = asyncio.ensure_future(take())
        ready.set()
        await asyncio.to_thread(stop.wait)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
    return ages[len(ages) // 5 :]


def monitor(url: str, cluster: str, ordered: bool, ready: Any, stop: Any) -> list[float]:
    return run(_monitor(url, cluster, ordered, ready, stop))


# ── rounds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def one_round(url: str, cluster: str, pid: int, watched: str, rate: float, seconds: float) -> Row:
    """`watched`: "" for no monitor, "unordered" or "ordered"."""
    watching, stop = None, SPAWN.Event()
    if watched:
        ready = SPAWN.Event()
        watching = in_process(monitor, url, cluster, watched == "ordered", ready, stop)
        wait(ready)
    before = processor_seconds(pid)
    ages = in_process(local_clients, url, cluster, rate, seconds).get(timeout=WAIT_S + seconds)
    spent = processor_seconds(pid) - before
    stop.set()
    if watching is not None:
        ages[MONITOR] = watching.get(timeout=WAIT_S)
    return Row(ages, spent / (rate * seconds * 3) * 1e6)


def wait(event: multiprocessing.synchronize.Event) -> None:
    if not event.wait(WAIT_S):
        raise TimeoutError(f"not ready within {WAIT_S} s")


def latency_at(rows: Sequence[Row], site: str) -> Latency:
    return latency_of([age for row in rows for age in row.ages.get(site, [])])


def compare(rounds: int, seconds: float, rate: float) -> dict[str, list[Row]]:
    """Rows by name, each with its rounds."""
    rows: dict[str, list[Row]] = {}
    stop = SPAWN.Event()
    with nats_alone() as nats:
        pids = {}
        for cluster, stages in (("stages", True), ("plain", False)):
            ready = SPAWN.Event()
            process = SPAWN.Process(target=serve, args=(nats.url, cluster, stages, ready, stop), daemon=True)
            process.start()
            wait(ready)
            assert process.pid is not None
            pids[cluster] = process.pid
        try:
            for _ in range(rounds):
                for name, cluster, watched in (
                    (ALONE, "stages", ""),
                    (UNORDERED, "stages", "unordered"),
                    (WATCHED, "stages", "ordered"),
                    ("with it, without stages", "plain", "ordered"),
                ):
                    row = one_round(nats.url, cluster, pids[cluster], watched, rate, seconds)
                    rows.setdefault(name, []).append(row)
        finally:
            stop.set()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=25.0, help="events per second and site")
    chosen = parser.parse_args()
    rows = compare(chosen.rounds, chosen.seconds, chosen.rate)
    sites = [*DISTANCE_MS, MONITOR]
    print(f"| p50 / p99 in ms, {chosen.rounds} rounds | {' | '.join(sites)} | nodes, µs per event |")
    print(f"|---|{'---:|' * (len(sites) + 1)}")
    for name, each in rows.items():
        known = {site: latency_at(each, site) for site in sites if site in each[0].ages}
        cells = [f"{known[site].p50:.2f} / {known[site].p99:.2f}" if site in known else "" for site in sites]
        print(f"| {name} | {' | '.join(cells)} | {median(row.processor_us for row in each):.0f} |")
    for peer in (ALONE, UNORDERED):
        for site in DISTANCE_MS:
            one, other = latency_at(rows[peer], site), latency_at(rows[WATCHED], site)
            p50, p99 = other.p50 / one.p50, other.p99 / one.p99
            verdict = "kept" if max(p50, p99) <= LIMIT else "missed"
            print(f"{site}: {WATCHED} ÷ {peer} {p50:.2f} (p50), {p99:.2f} (p99); {LIMIT} is {verdict}")


if __name__ == "__main__":
    main()
