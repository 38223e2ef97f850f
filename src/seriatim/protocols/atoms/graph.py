"""The sequencing graph: atoms, the edge that leaves each of them, and the part of it that each group walks.

Every atom has at most one next atom, the same for all groups, so the graph is a forest whose edges lead to the roots:
loop-free (C2), and walked in one direction. A group enters somewhere and leaves at an atom further on; its path is the
only way between the two (C1).
"""

from collections.abc import Iterable

from msgspec import Struct, field

from seriatim.model import InputError, Node
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, Pair, atom_of, coupled_pairs


class GraphError(InputError):
    """The sequencing graph cannot be used as given."""


class Atom(Struct):
    """One atom: the two groups whose messages it numbers, the atom that comes next, and the host it lives on.

    An idle atom numbers nothing any more: one of its groups is gone. It is passed until it is bypassed.
    """

    pair: Pair
    next: AtomId | None = None
    host: Node = ""
    idle: bool = False


class Route(Struct):
    """One group: who belongs to it, where its messages enter and where they leave. None: it meets no atom."""

    members: Members
    entry: AtomId | None = None
    end: AtomId | None = None
    closed: bool = False  # its last message is numbered, but perhaps not yet notified
    finished: bool = False  # … and now it is, by everybody


class SequencingGraph(Struct):
    """All atoms and all groups."""

    atoms: dict[AtomId, Atom] = field(default_factory=dict)
    groups: dict[Group, Route] = field(default_factory=dict)

    def way(self, start: AtomId | None, end: AtomId | None = None) -> list[AtomId]:
        """The atoms from `start` on, up to and including `end`, or the root."""
        found: list[AtomId] = []
        here = start
        while here is not None:
            found.append(here)
            if here == end:
                return found
            if len(found) > len(self.atoms):
                raise GraphError(f"atom {start!r}", "its path never ends", "build the graph again")
            here = self.atoms[here].next
        if end is not None:
            raise GraphError(f"atom {end!r}", f"it is not on the path from {start!r}", "build the graph again")
        return found

    def path(self, group: Group) -> list[AtomId]:
        """The atoms that the group's messages pass, in order."""
        route = self.groups[group]
        return self.way(route.entry, route.end) if route.entry is not None else []

    def owned(self) -> dict[Group, list[AtomId]]:
        """The atoms that number each group's messages."""
        found: dict[Group, list[AtomId]] = {group: [] for group in self.groups}
        for name, atom in self.atoms.items():
            for group in () if atom.idle else atom.pair:
                found[group].append(name)
        return found

    def children(self) -> dict[AtomId, list[AtomId]]:
        """The atoms that lead to each atom."""
        found: dict[AtomId, list[AtomId]] = {name: [] for name in self.atoms}
        for name, atom in self.atoms.items():
            if atom.next is not None:
                found[atom.next].append(name)
        return found

    def depths(self) -> dict[AtomId, int]:
        """How far each atom is from its root."""
        depths: dict[AtomId, int] = {}
        for name in self.atoms:
            way: list[AtomId] = []
            here: AtomId | None = name
            while here is not None and here not in depths:
                way.append(here)
                if len(way) > len(self.atoms):
                    raise GraphError(f"atom {name!r}", "its path never ends", "build the graph again")
                here = self.atoms[here].next
            depth = -1 if here is None else depths[here]
            for atom in reversed(way):
                depth += 1
                depths[atom] = depth
        return depths

    def lengths(self) -> dict[Group, int]:
        """How many atoms each group's messages pass."""
        depths = self.depths()
        return {
            group: 0 if route.entry is None or route.end is None else depths[route.entry] - depths[route.end] + 1
            for group, route in self.groups.items()
        }

    def pass_through(self) -> int:
        """What construction keeps small: how often a group passes an atom that does not number it, over all groups."""
        return sum(self.lengths().values()) - 2 * sum(not atom.idle for atom in self.atoms.values())

    def crossings(self) -> dict[AtomId, int]:
        """How many groups go on from each atom to the next."""
        counts = dict.fromkeys(self.atoms, 0)
        for route in self.groups.values():
            if route.entry is not None and route.end is not None:
                counts[route.entry] += 1
                counts[route.end] -= 1
        for name in sorted(self.atoms, key=self.depths().__getitem__, reverse=True):
            after = self.atoms[name].next
            if after is not None:
                counts[after] += counts[name]
        return counts


def set_routes(graph: SequencingGraph) -> None:
    """Every group enters at the first atom that numbers it, and leaves at the last one."""
    depths = graph.depths()
    for name, atom in graph.atoms.items():
        for group in atom.pair:
            route = graph.groups[group]
            if route.entry is None or depths[name] > depths[route.entry]:
                route.entry = name
            if route.end is None or depths[name] < depths[route.end]:
                route.end = name


def check(graph: SequencingGraph, threshold: int = 2) -> None:
    """Refuse a graph that breaks C1, C2 or direction, lacks an atom, or has one that nobody needs.

    Groups that are finished need nothing, but what they had may still be there.
    """
    memberships = {group: route.members for group, route in graph.groups.items() if not route.finished}
    needed = {atom_of(*pair) for pair in coupled_pairs(memberships, threshold)}
    there = {name for name, atom in graph.atoms.items() if not atom.idle and memberships.keys() >= set(atom.pair)}
    found = [f"{name}: no such atom, and its groups need one" for name in sorted(needed - there)]
    found += [f"{name}: its groups need no atom" for name in sorted(there - needed)]
    _refuse(found)
    check_shape(graph)


def check_shape(graph: SequencingGraph) -> None:
    """Refuse a graph that breaks C1, C2 or direction; whether it has the atoms that it needs is not asked."""
    check_next(graph)
    _refuse(_misfits(graph, [group for group, route in graph.groups.items() if not route.finished]))


def check_next(graph: SequencingGraph) -> None:
    """Refuse a graph with an atom that leads nowhere."""
    atoms = graph.atoms
    lost = [(name, each.next) for name, each in atoms.items() if each.next is not None and each.next not in atoms]
    _refuse([f"{name} leads to {after}, which does not exist" for name, after in lost])


def _refuse(found: list[str]) -> None:
    if found:
        raise GraphError("sequencing graph", "; ".join(found[:5]), "make the plan again")


def _misfits(graph: SequencingGraph, groups: Iterable[Group]) -> list[str]:
    """What is wrong with the routes of these groups, without walking them: where a path of a forest leads from and to
    says what is on it."""
    spans = _spans(graph)

    def leads_to(one: AtomId, other: AtomId) -> bool:
        return spans[other][0] <= spans[one][0] < spans[other][1]

    found: list[str] = []
    owned = graph.owned()
    for group in groups:
        entry, end = graph.groups[group].entry, graph.groups[group].end
        if entry is None or end is None:
            missing = owned[group] or [each for each in (entry, end) if each is not None]
        elif entry not in spans or end not in spans or not leads_to(entry, end):
            found.append(f"C1: {group} enters at {entry}, which does not lead to {end}, where it leaves")
            continue
        else:
            missing = [name for name in owned[group] if not (leads_to(entry, name) and leads_to(name, end))]
        if missing:
            found.append(f"C1: the path of {group} leaves out {', '.join(sorted(missing)[:3])}")
    return found


def _spans(graph: SequencingGraph) -> dict[AtomId, tuple[int, int]]:
    """Atoms numbered from the roots: an atom leads to another one iff its number lies in the other's span."""
    graph.depths()  # refuses loops
    children = graph.children()
    firsts: dict[AtomId, int] = {}
    spans: dict[AtomId, tuple[int, int]] = {}
    stack = [(name, False) for name, atom in graph.atoms.items() if atom.next is None]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            spans[name] = firsts[name], len(firsts)
            continue
        firsts[name] = len(firsts)
        stack.append((name, True))
        stack.extend((child, False) for child in children[name])
    return spans
