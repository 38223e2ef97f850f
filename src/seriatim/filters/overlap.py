"""The overlap index: which of the stored filters intersect a filter, cover it, or are covered by it.

A broker asks this for every advertisement and subscription: which neighbours must hear of it, which have already
announced as much, and which could send events that would arrive in another order. Filters of one signature (the
attributes named, their types, and which of them are compared for equality) are kept twice. Where the other filter asks
for equality too, a hash table finds the few that ask for the same values; where it does not, a tree of all boxes of the
signature is searched (boxes.py), and only where boxes can meet. Both give candidates, which are then compared exactly:
the cost follows the answer and the number of signatures, not the number of filters.
"""

from collections.abc import Iterable, Iterator, Set
from itertools import product
from typing import Generic

from seriatim.filters.boxes import BoxTree, Condition
from seriatim.filters.filter import Constraint, Filter
from seriatim.filters.stored import (
    COPIES_MAX,
    EQUAL,
    FilterIndex,
    Group,
    K,
    Path,
    Places,
    Point,
    Stored,
    join,
    leave,
    points,
    span_codes,
)
from seriatim.filters.values import Key


class _Family(Generic[K]):
    """The filters of one signature: all of them, and by the values of their equalities."""

    __slots__ = ("groups", "tree")

    def __init__(self) -> None:
        self.tree: BoxTree[Stored[K]] = BoxTree()
        self.groups: dict[Point, Group[K]] = {}


class OverlapIndex(FilterIndex[K]):
    """Filters under keys of your choice, and the keys whose filters overlap with another one."""

    def __init__(self) -> None:
        super().__init__()
        self._families: dict[Path, _Family[K]] = {}

    def intersecting(self, filter: Filter) -> list[K]:
        """The keys whose filters match some event that this filter matches."""
        return [key for stored in self._meeting(filter) for key in stored.holders]

    def intersects_any(self, filter: Filter) -> bool:
        """Whether there is such a key; stops at the first."""
        return next(self._meeting(filter), None) is not None

    def covering(self, filter: Filter) -> list[K]:
        """The keys whose filters match every event that this filter matches."""
        return [key for stored in self._over(filter) for key in stored.holders]

    def covered_by_any(self, filter: Filter) -> bool:
        """Whether there is such a key; stops at the first."""
        return next(self._over(filter), None) is not None

    def covered(self, filter: Filter) -> list[K]:
        """The keys whose filters match only events that this filter matches."""
        names = {constraint.name for constraint in filter.constraints}
        return [
            key
            for stored in self._meeting(filter, needed=names)
            if filter.covers(stored.filter)
            for key in stored.holders
        ]

    def _meeting(self, filter: Filter, needed: Set[str] = frozenset()) -> Iterator[Stored[K]]:
        """Filters that intersect and name at least the attributes `needed`."""
        ours = {constraint.name: constraint for constraint in filter.constraints}
        self.visited = 0
        for path, family in self._families.items():
            self.visited += 1
            if any(name in ours and ours[name].kind != kind for name, kind, _ in path):
                continue
            if needed and not needed <= {name for name, _, _ in path}:
                continue
            conditions: list[Condition] = []
            for i, (name, kind, _) in enumerate(path):
                if name in ours:
                    low, high = span_codes(kind, ours[name].spans)
                    conditions.append((i, high, low))
            asked = _asked(path, ours)
            groups: list[Group[K]] = (
                [family.tree] if asked is None else [family.groups.get(point, []) for point in asked]
            )
            seen: set[Stored[K]] = set()
            for stored in self._candidates(groups, conditions):
                if stored not in seen and stored.filter.intersects(filter):
                    seen.add(stored)
                    yield stored

    def _over(self, filter: Filter) -> Iterator[Stored[K]]:
        """Filters that cover: they name no other attributes, and what they list has all that this one lists."""
        ours = {constraint.name: constraint for constraint in filter.constraints}
        self.visited = 0
        for path, family in self._families.items():
            self.visited += 1
            if not all(name in ours and ours[name].kind == kind for name, kind, _ in path):
                continue
            conditions: list[Condition] = []
            for i, (name, kind, _) in enumerate(path):
                low, high = span_codes(kind, ours[name].spans)
                conditions.append((i, low, high))
            hashed = [points(kind, ours[name].spans) for name, kind, way in path if way == EQUAL]
            point = tuple(values[0] for values in hashed if values is not None)
            if len(point) == len(hashed):  # otherwise it has more values than any list
                groups: list[Group[K]] = [family.groups.get(point, [])] if point else [family.tree]
                for stored in self._candidates(groups, conditions):
                    if stored.filter.covers(filter):
                        yield stored

    def _enter(self, filter: Filter) -> Stored[K]:
        stored: Stored[K] = Stored(filter, filter.constraints)
        places = Places(filter, hashes_prefixes=False)
        family = self._families.setdefault(places.path, _Family())
        family.tree.add(stored)
        for point in places.points():
            join(family.groups, point, stored)
        return stored

    def _leave(self, stored: Stored[K]) -> None:
        places = Places(stored.filter, hashes_prefixes=False)
        family = self._families[places.path]
        family.tree.remove(stored)
        for point in places.points():
            leave(family.groups, point, stored)
        if not family.tree:
            del self._families[places.path]

    def _candidates(self, groups: Iterable[Group[K]], conditions: list[Condition]) -> Iterator[Stored[K]]:
        for group in groups:
            self.visited += 1
            if isinstance(group, BoxTree):
                for candidates in group.search(conditions):
                    yield from candidates
                self.visited += group.visited
            else:
                self.visited += len(group)
                yield from group


def _asked(path: Path, ours: dict[str, Constraint]) -> list[Point] | None:
    """The values that a filter asks for where those of a signature are hashed; None if there are none, or too many."""
    lists: list[tuple[Key, ...]] = []
    count = 1
    for name, kind, way in path:
        if way == EQUAL:
            values = points(kind, ours[name].spans) if name in ours else None
            if values is None:
                return None
            lists.append(values)
            count *= len(values)
    return list(product(*lists)) if lists and count <= COPIES_MAX else None
