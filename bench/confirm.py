"""What it costs to know that an event has its place in the order, not only that it is stored.

*Latency*: one bus awaits one event after the other, on two topics by turns, at low load. Two subscribers hold both, so
that the topics are coupled. *Rate*: the same bus publishes batches (`publish_many`), and as many as there is room
for (`publish_nowait`). Each is measured with `confirm="stored"` and `confirm="placed"` by turns, in rounds, on the same
servers, log mode. The median of the rounds counts; for the rate, the median of the ratios of neighbours.

Run: python -m bench.confirm [--seconds 3] [--rounds 5]
"""

import argparse
import asyncio
import time
from statistics import median
from typing import Any

import seriatim
from bench.latency import Latency, latency_of
from bench.servers import SIZE, SPAWN, TOPICS, WAIT_S, in_process, seriatim_up
from seriatim.runtime.loop import run

CONFIRM = ("stored", "placed")
PER_SECOND = 100
BATCH = 5_000
PAYLOAD = b"." * SIZE


async def _single(url: str, confirm: Any, seconds: float) -> Latency:
    took: list[float] = []
    async with seriatim.connect(url, timeout_s=WAIT_S, confirm=confirm) as bus:
        started = time.monotonic()
        for index in range(int(seconds * PER_SECOND)):
            before = time.monotonic()
            await bus.publish(TOPICS[index % 2], PAYLOAD)
            took.append(time.monotonic() - before)
            await asyncio.sleep(max(0.0, started + (index + 1) / PER_SECOND - time.monotonic()))
    return latency_of(took[PER_SECOND // 5 :])  # the first ones find out where the topics are


async def _many(url: str, confirm: Any, seconds: float) -> float:
    async with seriatim.connect(url, timeout_s=WAIT_S, confirm=confirm) as bus:
        events = [(TOPICS[index % 2], PAYLOAD) for index in range(BATCH)]
        await bus.publish_many(events)
        count, started = 0, time.monotonic()
        while time.monotonic() - started < seconds:
            await bus.publish_many(events)
            count += BATCH
        return count / (time.monotonic() - started)


async def _pipelined(url: str, confirm: Any, seconds: float) -> float:
    async with seriatim.connect(url, timeout_s=WAIT_S, confirm=confirm) as bus:
        await bus.publish_many([(topic, PAYLOAD) for topic in TOPICS[:2]])
        count, started = 0, time.monotonic()
        while time.monotonic() - started < seconds:
            for _ in range(100):
                await bus.ready()
                bus.publish_nowait(TOPICS[count % 2], PAYLOAD)
                count += 1
            await asyncio.sleep(0)
        await bus.flush()
        return count / (time.monotonic() - started)


async def _hold(url: str, ready: Any) -> None:
    """Two subscribers of both topics, in a process of their own, until that is ended."""
    async with (
        seriatim.connect(url, timeout_s=WAIT_S) as bus,
        bus.subscribe(*TOPICS[:2]) as one,
        bus.subscribe(*TOPICS[:2]) as other,
    ):
        ready.set()

        async def read(events: seriatim.Subscription) -> None:
            async for _ in events.batches():
                pass

        await asyncio.gather(read(one), read(other))


def hold(url: str, ready: Any) -> None:
    run(_hold(url, ready))


def measured(work: Any, url: str, confirm: str, seconds: float) -> Any:
    return run(work(url, confirm, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds: dict[tuple[Any, str], list[Any]] = {}
    with seriatim_up("log") as server:
        ready = SPAWN.Event()
        _answers = in_process(hold, server.url, ready)  # kept: the process uses it
        if not ready.wait(WAIT_S):
            raise TimeoutError("the subscribers are not ready")
        for _ in range(options.rounds):
            for work in (_single, _many, _pipelined):
                for confirm in CONFIRM:
                    got = in_process(measured, work, server.url, confirm, options.seconds).get(timeout=WAIT_S)
                    rounds.setdefault((work, confirm), []).append(got)
    print(f"| awaited individually, {PER_SECOND}/s, {options.rounds} rounds | p50 | p99 |\n|---|---:|---:|")
    p50 = {confirm: median(each.p50 for each in rounds[_single, confirm]) for confirm in CONFIRM}
    for confirm in CONFIRM:
        print(f"| {confirm} | {p50[confirm]:.2f} ms | {median(each.p99 for each in rounds[_single, confirm]):.2f} ms |")
    print(f"added to p50: {p50['placed'] - p50['stored']:.2f} ms\n")
    print("| rate | stored | placed | ratio |\n|---|---:|---:|---:|")
    for work, name in ((_many, "publish_many, 5,000 events each"), (_pipelined, "publish_nowait")):
        stored, placed = rounds[work, "stored"], rounds[work, "placed"]
        ratio = median(one / other for one, other in zip(placed, stored, strict=True))
        print(f"| {name} | {median(stored):,.0f}/s | {median(placed):,.0f}/s | {ratio:.2f} |")


if __name__ == "__main__":
    main()
