"""Sequencing atoms on a topology: which of them share a node, and at which router each node is.

Three layouts of the same graph: everything as the paper prints it (section 3.4), its nodes put where our placement
wants them, and nodes and places both ours. The graph itself is always ours: the paper prints no way to build one.

A group without any overlap has an *ingress-only* node, as in the paper; it is placed as all nodes are.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from msgspec import Struct

from seriatim.lab.experiments.paper004.memberships import Memberships
from seriatim.lab.experiments.paper004.transit_stub import Router, Topology
from seriatim.model import Address, Node, Topic
from seriatim.protocols.atoms import Plan
from seriatim.protocols.atoms.building import build
from seriatim.protocols.atoms.colocation import colocate_along_paths, colocate_by_overlaps, loads
from seriatim.protocols.atoms.graph import SequencingGraph, check
from seriatim.protocols.atoms.overlaps import AtomId, group_of
from seriatim.protocols.atoms.placement import Site, node_paths, place_by_distances, place_by_neighbours

PRINTED, PLACED, OURS = "printed", "our places", "our nodes and places"
LAYOUTS = (PRINTED, PLACED, OURS)

EVERY_ROUTER, HOST_ROUTERS = "every router", "routers of hosts"
MACHINES = (EVERY_ROUTER, HOST_ROUTERS)


class AtomLayout(Struct, frozen=True):
    """The places of nodes and hosts. Nodes are numbers; a machine is a router."""

    topology: Topology
    hosts: Mapping[Address, Router]
    members: Memberships
    graph: SequencingGraph
    nodes: Mapping[AtomId, int]
    paths: Mapping[Topic, Sequence[int]]  # the nodes that each topic's messages pass, its ingress being at the first
    places: Mapping[int, Router]

    def way(self, sender: Address, topic: Topic, receiver: Address) -> list[Router]:
        """The routers that a message visits: the computed model of what the machines do."""
        return [self.hosts[sender], *(self.places[node] for node in self.paths[topic]), self.hosts[receiver]]


def graph_of(members: Memberships) -> SequencingGraph:
    graph = build({group_of(topic, 1): each for topic, each in members.items()})
    check(graph)
    return graph


def printed_nodes(graph: SequencingGraph, seed: int) -> dict[AtomId, int]:
    """Co-location as printed."""
    return colocate_by_overlaps(graph, Random(f"co-location {seed}"))


def pieces(graph: SequencingGraph, seed: int) -> dict[AtomId, int]:
    """Our co-location, that loads no node more than the printed one's busiest is."""
    rates = dict.fromkeys(graph.groups, 1.0)
    return colocate_along_paths(
        graph, max(loads(graph, printed_nodes(graph, seed), rates).values(), default=1.0), rates
    )


def lay_out(
    topology: Topology,
    hosts: Mapping[Address, Router],
    members: Memberships,
    layout: str,
    seed: int,
    machines: str = EVERY_ROUTER,
) -> AtomLayout:
    """One layout of the atoms that these members need. The printed placement may use every router, ours few of them."""
    graph = graph_of(members)
    nodes = (pieces if layout == OURS else printed_nodes)(graph, seed)
    by_group = node_paths(graph, nodes)
    count = len(set(nodes.values()))
    paths: dict[Topic, Sequence[int]] = {}
    for index, topic in enumerate(members):
        paths[topic] = by_group[group_of(topic, 1)] or [count + index]
    if layout == PRINTED:
        anywhere = range(topology.shape.routers) if machines == EVERY_ROUTER else sorted(set(hosts.values()))
        places = place_by_neighbours(paths, Site(anywhere, hosts, topology.delay), Random(f"placement {seed}"))
    else:
        near = good_places(topology, hosts) if machines == EVERY_ROUTER else sorted(set(hosts.values()))
        places = place_by_distances(paths, members, table_site(topology, hosts, near))
    return AtomLayout(topology, hosts, members, graph, nodes, paths, places)


def good_places(topology: Topology, hosts: Mapping[Address, Router]) -> list[Router]:
    """The routers that our placement looks at: those of hosts, all of transit domains, and the stubs in the middle."""
    transit = range(topology.shape.transit_count)
    middle = min(transit, key=lambda router: sum(topology.delay(router, at) for at in hosts.values()))
    stubs = [router for stub in topology.stubs if topology.transit_of(stub[0]) == middle for router in stub]
    return sorted({*hosts.values(), *transit, *stubs})


def table_site(topology: Topology, hosts: Mapping[Address, Router], machines: Sequence[Router]) -> Site:
    """A site of few machines, all delays between which are looked up once."""
    table = {one: {other: topology.delay(one, other) for other in machines} for one in machines}
    return Site(machines, hosts, lambda one, other: table[one][other])


class PlacedPlan(Plan, frozen=True):
    """A plan in which every topic enters where its path begins."""

    entries: dict[Topic, Address]

    def ingress_of(self, topic: Topic) -> Address:
        return self.entries[topic]


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
