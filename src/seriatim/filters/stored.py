"""The part of a filter that the indexes keep, once for all holders, and where they keep it.

The *signature* of a filter says which attributes it names, of which type, and how each is compared. Equalities and
short lists of values are found by hashing, as is a prefix when events are matched; everything else is part of a box.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from itertools import product
from typing import Generic, TypeAlias, TypeVar

from seriatim.filters.boxes import BoxTree, Codes
from seriatim.filters.filter import Constraint, Filter
from seriatim.filters.limits import FILTER_VALUES_MAX
from seriatim.filters.spans import Spans, contains, pairs
from seriatim.filters.values import BOOLEANS, DOMAINS, STRINGS, Key, Kind, after_prefix
from seriatim.model import InputError

TUPLE_MAX = 8  # holders of one filter that are kept in a tuple, which is smaller; more are kept in a dict
GROUP_MAX = 16  # filters that are searched linearly
COPIES_MAX = FILTER_VALUES_MAX  # of one filter: as many as it may have values; if lists multiply, some are in the box
PREFIX_MAX = 32  # characters of a prefix that is hashed; one way of comparing for each length in use

EQUAL, IN_BOX = -1, 0  # ways of comparing; n > 0: equality of the first n characters
Path: TypeAlias = tuple[tuple[str, Kind, int], ...]  # a signature: name, type, way of comparing; by name
Point: TypeAlias = tuple[Key, ...]  # the values of the hashed attributes, by name

K = TypeVar("K", bound=Hashable)


class Stored(Generic[K]):
    """A filter, its holders, and its box: the constraints that are not found by hashing."""

    __slots__ = ("_boxed", "_codes", "filter", "holders", "spans")

    def __init__(self, filter: Filter, boxed: tuple[Constraint, ...]) -> None:
        self.filter = filter
        self.holders: tuple[K, ...] | dict[K, None] = ()
        self.spans: tuple[Spans, ...] = tuple(constraint.spans for constraint in boxed)
        self._boxed = boxed
        self._codes: Codes | None = None

    @property
    def codes(self) -> Codes:
        """The codes of the box around the allowed values. Only trees ask for them, and few filters are in one."""
        if self._codes is None:
            self._codes = tuple(code for each in self._boxed for code in span_codes(each.kind, each.spans))
        return self._codes

    def hold(self, key: K) -> None:
        if isinstance(self.holders, dict):
            self.holders[key] = None
        elif len(self.holders) < TUPLE_MAX:
            self.holders = (*self.holders, key)
        else:
            self.holders = dict.fromkeys((*self.holders, key))

    def release(self, key: K) -> None:
        if isinstance(self.holders, dict):
            del self.holders[key]
        else:
            self.holders = tuple(each for each in self.holders if each != key)


class FilterIndex(ABC, Generic[K]):
    """Filters under keys of your choice. The same filter is one `Stored` for all who hold it."""

    def __init__(self) -> None:
        self._by_key: dict[K, Stored[K]] = {}
        self._by_filter: dict[Filter, Stored[K]] = {}
        self.visited = 0  # what the last search looked at: signatures, values, nodes of trees, filters

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def filter(self, key: K) -> Filter:
        """The filter under this key."""
        return self._known(key).filter

    def add(self, key: K, filter: Filter) -> None:
        """Store a filter. A key has one filter at a time; many keys may have the same one, at no further cost."""
        if key in self._by_key:
            raise InputError(f"key {key!r}", "holds a filter already", "remove it first, or use another key")
        stored = self._by_filter.get(filter)
        if stored is None:
            stored = self._by_filter[filter] = self._enter(filter)
        self._by_key[key] = stored
        stored.hold(key)

    def remove(self, key: K) -> None:
        """Forget the filter under this key."""
        stored = self._known(key)
        del self._by_key[key]
        stored.release(key)
        if not stored.holders:
            del self._by_filter[stored.filter]
            self._leave(stored)

    def _known(self, key: K) -> Stored[K]:
        try:
            return self._by_key[key]
        except KeyError:
            raise InputError(f"key {key!r}", "holds no filter here", "add it first") from None

    @abstractmethod
    def _enter(self, filter: Filter) -> Stored[K]:
        """Store a filter that nobody holds yet."""

    @abstractmethod
    def _leave(self, stored: Stored[K]) -> None:
        """Forget a filter that nobody holds any more."""


# The filters of one signature with the same hashed values: few are a list, many a tree, or a dict if none has a box.
Group: TypeAlias = list[Stored[K]] | BoxTree[Stored[K]] | dict[Stored[K], None]


def join(groups: dict[Point, Group[K]], point: Point, stored: Stored[K]) -> None:
    """Put a filter into its group."""
    group = groups.setdefault(point, [])
    if isinstance(group, dict):
        group[stored] = None
    elif isinstance(group, BoxTree):
        group.add(stored)
    elif len(group) < GROUP_MAX:
        group.append(stored)
    else:
        members = [*group, stored]
        groups[point] = BoxTree(members) if stored.spans else dict.fromkeys(members)


def leave(groups: dict[Point, Group[K]], point: Point, stored: Stored[K]) -> None:
    """Take a filter out of its group; a group without filters goes."""
    group = groups[point]
    if isinstance(group, dict):
        del group[stored]
    else:
        group.remove(stored)
    if not group:
        del groups[point]


class Places:
    """The places of one filter. `boxed` are the constraints that are not hashed."""

    __slots__ = ("_hashed", "boxed", "path")

    def __init__(self, filter: Filter, hashes_prefixes: bool = True) -> None:
        constraints = filter.constraints
        ways: dict[str, int] = {}
        self._hashed: dict[str, tuple[Key, ...]] = {}
        copies = 1
        for constraint in sorted(constraints, key=lambda each: len(each.spans)):
            way, values = EQUAL, points(constraint.kind, constraint.spans)
            if values is None and hashes_prefixes and _is_short_prefix(constraint):
                way, values = len(constraint.spans[0]), constraint.spans[:1]
            if values is not None and copies * len(values) <= COPIES_MAX:
                copies *= len(values)
                ways[constraint.name], self._hashed[constraint.name] = way, values
        self.path: Path = tuple((name, kind, ways.get(name, IN_BOX)) for name, kind, _ in constraints)
        self.boxed = tuple(constraint for constraint in constraints if constraint.name not in ways)

    def points(self) -> Iterator[Point]:
        """Every combination of the values of the hashed attributes."""
        return product(*(self._hashed[name] for name, _, way in self.path if way != IN_BOX))


def points(kind: Kind, spans: Spans) -> tuple[Key, ...] | None:
    """The values, if they are finitely many and no two are neighbours."""
    if kind == BOOLEANS.kind:
        return tuple(value for value in (False, True) if contains(spans, value))
    if len(spans) % 2 == 1:
        return None
    successor = DOMAINS[kind].successor
    return spans[::2] if all(successor(low) == high for low, high in pairs(spans)) else None


def span_codes(kind: Kind, spans: Spans) -> tuple[int, int]:
    """The codes of the lowest value and of one that no value exceeds."""
    domain = DOMAINS[kind]
    is_bounded = len(spans) % 2 == 0
    return domain.code(spans[0]), domain.code(spans[-1]) if is_bounded else (1 << domain.code_bits) - 1


def _is_short_prefix(constraint: Constraint) -> bool:
    low = constraint.spans[0]
    if constraint.kind != STRINGS.kind or not 0 < len(low) <= PREFIX_MAX:
        return False
    after = after_prefix(low)
    return constraint.spans == ((low,) if after is None else (low, after))
