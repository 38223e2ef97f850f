"""What the machines of sequencing atoms are given to be played on a topology."""

from collections.abc import Iterable

from seriatim.lab.experiments.paper004.atom_layouts import AtomLayout
from seriatim.model import Address, Node, Topic
from seriatim.protocols.atoms import Plan


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
