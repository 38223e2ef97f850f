"""How many sequencing nodes there are, how many groups pass each, and how long paths are: paper 004, §4.3 to §4.5."""

from collections.abc import Sequence
from random import Random
from statistics import fmean

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper004.atom_latency import HOSTS, part_of
from seriatim.lab.experiments.paper004.atom_layouts import OURS, graph_of, pieces, printed_nodes
from seriatim.lab.experiments.paper004.memberships import MEAN_SHARE, occupancy_memberships, zipf_memberships
from seriatim.protocols.atoms.colocation import Choice, colocate_by_overlaps, overlaps_of
from seriatim.protocols.atoms.graph import SequencingGraph
from seriatim.protocols.atoms.overlaps import AtomId, Group

BY_CHANCE, IN_MOST = "by chance", "in most overlaps"
DENSE_GROUPS = 32


class MostOverlaps:
    """Instead of a random member, chooses the member of an overlap that is in most overlaps."""

    def __init__(self, graph: SequencingGraph) -> None:
        self._counts: dict[object, int] = {}
        for members in overlaps_of(graph).values():
            for member in members:
                self._counts[member] = self._counts.get(member, 0) + 1

    def choice(self, items: Sequence[Choice], /) -> Choice:
        return max(items, key=lambda each: self._counts[each])


def run_nodes(parameters: Parameters, seed: int) -> Measures:
    """Zipf groups: sequencing nodes, and their stress, ingress-only ones left out as in the paper.

    `stress` counts every group whose messages a node forwards; `own_stress` only those that it numbers.
    """
    groups = int(parameters["groups"])
    graph = graph_of(zipf_memberships(groups, HOSTS, seed, str(parameters.get("sizes", MEAN_SHARE))))
    nodes = pieces(graph, seed) if parameters["nodes"] == OURS else printed_nodes(graph, seed)
    passing, numbered = _groups_at(graph, nodes)
    measures = {"overlaps": float(len(graph.atoms)), "node_count": float(len(passing))}
    if passing:
        stress = [len(each) / groups for each in passing.values()]
        measures |= {
            "stress": fmean(stress),
            "stress_90": part_of(stress, 0.9),
            "stress_max": max(stress),
            "own_stress": fmean(len(each) / groups for each in numbered.values()),
        }
    owned, lengths = graph.owned(), graph.lengths()
    numbers = [len(owned[group]) / HOSTS for group in graph.groups]
    passed = [lengths[group] / HOSTS for group in graph.groups]
    measures |= {
        "numbers_median": part_of(numbers, 0.5),
        "numbers_max": max(numbers),
        "passed_median": part_of(passed, 0.5),
        "passed_max": max(passed),
    }
    return measures


def run_occupancy(parameters: Parameters, seed: int) -> Measures:
    """Any host in any group with the same probability: double overlaps and sequencing nodes."""
    graph = graph_of(occupancy_memberships(DENSE_GROUPS, HOSTS, float(parameters["occupancy"]), seed))
    chance = MostOverlaps(graph) if parameters["member"] == IN_MOST else Random(f"co-location {seed}")
    nodes = colocate_by_overlaps(graph, chance)
    return {"overlaps": float(len(graph.atoms)), "node_count": float(len(set(nodes.values())))}


def _groups_at(graph: SequencingGraph, nodes: dict[AtomId, int]) -> tuple[dict[int, set[Group]], dict[int, set[Group]]]:
    """The groups that pass each node, and those that it numbers."""
    passing: dict[int, set[Group]] = {}
    numbered: dict[int, set[Group]] = {}
    for group in graph.groups:
        for name in graph.path(group):
            passing.setdefault(nodes[name], set()).add(group)
            if group in graph.atoms[name].pair:
                numbered.setdefault(nodes[name], set()).add(group)
    return passing, numbered
