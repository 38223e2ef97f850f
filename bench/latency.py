"""How long from publish to notified: at low load with and without order, and at half of the maximum rate.

Low load: one event at a time on five topics by turns, two subscribers that hold all of them (so that the topics are
coupled), 200 a second, all in one process and on one clock. The peer is the same without order: what the broker and the
client cost anyway. At 200 events a second one pause of 50 ms, of the disk or of anything that takes the processors, is
the slowest 1 % of five seconds. So the rows are measured by turns, in rounds, and the median round counts; how far the
rounds are apart says how quiet the machine was.

Half load: publishers and subscribers in their own processes, as in bench/live.py, at half of the rate, from the first
publish to the last notification, that was reached just before on the same servers.

Run: python -m bench.latency [--seconds 5] [--rounds 5]
"""

import argparse
import asyncio
import struct
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple

import seriatim
from bench.servers import HOLDINGS, SIZE, SPAWN, TOPICS, WAIT_S, in_process, seriatim_up
from seriatim.runtime.loop import run

LOW_RATE = 200
TICK_S = 0.01
QUIET_S = 2.0  # when nothing came for this time, everything has arrived
STAMP = struct.Struct(">Qd")
PEER = "peer: log mode without order"


class Latency(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float


def latency_of(seconds: Sequence[float]) -> Latency:
    cuts = quantiles(seconds, n=100)
    return Latency(cuts[49] * 1000.0, cuts[98] * 1000.0)


def payload(index: int) -> bytes:
    return STAMP.pack(index, time.monotonic()) + b"." * (SIZE - STAMP.size)


def age(data: bytes) -> float:
    return time.monotonic() - float(STAMP.unpack_from(data)[1])


# ── low load ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _low(url: str, ordered: bool, seconds: float) -> Latency:
    topics = TOPICS[:5]
    ages: list[float] = []
    async with (
        seriatim.connect(url) as bus,
        bus.subscribe(*topics, ordered=ordered) as events,
        bus.subscribe(*topics, ordered=ordered) as others,
    ):
        count = int(seconds * LOW_RATE)

        async def take(subscription: Any, into: list[float]) -> None:
            for _ in range(count):
                into.append(age((await subscription.next(WAIT_S)).data))

        taking = asyncio.gather(take(events, ages), take(others, []))
        started = time.monotonic()
        for index in range(count):
            bus.publish_nowait(topics[index % len(topics)], payload(index))
            await asyncio.sleep(max(0.0, started + (index + 1) / LOW_RATE - time.monotonic()))
        await taking
    return latency_of(ages[LOW_RATE // 2 :])  # the first half second makes streams and consumers


def low_load(rounds: int, seconds: float) -> None:
    """The table of low load: the median of the rounds, and for p99 the best and the worst of them."""
    rows: dict[str, list[Latency]] = {}
    with seriatim_up("log") as log, seriatim_up("ticket") as ticket:
        for _ in range(rounds):
            for name, server, ordered in ((PEER, log, False), ("log mode", log, True), ("ticket mode", ticket, True)):
                rows.setdefault(name, []).append(run(_low(server.url, ordered, seconds)))
    print(f"| low load, 200 events/s, {rounds} rounds | p50 | p99 | p99 of rounds | p50 added |")
    print("|---|---:|---:|---:|---:|")
    plain = median(each.p50 for each in rows[PEER])
    for name, each in rows.items():
        p50, p99s = median(one.p50 for one in each), sorted(one.p99 for one in each)
        added = f"{p50 - plain:.2f} ms" if name != PEER else ""
        print(f"| {name} | {p50:.2f} ms | {median(p99s):.2f} ms | {p99s[0]:.2f} to {p99s[-1]:.2f} ms | {added} |")


# ── half load ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _pace(url: str, rate: float, seconds: float) -> tuple[float, int]:
    """Publish at this rate; 0: as fast as possible. Returns the start and the number of events."""
    async with seriatim.connect(url, timeout_s=WAIT_S) as bus:
        published, started = 0, time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            due = int(elapsed * rate) if rate else published + 5_000
            if due > published:
                await bus.publish_many([(TOPICS[index % 10], payload(index)) for index in range(published, due)])
                published = due
            await asyncio.sleep(TICK_S if rate else 0)
        return started, published


def pace(url: str, rate: float, seconds: float) -> tuple[float, int]:
    return run(_pace(url, rate, seconds))


async def _take(url: str, topics: Sequence[str], ready: Any, stop: Any) -> tuple[list[float], float]:
    ages: list[float] = []
    last = 0.0

    async def collect(events: seriatim.Subscription) -> None:
        nonlocal last
        async for batch in events.batches():
            ages.extend([age(event.data) for event in batch])
            last = time.monotonic()

    async with seriatim.connect(url, timeout_s=WAIT_S) as bus, bus.subscribe(*topics) as events:
        ready.set()
        collecting = asyncio.create_task(collect(events))
        await asyncio.get_running_loop().run_in_executor(None, stop.wait, WAIT_S)
        while time.monotonic() - last < QUIET_S:  # noqa: ASYNC110 - what is under way still comes: there is no event for silence
            await asyncio.sleep(QUIET_S / 10)
        collecting.cancel()
    return ages, last


def take(url: str, topics: Sequence[str], ready: Any, stop: Any) -> tuple[list[float], float]:
    return run(_take(url, topics, ready, stop))


def half_load(url: str, seconds: float) -> tuple[float, Latency]:
    """The maximum rate, and the latency at half of it."""
    maximum, ages = 0.0, [0.0]
    for rate in (0.0, 0.5):
        stop, readies = SPAWN.Event(), [SPAWN.Event() for _ in HOLDINGS]
        takers = [in_process(take, url, topics, ready, stop) for topics, ready in zip(HOLDINGS, readies, strict=True)]
        for ready in readies:
            if not ready.wait(WAIT_S):
                raise TimeoutError("a subscriber is not ready")
        began, published = in_process(pace, url, rate * maximum, seconds).get(timeout=WAIT_S)
        stop.set()
        taken = [taker.get(timeout=WAIT_S) for taker in takers]
        ages = [each for one, _ in taken for each in one]
        maximum = maximum or published / (max(last for _, last in taken) - began)
    return maximum, latency_of(ages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    low_load(options.rounds, options.seconds)
    print("\n| half load | maximum events/s | p50 | p99 | p99 / p50 |\n|---|---:|---:|---:|---:|")
    for mode in ("log", "ticket"):
        with seriatim_up(mode) as server:
            maximum, got = half_load(server.url, options.seconds)
            print(f"| {mode} mode | {maximum:,.0f} | {got.p50:.1f} ms | {got.p99:.1f} ms | {got.p99 / got.p50:.1f} |")


if __name__ == "__main__":
    main()
