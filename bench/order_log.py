"""What the order log costs a node: processor time of stamping without it ÷ with it, by turns in one run.

*Machine*: the machine of one node alone, with the encoding of its records, stamps and ranges; no socket, no disk. Ten
topics grow in turn, a stamp per event, 10,000 stamps a second. *Live*: the node in this process, with a file journal,
on a NATS server of its own; a plain client in another process publishes as fast as the broker takes it (long ranges),
or at a steady rate (short ranges). Shown: the node's processor time per event, the least over the rounds, and the
ratio of the two, which should be 0.95 or more.

Run: python -m bench.order_log [--events 1000000] [--rate 3000] [--rounds 7]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import nats

from bench.servers import SIZE, WAIT_S, in_process
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.messages import encode_stamps
from seriatim.brokers.nats.order import encode_order
from seriatim.brokers.nats.server import NatsServer
from seriatim.live.counters import Counters
from seriatim.live.tree.host import NodeHost
from seriatim.model import BROKER
from seriatim.order import SequencingTree, count_of
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.with_broker import Grown, Kept, Ordered, OrderKept, Stamped
from seriatim.runtime import FileJournal, Switchboard
from seriatim.runtime.loop import run

TOPICS = 10
POLL_S = 0.05
MACHINE_STAMPS = 100_000
MACHINE_STAMPS_PER_MS = 10
ROUND_TRIP_MS = 1.0

_rounds = count(1)


async def _publish(url: str, topics: list[str], events: int, rate: float | None) -> None:
    client = await nats.connect(url)
    payload, began = b"." * SIZE, time.monotonic()
    for index in range(events):
        await client.publish(topics[index % len(topics)], payload)
        if rate is None:
            if index % 2_000 == 0:
                await client.flush(timeout=int(WAIT_S))
        elif (early_s := began + index / rate - time.monotonic()) > 0:
            await client.flush(timeout=int(WAIT_S))
            await asyncio.sleep(early_s)
    await client.flush(timeout=int(WAIT_S))
    await client.close()


def publish(url: str, topics: list[str], events: int, rate: float | None) -> None:
    """A plain publisher, in a process of its own."""
    run(_publish(url, topics, events, rate))


def machine(stamps: int, order_log: bool) -> float:
    """Processor seconds of a machine for so many stamps."""
    options = TreeOptions(order="global", order_log=order_log)
    topics = [f"topic.{each}" for each in range(TOPICS)]
    node = SequencerNode(SequencingTree.single(topics), "root", options)
    encode = msgspec.msgpack.Encoder().encode
    wake_at = node.tick(0.0).wake_at

    def take(message: Payload, now: float) -> list[Payload]:
        nonlocal wake_at
        effects = node.step(BROKER, message, now)
        wake_at = effects.wake_at
        for record in effects.persist:
            encode(record)
        return [answer for _, answer in effects.send]

    began_s = time.process_time()
    for index in range(stamps):
        topic, number, now = topics[index % TOPICS], index // TOPICS + 1, index / MACHINE_STAMPS_PER_MS
        for stamped in take(Grown(topic, number), now):
            if isinstance(stamped, Stamped):
                encode_stamps([stamped])
        take(Kept(topic, number), now)
        if wake_at is not None and wake_at <= now - ROUND_TRIP_MS:
            effects = node.tick(now)
            wake_at = effects.wake_at
            for _, ordered in effects.send:
                if isinstance(ordered, Ordered):
                    encode_order(ordered)
                    take(OrderKept(ordered.after + count_of(ordered.ranges)), now)
    return time.process_time() - began_s


async def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the node did not finish in time")
        await asyncio.sleep(POLL_S)


async def _measure(url: str, folder: Path, events: int, rate: float | None, order_log: bool) -> tuple[float, int]:
    """Processor seconds of a node that stamps everything, and the number of its stamps."""
    name = f"round{next(_rounds)}"
    topics = [f"{name}.{each}" for each in range(TOPICS)]
    options = TreeOptions(order="global", order_log=order_log)
    tree = SequencingTree.single(topics)
    broker = JetStreamBroker(url, cluster=name)
    await broker.open()
    broker.configure("log", tree.home)
    counters = Counters()
    host = NodeHost(
        tree,
        "root",
        options,
        broker=broker,
        switchboard=Switchboard(),
        journal=FileJournal(folder / name),
        counters=counters,
    )
    await host.start()
    sequencer = host.machine.state.sequencer
    await _until(lambda: len(sequencer.homes) == TOPICS)  # every log is there, and watched
    began_s = time.process_time()
    publisher = in_process(publish, url, topics, events, rate)

    def is_done() -> bool:
        issued = sum(home.issued for home in sequencer.homes.values())
        return issued >= events and not sequencer.ranges and not sequencer.order.ranges

    await _until(is_done)
    spent_s = time.process_time() - began_s
    await asyncio.to_thread(publisher.get, timeout=WAIT_S)
    await host.stop()
    await broker.close()
    return spent_s, counters.stamps


def show(load: str, events: int, stamps: int, spent: dict[bool, list[float]]) -> None:
    """One row of the table."""
    without, with_log = (min(spent[each]) for each in (False, True))
    ratio = without / with_log
    print(f"| {load} | {events:,} | {stamps:,} | {without:.2f} | {with_log:.2f} | {ratio:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=3_000.0, help="of the steady load, in events per second")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    steady = int(options.rate * 10)
    loads = {"live, full speed": (options.events, None), f"live, {options.rate:,.0f}/s": (steady, options.rate)}
    print("| load | events | stamps | without, µs each | with, µs each | without ÷ with |")
    print("|---|---:|---:|---:|---:|---:|")
    alone: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.rounds):
        for order_log in (False, True):
            alone[order_log].append(machine(MACHINE_STAMPS, order_log) * 1e6 / MACHINE_STAMPS)
    show("machine", MACHINE_STAMPS, MACHINE_STAMPS, alone)
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer()
        server.launch()
        try:
            for load, (events, rate) in loads.items():
                spent: dict[bool, list[float]] = {False: [], True: []}
                stamps = 0
                for _ in range(options.rounds):
                    for order_log in (False, True):
                        seconds, stamps = run(_measure(server.url, Path(folder), events, rate, order_log))
                        spent[order_log].append(seconds * 1e6 / events)
                show(load, events, stamps, spent)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
