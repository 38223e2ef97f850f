"""The plan that every machine of a system gets when the system begins: the graph, and the role of each machine."""

from collections.abc import Iterable, Mapping
from zlib import crc32

from msgspec import Struct

from seriatim.model import Address, InputError, Node, Topic
from seriatim.protocols.atoms.building import build
from seriatim.protocols.atoms.graph import GraphError, SequencingGraph, check
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, group_of

COORDINATOR: Address = "coordinator"


class Plan(Struct, frozen=True):
    """Where a system begins. Groups that come later are entered and hosted by the same machines."""

    graph: SequencingGraph
    hosts: tuple[Node, ...]
    ingresses: tuple[Address, ...]

    def __post_init__(self) -> None:
        for name, machines in (("hosts", self.hosts), ("ingresses", self.ingresses)):
            if not machines:
                raise InputError(name, "nothing was given", "give at least one")
        for name, atom in self.graph.atoms.items():
            if atom.host not in self.hosts:
                raise GraphError(
                    f"atom {name!r}", f"its host {atom.host!r} is not in the plan", "place it on one that is"
                )

    def ingress_of(self, topic: Topic) -> Address:
        """Where events of a topic enter, in all its incarnations."""
        return self.ingresses[crc32(topic.encode()) % len(self.ingresses)]

    def host_of(self, atom: AtomId | None) -> Node:
        return "" if atom is None else self.graph.atoms[atom].host


def plan_of(
    memberships: Mapping[Topic, Iterable[Address]],
    hosts: Iterable[Node],
    ingresses: Iterable[Address],
    threshold: int = 2,
    placement: Mapping[AtomId, Node] | None = None,
) -> Plan:
    """A plan for topics with these members. Without a placement, atoms are spread over the hosts."""
    groups: dict[Group, Members] = {group_of(topic, 1): frozenset(each) for topic, each in memberships.items()}
    graph = build(groups, threshold)
    names = tuple(hosts)
    for name, atom in graph.atoms.items():
        atom.host = placement[name] if placement is not None else spread(name, names)
    check(graph, threshold)
    return Plan(graph, names, tuple(ingresses))


def spread(atom: AtomId, hosts: tuple[Node, ...]) -> Node:
    """A host by chance, the same one every time."""
    return hosts[crc32(atom.encode()) % len(hosts)]
