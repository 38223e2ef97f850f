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


class _Pulls:
    """What attracts each node, and how strongly: other nodes, and machines with members."""

    def __init__(
        self, paths: Mapping[Group, Sequence[int]], members: Mapping[Group, Iterable[Address]], site: Site
    ) -> None:
        self.site = site
        self.nodes: dict[int, dict[int, float]] = {}
        self.machines: dict[int, dict[int, float]] = {}
        for group in sorted(paths):
            path, who = paths[group], sorted(members[group])
            for node in path:
                self.nodes.setdefault(node, {})
                self.machines.setdefault(node, {})
            for one, other in pairwise(path):
                for this, that in ((one, other), (other, one)):
                    self.nodes[this][that] = self.nodes[this].get(that, 0.0) + 1.0
            for end in (path[0], path[-1]) if path else ():
                towards = self.machines[end]
                for member in who:
                    machine = site.members[member]
                    towards[machine] = towards.get(machine, 0.0) + 1.0 / len(who)

    def cost(self, node: int, machine: int, found: Mapping[int, int]) -> float:
        """How far this node would be, there, from all that draws it and has a place."""
        return self._to_nodes(node, machine, found) + self._to_members(node, machine)

    def total(self, found: Mapping[int, int]) -> float:
        """The sum of all ways; what lies between two nodes is part of both their costs."""
        return sum(self._to_nodes(node, at, found) / 2 + self._to_members(node, at) for node, at in found.items())

    def greedy(self) -> dict[int, int]:
        """Node by node, where it is best for those that have a place; the nodes that most members use first."""
        free = set(self.site.machines)
        found: dict[int, int] = {}
        for node in sorted(self.nodes, key=lambda each: (-len(self.machines[each]), each)):
            best = min(free, key=lambda machine: (self.cost(node, machine, found), machine))
            free.discard(best)
            found[node] = best
        return found

    def gathered(self) -> dict[int, int]:
        """All nodes around one machine, the best one: right where messages go to and fro between nodes.

        Nodes that move one at a time never come together from a layout that is spread widely, so this is a start of
        its own.
        """
        distance, machines = self.site.distance, self.site.machines
        by_weight = sorted(self.nodes, key=lambda node: (-sum(self.nodes[node].values()), node))

        def around(centre: int) -> dict[int, int]:
            nearest = sorted(machines, key=lambda machine: (distance(centre, machine), machine))
            return dict(zip(by_weight, nearest, strict=False))

        return min(map(around, machines), key=self.total)

    def improve(self, found: dict[int, int]) -> dict[int, int]:
        """Move nodes, one after the other, to the free machine that is best, as long as any of them gains by it."""
        free = set(self.site.machines) - set(found.values())
        for _ in range(ROUNDS_MAX):
            moved = False
            for node in sorted(self.nodes):
                here = found[node]
                best = min(free, key=lambda machine: (self.cost(node, machine, found), machine), default=here)
                if self.cost(node, best, found) < self.cost(node, here, found):
                    free.discard(best)
                    free.add(here)
                    found[node] = best
                    moved = True
            if not moved:
                break
        return found

    def _to_nodes(self, node: int, machine: int, found: Mapping[int, int]) -> float:
        distance = self.site.distance
        return sum(
            weight * distance(machine, found[other]) for other, weight in self.nodes[node].items() if other in found
        )

    def _to_members(self, node: int, machine: int) -> float:
        distance = self.site.distance
        return sum(weight * distance(machine, at) for at, weight in self.machines[node].items())


def place_by_distances(
    paths: Mapping[Group, Sequence[int]], members: Mapping[Group, Iterable[Address]], site: Site
) -> dict[int, int]:
    """Ours: the machine of each node, so that ways from senders through the nodes to the members are short.

    Every node is pulled to its neighbours on each path, and at the ends of a path to the group's members, who send
    and receive. Begins in two ways, where the members of the groups are and all in one place; moves nodes as long as
    the sum of all ways gets smaller, so it ends; and takes the better of the two.
    """
    pulls = _Pulls(paths, members, site)
    _some(list(site.machines), len(pulls.nodes))
    return min((pulls.improve(start) for start in (pulls.greedy(), pulls.gathered())), key=pulls.total)


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
