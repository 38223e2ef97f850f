"""Sets of values of one type, as spans: exact, and one form for each set.

A set is the tuple of the bounds where membership changes: `(a, b, c, d)` holds the values in [a, b) or in [c, d); with
an odd number of bounds the last span has no end. Bounds rise strictly, so that no span is empty and no two touch: equal
sets are equal tuples, and whether a key is in the set is one binary search.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from seriatim.filters.values import Domain, Key

Spans: TypeAlias = tuple[Key, ...]


def contains(spans: Spans, key: Key) -> bool:
    """Whether the set has this key."""
    return bisect_right(spans, key) % 2 == 1


def span(low: Key, high: Key | None) -> Spans:
    """The values from `low` up to `high`, which is not included; None: without end."""
    if high is None:
        return (low,)
    return (low, high) if low < high else ()


def points(domain: Domain, keys: Iterable[Key]) -> Spans:
    """These keys and no others."""
    bounds: list[Key] = []
    for key in sorted(set(keys)):
        if bounds and bounds[-1] == key:
            bounds.pop()
        else:
            bounds.append(key)
        following = domain.successor(key)
        if following is not None:
            bounds.append(following)
    return tuple(bounds)


def complement(domain: Domain, spans: Spans) -> Spans:
    """Every key of the type that is not in the set."""
    return spans[1:] if spans and spans[0] == domain.least else (domain.least, *spans)


def intersection(one: Spans, other: Spans) -> Spans:
    """The keys that are in both sets."""
    if one == other:
        return one
    if len(one) <= 2 and len(other) <= 2:  # the common case: one span each
        return _both(one, other)
    bounds: list[Key] = []
    i = j = 0
    was_inside = False
    while i < len(one) or j < len(other):
        is_ours = j == len(other) or (i < len(one) and one[i] <= other[j])
        bound = one[i] if is_ours else other[j]
        if i < len(one) and one[i] == bound:
            i += 1
        if j < len(other) and other[j] == bound:
            j += 1
        is_inside = i % 2 == 1 and j % 2 == 1
        if is_inside != was_inside:
            bounds.append(bound)
            was_inside = is_inside
    return tuple(bounds)


def _both(one: Spans, other: Spans) -> Spans:
    if not one or not other:
        return ()
    low = max(one[0], other[0])
    ends = one[1:] + other[1:]
    return span(low, min(ends)) if ends else (low,)


def pairs(spans: Spans) -> Iterator[tuple[Key, Key | None]]:
    """The spans from low to high; the last may have no end."""
    for i in range(0, len(spans), 2):
        yield spans[i], spans[i + 1] if i + 1 < len(spans) else None


def enumerated(domain: Domain, spans: Spans, count_max: int) -> list[Key] | None:
    """The keys of the set; None if there are more than `count_max`."""
    keys: list[Key] = []
    for low, high in pairs(spans):
        key = low
        while key is not None and (high is None or key < high):
            if len(keys) == count_max:
                return None
            keys.append(key)
            key = domain.successor(key)
    return keys
