"""Which atoms share a sequencing node: the paper's two steps, and a way of our own along the paths.

A *sequencing node* is a set of atoms on one machine. A message that passes several atoms of a node one after the
other makes no hop between them.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from seriatim.model import Address
from seriatim.protocols.atoms.graph import SequencingGraph
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members

Choice = TypeVar("Choice")

SLACK = 1e-9  # sums of rates are as exact as this


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


class Forest(NamedTuple):
    """What pieces are cut from, as columns: places are numbers.

    `after`: the place that each leads to, or -1. `entering`: the rate of the groups whose path begins there.
    `leaving`: the rate of those that go on to the place after it, and `leavers`, how many they are.
    """

    after: Sequence[int]
    entering: Sequence[float]
    leaving: Sequence[float]
    leavers: Sequence[int]


def colocate_along_paths(graph: SequencingGraph, load_max: float, rates: Mapping[Group, float]) -> dict[AtomId, int]:
    """Ours: cut the forest into connected pieces that are as large as a machine can bear, leaves first.

    The load of a piece is the rate of all groups that pass it, also of those that no atom of it numbers. An atom
    joins the pieces below it as long as their common load stays within `load_max`; one that is too much by itself
    stays alone.
    """
    names, forest = forest_of(graph, rates)
    return dict(zip(names, cut(forest, load_max), strict=True))


def forest_of(graph: SequencingGraph, rates: Mapping[Group, float]) -> tuple[list[AtomId], Forest]:
    """The graph as columns: atoms by name."""
    names = sorted(graph.atoms)
    places = {name: place for place, name in enumerate(names)}
    after = [-1 if (name := graph.atoms[each].next) is None else places[name] for each in names]
    entering, ending = [0.0] * len(names), [0.0] * len(names)
    comers = [0] * len(names)
    for group, route in graph.groups.items():
        if route.entry is not None and route.end is not None:
            entering[places[route.entry]] += rates[group]
            comers[places[route.entry]] += 1
            ending[places[route.end]] += rates[group]
            comers[places[route.end]] -= 1
    return names, flowing(after, entering, ending, comers)


def flowing(after: Sequence[int], entering: Sequence[float], ending: Sequence[float], comers: Sequence[int]) -> Forest:
    """A forest, from what enters and ends at each place. `comers`: how many more enter than end."""
    leaving = [begins - ends for begins, ends in zip(entering, ending, strict=True)]
    leavers = list(comers)
    for place in _leaves_first(after):
        if after[place] >= 0:
            leaving[after[place]] += leaving[place]
            leavers[after[place]] += leavers[place]
    return Forest(after, entering, leaving, leavers)


def cut(forest: Forest, load_max: float) -> list[int]:
    """The piece of each place.

    A group's path enters a connected piece once: it begins there, or comes over one edge. So the load of a piece is a
    sum, and two pieces that are joined have in common what crosses the edge between them.
    """
    limit = load_max * (1.0 + SLACK)
    below: list[list[int]] = [[] for _ in forest.after]
    for place, after in enumerate(forest.after):
        if after >= 0:
            below[after].append(place)
    heavy: list[float] = []  # the load of each piece
    pieces = [-1] * len(forest.after)
    merged: dict[int, int] = {}

    def piece_of(number: int) -> int:
        while number in merged:
            number = merged[number]
        return number

    for place in _leaves_first(forest.after):
        load = forest.entering[place] + sum(forest.leaving[each] for each in below[place])
        home: int | None = None
        nearest = sorted((-forest.leavers[each], piece_of(pieces[each]), each) for each in below[place])
        for _, number, each in nearest:
            joint = heavy[number] + (load if home is None else heavy[home]) - forest.leaving[each]
            if joint > limit:
                continue
            if home is None:
                home = number
            else:
                merged[number] = home
            heavy[home] = joint
        if home is None:
            home = len(heavy)
            heavy.append(load)
        pieces[place] = home
    numbers: dict[int, int] = {}
    return [numbers.setdefault(piece_of(each), len(numbers)) for each in pieces]


def _leaves_first(after: Sequence[int]) -> list[int]:
    depths = [-1] * len(after)
    for place in range(len(after)):
        way = []
        here = place
        while here >= 0 and depths[here] < 0:
            way.append(here)
            here = after[here]
        depth = depths[here] if here >= 0 else -1
        for each in reversed(way):
            depth += 1
            depths[each] = depth
    return sorted(range(len(after)), key=lambda place: (-depths[place], place))


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
