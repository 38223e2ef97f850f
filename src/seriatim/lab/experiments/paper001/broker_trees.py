"""SRPT-B beside SRPT-S and VCube-PS (paper 001 §4.6): trees of few brokers, each with many subscribers.

All three are computed by models; tests compare them with SRPT-B's own machines.
"""

from random import Random

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.broker_model import TREE_AND_CLIENTS, Brokers, latencies
from seriatim.lab.experiments.paper001.static_trees import SRPT, VCUBE
from seriatim.lab.experiments.paper001.tree_model import Model, Planned, on_tick, run

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
