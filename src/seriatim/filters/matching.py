"""The matching index: which of the stored filters does this event match, without asking each of them.

A filter is found in two steps.

1. *By hashing.* Filters with the same *signature* are kept together: the attributes they name, with type and way of
   comparing. Equalities (and short lists of values) of a signature form one key of a hash table, and a prefix is the
   equality of the first characters. Signatures are paths of a trie by names, so that only those are looked at whose
   attributes the event has.
2. *By boxes.* The remaining conditions are spans of values; a tree finds those that contain the event's values
   (boxes.py).

So the cost depends on the signatures that fit, the depth of a tree and the number of matches, not on the number of
filters.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Generic

from seriatim.filters.boxes import BoxTree
from seriatim.filters.filter import Filter
from seriatim.filters.spans import contains
from seriatim.filters.stored import EQUAL, IN_BOX, FilterIndex, Group, K, Places, Point, Stored, join, leave
from seriatim.filters.values import DOMAINS, Attributes, Key, Kind, typed_attributes


class _Signature(Generic[K]):
    """A node of the trie: the path to it is a signature. Filters with it, by the key of their equalities."""

    __slots__ = ("groups", "longer")

    def __init__(self) -> None:
        self.longer: dict[tuple[str, Kind], dict[int, _Signature[K]]] = {}
        self.groups: dict[Point, Group[K]] = {}


class MatchIndex(FilterIndex[K]):
    """Filters under keys of your choice (a subscription's id, say), and the keys that an event matches."""

    def __init__(self) -> None:
        super().__init__()
        self._root: _Signature[K] = _Signature()

    def match(self, attributes: Attributes) -> list[K]:
        """The keys whose filters an event with these attributes matches; sort them where their order matters."""
        found: list[K] = []
        event = sorted(((name, kind), key) for name, (kind, key) in typed_attributes(attributes).items())
        self.visited = 0
        self._visit(self._root, event, 0, (), (), found)
        return found

    def _visit(
        self,
        signature: _Signature[K],
        event: list[tuple[tuple[str, Kind], Key]],
        start: int,
        point: Point,
        boxed: tuple[tuple[Kind, Key], ...],
        found: list[K],
    ) -> None:
        """Collect the filters at a signature that the event fits, and at the signatures that go on from it with its
        names."""
        self.visited += 1
        group = signature.groups.get(point)
        if group is not None:
            self._collect(group, boxed, found)
        longer = signature.longer
        if not longer:
            return
        for i in range(start, len(event)):
            name, key = event[i]
            ways = longer.get(name)
            if ways is None:
                continue
            for way, child in ways.items():
                if way == IN_BOX:
                    self._visit(child, event, i + 1, point, (*boxed, (name[1], key)), found)
                else:
                    self._visit(child, event, i + 1, (*point, key if way == EQUAL else key[:way]), boxed, found)

    def _collect(self, group: Group[K], boxed: tuple[tuple[Kind, Key], ...], found: list[K]) -> None:
        if isinstance(group, BoxTree):
            codes = [DOMAINS[kind].code(key) for kind, key in boxed]
            keys = [key for _, key in boxed]
            for candidates in group.search([(i, code, code) for i, code in enumerate(codes)]):
                _compare(candidates, keys, found)
            self.visited += group.visited
        else:
            self.visited += len(group)
            _compare(group, [key for _, key in boxed], found)

    def _enter(self, filter: Filter) -> Stored[K]:
        places = Places(filter)
        stored: Stored[K] = Stored(filter, places.boxed)
        node = self._root
        for name, kind, way in places.path:
            node = node.longer.setdefault((name, kind), {}).setdefault(way, _Signature())
        for point in places.points():
            join(node.groups, point, stored)
        return stored

    def _leave(self, stored: Stored[K]) -> None:
        places = Places(stored.filter)
        nodes = [self._root]
        for name, kind, way in places.path:
            nodes.append(nodes[-1].longer[name, kind][way])
        for point in places.points():
            leave(nodes[-1].groups, point, stored)
        for (name, kind, way), parent, node in reversed(list(zip(places.path, nodes, nodes[1:], strict=False))):
            if node.groups or node.longer:
                return
            del parent.longer[name, kind][way]
            if not parent.longer[name, kind]:
                del parent.longer[name, kind]


def _compare(candidates: Iterable[Stored[K]], keys: list[Key], found: list[K]) -> None:
    """Add the holders of those in whose spans all the keys are."""
    if not keys:
        for stored in candidates:
            found += stored.holders
    elif len(keys) == 1:
        key = keys[0]
        for stored in candidates:
            if bisect_right(stored.spans[0], key) % 2:  # `contains`, without a call: most of the time is spent here
                found += stored.holders
    else:
        for stored in candidates:
            if all(map(contains, stored.spans, keys)):
                found += stored.holders
