"""VCube-PS and SRPT-S under the papers' delay model, played by their own machines in the simulator.

Worlds begin with machines as they are when everybody has joined. The protocols could join by themselves, but 4,096
peers that join one after the other send 67 million messages before the first measurement. Tests show that machines that
did join end up in the state that is built here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from seriatim.lab.papers.paper001 import messages as printed
from seriatim.lab.papers.srpt import Overlay, SrptNode
from seriatim.lab.papers.srpt import messages as srpt
from seriatim.lab.sim import PacketDelays, Simulator
from seriatim.lab.sim.process import Waits, always
from seriatim.model import Address, Event, Notification, Topic
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.cube import Id
from seriatim.protocols.vcube.messages import Cast, EventReceived, Packet, Pub, Publish

THE_PAPERS = PacketDelays()
STOP_AND_WAIT = VCubeOptions(window=1, pruning="direct")  # as printed: one publication under way, direct dependencies


class Seen(Struct):
    """The observations of one event. Times are those of the simulator."""

    source: int
    at: float
    received: dict[int, float] = field(default_factory=dict)
    notified: dict[int, float] = field(default_factory=dict)
    barrier: int = 0  # entries


class TreeWorld:
    """Machines with one output queue each, and a record of when every event came where."""

    def __init__(self, delays: PacketDelays, name: Callable[[int], Address]) -> None:
        self.delays = delays
        self.simulator = Simulator(0, delays.link(), self._on_notified)
        self.seen: dict[str, Seen] = {}
        self.completed: dict[str, float] = {}
        self.address = name
        self._ids: dict[Address, int] = {}

    def add(self, id: int, machine: Machine, waits: Waits | None) -> None:
        address = self.address(id)
        self._ids[address] = id
        self.simulator.add(address, always(machine), self.delays.cost(waits), partial(self.on_message, id))

    def publish(self, id: int, event_id: str, topic: str, at: float) -> None:
        """Publish at a point of time. Calls for the same time are carried out in their order."""
        event = Event(event_id, topic, self.address(id))
        self.seen[event_id] = Seen(id, at)
        self.simulator.at(at, lambda: self.simulator.command(self.address(id), Publish(event)))

    def run(self) -> None:
        self.simulator.run_to_end()

    def on_message(self, id: int, source: Address, message: Payload, now: float) -> None:
        """A machine is about to get a message."""
        body = message.body if type(message) is Packet else message
        content = body.content if type(body) is Cast else body
        if isinstance(content, Pub | printed.Pub | srpt.Pub):
            self.on_received(id, content.event.id, source, now)

    def on_received(self, id: int, event_id: str, source: Address, now: float) -> None:
        self.seen[event_id].received.setdefault(id, now)

    def on_notification(self, id: int, payload: Payload, now: float) -> None:
        """Anything a machine tells its application."""
        if type(payload) is Notification:
            seen = self.seen[payload.event.id]
            seen.notified[id] = now
            if id == seen.source:
                seen.barrier = len(payload.entries)
        elif type(payload) is EventReceived:
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
        for id, peer in settled_peers(range(size), {topic: joined for topic in topics}, options).items():
            self.add(id, peer, None if acks_wait else is_cast)


def is_cast(message: Payload) -> bool:
    return type(message) is Packet and type(message.body) is Cast


def is_srpt_pub(message: Payload) -> bool:
    return type(message) is srpt.Pub


def settled_peers(ids: Iterable[Id], members: Mapping[Topic, Sequence[Id]], options: VCubeOptions) -> dict[Id, Peer]:
    """Peers of VCube-PS of which these are members."""
    cube = Cube(ids)
    return {id: Peer.founder(cube, id, options, members) for id in cube.ids}


def settled_nodes(overlay: Overlay, members: Mapping[Topic, Sequence[Id]]) -> dict[Id, SrptNode]:
    """Nodes of SRPT-S, attached where somebody on their branch subscribes."""
    nodes = {id: SrptNode(overlay, id) for id in overlay.ids}
    for topic, joined in members.items():
        for id in sorted(joined):
            nodes[id].branch(topic).subscribed = True
            child, parent = id, overlay.parent(topic, id)
            while parent is not None:
                nodes[child].branch(topic).attached = True
                branch = nodes[parent].branch(topic)
                if overlay.address(child) in branch.children:
                    break
                branch.children[overlay.address(child)] = 1
                child, parent = parent, overlay.parent(topic, parent)
        for node in nodes.values():
            node.sort_children(node.branch(topic))
    return nodes
