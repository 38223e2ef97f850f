"""SRPT-B beside SRPT-S and VCube-PS (paper 001 §4.6): trees of few brokers, each with many subscribers.

SRPT-B without machines: one topic, a tree of brokers, clients that stay. What a broker gets comes from one parent, so
brokers can be computed one after the other from the root down, each with all of its messages.
tests/lab/experiments/test_paper001.py shows that the simulated machines give the same times.
"""

from collections.abc import Sequence
from random import Random

from msgspec import Struct

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.static_trees import SRPT, VCUBE
from seriatim.lab.experiments.paper001.tree_model import Model, Planned, fans_of, on_tick, run
from seriatim.lab.sim import PacketDelays

TREE_AND_CLIENTS, TREE_BESIDE_CLIENTS = "one queue", "two queues"


class Brokers(Struct, frozen=True, kw_only=True):
    """Brokers 0 … brokers - 1 and clients from there on, dealt out in turn; all clients subscribe.

    `queues`: a broker's copies for brokers below it and for its clients take turns in one output queue (those for
    brokers first, message by message), as the papers' delay model has it; or in two, which do not hinder each other.
    """

    brokers: int
    clients: int
    root: int
    delays: PacketDelays = PacketDelays()
    queues: str = TREE_AND_CLIENTS

    def broker_of(self, client: int) -> int:
        return (client - self.brokers) % self.brokers


class Latencies(Struct, frozen=True):
    """Means over clients other than the publisher."""

    tree: float  # from publication to the subscriber's broker
    broker_to_subscriber: float


def latencies(model: Brokers, planned: Sequence[Planned]) -> Latencies:
    """All clients publish through their broker, which asks the root."""
    tree, last, count = 0.0, 0.0, 0
    for broker, order, times, departures in _play(model, planned):
        clients = range(model.brokers + broker, model.brokers + model.clients, model.brokers)
        for row, at_broker, departure in zip(order, times, departures, strict=True):
            for place, client in enumerate(clients, 1):
                if client != planned[row].source:
                    tree += at_broker - planned[row].at
                    last += departure + place * model.delays.transmission + model.delays.after_departure - at_broker
                    count += 1
    return Latencies(tree / count, last / count)


def _play(model: Brokers, planned: Sequence[Planned]) -> list[tuple[int, list[int], list[float], list[float]]]:
    """By broker: publications in the order of the root, when they come, and when the first client's copy begins."""
    transmission, after, hop = model.delays.transmission, model.delays.after_departure, model.delays.hop
    fans = fans_of(model.brokers, range(model.brokers), through_all=True)
    arrivals = sorted(
        (publication.at + hop * (1 + (model.broker_of(publication.source) != model.root)), row)
        for row, publication in enumerate(planned)
    )
    order = [row for _, row in arrivals]
    found = []
    waiting = [(model.root, (model.brokers - 1).bit_length(), [time for time, _ in arrivals])]
    while waiting:
        broker, height, times = waiting.pop()
        fan = fans[broker][height]
        clients = len(range(broker, model.clients, model.brokers))
        one_queue = model.queues == TREE_AND_CLIENTS
        begins, departures = [], []
        tree_until = clients_until = 0.0
        for time in times:
            begin = max(time, tree_until)
            begins.append(begin)
            tree_until = begin + len(fan) * transmission
            departure = tree_until if one_queue else max(time, clients_until)
            departures.append(departure)
            clients_until = departure + clients * transmission
            if one_queue:
                tree_until = clients_until
        found.append((broker, order, times, departures))
        for place, (child, child_kind) in enumerate(fan, 1):
            waiting.append((child, child_kind - 1, [begin + place * transmission + after for begin in begins]))
    return found


SRPT_B = "SRPT-B"
MESSAGES = 128


def draw_messages(random: Random, sources: list[int], interval: float) -> list[Planned]:
    """128 messages, one after `interval` on the average, each from anybody.

    The paper says that publishers send "every 500 u.t. on average, up to 128 messages". If that were each publisher's
    own pace, stop-and-wait could not follow: with 4,096 nodes a message is acknowledged by all after 2,450.
    """
    planned: list[Planned] = []
    now = 0.0
    while len(planned) < MESSAGES:
        now += random.expovariate(1.0 / interval)
        planned.append(Planned(on_tick(now), random.choice(sources)))
    return planned


def run_brokers(parameters: Parameters, seed: int) -> Measures:
    """`system` is VCube-PS, SRPT, or SRPT-B and its number of brokers; `queues` is of broker_model.py."""
    system, size = str(parameters["system"]), int(parameters["size"])
    interval = float(parameters["interval"])
    random = Random(f"001 brokers {seed} {interval}")
    if system in (VCUBE, SRPT):
        everybody = list(range(size))
        planned = draw_messages(random, everybody, interval)
        roots = [random.randrange(size)] if system == SRPT else None
        outcome = run(Model(size=size, members=everybody, roots=roots), planned)
        latency = outcome.mean_latency(planned, everybody)
        return {"latency": latency, "tree": latency, "broker_to_subscriber": 0.0}
    brokers = int(system.removeprefix(SRPT_B))
    queues = str(parameters.get("queues", TREE_AND_CLIENTS))
    model = Brokers(brokers=brokers, clients=size - brokers, root=random.randrange(brokers), queues=queues)
    found = latencies(model, draw_messages(random, list(range(brokers, size)), interval))
    return {
        "latency": found.tree + found.broker_to_subscriber,
        "tree": found.tree,
        "broker_to_subscriber": found.broker_to_subscriber,
    }
