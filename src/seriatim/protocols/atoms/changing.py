"""Plans for changing a sequencing graph while messages travel through it.

A plan only ever does what keeps messages in order: new atoms form a chain that is put *into an edge* (or on top of a
root), paths are made longer towards the root, trees are joined at a root, and atoms that number nothing are bypassed.
`coordinator.py` carries plans out; here is nothing but arithmetic.
"""

from collections.abc import Mapping

from msgspec import Struct, field, structs

from seriatim.model import Node
from seriatim.protocols.atoms.graph import Atom, Route, SequencingGraph
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, are_coupled, atom_of, pair_of


class Turn(Struct, frozen=True, array_like=True):
    """An atom leads elsewhere from now on. Both ways meet again at `rejoin`; None: they do not, or at no atom."""

    atom: AtomId
    next: AtomId | None
    rejoin: AtomId | None = None


class Growth(Struct, array_like=True):
    """The needs of a new group: a chain of new atoms, edges that lead into it, and longer paths for its neighbours."""

    group: Group
    route: Route
    chain: list[AtomId] = field(default_factory=list)
    atoms: dict[AtomId, Atom] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    neighbours: dict[Group, Route] = field(default_factory=dict)  # with their new entry and end


class Decay(Struct, array_like=True):
    """The parts that become superfluous with a group: atoms, the ends of paths, and edges that nobody walks."""

    group: Group
    idle: list[AtomId] = field(default_factory=list)
    shorter: dict[Group, Route] = field(default_factory=dict)  # groups with another entry or end
    turns: list[Turn] = field(default_factory=list)


def plan_growth(
    graph: SequencingGraph, group: Group, members: Members, threshold: int, replaces: Group | None = None
) -> Growth:
    """How to add a group. If it replaces another one, its messages follow that one's on the same way."""
    coupled = [
        other
        for other, route in sorted(graph.groups.items())
        if not route.finished and are_coupled(group, members, other, route.members, threshold)
    ]
    if not coupled:
        return Growth(group, Route(members))
    if replaces not in coupled:
        replaces = None
    base, joins = _place(graph, coupled)
    entered = set(graph.way(base)) if base is not None else set()  # where groups may continue to, from the chain
    crossing = {other for other in coupled if base is not None and _goes_on(graph, other, base, entered)}
    order = sorted(coupled, key=lambda other: (other != replaces, other in crossing, other))
    growth = Growth(group, Route(members), [atom_of(group, other) for other in order])
    after = graph.atoms[base].next if base is not None else None
    for other, name, following in zip(order, growth.chain, [*growth.chain[1:], after], strict=True):
        growth.atoms[name] = Atom(pair_of(group, other), following)
        old = graph.groups[other]
        entry = old.entry if old.entry is not None else name
        end = old.end if other in crossing else name
        growth.neighbours[other] = structs.replace(old, entry=entry, end=end)
    if base is not None:
        growth.turns.append(Turn(base, growth.chain[0], after))
    growth.turns += [Turn(root, growth.chain[0]) for root in joins]
    growth.route.entry = growth.neighbours[replaces].entry if replaces is not None else growth.chain[0]
    growth.route.end = growth.chain[-1]
    return growth


def _goes_on(graph: SequencingGraph, group: Group, base: AtomId, above: set[AtomId]) -> bool:
    end = graph.groups[group].end
    return end is not None and end != base and end in above


def _place(graph: SequencingGraph, coupled: list[Group]) -> tuple[AtomId | None, list[AtomId]]:
    """The atom after which the chain comes, and the roots of other trees that are to lead into it.

    Anywhere between the first atom that all coupled groups of a tree can reach and its root will do. The price of a
    place is what paths become longer by: those that must be extended to it, and those that go through it.
    """
    depths, crossings = graph.depths(), graph.crossings()
    trees: dict[AtomId, list[Group]] = {}
    for group in coupled:
        entry = graph.groups[group].entry
        if entry is not None:
            trees.setdefault(graph.way(entry)[-1], []).append(group)
    if not trees:
        return None, []
    best: tuple[int, AtomId, AtomId] | None = None
    for root, groups in trees.items():
        ends = [depths[end] for group in groups if (end := graph.groups[group].end) is not None]
        saved = sum(ends)  # what it would cost to lead all of them to the root
        for place in _common_way(graph, groups):
            price = sum(max(0, depth - depths[place]) for depth in ends) + len(coupled) * crossings[place] - saved
            if best is None or (price, place) < best[:2]:
                best = price, place, root
    assert best is not None, "a root is on the way of every group of its tree"
    return best[1], sorted(root for root in trees if root != best[2])


def _common_way(graph: SequencingGraph, groups: list[Group]) -> list[AtomId]:
    """The atoms that all these groups pass, or would pass if they went on to the root."""
    ways = [graph.way(graph.groups[group].entry) for group in groups]
    common = set(ways[0]).intersection(*ways[1:])
    return [atom for atom in ways[0] if atom in common]


def apply_growth(graph: SequencingGraph, growth: Growth, hosts: Mapping[AtomId, Node] | None = None) -> None:
    """The graph as it is when the growth has been carried out."""
    for name, atom in growth.atoms.items():
        graph.atoms[name] = structs.replace(atom, host=hosts[name] if hosts is not None else "")
    for turn in growth.turns:
        graph.atoms[turn.atom].next = turn.next
    graph.groups.update(growth.neighbours)
    graph.groups[growth.group] = growth.route


def plan_decay(graph: SequencingGraph, group: Group) -> Decay:
    """How to remove a group of which nothing is left to be notified.

    Its atoms are bypassed: whoever led to them leads to what comes after them. Paths that began or ended at them begin
    later or end earlier. Edges that nobody walks any more are cut, so that trees that were joined come apart again.
    """
    decay = Decay(group, [name for name, atom in graph.atoms.items() if group in atom.pair])
    gone = set(decay.idle)
    owned = graph.owned()
    after = SequencingGraph(dict(graph.atoms), {})
    for other, route in graph.groups.items():
        if other == group:
            continue
        mine = set(owned[other]) - gone
        path = [name for name in graph.path(other) if name in mine]
        new = structs.replace(route, entry=path[0] if path else None, end=path[-1] if path else None)
        after.groups[other] = new
        if (new.entry, new.end) != (route.entry, route.end):
            decay.shorter[other] = new
    crossings = after.crossings()
    for name, atom in graph.atoms.items():
        if name in gone or atom.next is None:
            continue
        way = graph.way(atom.next)
        target = next((each for each in way if each not in gone), None)
        if not crossings[name]:
            decay.turns.append(Turn(name, None))
        elif target != atom.next:
            decay.turns.append(Turn(name, target, target))
    return decay


def apply_decay(graph: SequencingGraph, decay: Decay) -> None:
    """The graph as it is when the decay has been carried out."""
    graph.groups.update(decay.shorter)
    del graph.groups[decay.group]
    for turn in decay.turns:
        graph.atoms[turn.atom].next = turn.next
    for name in decay.idle:
        del graph.atoms[name]
