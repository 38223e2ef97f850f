"""A topic moves while events flow: how long does it wait, and what do the others notice? And a plan of many topics.

*One topic.* A tree of three nodes in one process, with file journals. A publisher paces events over ten topics, and a
subscriber of all of them notes how old each event is when it is notified. After a quiet time the first topic is moved
to and fro. Printed are the rate that the machine carried, how long the topic waited (by the root's clock, and the
oldest event of that topic that was notified around a move, which includes the usual latency), and the p99 of the other
topics around moves beside that of the quiet time.

*A plan.* Topics that all have another home than a plan wants, some held together by subscribers, each with a few
events: how long does `seriatim apply` take?

Run: python -m bench.moving [--rate 50000] [--seconds 6] [--moves 8] [--topics 1000] [--part one|plan]
"""

import argparse
import asyncio
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import seriatim
from bench.latency import latency_of
from bench.servers import SPAWN, WAIT_S, in_process, nats_alone
from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Moved, Mover, apply_homes
from seriatim.live.server import SequencerServer
from seriatim.runtime.loop import run
from seriatim.server.config import parse_config

CLUSTER = "bench"
TOPICS = [f"t{index}" for index in range(10)]
NODES = ("root", "eu", "us")
STAMP = struct.Struct(">d")
SIZE = 64
TICK_S = 0.002
AROUND_S = 0.5  # so long after the end of a move the others still count as disturbed
HELD = 20  # topics of each subscriber, while a plan is applied
GOAL_WAIT_MS, GOAL_P99, GOAL_PLAN_S = 500.0, 2.0, 300.0


class Seen(NamedTuple):
    """One notified event: its topic, when it was notified, and how old it was."""

    topic: int
    at: float
    age_s: float


# ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _serve(url: str, homes: dict[str, str], ready: Any, stop: Any) -> None:
    nodes: dict[str, dict[str, str]] = {name: {"address": "127.0.0.1:0"} for name in NODES}
    for name in NODES[1:]:
        nodes[name]["parent"] = NODES[0]
    config = {"broker": url, "cluster": CLUSTER, "nodes": nodes, "homes": homes, "streams": {"storage": "memory"}}
    with tempfile.TemporaryDirectory() as folder:
        async with SequencerServer(parse_config(config, Path(folder))):
            ready.set()
            await asyncio.to_thread(stop.wait)


def serve(url: str, homes: dict[str, str], ready: Any, stop: Any) -> None:
    run(_serve(url, homes, ready, stop))


# ── one topic ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _publish(url: str, rate: float, stop: Any) -> int:
    """As many events as are due, every few milliseconds; what there is no room for is not made up for."""
    async with seriatim.connect(url, cluster=CLUSTER, confirm="stored", timeout_s=WAIT_S) as bus:
        count, filler = 0, b"." * (SIZE - STAMP.size)
        started = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            due = min(int((now - started) * rate), count + int(rate * 10 * TICK_S))
            data = STAMP.pack(now) + filler
            for index in range(count, due):
                bus.publish_nowait(TOPICS[index % len(TOPICS)], data)
            count = due
            await bus.ready()
            await asyncio.sleep(TICK_S)
        await bus.flush()
        return count


def publish(url: str, rate: float, stop: Any) -> int:
    return run(_publish(url, rate, stop))


async def _take(url: str, ready: Any, stop: Any) -> list[Seen]:
    """Every twentieth event: the clock and the list would cost more than the events."""
    seen: list[Seen] = []
    places = {topic: place for place, topic in enumerate(TOPICS)}
    async with (
        seriatim.connect(url, cluster=CLUSTER, timeout_s=WAIT_S) as bus,
        bus.subscribe(*TOPICS) as events,
    ):
        ready.set()

        async def take() -> None:
            async for batch in events.batches():
                now = time.monotonic()
                for event in batch[::20]:
                    seen.append(Seen(places[event.topic], now, now - STAMP.unpack_from(event.data)[0]))

        task = asyncio.create_task(take())
        await asyncio.to_thread(stop.wait)
        await asyncio.sleep(1.0)  # what is under way
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return seen


def take(url: str, ready: Any, stop: Any) -> list[Seen]:
    return run(_take(url, ready, stop))


async def _to_and_fro(url: str, moves: int, pause_s: float) -> list[tuple[float, float, Moved]]:
    made = []
    async with find_cluster(url, CLUSTER, WAIT_S) as found:
        mover = Mover(found)
        for index in range(moves):
            began = time.monotonic()
            moved = await mover.move(TOPICS[0], NODES[1 + index % 2], WAIT_S)
            made.append((began, time.monotonic(), moved))
            await asyncio.sleep(pause_s)
    return made


def one_topic(rate: float, seconds: float, moves: int) -> None:
    homes = {topic: NODES[1 + index % 2] for index, topic in enumerate(TOPICS)} | {TOPICS[0]: NODES[2]}
    with nats_alone() as server:
        up, joined, stop, end = (SPAWN.Event() for _ in range(4))
        servers = in_process(serve, server.url, homes, up, end)
        _wait(up)
        takes = in_process(take, server.url, joined, stop)
        _wait(joined)
        publishes = in_process(publish, server.url, rate, stop)
        time.sleep(2.0 + seconds)
        quiet_until = time.monotonic()
        made = run(_to_and_fro(server.url, moves, 2 * AROUND_S))
        stop.set()
        count, seen = publishes.get(timeout=WAIT_S), takes.get(timeout=WAIT_S)
        end.set()
        servers.get(timeout=WAIT_S)
    _report(count, seen, made, quiet_until, seconds)


def _report(
    count: int, seen: list[Seen], made: Sequence[tuple[float, float, Moved]], quiet_until: float, seconds: float
) -> None:
    quiet = [each.age_s for each in seen if quiet_until - seconds < each.at < quiet_until and each.topic]
    around = [
        each.age_s
        for each in seen
        if each.topic and any(began <= each.at <= ended + AROUND_S for began, ended, _ in made)
    ]
    oldest = [
        max(each.age_s for each in seen if not each.topic and began <= each.at <= ended + AROUND_S) * 1000.0
        for began, ended, _ in made
    ]
    span_s = max(each.at for each in seen) - min(each.at for each in seen)
    waits = [moved.waited_ms for _, _, moved in made if moved.waited_ms is not None]
    before, during = latency_of(quiet), latency_of(around)
    print(f"{count / span_s:,.0f} events/s over {len(TOPICS)} topics, {len(made)} moves of one of them")
    print(f"the topic waited {_spread(waits)} (goal: at most {GOAL_WAIT_MS:,.0f} ms)")
    print(f"its oldest event around a move was {_spread(oldest)} old")
    ratio = during.p99 / before.p99
    print(
        f"other topics, p99: {before.p99:,.1f} ms in quiet, {during.p99:,.1f} ms around moves: {ratio:.2f} times",
        end="",
    )
    print(f" (goal: at most {GOAL_P99:g})")


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:,.0f} ms in the median, {ordered[-1]:,.0f} ms at most"


# ── a plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _apply(url: str, homes: dict[str, str]) -> tuple[float, list[Moved], int]:
    """Apply while every topic is held, and an event of some topic is published every now and then."""
    topics = list(homes)
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(seriatim.connect(url, cluster=CLUSTER, timeout_s=WAIT_S))
        seen = 0
        news = asyncio.Condition()

        async def take(events: seriatim.Subscription) -> None:
            nonlocal seen
            async for _ in events:
                async with news:
                    seen += 1
                    news.notify_all()

        tasks = []
        for first in range(0, len(topics), HELD):
            events = await stack.enter_async_context(bus.subscribe(*topics[first : first + HELD]))
            tasks.append(asyncio.create_task(take(events)))
        for topic in topics:
            bus.publish_nowait(topic, b".")
        await bus.flush()
        done = asyncio.Event()

        async def publish() -> int:
            count = 0
            while not done.is_set():
                await bus.publish(topics[count % len(topics)], b".")
                count += 1
            return count

        publishing = asyncio.create_task(publish())
        async with find_cluster(url, CLUSTER, WAIT_S) as found:
            began = time.monotonic()
            moved = await apply_homes(Mover(found), homes, WAIT_S, lambda each: None)
            took_s = time.monotonic() - began
        done.set()
        expected = len(topics) + await publishing
        async with news, asyncio.timeout(WAIT_S):
            await news.wait_for(lambda: seen >= expected)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if seen != expected:
            raise AssertionError(f"{seen} of {expected} events were notified")
        return took_s, moved, expected


def a_plan(count: int) -> None:
    topics = [f"topic{index}" for index in range(count)]
    homes = {topic: NODES[index % 3] for index, topic in enumerate(topics)}
    wanted = {topic: NODES[(index + 1) % 3] for index, topic in enumerate(topics)}
    with nats_alone() as server:
        up, end = SPAWN.Event(), SPAWN.Event()
        servers = in_process(serve, server.url, homes, up, end)
        _wait(up)
        took_s, moved, events = run(_apply(server.url, wanted))
        end.set()
        servers.get(timeout=WAIT_S)
    waits = [each.waited_ms for each in moved if each.waited_ms is not None]
    print(f"{len(moved):,} topics moved in {took_s:,.1f} s (goal: 1,000 in {GOAL_PLAN_S:,.0f} s)")
    print(f"each waited {_spread(waits)}; {events:,} events meanwhile, all notified")


def _wait(event: Any) -> None:
    if not event.wait(WAIT_S):
        raise TimeoutError("a part of the bench is not ready")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50_000.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--moves", type=int, default=8)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--part", choices=["one", "plan"])
    options = parser.parse_args()
    if options.part != "plan":
        one_topic(options.rate, options.seconds, options.moves)
    if options.part != "one":
        a_plan(options.topics)


if __name__ == "__main__":
    main()
