"""Filters as Spark columns: the same answer as `Filter.matches`, for every row, never null.

A filter allows, for each attribute it names, certain spans of values (seriatim/filters). Here each span becomes a
comparison that Spark can push down to the files. Attributes are found in one of two places:

- `matches_columns`: tables with a column per attribute. Null is an absent attribute. The bounds of a span are moved to
  the next value that the type of the column has, so that an integer column is never compared as a float.
- `matches_headers`: the headers of archived events, as they travelled (seriatim/filters/attributes.py). A header that
  cannot be read is an absent attribute, as it is for subscribers.
"""

import math
from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from seriatim.filters import HEADER_PREFIX, Constraint, Filter
from seriatim.filters.limits import EVENT_ATTRIBUTES_MAX, EVENT_STRING_CHARACTERS_MAX, NUMBER_CHARACTERS_MAX
from seriatim.filters.parser import INTEGER_PATTERN, NUMBER_PATTERN, TIMESTAMP_PATTERN
from seriatim.filters.spans import Spans, contains, pairs
from seriatim.filters.values import FLOAT_MAX, INTEGER_MAX, INTEGER_MIN, TIMESTAMP_MAX, Key
from seriatim.model import InputError

SPACE = r"[ \t\n\r\f\x0B]*"  # what the parser skips around a value

Literal = Callable[[Key], Column]


def matches_columns(filter: Filter, schema: T.StructType) -> Column:
    """Whether a row of a table with this schema matches: an attribute is the column of its name."""
    types = {field.name: field.dataType for field in schema.fields}
    return _all(
        _column_allows(constraint, types[constraint.name]) if constraint.name in types else F.lit(False)
        for constraint in filter.constraints
    )


def matches_headers(filter: Filter, headers: Column) -> Column:
    """Whether an event with these headers (a map of text to text, or null) matches."""
    if not filter.constraints:
        return F.lit(True)
    names = F.filter(F.map_keys(headers), lambda name: name.startswith(HEADER_PREFIX))
    fits = F.size(names) <= EVENT_ATTRIBUTES_MAX
    texts = {each.name: F.try_element_at(headers, F.lit(HEADER_PREFIX + each.name)) for each in filter.constraints}
    return _true(fits & _all(_header_allows(each, texts[each.name]) for each in filter.constraints))


def _column_allows(constraint: Constraint, type: T.DataType) -> Column:
    column = F.col("`" + constraint.name.replace("`", "``") + "`")
    for types, kind, allows in BY_TYPE:
        if isinstance(type, types):
            return _true(allows(constraint.spans, column)) if kind == constraint.kind else F.lit(False)
    problem = f"{type.simpleString()} is not a type of attributes"
    fix = "cast it to bigint, double, string, boolean or timestamp"
    raise InputError(f"column {constraint.name}", problem, fix)


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _header_allows(constraint: Constraint, header: Column) -> Column:
    """The text tells the type; one of another type, and one that cannot be read, allows nothing."""
    text = F.regexp_replace(header, rf"\A{SPACE}|{SPACE}\z", "")
    spans = constraint.spans
    match constraint.kind:
        case "number":
            is_short = F.length(text) <= NUMBER_CHARACTERS_MAX
            as_integer = _true(_integer_allows(spans, text.try_cast("bigint")))
            as_float = _true(_float_allows(spans, text.try_cast("double")))
            number = F.when(_is(text, INTEGER_PATTERN), as_integer).otherwise(as_float)
            return _true(is_short & _is(text, NUMBER_PATTERN)) & number
        case "boolean":
            return _true(F.when(text == "true", contains(spans, True)).when(text == "false", contains(spans, False)))
        case "timestamp":
            return _true(_is(text, TIMESTAMP_PATTERN) & _timestamp_allows(spans, text.try_cast("timestamp")))
    string = _string(text)
    return _true((F.length(string) <= EVENT_STRING_CHARACTERS_MAX) & _string_allows(spans, string))


def _is(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")


def _string(text: Column) -> Column:
    """The value of a JSON string; null if it is not one."""
    # One string and nothing else: without its escapes, two quotation marks, the first and the last character.
    bare = F.regexp_replace(text, r"\\.", "")
    is_one = bare.startswith('"') & bare.endswith('"') & (F.length(bare) - F.length(F.replace(bare, F.lit('"'))) == 2)
    # Half of a surrogate pair is not a character.
    unescaped = F.regexp_replace(text, r"\\\\", "")
    paired = F.regexp_replace(unescaped, r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", "")
    is_whole = ~paired.rlike(r"\\u[dD][89a-fA-F]")
    decoded = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>", {"allowSingleQuotes": "false"})
    return F.when(is_one & is_whole, F.try_element_at(decoded, F.lit(1)))


# ── spans of each type ────────────────────────────────────────────────────────────────────────────────────────────


def _integer_allows(spans: Spans, column: Column) -> Column:
    """x ≥ b and x < b are x ≥ ⌈b⌉ and x < ⌈b⌉ for integers."""

    def bound(key: Key) -> int:
        integer: int = math.ceil(key)
        return min(max(integer, INTEGER_MIN), INTEGER_MAX + 1)

    moved = _moved(spans, bound, INTEGER_MAX + 1)
    return _allows(moved[:-1] if moved and moved[-1] > INTEGER_MAX else moved, column, _long)


def _float_allows(spans: Spans, column: Column) -> Column:
    """x ≥ b and x < b are the same for the smallest float that is not below b. Infinities and nan match nothing."""

    def bound(key: Key) -> float:
        nearest = float(key)
        return nearest if nearest >= key else math.nextafter(nearest, math.inf)

    column = column.cast("double")
    allowed = _allows(_moved(spans, bound, None), column, lambda key: F.lit(float(key)))
    return (column <= FLOAT_MAX) & allowed  # nan is larger than everything for Spark


def _string_allows(spans: Spans, column: Column) -> Column:
    return _allows(spans, column, F.lit)


def _boolean_allows(spans: Spans, column: Column) -> Column:
    return (column & F.lit(contains(spans, True))) | (~column & F.lit(contains(spans, False)))


def _timestamp_allows(spans: Spans, column: Column) -> Column:
    bounded = _moved(spans, lambda key: key, TIMESTAMP_MAX + 1)
    return _allows(bounded, column, lambda key: F.timestamp_micros(_long(key)))


BY_TYPE: tuple[tuple[tuple[type[T.DataType], ...], str, Callable[[Spans, Column], Column]], ...] = (
    ((T.ByteType, T.ShortType, T.IntegerType, T.LongType), "number", _integer_allows),
    ((T.FloatType, T.DoubleType), "number", _float_allows),
    ((T.StringType,), "string", _string_allows),
    ((T.BooleanType,), "boolean", _boolean_allows),
    ((T.TimestampType,), "timestamp", _timestamp_allows),
)


def _long(key: Key) -> Column:
    return F.lit(key).cast("bigint")


def _moved(spans: Spans, bound: Callable[[Key], Key], end: Key | None) -> Spans:
    """Convert the bounds of a set to another type, and cut it at `end`."""
    bounds: list[Key] = []
    for low, high in pairs(spans):
        start, stop = bound(low), end if high is None else bound(high)
        if stop is None or start < stop:
            if bounds and bounds[-1] == start:
                bounds.pop()  # the gap between them has no value of this type
            else:
                bounds.append(start)
            if stop is not None:
                bounds.append(stop)
    return tuple(bounds)


def _allows(spans: Spans, column: Column, literal: Literal) -> Column:
    """Whether the value is in one of the spans; null if there is no value."""
    return _any(
        [
            column >= literal(low) if high is None else (column >= literal(low)) & (column < literal(high))
            for low, high in pairs(spans)
        ]
    )


def _any(conditions: list[Column]) -> Column:
    """Any of these, as a balanced tree: Spark walks expressions recursively, and lists may be long."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else F.lit(False)
    middle = len(conditions) // 2
    return _any(conditions[:middle]) | _any(conditions[middle:])


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions, F.lit(True))


def _true(condition: Column) -> Column:
    """The condition, with false in place of null."""
    return F.coalesce(condition, F.lit(False))
