"""Makes a sequencing graph for any overlap structure, with few pass-through atoms.

Groups that are coupled form a graph of their own, the *overlap graph*: an atom is one of its edges. Eliminating the
groups one after the other gives a forest in which every group walks towards a root:

- At first every group is its own cluster. To *eliminate* group g is to bring together the clusters of g and of all
  groups that it still lacks an atom with; after that g leaves, for nothing is left to number it.
- A cluster is a tree under construction and the groups that still walk on from its root. Bringing two clusters
  together makes a new root with both below it, a *slot*, and so does the end of an elimination. Every group of
  the cluster passes the slot.
- An atom may be put into any slot that both its groups pass. It costs as many visits as groups pass there, so it goes
  to the cheaper of two: where its groups first come together, or where the first of them is eliminated.

Which group is next decides everything, and we know of no fast way to the best order (with a chain instead of a forest
the problem is close kin to the smallest interval supergraph, which is NP-complete). We take the group whose
elimination brings the fewest groups together, as minimum-degree orderings do for sparse matrices.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from seriatim.model import Address
from seriatim.protocols.atoms.graph import Atom, GraphError, Route, SequencingGraph, set_routes
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, Pair, atom_of, coupled_pairs, pair_of


@dataclass(slots=True, eq=False)
class _Slot:
    """A place for atoms in the forest, passed by `size` groups."""

    moment: int  # grows towards the roots
    size: int
    above: "_Slot | None" = None
    atoms: list[Pair] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Cluster:
    """A tree under construction: its topmost slot, and the groups that go on from there."""

    active: set[Group]
    top: _Slot | None = None


class _Elimination:
    """One run over the overlap graph."""

    def __init__(self, neighbours: Mapping[Group, Iterable[Group]]) -> None:
        self.lacking: dict[Group, set[Group]] = {group: set(others) for group, others in neighbours.items()}
        self.clusters = {group: _Cluster({group}) for group in neighbours}
        self.met: dict[Pair, _Slot] = {}  # where two coupled groups first came together
        self.slots: list[_Slot] = []

    def run(self) -> None:
        queue = [(self.cost(group), group) for group in sorted(self.lacking)]
        heapify(queue)
        while queue:
            cost, group = heappop(queue)
            now = self.cost(group)
            if now > cost and queue and (now, group) > queue[0]:
                heappush(queue, (now, group))  # it costs more by now
                continue
            self.eliminate(group)

    def cost(self, group: Group) -> tuple[int, int]:
        """How many groups come together; among equals, the one that brings fewest atoms with it first."""
        clusters = {self.clusters[each] for each in (group, *self.lacking[group])}
        return sum(len(cluster.active) for cluster in clusters), len(self.lacking[group])

    def eliminate(self, group: Group) -> None:
        own = self.clusters[group]
        others = {self.clusters[other] for other in self.lacking[group]} - {own}
        for other in sorted(others, key=lambda each: (len(each.active), min(each.active))):
            own = self.unite(own, other)
        if self.lacking[group]:
            slot = self.slot_above(own)
            for other_group in sorted(self.lacking[group]):
                pair = pair_of(group, other_group)
                cheaper = self.met[pair] if self.met[pair].size <= slot.size else slot
                cheaper.atoms.append(pair)
                self.lacking[other_group].discard(group)
        own.active.discard(group)

    def unite(self, one: _Cluster, other: _Cluster) -> _Cluster:
        """Merge two clusters into the larger one. Groups of both that are coupled meet here."""
        small, large = sorted((one, other), key=lambda each: len(each.active))
        tops = [cluster.top for cluster in (small, large)]
        for group in small.active:
            self.clusters[group] = large
        arriving, there = small.active, large.active
        meeting = [pair_of(group, each) for group in arriving for each in self.lacking[group] & there]
        large.active = there | arriving
        large.top = None
        slot = self.slot_above(large)
        for top in tops:
            if top is not None:
                top.above = slot
        for pair in meeting:
            self.met[pair] = slot
        return large

    def slot_above(self, cluster: _Cluster) -> _Slot:
        slot = _Slot(len(self.slots), len(cluster.active))
        self.slots.append(slot)
        if cluster.top is not None:
            cluster.top.above = slot
        cluster.top = slot
        return slot


def build(memberships: Mapping[Group, Iterable[Address]], threshold: int = 2) -> SequencingGraph:
    """A graph for these groups: C1, C2 and one direction, and few pass-through atoms. Atoms have no hosts yet."""
    members: dict[Group, Members] = {group: frozenset(each) for group, each in memberships.items()}
    for group, each in members.items():
        if not each:
            raise GraphError(f"group {group!r}", "it has no members", "leave it out, or give it one")
    return build_from_pairs(members, coupled_pairs(members, threshold))


def build_from_pairs(members: Mapping[Group, Members], pairs: Iterable[Pair]) -> SequencingGraph:
    """Build the graph when it is known which groups are coupled."""
    neighbours: dict[Group, list[Group]] = {}
    for one, other in pairs:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    elimination = _Elimination(neighbours)
    elimination.run()
    graph = SequencingGraph({}, {group: Route(each) for group, each in sorted(members.items())})
    _lay_out(graph, elimination.slots)
    return graph


def _lay_out(graph: SequencingGraph, slots: list[_Slot]) -> None:
    """Atoms of a slot become a chain; empty slots disappear. Groups begin at their first atom and end at their last."""
    first: dict[Group, int] = {}
    last: dict[Group, int] = {}
    for slot in slots:
        for pair in slot.atoms:
            for group in pair:
                first.setdefault(group, slot.moment)
                last[group] = slot.moment
    bottoms: dict[int, AtomId | None] = {}
    below: list[tuple[AtomId, _Slot]] = []
    for slot in slots:
        chain = [atom_of(*pair) for pair in _in_good_order(slot, first, last)]
        for pair in slot.atoms:
            graph.atoms[atom_of(*pair)] = Atom(pair)
        for name, after in itertools.pairwise(chain):
            graph.atoms[name].next = after
        bottoms[slot.moment] = chain[0] if chain else None
        if chain:
            below.append((chain[-1], slot))
    for name, slot in below:
        above = slot.above
        while above is not None and bottoms[above.moment] is None:
            above = above.above
        if above is not None:
            graph.atoms[name].next = bottoms[above.moment]
    set_routes(graph)


def _in_good_order(slot: _Slot, first: Mapping[Group, int], last: Mapping[Group, int]) -> list[Pair]:
    """Groups that end in this slot go first, groups that begin in it last: each passes as little of it as possible."""

    def key(pair: Pair) -> tuple[int, Pair]:
        ending = sum(last[group] == slot.moment and first[group] < slot.moment for group in pair)
        beginning = sum(first[group] == slot.moment and last[group] > slot.moment for group in pair)
        return beginning - ending, pair

    return sorted(slot.atoms, key=key)
