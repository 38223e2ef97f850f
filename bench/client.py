"""What the client costs: packing, publishing into memory, being notified, ordered and not.

Processor time of one core. Everything runs in one process on the broker in memory, so "published" and "notified"
include broker, sequencer and client together: the ratio between ordered and unordered is what ordering adds. The peer
of packing is a bare loop over the same bytes.

Run: python bench/client.py
"""

import asyncio
from collections.abc import Callable
from time import process_time

import seriatim
from seriatim.brokers.packs import BATCH_HEADER, BATCH_VERSION, pack
from seriatim.client.events import Event, unfold
from seriatim.model import Event as Message
from seriatim.model import Notification
from seriatim.runtime.loop import run

SIZE_BYTES = 64
EVENTS = 200_000
REPEATS = 5


def fastest(work: Callable[[], int]) -> float:
    """Events per second of processor time, in the fastest of some runs."""
    best = 0.0
    for _ in range(REPEATS):
        began = process_time()
        count = work()
        best = max(best, count / (process_time() - began))
    return best


def row(name: str, rate: float, peer: float | None = None) -> None:
    ratio = f"{rate / peer:>8.2f}x" if peer else " " * 9
    print(f"{name:<58} {rate:>12,.0f} events/s {ratio}")


def packing() -> None:
    print(f"\npacks of {SIZE_BYTES}-byte events, against a bare loop that makes the same events")
    data = [bytes(SIZE_BYTES)] * 1_000
    message = Message("p-1", "t", "p", pack(1, data), {BATCH_HEADER: BATCH_VERSION})
    notification = Notification(message, 7, {"u": 3})

    def bare() -> int:
        for _ in range(EVENTS // 1_000):
            _ = [Event("t", each, None, f"p-{index}", "p", {}, 7, index) for index, each in enumerate(data)]
        return EVENTS

    def packed() -> int:
        for _ in range(EVENTS // 1_000):
            pack(1, data)
        return EVENTS

    def unfolded() -> int:
        for _ in range(EVENTS // 1_000):
            unfold(notification)
        return EVENTS

    peer = fastest(bare)
    row("bare loop", peer)
    row("pack", fastest(packed), peer)
    row("unpack", fastest(unfolded), peer)


async def publishing(window: int) -> float:
    """Call `publish_nowait` with this many events at a time, until the broker has them all."""
    async with seriatim.connect("memory://") as bus:
        began = process_time()
        for _ in range(EVENTS // window):
            for _ in range(window):
                bus.publish_nowait("t", b"x" * SIZE_BYTES)
            await bus.flush()
        return EVENTS / (process_time() - began)


async def publishing_many() -> float:
    async with seriatim.connect("memory://") as bus:
        data = [bytes(SIZE_BYTES)] * 10_000
        began = process_time()
        for _ in range(EVENTS // len(data)):
            await bus.publish_many("t", data)
        return EVENTS / (process_time() - began)


async def notified(ordered: bool, topics: int, one_by_one: bool) -> float:
    """From `publish_many` to the application, everything in this process."""
    names = [f"t{index}" for index in range(topics)]
    async with seriatim.connect("memory://") as bus, bus.subscribe(*names, ordered=ordered) as events:

        async def read() -> None:
            count = 0
            if one_by_one:
                async for _ in events:
                    count += 1
                    if count == EVENTS:
                        return
            async for batch in events.batches(10_000):
                count += len(batch)
                if count >= EVENTS:
                    return

        data = [bytes(SIZE_BYTES)] * 1_000
        began = process_time()
        reading = asyncio.ensure_future(read())
        for index in range(EVENTS // len(data)):
            await bus.publish_many(names[index % topics], data)
        await reading
        return EVENTS / (process_time() - began)


async def live() -> None:
    print(f"\npublished into memory, {SIZE_BYTES}-byte events; broker included")
    for window in (1, 10, 100, 1_000):
        rate = max([await publishing(window) for _ in range(2 if window == 1 else REPEATS)])
        row(f"publish_nowait, {window} at a time", rate)
    row("publish_many, 10,000 at a time", max([await publishing_many() for _ in range(REPEATS)]))
    print("\nfrom publish_many to the application, broker and sequencer included")
    for one_by_one in (False, True):
        for topics in (1, 10):
            how = "single events" if one_by_one else "in batches"
            unordered = max([await notified(False, topics, one_by_one) for _ in range(REPEATS)])
            ordered = max([await notified(True, topics, one_by_one) for _ in range(REPEATS)])
            row(f"unordered, {topics} topics, {how}", unordered)
            row(f"ordered, {topics} topics, {how}", ordered, unordered)


if __name__ == "__main__":
    packing()
    run(live())
