"""Sequencing atoms on a topology, played by their own machines in the simulator."""

from collections.abc import Iterable

from msgspec import Struct

from seriatim.experiments.atom_layouts import AtomLayout
from seriatim.experiments.transit_stub import Router
from seriatim.model import Address, Event, Node, Notification, Topic
from seriatim.protocols.atoms import AtomHost, AtomsOptions, Ingress, Plan, Receiver
from seriatim.protocols.atoms.messages import Publish
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.sim import Simulator
from seriatim.sim.delays import Constant
from seriatim.sim.network import Link
from seriatim.sim.process import Restore

STEPS_MAX = 100_000_000


class PlacedPlan(Plan, frozen=True):
    """A plan in which every topic enters where its path begins."""

    entries: dict[Topic, Address]

    def ingress_of(self, topic: Topic) -> Address:
        return self.entries[topic]


class Sender:
    """A host that publishes: its command goes to the ingress as it is."""

    def __init__(self, plan: PlacedPlan) -> None:
        self._plan = plan

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        effects.send.append((self._plan.ingress_of(message.event.topic), message))
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class Delivery(Struct, frozen=True):
    """One message at one receiver, and how long it took."""

    topic: Topic
    sender: Address
    receiver: Address
    taken_ms: float


class AtomWorld:
    """Every host sends and receives; every sequencing node is a host of atoms, and an ingress where paths begin.

    Delays are those of the topology. As in the paper there is neither loss nor queueing, so links need no frames.
    """

    def __init__(self, layout: AtomLayout) -> None:
        self.layout = layout
        self.deliveries: list[Delivery] = []
        self.at: dict[Address, Router] = {}
        self.plan = placed_plan(layout)
        self.simulator = Simulator(0, self._link, self._notified)
        self._sent: tuple[Address, float] = "", 0.0
        options = AtomsOptions()
        for name in self.plan.hosts:
            self._add(name, self._place(name), AtomHost(self.plan, name, options))
        for name in self.plan.ingresses:
            self._add(name, self._place(name), Ingress(self.plan, name, options))
        for name, router in layout.hosts.items():
            self._add(name, router, Receiver(self.plan, name, options))
            self._add(_sender(name), router, Sender(self.plan))

    def send_to_each_group(self) -> None:
        """Every host sends one message to each of its groups, when the one before it is all over."""
        for topic, members in self.layout.members.items():
            for member in members:
                self.send(member, topic)

    def send(self, sender: Address, topic: Topic) -> None:
        self._sent = sender, self.simulator.now
        event = Event(f"{sender} {topic} {self.simulator.now}", topic, sender)
        self.simulator.command(_sender(sender), Publish(event))
        if not self.simulator.run(steps_max=STEPS_MAX):
            raise AssertionError(f"still busy after {STEPS_MAX} steps")

    def _add(self, name: Address, router: Router, machine: Machine) -> None:
        self.at[name] = router
        self.simulator.add(name, _always(machine))

    def _place(self, name: Node) -> Router:
        return self.layout.places[int(name.partition(" ")[2])]

    def _link(self, source: Address, target: Address) -> Link:
        return Link(Constant(self.layout.topology.delay(self.at[source], self.at[target])))

    def _notified(self, address: Address, payload: Payload, now: float) -> None:
        if type(payload) is Notification:
            sender, at = self._sent
            self.deliveries.append(Delivery(payload.event.topic, sender, address, now - at))


def placed_plan(layout: AtomLayout) -> PlacedPlan:
    """What the machines are given: atoms on their nodes, and an ingress beside the first node of each path."""
    for name, atom in layout.graph.atoms.items():
        atom.host = f"node {layout.nodes[name]}"
    hosts = _names("node", layout.nodes.values()) or _names("node", [min(layout.places)])
    firsts = {topic: path[0] for topic, path in layout.paths.items()}
    entries = {topic: f"ingress {node}" for topic, node in firsts.items()}
    return PlacedPlan(layout.graph, hosts, _names("ingress", firsts.values()), entries)


def _names(kind: str, nodes: Iterable[int]) -> tuple[Node, ...]:
    return tuple(f"{kind} {node}" for node in sorted(set(nodes)))


def _sender(host: Address) -> Address:
    return f"{host} sends"


def _always(machine: Machine) -> Restore:
    return lambda records, epoch: machine
