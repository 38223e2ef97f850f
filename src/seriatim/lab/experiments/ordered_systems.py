"""The sequencing tree and the sequencing atoms as systems that can be compared: same hosts, same topology, same acts.

Both are played by their own machines without links around them: there is neither loss nor crash, so frames and
acknowledgements, which both have alike, are left out. Each has a broker in the middle of the network that hands events
to the members; atoms also come without one, as in paper 004, where the last atom's host does it.

The cost of any protocol is metered in the same way: a metered machine sends every message with the number of hops so
far. So how many messages one after the other an event needed is known where it is notified, without knowing what the
messages mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import groupby

from msgspec import Struct, field

from seriatim.lab.experiments.paper004.atom_layouts import AtomLayout, PlacedPlan, placed_plan
from seriatim.lab.experiments.paper004.transit_stub import Router, Topology
from seriatim.lab.sim import Simulator
from seriatim.lab.sim.delays import Constant
from seriatim.lab.sim.network import Link
from seriatim.lab.sim.process import always
from seriatim.model import APPLICATION, BROKER, Address, Event, Notification, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomHost, AtomsOptions, Coordinator, Ingress, Receiver
from seriatim.protocols.atoms import messages as atoms
from seriatim.protocols.machine import Effects, Machine, Payload


class Hop(Struct, frozen=True):
    """A message or a notification, and how many hops it and its causes made before it arrives."""

    hops: int
    body: Payload


class Seen(Struct):
    """One event, from its publication on."""

    sender: Address
    at: float
    notified: dict[Address, tuple[float, int]] = field(default_factory=dict)  # time and hops
    entries: dict[str, int] = field(default_factory=dict)


class Metered:
    """A machine and its meter. Nothing is persisted: nobody crashes here."""

    def __init__(self, machine: Machine, address: Address, world: "MeteredWorld") -> None:
        self.machine = machine
        self._address = address
        self._world = world

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if source == APPLICATION:
            return self._metered(self.machine.step(source, message, now), 0, now)
        assert type(message) is Hop, "machines here send each other nothing else"
        self._world.count(source, self._address)
        return self._metered(self.machine.step(source, message.body, now), message.hops, now)

    def tick(self, now: float) -> Effects:
        return self._metered(self.machine.tick(now), 0, now)

    def _metered(self, effects: Effects, hops: int, now: float) -> Effects:
        found = Effects()
        found.wake_at = effects.wake_at
        for target, message in effects.send:
            self._world.on_send(self._address, message, now)
            far = self._world.at[self._address] != self._world.at[target]
            found.send.append((target, Hop(hops + far, message)))
        found.notify = [Hop(hops, each) for each in effects.notify]
        return found


class MeteredWorld:
    """Machines on a topology, each at a router, and the observations of every event."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.at: dict[Address, Router] = {}
        self.units: dict[Address, str] = {}  # machines of one process: what they send to each other does not count
        self.handled: dict[str, int] = {}  # messages, by unit
        self.seen: dict[str, Seen] = {}
        self.orders: dict[Address, list[str]] = {}  # events by receiver, as they were notified
        self.told: Callable[[Address, Payload, float], None] = lambda address, payload, now: None
        self.sends: Callable[[Address, Payload, float], None] = lambda address, payload, now: None
        self.simulator = Simulator(0, self._link, self._notified)

    def add(self, address: Address, router: Router, machine: Machine, unit: str = "") -> None:
        self.at[address] = router
        self.units[address] = unit or address
        self.simulator.add(address, always(Metered(machine, address, self)))

    def count(self, source: Address, target: Address) -> None:
        unit = self.units[target]
        if self.units[source] != unit:
            self.handled[unit] = self.handled.get(unit, 0) + 1

    def on_send(self, source: Address, message: Payload, now: float) -> None:
        self.sends(source, message, now)

    def _link(self, source: Address, target: Address) -> Link:
        return Link(Constant(self.topology.delay(self.at[source], self.at[target])))

    def _notified(self, address: Address, told: Payload, now: float) -> None:
        assert type(told) is Hop, "Metered tells nothing else"
        if type(told.body) is Notification:
            seen = self.seen[told.body.event.id]
            seen.notified[address] = now, told.hops
            self.orders.setdefault(address, []).append(told.body.event.id)
            seen.entries = dict(told.body.entries)
        else:
            self.told(address, told.body, now)


QUIET_MS = 60_000.0  # after this everything is over


class Joining(Struct):
    """How a subscription change went."""

    host: Address
    topic: Topic
    asked_at: float
    effective_at: float | None = None
    messages: int = 0


class OrderedSystem(ABC):
    """One system. `sequencers` are the units that order; the others publish, distribute or receive."""

    def __init__(self, topology: Topology, hosts: Mapping[Address, Router]) -> None:
        self.world = MeteredWorld(topology)
        self.hosts = hosts
        self.middle = middle_of(topology, hosts)
        self.sequencers: set[str] = set()
        self.joining: Joining | None = None

    @abstractmethod
    def command(self, event: Event) -> tuple[Address, Payload]:
        """The command for an event, and the machine that gets it."""

    @abstractmethod
    def request(self, host: Address, topic: Topic) -> tuple[Address, Payload]:
        """The command to join a topic, and the machine that gets it."""

    def publish(self, sender: Address, topic: Topic, event_id: str, at: float) -> None:
        def act() -> None:
            self.world.seen[event_id] = Seen(sender, self.world.simulator.now)
            self.world.simulator.command(*self.command(Event(event_id, topic, f"{sender} sends")))

        self.world.simulator.at(at, act)

    def join(self, host: Address, topic: Topic) -> Joining:
        """Let one host join, and everything that follows from it happen."""
        simulator = self.world.simulator
        before = self.messages
        joining = self.joining = Joining(host, topic, simulator.now)
        simulator.command(*self.request(host, topic))
        self.settle()
        joining.messages = self.messages - before
        return joining

    def settle(self) -> None:
        self.world.simulator.run(until_ms=self.world.simulator.now + QUIET_MS)

    @property
    def messages(self) -> int:
        """How many messages were handled so far."""
        return sum(self.world.handled.values())

    def effective(self, host: Address, now: float) -> None:
        if self.joining is not None and self.joining.host == host and self.joining.effective_at is None:
            self.joining.effective_at = now


def middle_of(topology: Topology, hosts: Mapping[Address, Router]) -> Router:
    """The transit router that is nearest to all hosts together."""
    transit = range(topology.shape.transit_count)
    return min(transit, key=lambda router: sum(topology.delay(router, at) for at in hosts.values()))


# ── the atoms ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Relay(Struct, frozen=True):
    """Last host → broker: hand this to these members."""

    item: atoms.Item
    members: tuple[Address, ...]


class RelayBroker:
    """A broker that forwards events in order."""

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        assert type(message) is Relay, "hosts send it nothing else"
        effects.send.extend((member, message.item) for member in message.members)
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class ByBroker:
    """A host or an ingress that leaves distribution to the broker."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = self._machine.step(source, message, now)
        sends: list[tuple[Address, Payload]] = []
        for _, same in groupby(effects.send, key=lambda send: id(send[1])):
            targets = list(same)
            item = targets[0][1]
            if isinstance(item, atoms.Item):
                sends.append((BROKER, Relay(item, tuple(target for target, _ in targets))))
            else:
                sends.extend(targets)
        effects.send = sends
        return effects

    def tick(self, now: float) -> Effects:
        return self._machine.tick(now)


class Client:
    """A host's own part: publishes at the ingress, and asks the coordinator for changes."""

    def __init__(self, plan: PlacedPlan) -> None:
        self._plan = plan

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        target = self._plan.ingress_of(message.event.topic) if isinstance(message, atoms.Publish) else COORDINATOR
        effects.send.append((target, message))
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class AtomsSystem(OrderedSystem):
    """Sequencing atoms on a layout, with a coordinator in the middle."""

    def __init__(self, layout: AtomLayout, by_broker: bool) -> None:
        super().__init__(layout.topology, layout.hosts)
        plan = placed_plan(layout)
        options = AtomsOptions()
        self.members = {topic: frozenset(each) for topic, each in layout.members.items()}
        self.world.sends = self._on_sends
        if by_broker:
            self.world.add(BROKER, self.middle, RelayBroker())
        self.world.add(COORDINATOR, self.middle, Coordinator(plan, COORDINATOR, options))
        for role, names in ((AtomHost, plan.hosts), (Ingress, plan.ingresses)):
            for name in names:
                machine: Machine = role(plan, name, options)
                node = int(name.partition(" ")[2])
                unit = f"unit {node}"
                self.sequencers.add(unit)
                self.world.add(name, layout.places[node], ByBroker(machine) if by_broker else machine, unit)
        for name, router in layout.hosts.items():
            self.world.add(name, router, Receiver(plan, name, options))
            self.world.add(f"{name} sends", router, Client(plan))

    def command(self, event: Event) -> tuple[Address, Payload]:
        return event.publisher, atoms.Publish(event)

    def request(self, host: Address, topic: Topic) -> tuple[Address, Payload]:
        self.members[topic] |= {host}
        return f"{host} sends", atoms.Change(topic, self.members[topic])

    def _on_sends(self, address: Address, message: Payload, now: float) -> None:
        """A member is in when it is notified of the beginning of its new group."""
        if type(message) is atoms.Started:
            self.effective(address, now)
