"""On which machine each sequencing node lives: the paper's heuristic, and one of our own that looks at all
distances."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from seriatim.model import Address, InputError
from seriatim.protocols.atoms.colocation import Chance
from seriatim.protocols.atoms.graph import SequencingGraph
from seriatim.protocols.atoms.overlaps import AtomId, Group

Distance = Callable[[int, int], float]

ROUNDS_MAX = 20


class Site(Struct, frozen=True):
    """Where nodes may live and where members are: machines are numbers, and some have a distance."""

    machines: Sequence[int]
    members: Mapping[Address, int]  # the machine each member is at
    distance: Distance


def node_paths(graph: SequencingGraph, nodes: Mapping[AtomId, int]) -> dict[Group, list[int]]:
    """The sequencing nodes that each group passes, in order; consecutive atoms of a node count once."""
    found: dict[Group, list[int]] = {}
    for group in graph.groups:
        path: list[int] = []
        for name in graph.path(group):
            if not path or path[-1] != nodes[name]:
                path.append(nodes[name])
        found[group] = path
    return found


def place_by_neighbours(paths: Mapping[Group, Sequence[int]], site: Site, chance: Chance) -> dict[int, int]:
    """Paper 004, section 3.4, as printed: the machine of each node.

    Group by group: if none of its nodes has a machine, one gets any. Then, as long as one has none, the unassigned
    node that is nearest on the path to an assigned one gets the free machine that is nearest to that one's.
    """
    free = list(site.machines)
    found: dict[int, int] = {}
    for group in sorted(paths):
        path = list(dict.fromkeys(paths[group]))
        if path and not any(node in found for node in path):
            machine = chance.choice(_some(free))
            free.remove(machine)
            found[chance.choice(path)] = machine
        while any(node not in found for node in path):
            places = [place for place, node in enumerate(path) if node in found]
            _, place, anchor = min(
                (abs(place - anchor), place, anchor)
                for place, node in enumerate(path)
                if node not in found
                for anchor in places
            )
            beside = found[path[anchor]]
            machine = min(_some(free), key=lambda each: (site.distance(beside, each), each))
            free.remove(machine)
            found[path[place]] = machine
    return found


def place_by_distances(
    paths: Mapping[Group, Sequence[int]], members: Mapping[Group, Iterable[Address]], site: Site
) -> dict[int, int]:
    """Ours: the machine of each node, so that ways from senders through the nodes to the members are short.

    Every node is pulled to its neighbours on each path, and at the ends of a path to the group's members, who send
    and receive. Nodes are moved, one after the other, to the free machine that is best as long as any of them gains
    by it. Begins where the members of the groups are; every move makes the sum smaller, so it ends.
    """
    pulls: dict[int, list[tuple[int, float]]] = {}  # towards other nodes
    anchors: dict[int, dict[int, float]] = {}  # towards machines
    for group in sorted(paths):
        path, who = paths[group], sorted(members[group])
        if not path:
            continue
        for one, other in pairwise(path):
            pulls.setdefault(one, []).append((other, 1.0))
            pulls.setdefault(other, []).append((one, 1.0))
        for end in (path[0], path[-1]):
            towards = anchors.setdefault(end, {})
            for member in who:
                machine = site.members[member]
                towards[machine] = towards.get(machine, 0.0) + 1.0 / len(who)
    nodes = sorted({node for path in paths.values() for node in path})
    _some(list(site.machines), len(nodes))

    def cost(node: int, machine: int, found: Mapping[int, int]) -> float:
        near = sum(
            weight * site.distance(machine, found[other]) for other, weight in pulls.get(node, ()) if other in found
        )
        return near + sum(weight * site.distance(machine, at) for at, weight in anchors.get(node, {}).items())

    free = set(site.machines)
    found: dict[int, int] = {}
    for node in sorted(nodes, key=lambda each: (-len(anchors.get(each, ())), each)):
        best = min(free, key=lambda machine: (cost(node, machine, found), machine))
        free.discard(best)
        found[node] = best
    for _ in range(ROUNDS_MAX):
        moved = False
        for node in nodes:
            here = found[node]
            best = min(free | {here}, key=lambda machine: (cost(node, machine, found), machine != here, machine))
            if best != here:
                free.discard(best)
                free.add(here)
                found[node] = best
                moved = True
        if not moved:
            break
    return found


def latencies(
    paths: Mapping[Group, Sequence[int]],
    members: Mapping[Group, Iterable[Address]],
    machines: Mapping[int, int],
    site: Site,
) -> dict[Group, float]:
    """The mean distance that a message of each group goes from one of its members through its nodes to all of them."""
    found = {}
    for group, path in paths.items():
        at = [site.members[member] for member in sorted(members[group])]
        if not path:
            found[group] = sum(site.distance(one, other) for one in at for other in at) / len(at) ** 2
            continue
        places = [machines[node] for node in path]
        between = sum(site.distance(one, other) for one, other in pairwise(places))
        to, fro = (sum(site.distance(end, each) for each in at) / len(at) for end in (places[0], places[-1]))
        found[group] = to + between + fro
    return found


def _some(free: list[int], needed: int = 1) -> list[int]:
    if len(free) < needed:
        raise InputError("machines", f"{len(free)} are free, {needed} are needed", "give more, or co-locate more atoms")
    return free
