"""One predicate: what a user writes about one attribute, and the set of values that it allows; and back again.

A predicate holds only for an event that *has* the attribute, with a value of the type it is compared with. So
`price != 5` does not hold where there is no price, nor where the price is "five": an event that says nothing matches
nothing, as for NULL in SQL, and no value is ever converted.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from seriatim.filters.errors import FilterError
from seriatim.filters.limits import FILTER_STRING_CHARACTERS_MAX, FILTER_VALUES_MAX
from seriatim.filters.spans import Spans, complement, enumerated, points, span
from seriatim.filters.values import BOOLEANS, DOMAINS, STRINGS, Domain, Key, Kind, after_prefix, typed
from seriatim.model import InputError

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "prefix", "in", "not in")
LISTS = ("in", "not in")
_VALUES_MAX = 2 * FILTER_VALUES_MAX  # of two filters together, before they are found to be too many


class Predicate(NamedTuple):
    """`name operator keys`, all keys of one type; more or fewer than one only for `in` and `not in`."""

    name: str
    operator: str
    kind: Kind
    keys: tuple[Key, ...]

    def __str__(self) -> str:
        literals = ", ".join(map(DOMAINS[self.kind].literal, self.keys))
        return f"{self.name} {self.operator} " + (f"({literals})" if self.operator in LISTS else literals)


def predicate(name: str, operator: str, values: Iterable[object]) -> Predicate:
    """A predicate from Python values, checked."""
    kinds: dict[Kind, object] = {}
    keys = []
    for value in values:
        try:
            kind, key = typed(name, value)
        except InputError as error:
            raise FilterError(f"{name}: {error.problem}", error.fix) from error
        if kind == "string" and len(key) > FILTER_STRING_CHARACTERS_MAX:
            size = f"a string of {len(key)} characters, and a filter may have {FILTER_STRING_CHARACTERS_MAX}"
            raise FilterError(f"{name}: {size}", "use prefix with the beginning of it")
        kinds.setdefault(kind, value)
        keys.append(key)
    if not keys:
        raise FilterError(f"{name} {operator}: no value", "list at least one")
    if len(kinds) > 1:
        raise FilterError(f"{name} {operator}: {' and '.join(kinds)} in one list", "give values of one type")
    kind = next(iter(kinds))
    if operator == "prefix" and kind != "string":
        raise FilterError(f"{name}: a {kind} has no prefix", f"compare it: {name} = …, or give a string")
    if operator in ("<", "<=", ">", ">=") and kind == "boolean":
        raise FilterError(f"{name}: booleans have no order", f"write {name} = true or {name} = false")
    return Predicate(name, operator, kind, tuple(keys))


def allowed(it: Predicate) -> Spans:
    """The values for which it holds."""
    domain = DOMAINS[it.kind]
    match it.operator:
        case "=" | "in":
            return points(domain, it.keys)
        case "!=" | "not in":
            return complement(domain, points(domain, it.keys))
        case "prefix":
            return span(it.keys[0], after_prefix(it.keys[0]))
    key, after = it.keys[0], domain.successor(it.keys[0])
    match it.operator:
        case "<":
            return span(domain.least, key)
        case "<=":
            return span(domain.least, after)
        case ">=":
            return span(key, None)
        case ">":
            return () if after is None else span(after, None)
    raise ValueError(f"operator {it.operator!r}; one of {', '.join(OPERATORS)}")


def canonical(name: str, kind: Kind, spans: Spans) -> Iterator[Predicate]:
    """The predicates that together allow exactly this set: a function of the set, whatever it was made from.

    Only sets that predicates can make: finite ones, and a span without finitely many points. The shorter of two ways to
    write it is taken, by the number of values, and then by the length of each.
    """
    domain = DOMAINS[kind]
    members = enumerated(domain, spans, 1) or []
    if len(spans) > 2 or kind == BOOLEANS.kind:
        members = enumerated(domain, spans, _VALUES_MAX) or []
    bounds = list(_bounds(name, domain, spans))
    gaps: list[Key] | None = []
    if len(spans) > 2:
        gaps = enumerated(domain, spans[1 : len(spans) - 1 + len(spans) % 2], _VALUES_MAX)
    if members and (kind == BOOLEANS.kind or gaps is None or len(members) <= len(gaps) + len(bounds)):
        yield _listed(name, "=", "in", kind, members)
        return
    assert gaps is not None, f"{name}: not a conjunction of predicates: {spans}"
    yield from bounds
    if gaps:
        yield _listed(name, "!=", "not in", kind, gaps)


def _listed(name: str, one: str, many: str, kind: Kind, keys: list[Key]) -> Predicate:
    return Predicate(name, one if len(keys) == 1 else many, kind, tuple(keys))


def _bounds(name: str, domain: Domain, spans: Spans) -> Iterator[Predicate]:
    """Where the set begins and ends; a prefix says both."""
    low, high = spans[0], spans[-1] if len(spans) % 2 == 0 else None
    if domain is STRINGS and low and high == after_prefix(low):
        yield Predicate(name, "prefix", domain.kind, (low,))
        return
    if low != domain.least or (high is None and len(spans) == 1):
        yield _shorter(name, domain, ">=", low, ">", domain.predecessor(low))
    if high is not None:
        yield _shorter(name, domain, "<", high, "<=", domain.predecessor(high))


def _shorter(name: str, domain: Domain, near: str, key: Key, far: str, before: Key | None) -> Predicate:
    """The bound at `key` or, with the other operator, at the key before it."""
    if before is not None and len(domain.literal(before)) < len(domain.literal(key)):
        return Predicate(name, far, domain.kind, (before,))
    return Predicate(name, near, domain.kind, (key,))
