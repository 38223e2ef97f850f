"""What does each way to order cost in an overlay of brokers, on the same workloads?

Four parts. The first two run the machines in the simulator, on the topology of paper 003 (4 core brokers in a chain, 5
edge brokers on each), 150 publishers and 150 subscribers, a publication every 4 s from each; a broker takes 0.2 ms for
a message and 0.02 ms for each copy it sends, a link 0.2 ms. They do not depend on the machine:

- compared: latency, messages, load of the root and state, by how much is in conflict
- apart: what nobody can see in another order, against per-publisher order

The others are processor time of this machine:

- steps: what a publication costs all brokers on its way, where nothing conflicts; the machines, and what is around them
- detection: whether anybody can see another order, as subscriptions and advertisements grow, asked of the index

Run: python bench/overlay.py [part]
"""

import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from random import Random
from time import process_time_ns
from typing import Any

import msgspec

from seriatim.filters import headers_of
from seriatim.lab.experiments.paper003.overlay_worlds import (
    CENTRAL,
    FAST,
    FIFO,
    RESOLUTION,
    ROOTED,
    OverlayLoad,
    OverlayWorld,
)
from seriatim.model import APPLICATION, Event
from seriatim.protocols.link import Frame
from seriatim.protocols.overlay import Broker, Client, OverlayOptions, Place
from seriatim.protocols.overlay import messages as say
from seriatim.protocols.overlay.running import BrokerNode, ClientNode
from seriatim.protocols.overlay.state import Advertised
from seriatim.protocols.overlay.tables import filter_of

SYSTEMS = (FIFO, ROOTED, RESOLUTION, CENTRAL, FAST)
WORKLOADS: dict[str, dict[str, Any]] = {
    "all conflict": {"groups": 1},
    "half": {"groups": 2},
    "a quarter": {"groups": 4},
    "by region": {"near": True},
    "nothing conflicts": {"apart": True},
}
SECONDS = 8.0
SECONDS_APART = 80.0  # longer: what is told of many publications at once is to be told
TURNS = 60
ROUNDS = 5
PROBES = 300


def world_of(system: str, seed: int, seconds: float = SECONDS, **workload: Any) -> OverlayWorld:
    load = OverlayLoad(system=system, seconds=seconds, covers=True, seed=seed, **workload)
    return OverlayWorld(load)


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def compared() -> None:
    print("                                        latency, ms            messages  root: messages  busy   state, kB")
    print(
        "         workload                order  local    all    p99  a publication   a publication  share  root  edge"
    )
    for name, workload in WORKLOADS.items():
        for system in SYSTEMS:
            world = world_of(system, 1, **workload)
            world.run(drain_ms=10_000.0)
            assert len(world.latencies) == world.owed(), "everything owed is notified"
            count = len(world.published)
            root = world.brokers[world.overlay.root]
            edge = world.brokers[world.edges[0]]
            sent = sum(busy.seen.sent for busy in world.brokers.values())
            sizes = [len(msgspec.msgpack.encode(each.broker.state)) / 1_000 for each in (root, edge)]
            print(
                f"{name:>17} {system:>20} {mean(world.latencies_local):>6.2f} {mean(world.latencies):>6.2f} "
                f"{percentile(world.latencies, 0.99):>6.2f} {sent / count:>14.1f} {root.seen.handled / count:>15.2f} "
                f"{root.seen.busy_ms / SECONDS / 1_000:>6.1%} {sizes[0]:>5.0f} {sizes[1]:>5.0f}",
                flush=True,
            )


def apart() -> None:
    print("nothing conflicts, over per publisher:   latency, mean   p99   messages sent")
    for seed in (1, 2, 3):
        found = {}
        for system in SYSTEMS:
            world = world_of(system, seed, SECONDS_APART, apart=True)
            world.run(drain_ms=10_000.0)
            assert len(world.latencies) == world.owed()
            sent = sum(busy.seen.sent for busy in world.brokers.values())
            found[system] = mean(world.latencies), percentile(world.latencies, 0.99), float(sent)
        for system in SYSTEMS[1:]:
            ratios = [mine / fifo - 1.0 for mine, fifo in zip(found[system], found[FIFO], strict=True)]
            print(f"seed {seed} {system:>28} " + "".join(f"{ratio:>+14.1%}" for ratio in ratios), flush=True)


def steps() -> None:
    """Every broker's steps, from the publication to the last notification, without a simulator.

    Each order in processes of its own, as brokers run: an interpreter that has seen two orders is slower with both.
    """
    for what, measure in (("machines", machine_time), ("nodes", node_time)):
        print(f"nothing conflicts, {what}: processor time of all brokers for a publication, µs, over per publisher")
        systems = (FIFO, ROOTED, RESOLUTION, CENTRAL)
        times: dict[str, list[float]] = {system: [] for system in systems}
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            for _ in range(ROUNDS):
                for system in systems:
                    times[system].append(pool.submit(measure, system).result())
        for system, each in times.items():
            ratio = percentile(each, 0.5) / percentile(times[FIFO], 0.5) - 1.0
            print(f"{system:>20} {percentile(each, 0.5):>8.1f} {ratio:>+8.1%}", flush=True)


def machine_time(system: str) -> float:
    """Of the machines alone, per publication: the median of many turns, in which everybody publishes once."""
    world = world_of(system, 1, apart=True)
    times = []
    for turn in range(TURNS):
        start = process_time_ns()
        for name in world.publishers:
            world.tell(name, publication_of(world, name, turn))
        times.append((process_time_ns() - start) / len(world.publishers) / 1_000)
    return percentile(times, 0.5)


def node_time(system: str) -> float:
    """The same of brokers as they run: with links and acknowledgements, records and frames encoded and decoded."""
    world = world_of(system, 1, apart=True)
    nodes: dict[str, Any] = {name: BrokerNode(busy.broker, 500.0) for name, busy in world.brokers.items()}
    clients = {name: ClientNode(Client(name, broker), 500.0) for name, broker in world.at.items()}
    encode = msgspec.msgpack.Encoder().encode
    between = msgspec.msgpack.Decoder(Frame[say.Between]).decode
    commands = msgspec.msgpack.Decoder(Frame[say.Command]).decode
    answers = msgspec.msgpack.Decoder(Frame[say.ToClient]).decode
    times = []
    for turn in range(TURNS):
        took = 0
        for name in world.publishers:
            sends = clients[name].step(APPLICATION, publication_of(world, name, turn), 0.0).send
            waiting = deque((name, target, encode(frame)) for target, frame in sends)
            while waiting:
                source, target, data = waiting.popleft()
                if target in clients:
                    sends = clients[target].step(source, answers(data), 0.0).send
                    waiting.extend((target, following, encode(frame)) for following, frame in sends)
                    continue
                start = process_time_ns()
                effects = nodes[target].step(source, (between if source in nodes else commands)(data), 0.0)
                for record in effects.persist:
                    encode(record)
                waiting.extend([(target, following, encode(frame)) for following, frame in effects.send])
                took += process_time_ns() - start
        times.append(took / len(world.publishers) / 1_000)
    return percentile(times, 0.5)


def publication_of(world: OverlayWorld, name: str, turn: int) -> say.Publish:
    return say.Publish(Event(f"{turn} {name}", "", name, headers=headers_of({"group": world.group[name]})))


def detection() -> None:
    """`again`: the same five questions over and over, which are then near at hand for the processor."""
    print("subscriptions +    index: whose advertisements       a publication   the paper's fast scan:")
    print("advertisements     can match? µs p50  p99    again  visited  µs p50  p99         rows of a table")
    for entries in (100, 1_000, 10_000, 100_000):
        random = Random(entries)
        half, symbols = entries // 2, max(1, entries // 20)
        broker = Broker(Place("b", "parent", ("child",)), OverlayOptions())
        offered = [random.randrange(symbols) for _ in range(half)]
        for number, symbol in enumerate(offered):
            where = f'symbol = "s{symbol}" and price > {random.randrange(100)}'
            broker.tables.offer("child", f"a{number}", Advertised(f"publisher {number}", where))
        broker.step("publisher", say.Advertise("mine", "true"), 0.0)
        for neighbour in ("parent", "child"):
            broker.step(neighbour, say.Heard(next(iter(broker.state.clients["publisher"].offers.values())).id), 0.0)
        for number in range(half):
            where = f'symbol = "s{random.randrange(symbols)}" and price < {random.randrange(100, 200)}'
            broker.tables.want(random.choice(["parent", "child"]), f"s{number}", where)
        probes = [f'symbol = "s{random.randrange(symbols)}" and price < 150' for _ in range(PROBES)]
        asked, again, visited = [], [], 0
        for where in probes:
            filter_of(where)  # texts are read once
            asked.append(timed(partial(broker.tables.owners, where)))
            visited += broker.tables._offered.visited
        for number in range(PROBES):
            again.append(timed(partial(broker.tables.owners, probes[number % 5])))
        published = []
        for number in range(PROBES):
            headers = headers_of({"symbol": f"s{random.randrange(symbols)}", "price": random.randrange(200)})
            message = say.Publish(Event(str(number), "", "publisher", headers=headers))
            published.append(timed(partial(broker.step, "publisher", message, 0.0)))
            broker.state.climbing.clear()
        rows = [offered.index(symbol) + 1 if symbol in offered else half for symbol in range(min(symbols, 300))]
        print(
            f"{entries:>14,} {percentile(asked, 0.5):>20.1f} {percentile(asked, 0.99):>6.1f} "
            f"{percentile(again, 0.5):>8.1f} {visited / PROBES:>8.1f} "
            f"{percentile(published, 0.5):>11.1f} {percentile(published, 0.99):>6.1f} {sum(rows) / len(rows):>18.0f}",
            flush=True,
        )


def timed(call: Callable[[], object]) -> float:
    """Processor time in microseconds."""
    start = process_time_ns()
    call()
    return (process_time_ns() - start) / 1_000


if __name__ == "__main__":
    PARTS = {"compared": compared, "apart": apart, "steps": steps, "detection": detection}
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
