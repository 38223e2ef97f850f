"""Filters: conjunctions of predicates over the attributes of events, and what can be asked about them, exactly.

A filter is kept as the set of values that it allows for each attribute it names (spans.py), so that filters that match
the same events are equal. An attribute that it does not name may be absent or have any value.

- `matches(attributes)`: the event has every attribute named, each with an allowed value.
- `intersects(other)`: some event matches both. Attributes are independent of each other, so it is enough to look at
  those that both name: they must be of one type and have an allowed value in common.
- `covers(other)`: every event that matches `other` matches this one. `other` must name every attribute that this one
  names, and allow nothing that this one does not.

No filter is contradictory: one that no event can match is refused where it is made.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple, NoReturn

from seriatim.filters.errors import Contradiction, FilterError
from seriatim.filters.limits import FILTER_ATTRIBUTES_MAX, FILTER_CHARACTERS_MAX, FILTER_VALUES_MAX, NAME_CHARACTERS_MAX
from seriatim.filters.predicates import Predicate, allowed, canonical, predicate
from seriatim.filters.spans import Spans, contains, intersection
from seriatim.filters.values import DOMAINS, Attributes, Kind, Value, check_name, typed

EVERYTHING_TEXT = "true"
_CHARACTERS_PER_CHARACTER = 6  # a character that is written as an escape
_CHARACTERS_PER_VALUE = 40 + NAME_CHARACTERS_MAX


class Constraint(NamedTuple):
    """The values that a filter allows for one attribute."""

    name: str
    kind: Kind
    spans: Spans


class Filter:
    """A conjunction of predicates; see the module. Make one with `parse` or `attribute`."""

    __slots__ = ("constraints",)
    constraints: tuple[Constraint, ...]  # by name, each name once

    def __init__(self, constraints: Iterable[Constraint] = ()) -> None:
        self.constraints = tuple(constraints)

    @classmethod
    def of(cls, predicates: Iterable[Predicate]) -> "Filter":
        """The conjunction of these predicates; `Contradiction` if no event can match them all."""
        by_name: dict[str, list[Predicate]] = {}
        for each in predicates:
            by_name.setdefault(each.name, []).append(each)
        constraints = [_constraint(name, by_name[name]) for name in sorted(by_name)]
        _check_size(constraints, sum(len(each.keys) for group in by_name.values() for each in group))
        return cls(constraints)

    def matches(self, attributes: Attributes) -> bool:
        """Whether an event with these attributes matches."""
        for name, kind, spans in self.constraints:
            if name not in attributes:
                return False
            value_kind, key = typed(name, attributes[name])
            if value_kind != kind or not contains(spans, key):
                return False
        return True

    def intersects(self, other: "Filter") -> bool:
        """Whether some event matches both."""
        theirs = {constraint.name: constraint for constraint in other.constraints}
        for name, kind, spans in self.constraints:
            their = theirs.get(name)
            if their is not None and (their.kind != kind or not intersection(spans, their.spans)):
                return False
        return True

    def intersection(self, other: "Filter") -> "Filter | None":
        """The filter that matches what both match; None if there is nothing."""
        if not self.intersects(other):
            return None
        merged = {constraint.name: constraint for constraint in self.constraints}
        for name, kind, spans in other.constraints:
            mine = merged.get(name)
            merged[name] = Constraint(name, kind, spans if mine is None else intersection(mine.spans, spans))
        constraints = [merged[name] for name in sorted(merged)]
        result = Filter(constraints)
        _check_size(constraints, sum(len(each.keys) for each in result.predicates()))
        return result

    def covers(self, other: "Filter") -> bool:
        """Whether every event that matches `other` matches this one."""
        theirs = {constraint.name: constraint for constraint in other.constraints}
        for name, kind, spans in self.constraints:
            their = theirs.get(name)
            if their is None or their.kind != kind or intersection(spans, their.spans) != their.spans:
                return False
        return True

    def witness(self) -> dict[str, Value]:
        """The attributes of an event that matches: of each, the smallest value allowed."""
        return {name: DOMAINS[kind].value(spans[0]) for name, kind, spans in self.constraints}

    def predicates(self) -> list[Predicate]:
        """The filter as predicates, in its one canonical form."""
        return [each for name, kind, spans in self.constraints for each in canonical(name, kind, spans)]

    def __and__(self, other: "Filter") -> "Filter":
        """A filter for events that match both; `Contradiction` if none can."""
        if not isinstance(other, Filter):
            return NotImplemented
        return Filter.of([*self.predicates(), *other.predicates()])

    def __str__(self) -> str:
        """The canonical text: equal filters have equal texts, and parsing it gives the filter back."""
        return " and ".join(map(str, self.predicates())) or EVERYTHING_TEXT

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.constraints == other.constraints

    def __hash__(self) -> int:
        return hash(self.constraints)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a filter is not true or false by itself: join two with `&`, not with `and`, "
            "write `(a > 1) & (a < 5)`, not `1 < a < 5`, and ask `filter.matches(attributes)`"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter, (self.constraints,)


EVERYTHING = Filter()


class Attribute:
    """An attribute to compare, which makes a filter: `(attribute("price") > 100) & (attribute("region") == "EU")`."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]  # == makes a filter, so it cannot be a key

    def __init__(self, name: str) -> None:
        self.name = check_name(name)

    def _filter(self, operator: str, *values: object) -> Filter:
        return Filter.of([predicate(self.name, operator, values)])

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return self._filter("=", value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return self._filter("!=", value)

    def __lt__(self, value: Value) -> Filter:
        return self._filter("<", value)

    def __le__(self, value: Value) -> Filter:
        return self._filter("<=", value)

    def __gt__(self, value: Value) -> Filter:
        return self._filter(">", value)

    def __ge__(self, value: Value) -> Filter:
        return self._filter(">=", value)

    def prefix(self, value: str) -> Filter:
        """A string that begins with this."""
        return self._filter("prefix", value)

    def one_of(self, *values: Value) -> Filter:
        """One of these values."""
        return self._filter("in", *values)

    def none_of(self, *values: Value) -> Filter:
        """A value of the same type, and none of these."""
        return self._filter("not in", *values)

    def __repr__(self) -> str:
        return f"attribute({self.name!r})"


attribute = Attribute


def _constraint(name: str, predicates: list[Predicate]) -> Constraint:
    """The values that all of these predicates allow."""
    kind = predicates[0].kind
    for each in predicates:
        if each.kind != kind:
            reason = f"{predicates[0]} asks for a {kind}, {each} for a {each.kind}"
            raise Contradiction(reason, "compare it with values of one type")
    spans = _together(predicates)
    if not spans:
        raise _contradiction(predicates)
    return Constraint(name, kind, spans)


def _together(predicates: Iterable[Predicate]) -> Spans:
    return reduce(intersection, map(allowed, predicates))


def _contradiction(predicates: list[Predicate]) -> Contradiction:
    """The smallest set of predicates that exclude each other."""
    needed = list(predicates)
    for each in predicates:
        rest = list(needed)
        rest.remove(each)
        if rest and not _together(rest):
            needed = rest
    kind = predicates[0].kind
    if len(needed) == 1:
        return Contradiction(f"there are no {kind}s with {needed[0]}", "leave it out or change its value")
    return Contradiction(f"no {kind} has {' and '.join(map(str, needed))}", "leave one of them out")


def _check_size(constraints: list[Constraint], values: int) -> None:
    """Refuse a filter that would cost every broker on its way too much."""
    if len(constraints) > FILTER_ATTRIBUTES_MAX:
        problem = f"{len(constraints)} attributes, and a filter may name {FILTER_ATTRIBUTES_MAX}"
        raise FilterError(problem, "leave some of them out")
    if values > FILTER_VALUES_MAX:
        problem = f"{values} values, and a filter may have {FILTER_VALUES_MAX}"
        raise FilterError(problem, "use several filters, or a span of values")
    bounds = [bound for constraint in constraints for bound in constraint.spans]
    text = sum(len(bound) for bound in bounds if isinstance(bound, str))
    if len(bounds) * _CHARACTERS_PER_VALUE + text * _CHARACTERS_PER_CHARACTER <= FILTER_CHARACTERS_MAX:
        return  # otherwise it is worth writing it out
    if (length := len(str(Filter(constraints)))) > FILTER_CHARACTERS_MAX:
        problem = f"{length} characters, and a filter may have {FILTER_CHARACTERS_MAX}"
        raise FilterError(problem, "use several filters, or shorter values")
