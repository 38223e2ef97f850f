"""Where an index keeps a filter: its signature, and the keys of its equalities there.

The *signature* of a filter says which attributes it names, of which type, and how each is compared. Equalities and
short lists of values are answered by hashing, as is a prefix where events are looked for; all else is part of a box.
"""

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

from seriatim.filters.filter import Constraint, Filter
from seriatim.filters.limits import FILTER_VALUES_MAX
from seriatim.filters.spans import Spans, contains, pairs
from seriatim.filters.values import BOOLEANS, DOMAINS, STRINGS, Key, Kind

COPIES_MAX = FILTER_VALUES_MAX  # of one filter: as many as it may have values; if lists multiply, some are in the box
PREFIX_MAX = 32  # characters of a prefix that is hashed; one way of comparing for each length in use

EQUAL, IN_BOX = -1, 0  # ways of comparing; n > 0: equality of the first n characters
Path: TypeAlias = tuple[tuple[str, Kind, int], ...]  # a signature: name, type, way of comparing; by name


class Places:
    """The places of one filter. `boxed` are the constraints that are not hashed."""

    __slots__ = ("_hashed", "boxed", "path")

    def __init__(self, filter: Filter, hashes_prefixes: bool = True) -> None:
        constraints = filter.constraints
        ways: dict[str, int] = {}
        self._hashed: dict[str, tuple[Key, ...]] = {}
        copies = 1
        for constraint in sorted(constraints, key=_size):
            way, values = EQUAL, points(constraint.kind, constraint.spans)
            if values is None and hashes_prefixes and _is_short_prefix(constraint):
                way, values = len(constraint.spans[0]), constraint.spans[:1]
            if values is not None and copies * len(values) <= COPIES_MAX:
                copies *= len(values)
                ways[constraint.name], self._hashed[constraint.name] = way, values
        self.path: Path = tuple((name, kind, ways.get(name, IN_BOX)) for name, kind, _ in constraints)
        self.boxed = tuple(constraint for constraint in constraints if constraint.name not in ways)

    def points(self) -> Iterator[tuple[Key, ...]]:
        """The values of the hashed attributes, by name: every combination."""
        return product(*(self._hashed[name] for name, _, way in self.path if way != IN_BOX))


def points(kind: Kind, spans: Spans) -> tuple[Key, ...] | None:
    """The values, if they are finitely many and no two are neighbours."""
    if kind == BOOLEANS.kind:
        return tuple(value for value in (False, True) if contains(spans, value))
    if len(spans) % 2 == 1:
        return None
    successor = DOMAINS[kind].successor
    return spans[::2] if all(successor(low) == high for low, high in pairs(spans)) else None


def _is_short_prefix(constraint: Constraint) -> bool:
    low = constraint.spans[0]
    if constraint.kind != STRINGS.kind or not 0 < len(low) <= PREFIX_MAX:
        return False
    after = STRINGS.after_prefix(low)
    return constraint.spans == ((low,) if after is None else (low, after))


def _size(constraint: Constraint) -> int:
    return len(constraint.spans)
