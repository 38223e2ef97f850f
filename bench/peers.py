"""Peers without a broker: what a window is worth on links that take time.

Live peers in one process, over TCP, with every byte 10 ms under way in either direction. One of them publishes as fast
as its window lets it; an event counts when every peer has received it and every subscription has handed it out. The
peer to compare with is the paper's stop-and-wait (window 1), measured in the same run, by turns; the best round of each
counts.

Run: python -m bench.peers [--peers 8] [--delay-ms 10] [--seconds 4] [--rounds 2] [--windows 1 32 256]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import seriatim
from seriatim.demo.distance import Line
from seriatim.runtime.loop import run
from soak.children import free_port

TOPIC = "bench"
DATA = b"x" * 64
STOP_AND_WAIT = 1


class Round(NamedTuple):
    """What one round gave."""

    events_per_s: float
    processor_us: float  # of the whole process, per event


async def measure(count: int, delay_ms: float, window: int, seconds: float) -> Round:
    """Events per second from one peer to all."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports: list[int] = []
        while len(ports) < count:
            if (port := free_port()) not in ports:
                ports.append(port)
        lines = [Line(port, delay_ms) for port in ports]
        for line in lines:
            await line.open()
            stack.push_async_callback(line.close)
        rows = [
            f'{id} = {{ address = "{line.address}", bind = "127.0.0.1:{port}" }}'
            for id, (line, port) in enumerate(zip(lines, ports, strict=True))
        ]
        text = "\n".join(["[peers]", *rows, "[options]", f"window = {window}", "suspect_after_ms = 60000"])
        (folder / "peers.toml").write_text(text, encoding="utf-8")
        url = f"vcube://{folder / 'peers.toml'}?id="
        buses = [await stack.enter_async_context(seriatim.connect(f"{url}{id}", timeout_s=120)) for id in range(count)]
        events = await asyncio.gather(
            *(stack.enter_async_context(bus.subscribe(TOPIC)) for bus in buses), return_exceptions=False
        )
        return await _publish(buses[0], events, window, seconds)


async def _publish(bus: seriatim.Bus, streams: Sequence[seriatim.Subscription], window: int, seconds: float) -> Round:
    published = 0
    began, busy = time.perf_counter(), time.process_time()
    end = began + seconds

    async def publish() -> None:
        nonlocal published
        while time.perf_counter() < end:
            await bus.publish(TOPIC, DATA)
            published += 1

    await asyncio.gather(*(publish() for _ in range(2 * window)))
    for stream in streams:
        handed = 0
        while handed < published:
            await stream.next(120)
            handed += 1
    elapsed, used = time.perf_counter() - began, time.process_time() - busy
    return Round(published / elapsed, 1e6 * used / published)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--delay-ms", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 32, 256])
    words = parser.parse_args()
    windows = sorted({STOP_AND_WAIT, *words.windows})
    best: dict[int, Round] = {}
    for _ in range(words.rounds):
        for window in windows:
            result = run(measure(words.peers, words.delay_ms, window, words.seconds))
            best[window] = max(best.get(window, result), result)
    peer = best[STOP_AND_WAIT]
    print(f"{words.peers} peers, one publishes, {words.delay_ms:g} ms per link")
    print(f"{'window':>8} {'events/s':>10} {'ratio':>8} {'processor per event':>21}")
    for window in windows:
        row = best[window]
        name = f"{window}"
        ratio = row.events_per_s / peer.events_per_s
        print(f"{name:>8} {row.events_per_s:>10,.1f} {ratio:>7.1f}x {row.processor_us:>18,.0f} µs")
    print("window 1 is the paper's stop-and-wait")


if __name__ == "__main__":
    main()
