"""What the transport costs a server: 50 connections, each with one request under way, answered by a node.

Three servers are measured. *Bare* is the peer: a protocol that writes the same fixed bytes for whatever it reads: what
the kernel and the loop cost by themselves. *Echo* is the listener with a node that grants every ticket at once: bare,
and the transport. *Sequencer* is the listener with the real machine, its driver and a journal in memory; its clients
also settle each number, as publishers in ticket mode do, so a pair is two messages to the node and one back.

The clients run in a process of their own and do as little as they can. Wall clock depends on what else the machine
does; the server's processor time less so: it is taken in short slices, of which the cheapest counts.

Run: python bench/transport.py [seconds per row]
"""

import asyncio
import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from time import perf_counter, process_time
from typing import Any

from seriatim.live.tree import wire
from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Granted, Settled, Ticket
from seriatim.runtime.clock import Clock
from seriatim.runtime.driver import Driver
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.runtime.loop import run
from seriatim.runtime.net.listener import Listener
from seriatim.runtime.net.switchboard import Switchboard
from seriatim.runtime.net.wire import VERSION, Envelope, Hello, encode_frame

CONNECTIONS = 50
SECONDS = 3.0
WARM_UP_S = 0.5
SLICE_S = 0.25
CLUSTER = "bench"


class LoadClient(asyncio.Protocol):
    """Keeps `window` requests under way and counts answers, without decoding them: an answer is one frame."""

    def __init__(self, name: str, window: int, settle: bool) -> None:
        self.name = name
        self.answers = 0
        self._window = window
        self._settle = settle
        self._request = 0
        self._welcomed = False
        self._rest = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(encode_frame(Hello(VERSION, CLUSTER, "client", self.name)))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        position = frames = 0
        while len(data) - position >= 4:
            stop = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if stop > len(data):
                break
            frames += 1
            position = stop
        self._rest = data[position:]
        if not self._welcomed and frames:
            self._welcomed = True
            self._ask(self._window)
            return
        self.answers += frames
        self._ask(frames)

    def _ask(self, count: int) -> None:
        """A ticket; with it, what settles the one before, as a publisher in ticket mode would say it."""
        frames = []
        for _ in range(count):
            self._request += 1
            if self._settle and self._request > self._window:
                settled = Settled(self.name, self._request - self._window)
                frames.append(encode_frame(Envelope(self.name, "root", settled)))
            frames.append(encode_frame(Envelope(self.name, "root", Ticket(self._request, self.name, 1))))
        self._transport.write(b"".join(frames))


async def load(port: int, window: int, settle: bool, seconds: float) -> float:
    """Answers per second, as the clients see it."""
    loop = asyncio.get_running_loop()
    clients = [LoadClient(f"client{index}", window, settle) for index in range(CONNECTIONS)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.sleep(WARM_UP_S)
    began, answers = perf_counter(), sum(client.answers for client in clients)
    await asyncio.sleep(seconds)
    return (sum(client.answers for client in clients) - answers) / (perf_counter() - began)


def clients_main(pipe: Pipe) -> None:
    """The clients' process: does one measurement per question."""
    while (question := pipe.recv()) is not None:
        pipe.send(run(load(*question)))


def attach_echo(switchboard: Switchboard) -> None:
    """A node that grants every ticket at once."""

    def deliver(source: Address, message: Payload) -> None:
        assert isinstance(message, Ticket), message
        request = message.request
        switchboard.send("root", source, Granted(request, message.topic, request, request, {}))

    switchboard.attach("root", deliver)


def attach_sequencer(switchboard: Switchboard) -> Driver:
    """The real machine; each client publishes on a topic of its own."""
    tree = SequencingTree.single([f"client{index}" for index in range(CONNECTIONS)])
    machine = SequencerNode(tree, "root", TreeOptions(mode="ticket"))
    driver = Driver("root", machine, Clock(), send=switchboard.send, journal=MemoryJournal())
    switchboard.attach("root", driver.deliver)
    driver.start()
    return driver


class Bare(asyncio.Protocol):
    """Reads any input and always writes the same answer."""

    answers = 0
    answer = encode_frame(Envelope("root", "client0", Granted(1, "client0", 1, 1, {})))

    def __init__(self) -> None:
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """One answer for one request; the first stands for the welcome."""
        Bare.answers += 1
        self._transport.write(self.answer)


async def serve_bare(pipe: Pipe, seconds: float) -> tuple[float, float]:
    """Pairs per second, and microseconds of the server's processor per pair."""
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    result = await measure(pipe, server.sockets[0].getsockname()[1], 1, False, seconds, lambda: Bare.answers)
    server.close()
    return result


async def serve(pipe: Pipe, node: str, window: int, seconds: float) -> tuple[float, float]:
    """Pairs per second, and microseconds of the server's processor per pair."""
    switchboard = Switchboard()
    driver = None
    if node == "echo":
        attach_echo(switchboard)
    else:
        driver = attach_sequencer(switchboard)
    backlog = (lambda: driver.backlog) if driver is not None else None
    listener = Listener(switchboard, SequencingTree.single([]), cluster=CLUSTER, decoders=wire.TREE, backlog=backlog)
    await listener.start()
    port = int(listener.address.rpartition(":")[2])
    result = await measure(
        pipe,
        port,
        window,
        node != "echo",
        seconds,
        lambda: listener.sent + sum(guest.sent for guest in listener.guests),
    )
    await listener.stop()
    if driver is not None:
        await driver.stop()
    return result


async def measure(
    pipe: Pipe, port: int, window: int, settle: bool, seconds: float, answered: Callable[[], int]
) -> tuple[float, float]:
    """Let the clients load a port, and measure the processor time meanwhile."""
    pipe.send((port, window, settle, seconds))
    rate = asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    await asyncio.sleep(2 * WARM_UP_S)
    cheapest_us = float("inf")
    while not rate.done():
        began, before = process_time(), answered()
        await asyncio.wait([rate], timeout=SLICE_S)
        if (pairs := answered() - before) > 100:
            cheapest_us = min(cheapest_us, (process_time() - began) / pairs * 1e6)
    return float(rate.result()), cheapest_us


def main(seconds: float) -> None:
    """One row per server, loop and number of requests under way."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=clients_main, args=(theirs,))
    process.start()
    print(f"{CONNECTIONS} connections, {seconds:g} s per row")
    print(f"{'server':<10} {'loop':<8} {'under way':>9} {'pairs/s seen':>13} {'us/pair':>8} {'pairs/s of a core':>18}")
    for uvloop in (True, False):
        rows = [("bare", 1), ("echo", 1), ("echo", 16), ("sequencer", 1), ("sequencer", 16)]
        for node, window in rows:
            work = serve_bare(ours, seconds) if node == "bare" else serve(ours, node, window, seconds)
            rate, cost_us = run(work, uvloop=uvloop)
            loop = "uvloop" if uvloop else "asyncio"
            print(
                f"{node:<10} {loop:<8} {window:>9} {rate:>13,.0f} {cost_us:>8.2f} {1e6 / cost_us:>18,.0f}", flush=True
            )
    ours.send(None)
    process.join(10)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
