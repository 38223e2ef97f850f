"""What a protocol costs, whatever the protocol is: its machines in the simulator, with a meter at each of them.

A metered machine sends every message with the number of hops behind it. So how many messages one after the other an
event needed is known where it is notified, without knowing what the messages mean.
"""

from collections.abc import Callable

from msgspec import Struct, field

from seriatim.lab.experiments.paper004.transit_stub import Router, Topology
from seriatim.lab.sim import Simulator
from seriatim.lab.sim.delays import Constant
from seriatim.lab.sim.network import Link
from seriatim.lab.sim.process import always
from seriatim.model import APPLICATION, Address, Notification
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
    """Machines on a topology, each at a router, and what was seen of every event."""

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
