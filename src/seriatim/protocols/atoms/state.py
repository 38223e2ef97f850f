"""All state of the machines, as plain data: what a journal rebuilds, and what the explorer freezes and thaws."""

from msgspec import Struct, field

from seriatim.model import Address, Node, Number, Topic
from seriatim.protocols.atoms.changing import Decay, Growth
from seriatim.protocols.atoms.graph import SequencingGraph
from seriatim.protocols.atoms.messages import Accepted, Carry, Change, Item, Passing, Token
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, Pair
from seriatim.protocols.queue import Queue


class Gate(Struct, array_like=True):
    """Messages that came on a new path while the old one is not empty."""

    token: Token
    held: list[Passing] = field(default_factory=list)


class HostedAtom(Struct, array_like=True):
    """One atom where it lives. `next` is its whole forwarding table: it is the same for all groups."""

    pair: Pair
    next: AtomId | None
    next_host: Node
    idle: bool = False
    count: Number = 0
    ends: dict[Group, Members] = field(default_factory=dict)  # groups that leave here
    previous: dict[Group, str] = field(default_factory=dict)  # the reverse path: where each group comes from
    gates: dict[str, Gate] = field(default_factory=dict)
    drained: set[Token] = field(default_factory=set)  # the old way was empty before the new one began


class HostState(Struct, array_like=True):
    """One atom host."""

    atoms: dict[AtomId, HostedAtom] = field(default_factory=dict)
    strays: list[Carry] = field(default_factory=list)


class Inlet(Struct, array_like=True):
    """One group where it enters. Without an entry the ingress hands its messages to the members itself."""

    members: Members
    entry: AtomId | None = None
    entry_host: Node = ""
    issued: Number = 0
    closed: bool = False


class IngressState(Struct, array_like=True):
    """One ingress: the topics it numbers, and their groups, also those that are closed."""

    topics: dict[Topic, Group] = field(default_factory=dict)
    inlets: dict[Group, Inlet] = field(default_factory=dict)
    answers: dict[str, tuple[int, Accepted]] = field(default_factory=dict)  # each publisher's last request


class HeldItem(Struct, array_like=True):
    """A message that waits for one thing at a time: a number of a group or of an atom. The rest is still to be looked
    at."""

    item: Item
    waits_for: tuple[str, Number] | None = None


class ReceiverState(Struct, array_like=True):
    """One receiver. `done` counts notified events, by group and by atom; only atoms that matter to the receiver are in
    it."""

    done: dict[str, Number] = field(default_factory=dict)
    held: dict[Group, dict[Number, HeldItem]] = field(default_factory=dict)


class Work(Struct, array_like=True):
    """The current work of the coordinator: a change, or the removal of what a closed group left behind."""

    change: Change | None
    group: Group
    stage: int = -1
    growth: Growth | None = None
    decay: Decay | None = None
    hosts: dict[AtomId, Node] = field(default_factory=dict)
    waits_for: set[Token] = field(default_factory=set)


class CoordinatorState(Struct, array_like=True):
    """The membership matrix, the graph, and the changes under way."""

    graph: SequencingGraph
    incarnations: dict[Topic, int] = field(default_factory=dict)
    current: dict[Topic, Group] = field(default_factory=dict)  # the open group of each topic
    unfinished: dict[Group, set[Address]] = field(default_factory=dict)  # who has not said it saw a closed group's end
    last_marks: dict[Group, Token] = field(default_factory=dict)  # the mark that is now the end of a closed group
    unstarted: dict[Group, set[Address]] = field(default_factory=dict)  # who has not said it saw a group's beginning
    ended: set[Group] = field(default_factory=set)  # finished, but a neighbour has not started everywhere
    forgotten: set[Address] = field(default_factory=set)
    queue: Queue[Change | Group] = field(default_factory=Queue)  # changes, and closed groups to be removed
    work: Work | None = None
    tokens: int = 0
