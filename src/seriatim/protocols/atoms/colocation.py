"""Which atoms share a sequencing node: the paper's two steps, and a way of our own along the paths.

A *sequencing node* is a set of atoms on one machine. A message that passes several atoms of a node one after the
other makes no hop between them.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from seriatim.model import Address
from seriatim.protocols.atoms.graph import SequencingGraph
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members

Choice = TypeVar("Choice")


class Chance(Protocol):
    """Where random choices come from."""

    def choice(self, items: Sequence[Choice], /) -> Choice: ...


def overlaps_of(graph: SequencingGraph) -> dict[AtomId, Members]:
    """The members that each atom exists for."""
    groups = graph.groups
    return {name: groups[atom.pair[0]].members & groups[atom.pair[1]].members for name, atom in graph.atoms.items()}


def colocate_by_overlaps(graph: SequencingGraph, chance: Chance) -> dict[AtomId, int]:
    """Paper 004, section 3.4, as printed: the sequencing node of each atom.

    Step 1: an atom whose overlap is a subset of another's joins it. Step 2: for each node that is left alone, one
    member is chosen by chance, and all nodes with an overlap that holds this member are put together. Each only once.
    """
    overlaps = overlaps_of(graph)
    holding: dict[Address, list[AtomId]] = {}
    for name in sorted(overlaps):
        for member in overlaps[name]:
            holding.setdefault(member, []).append(name)
    heads: dict[AtomId, list[AtomId]] = {}
    taken: set[AtomId] = set()
    for name in sorted(overlaps, key=lambda each: (-len(overlaps[each]), each)):
        if name in taken:
            continue
        candidates = {each for member in overlaps[name] for each in holding[member]}
        subsets = sorted(each for each in candidates if each not in taken and overlaps[each] <= overlaps[name])
        heads[name] = subsets
        taken.update(subsets)
    nodes: dict[AtomId, int] = {}
    count = 0
    for head in sorted(heads):
        if head in nodes:
            continue
        member = chance.choice(sorted(overlaps[head]))
        together = [each for each in holding[member] if each in heads and each not in nodes]
        for each in together:
            for atom in heads[each]:
                nodes[atom] = count
        count += 1
    return nodes


def colocate_along_paths(graph: SequencingGraph, load_max: float, rates: Mapping[Group, float]) -> dict[AtomId, int]:
    """Ours: cut the forest into connected pieces that are as large as a machine can bear, leaves first.

    The load of a piece is the rate of all groups that pass it, also of those that no atom of it numbers. An atom
    joins the pieces below it as long as their common load stays within `load_max`; one that is too much by itself
    stays alone.
    """
    passing: dict[AtomId, set[Group]] = {name: set() for name in graph.atoms}
    for group in graph.groups:
        for name in graph.path(group):
            passing[name].add(group)
    children = graph.children()
    depths = graph.depths()
    pieces: list[set[Group]] = []
    nodes: dict[AtomId, int] = {}
    merged: dict[int, int] = {}

    def piece_of(number: int) -> int:
        while number in merged:
            number = merged[number]
        return number

    for name in sorted(graph.atoms, key=lambda each: (-depths[each], each)):
        groups = passing[name]
        below = {piece_of(nodes[child]) for child in children[name]}
        home: int | None = None
        for number in sorted(below, key=lambda each: (-len(pieces[each] & groups), each)):
            joint = pieces[number] | groups if home is None else pieces[number] | pieces[home]
            if sum(rates[group] for group in joint) > load_max:
                continue
            if home is None:
                home = number
            else:
                merged[number] = home
            pieces[home] = joint
        if home is None:
            home = len(pieces)
            pieces.append(set(groups))
        nodes[name] = home
    names: dict[int, int] = {}
    return {name: names.setdefault(piece_of(nodes[name]), len(names)) for name in sorted(nodes)}


def hops(graph: SequencingGraph, nodes: Mapping[AtomId, int]) -> dict[Group, int]:
    """How often a message of each group goes from one sequencing node to another."""
    found = {}
    for group in graph.groups:
        path = [nodes[name] for name in graph.path(group)]
        found[group] = sum(one != other for one, other in itertools.pairwise(path))
    return found


def loads(graph: SequencingGraph, nodes: Mapping[AtomId, int], rates: Mapping[Group, float]) -> dict[int, float]:
    """How much each sequencing node sees, with what only passes it."""
    passing: dict[int, set[Group]] = {}
    for group in graph.groups:
        for name in graph.path(group):
            passing.setdefault(nodes[name], set()).add(group)
    return {node: sum(rates[group] for group in groups) for node, groups in sorted(passing.items())}


def receiver_loads(graph: SequencingGraph, rates: Mapping[Group, float]) -> dict[Address, float]:
    """How much each receiver gets."""
    found: dict[Address, float] = {}
    for group, route in graph.groups.items():
        for member in route.members:
            found[member] = found.get(member, 0.0) + rates[group]
    return found
