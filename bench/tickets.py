"""Tickets over TCP: one sequencer node in a process of its own, 50 connections from another process.

Each connection is a publisher with a few topics, each with one request under way, as the protocol has it: a ticket,
its grant, and the next ticket, which says that the one before is settled. One row says so apart, in a `Settled`, as a
publisher does that has nothing more to ask for. Tickets for one number, and for ranges of 100; journal in memory and in
a file with every append made durable. The peer is a server that answers the same frames from a bare counter, without
protocol, driver and journal: what asyncio, the framing and the load itself cost.

Rows are measured by turns; the best round of each counts. `node` is the share of one core that the node's process used,
and its processor time per event: the measure where other work shares the machine. What the durable journal costs is
also given round by round, each against the journal in memory of the same round: how far they are apart is the noise.

Run: python -m bench.tickets [--seconds 2] [--rounds 3]
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import msgspec

from bench.servers import SPAWN, processor_seconds
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.live.tree import wire
from seriatim.live.tree.host import NodeHost
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Granted, Settled, Ticket
from seriatim.runtime import Switchboard
from seriatim.runtime.journal.file_journal import FileJournal
from seriatim.runtime.journal.interface import Journal, MemoryJournal
from seriatim.runtime.loop import run
from seriatim.runtime.net.listener import Listener
from seriatim.runtime.net.wire import LENGTH_BYTES, VERSION, Envelope, Hello, Welcome, encode_frame

CONNECTIONS = 50
TOPICS_EACH = 4
CLUSTER = "bench"


class Round(NamedTuple):
    """What one round gave."""

    events_per_s: float
    node_share: float


# ── the node ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Counter:
    """The peer: grants from a bare counter per topic."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._issued: dict[str, int] = {}
        self._switchboard = switchboard
        switchboard.attach("root", self.deliver)

    def deliver(self, source: str, message: object) -> None:
        if isinstance(message, Ticket):
            first = self._issued.get(message.topic, 0) + 1
            last = self._issued[message.topic] = first + message.count - 1
            granted = Granted(message.request, message.topic, first, last, {})
            self._switchboard.send("root", source, granted)


async def _serve(kind: str, address: Any, stop: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = SequencingTree.single([], "root")
        switchboard = Switchboard()
        host = None
        if kind == "counter":
            Counter(switchboard)
        else:
            journal: Journal = FileJournal(Path(folder) / "journal") if kind == "file" else MemoryJournal()
            options = TreeOptions(mode="ticket")
            broker = MemoryBroker()
            await broker.open()
            host = NodeHost(tree, "root", options, broker=broker, switchboard=switchboard, journal=journal)
            await host.start()
        listener = Listener(switchboard, tree, cluster=CLUSTER, decoders=wire.TREE)
        await listener.start()
        address.put((listener.address, os.getpid()))
        await asyncio.get_running_loop().run_in_executor(None, stop.wait, 120)
        await listener.stop()
        if host is not None:
            await host.stop()


def serve(kind: str, address: Any, stop: Any) -> None:
    """The node's process."""
    run(_serve(kind, address, stop))


# ── the load ──────────────────────────────────────────────────────────────────────────────────────────────────────

_granted = msgspec.msgpack.Decoder(Envelope[Granted] | Welcome)


class Load(asyncio.Protocol):
    """One connection: keeps one ticket under way on each of its topics."""

    def __init__(self, name: str, size: int, apart: bool) -> None:
        self.name = name
        self.size = size
        self.apart = apart
        self.granted = 0
        self._requests = count(1)
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are not asyncio.Transport
        self._transport.write(encode_frame(Hello(VERSION, CLUSTER, "client", self.name)))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at, out = 0, []
        while len(buffer) - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + int.from_bytes(buffer[at : at + LENGTH_BYTES], "big")
            if end > len(buffer):
                break
            frame = _granted.decode(memoryview(buffer)[at + LENGTH_BYTES : end])
            at = end
            if isinstance(frame, Welcome):
                out += [self._ticket(f"{self.name}.{index}") for index in range(TOPICS_EACH)]
            else:
                grant = frame.message
                self.granted += self.size
                if self.apart:
                    out.append(encode_frame(Envelope(self.name, "root", Settled(grant.topic, grant.first))))
                out.append(self._ticket(grant.topic, 0 if self.apart else grant.first))
        del buffer[:at]
        if out:
            self._transport.write(b"".join(out))

    def _ticket(self, topic: str, settled: int = 0) -> bytes:
        return encode_frame(Envelope(self.name, "root", Ticket(next(self._requests), topic, self.size, settled)))


async def _load(address: str, size: int, seconds: float, pid: int, apart: bool) -> Round:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    loads = []
    for index in range(CONNECTIONS):
        _, load = await loop.create_connection(
            lambda index=index: Load(f"publisher{index}", size, apart),  # type: ignore[misc]
            host,
            int(port),
        )
        loads.append(load)
    await asyncio.sleep(0.3)
    before, busy, began = sum(load.granted for load in loads), processor_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    elapsed = time.monotonic() - began
    events = sum(load.granted for load in loads) - before
    return Round(events / elapsed, (processor_seconds(pid) - busy) / elapsed)


def measure(kind: str, size: int, seconds: float, apart: bool = False) -> Round:
    """One round: a new node, a new load."""
    address, stop = SPAWN.Queue(), SPAWN.Event()
    node = SPAWN.Process(target=serve, args=(kind, address, stop), daemon=True)
    node.start()
    where, pid = address.get(timeout=30)
    try:
        return run(_load(where, size, seconds, pid, apart))
    finally:
        stop.set()
        node.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: dict[str, Callable[[], Round]] = {
        "peer: a bare counter": lambda: measure("counter", 1, options.seconds),
        "single tickets, journal in memory": lambda: measure("memory", 1, options.seconds),
        "single tickets, durable journal": lambda: measure("file", 1, options.seconds),
        "the same, settled apart": lambda: measure("file", 1, options.seconds, apart=True),
        "ranges of 100, journal in memory": lambda: measure("memory", 100, options.seconds),
        "ranges of 100, durable journal": lambda: measure("file", 100, options.seconds),
    }
    results: dict[str, list[Round]] = {name: [] for name in rows}
    for _ in range(options.rounds):
        for name, row in rows.items():
            results[name].append(row())
    best = {name: max(each) for name, each in results.items()}
    peer = best["peer: a bare counter"].events_per_s
    print(f"{CONNECTIONS} connections, {TOPICS_EACH} topics each\n")
    print("| | events/s | vs peer | node | node, each |\n|---|---:|---:|---:|---:|")
    for name, result in best.items():
        rate, share = result.events_per_s, result.node_share
        print(f"| {name} | {rate:,.0f} | {rate / peer:.2f} | {share:.0%} | {share / rate * 1e6:.2f} µs |")
    for kind in ("single tickets", "ranges of 100"):
        pairs = zip(results[f"{kind}, durable journal"], results[f"{kind}, journal in memory"], strict=True)
        ratios = sorted(durable.events_per_s / memory.events_per_s for durable, memory in pairs)
        spread = f"median of {len(ratios)} rounds {median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"\n{kind}, durable journal / journal in memory: {spread}")


if __name__ == "__main__":
    main()
