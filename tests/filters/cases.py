"""Random predicates, filters and events, and what a predicate means, written down a second time.

The meaning here uses Python's own comparisons and knows nothing of spans. What two filters have in common is found by
trying: the truth of a predicate changes only at its own values and right after them, so trying these for every
attribute, and leaving the attribute out, tries everything.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from hypothesis import strategies as st

from seriatim.filters import Attributes, Contradiction, Filter, Predicate, Value
from seriatim.filters.predicates import OPERATORS
from seriatim.filters.values import BOOLEANS, DOMAINS, NUMBERS, STRINGS, TIMESTAMPS, Domain, after_prefix

NAMES = ("a", "b", "c")

# Few and close together, so that filters meet: neighbours, the ends of the types, and where integers outgrow floats.
KEYS: dict[str, list[Any]] = {
    "number": [0, 1, 2, 0.5, -1, 1.0000000000000002, 2**53, 2**53 + 1, 2.0**53 + 2, 2**63 - 1, 2.0**63, -(2**63)],
    "string": ["", "a", "aa", "ab", "b", "a\0", "é", "\ud7ff", "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff"],
    "boolean": [False, True],
    "timestamp": [0, 1, 2, 1_000_000, TIMESTAMPS.least, TIMESTAMPS.least + 1],
}
KEYS["number"] += [NUMBERS.least, -NUMBERS.least, -0.0]


def holds(predicate: Predicate, value: tuple[str, Any] | None) -> bool:
    """What the predicate says about an attribute; None: absent."""
    if value is None or value[0] != predicate.kind:
        return False
    key, first = value[1], predicate.keys[0]
    answers = {
        "=": key == first,
        "!=": key != first,
        "<": key < first,
        "<=": key <= first,
        ">": key > first,
        ">=": key >= first,
        "in": key in predicate.keys,
        "not in": key not in predicate.keys,
    }
    return str(key).startswith(str(first)) if predicate.operator == "prefix" else answers[predicate.operator]


def turning_points(domain: Domain, keys: Iterable[Any]) -> Iterator[Any]:
    """Where a predicate with these values can begin or end to hold."""
    yield domain.least
    for key in keys:
        yield key
        yield domain.successor(key)
        if domain is STRINGS:
            yield after_prefix(key)


def events_to_try(predicates: list[Predicate]) -> Iterator[dict[str, tuple[str, Any]]]:
    """Enough events to try everything that these predicates can tell apart."""
    choices: list[list[tuple[str, tuple[str, Any] | None]]] = []
    for name in sorted({each.name for each in predicates}):
        values: set[tuple[str, Any] | None] = {None}
        for each in predicates:
            if each.name == name:
                points = turning_points(DOMAINS[each.kind], each.keys)
                values |= {(each.kind, key) for key in points if key is not None}
        choices.append([(name, value) for value in values])
    for chosen in product(*choices):
        yield {name: value for name, value in chosen if value is not None}


def all_hold(predicates: list[Predicate], event: dict[str, tuple[str, Any]]) -> bool:
    return all(holds(each, event.get(each.name)) for each in predicates)


def plain(event: dict[str, tuple[str, Any]]) -> dict[str, Value]:
    """The event as an application would give it."""
    return {name: DOMAINS[kind].value(key) for name, (kind, key) in event.items()}


@st.composite
def keys(draw: st.DrawFn, kind: str) -> Any:
    """Mostly the few of KEYS, sometimes any."""
    anything = {
        "number": st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
        "string": st.text(max_size=5),
        "boolean": st.booleans(),
        "timestamp": st.integers(TIMESTAMPS.least, 10**16),
    }
    return draw(st.sampled_from(KEYS[kind]) | anything[kind])


@st.composite
def predicates(draw: st.DrawFn, names: tuple[str, ...] = NAMES, kind: str | None = None) -> Predicate:
    kind = kind or draw(st.sampled_from(["number", "number", "string", "string", "boolean", "timestamp"]))
    operators = [
        operator
        for operator in OPERATORS
        if not (operator == "prefix" and kind != "string") and not (kind == BOOLEANS.kind and operator[0] in "<>")
    ]
    operator = draw(st.sampled_from(operators))
    count = draw(st.integers(1, 4)) if operator in ("in", "not in") else 1
    return Predicate(draw(st.sampled_from(names)), operator, kind, tuple(draw(keys(kind)) for _ in range(count)))


def conjunctions(count_max: int = 3) -> st.SearchStrategy[list[Predicate]]:
    return st.lists(predicates(), min_size=1, max_size=count_max)


def filter_or_none(predicates: list[Predicate]) -> Filter | None:
    """None if it is contradictory."""
    try:
        return Filter.of(predicates)
    except Contradiction:
        return None


def filters(count_max: int = 3) -> st.SearchStrategy[Filter]:
    """Filters that something can match."""
    return conjunctions(count_max).map(filter_or_none).filter(lambda found: found is not None)  # type: ignore[return-value]


@st.composite
def events(draw: st.DrawFn) -> Attributes:
    """Attributes of an event, with the few values of KEYS, so that filters match them."""
    names = draw(st.sets(st.sampled_from(NAMES)))
    kinds = st.sampled_from(sorted(DOMAINS))
    return {name: DOMAINS[kind].value(draw(keys(kind))) for name in sorted(names) for kind in [draw(kinds)]}
