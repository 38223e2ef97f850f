"""SRPT-B beside SRPT-S and VCube-PS (paper 001 §4.6): trees of few brokers, each with many subscribers.

All three are computed by models; BrokerWorld plays SRPT-B with its own machines, and tests compare the two.
"""

from random import Random

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.broker_model import TREE_AND_CLIENTS, Brokers, Latencies, latencies
from seriatim.lab.experiments.paper001.static_trees import SRPT, VCUBE
from seriatim.lab.experiments.paper001.tree_model import Model, Planned, on_tick, run
from seriatim.lab.experiments.paper001.tree_worlds import THE_PAPERS, TreeWorld, is_srpt_pub
from seriatim.lab.papers.srpt import Broker, Client, Overlay
from seriatim.lab.papers.srpt import messages as srpt
from seriatim.lab.papers.srpt.broker import Audience, Holding
from seriatim.lab.sim.process import Observe
from seriatim.model import Address, Event
from seriatim.protocols.machine import Payload

TOPIC = "T"
SRPT_B = "SRPT-B"
MESSAGES = 128


class BrokerWorld(TreeWorld):
    """Brokers 0 … brokers - 1, and clients from there on, dealt out to the brokers in turn; all of them subscribe."""

    def __init__(self, brokers: int, clients: int, root: int) -> None:
        self.brokers = brokers
        self.overlay = Overlay(range(brokers), {TOPIC: root}, prefix="broker")
        super().__init__(THE_PAPERS, self._address)
        audiences = {id: Audience() for id in range(brokers)}
        for id in range(brokers, brokers + clients):
            broker = self.broker_of(id)
            client = Client(self.overlay.address(broker))
            client.holdings[TOPIC] = Holding(1, 0)
            audiences[broker].members[self._address(id)] = 1
            self.add(id, client, is_srpt_pub, self._observer(id))
        machines = {id: Broker(self.overlay, id) for id in range(brokers)}
        for id, machine in machines.items():
            machine.audiences[TOPIC] = audiences[id]
            branch = machine.branch(TOPIC)
            branch.subscribed = branch.attached = True
            parent = self.overlay.parent(TOPIC, id)
            if parent is not None:
                machines[parent].branch(TOPIC).children[self.overlay.address(id)] = 1
        for id, machine in machines.items():
            machine.sort_children(machine.branch(TOPIC))
            self.add(id, machine, is_srpt_pub, self._observer(id))

    def broker_of(self, client: int) -> int:
        return (client - self.brokers) % self.brokers

    def publication(self, event: Event) -> Payload:
        return srpt.Publish(event)

    def latencies(self) -> Latencies:
        """Of what has been played."""
        tree, last, count = 0.0, 0.0, 0
        for seen in self.seen.values():
            for id, time in seen.received.items():
                if id >= self.brokers and id != seen.source:
                    at_broker = seen.received[self.broker_of(id)]
                    tree += at_broker - seen.at
                    last += time - at_broker
                    count += 1
        return Latencies(tree / count, last / count)

    def _address(self, id: int) -> Address:
        return self.overlay.address(id) if id < self.brokers else f"client{id}"

    def _observer(self, id: int) -> Observe:
        is_root = id == self.overlay.root(TOPIC)

        def observe(source: Address, message: Payload, now: float) -> None:
            if type(message) is srpt.Pub or (is_root and type(message) is srpt.Request):
                self.on_received(id, message.event.id, now)

        return observe


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
