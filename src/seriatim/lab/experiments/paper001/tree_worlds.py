"""VCube-PS and SRPT-S under the papers' delay model, played by their own machines in the simulator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from seriatim.lab.experiments.paper001.settled import settled_nodes, settled_peers
from seriatim.lab.papers.srpt import Overlay
from seriatim.lab.papers.srpt import messages as srpt
from seriatim.lab.sim import PacketDelays, Simulator
from seriatim.lab.sim.process import Observe, Waits, always
from seriatim.model import Address, Event, Notification
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.vcube import VCubeOptions, address_of
from seriatim.protocols.vcube import messages as vcube
from seriatim.protocols.vcube.messages import Cast, Packet, Pub

THE_PAPERS = PacketDelays()
STOP_AND_WAIT = VCubeOptions(window=1, pruning="direct")  # as printed: one publication under way, direct dependencies


class Seen(Struct):
    """What was seen of one event. Times are those of the simulator."""

    source: int
    at: float
    received: dict[int, float] = field(default_factory=dict)
    notified: dict[int, float] = field(default_factory=dict)
    barrier: int = 0  # entries


class TreeWorld(ABC):
    """Machines with one output queue each, and a record of when every event came where."""

    def __init__(self, delays: PacketDelays, name: Callable[[int], Address]) -> None:
        self.delays = delays
        self.simulator = Simulator(0, delays.link(), self._on_notified)
        self.seen: dict[str, Seen] = {}
        self.completed: dict[str, float] = {}
        self.address = name
        self._ids: dict[Address, int] = {}

    def add(self, id: int, machine: Machine, waits: Waits | None, observe: Observe) -> None:
        address = self.address(id)
        self._ids[address] = id
        self.simulator.add(address, always(machine), self.delays.cost(waits), observe)

    def publish(self, id: int, event_id: str, topic: str, at: float) -> None:
        """At a point of time; in the order in which it is called, if the times are equal."""
        event = Event(event_id, topic, self.address(id))
        self.seen[event_id] = Seen(id, at)
        self.simulator.at(at, lambda: self.simulator.command(self.address(id), self.publication(event)))

    @abstractmethod
    def publication(self, event: Event) -> Payload:
        """The command that publishes it."""

    def run(self) -> None:
        self.simulator.run_to_end()

    def on_received(self, id: int, event_id: str, now: float) -> None:
        self.seen[event_id].received.setdefault(id, now)

    def on_notification(self, id: int, payload: Payload, now: float) -> None:
        """Anything a machine tells its application."""
        if type(payload) is Notification:
            seen = self.seen[payload.event.id]
            seen.notified[id] = now
            if id == seen.source:
                seen.barrier = len(payload.entries)
        elif type(payload) is vcube.EventReceived:
            self.completed[payload.event_id] = now

    def _on_notified(self, address: Address, payload: Payload, now: float) -> None:
        self.on_notification(self._ids[address], payload, now)


class VCubeWorld(TreeWorld):
    """VCube-PS, everybody a member of every topic unless `members` says otherwise."""

    def __init__(
        self,
        size: int,
        topics: Sequence[str] = ("T",),
        members: Sequence[int] | None = None,
        delays: PacketDelays = THE_PAPERS,
        acks_wait: bool = False,
        options: VCubeOptions = STOP_AND_WAIT,
    ) -> None:
        super().__init__(delays, address_of)
        joined = range(size) if members is None else members
        peers = settled_peers(range(size), {topic: joined for topic in topics}, options)
        for id, peer in peers.items():
            self.add(id, peer, None if acks_wait else is_cast, self._observer(id))

    def publication(self, event: Event) -> Payload:
        return vcube.Publish(event)

    def _observer(self, id: int) -> Observe:
        def observe(source: Address, message: Payload, now: float) -> None:
            if type(message) is Packet and type(message.body) is Cast and type(message.body.content) is Pub:
                self.on_received(id, message.body.content.event.id, now)

        return observe


def is_cast(message: Payload) -> bool:
    return type(message) is Packet and type(message.body) is Cast


def is_srpt_pub(message: Payload) -> bool:
    return type(message) is srpt.Pub


class SrptWorld(TreeWorld):
    """SRPT-S; `roots` by topic."""

    def __init__(
        self, size: int, roots: dict[str, int], members: Sequence[int] | None = None, delays: PacketDelays = THE_PAPERS
    ) -> None:
        self.overlay = Overlay(range(size), roots)
        super().__init__(delays, self.overlay.address)
        joined = range(size) if members is None else members
        for id, node in settled_nodes(self.overlay, {topic: joined for topic in roots}).items():
            self.add(id, node, is_srpt_pub, self._observer(id))

    def publication(self, event: Event) -> Payload:
        return srpt.Publish(event)

    def _observer(self, id: int) -> Observe:
        def observe(source: Address, message: Payload, now: float) -> None:
            if isinstance(message, srpt.Pub | srpt.Request):
                self.on_received(id, message.event.id, now)

        return observe
