"""Each type is a chain: every value has a next one, and nothing is between them."""

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.filters import parse_value
from seriatim.filters.limits import EVENT_ATTRIBUTES_MAX, EVENT_STRING_CHARACTERS_MAX
from seriatim.filters.values import (
    DOMAINS,
    FLOAT_MAX,
    NUMBERS,
    STRINGS,
    TIMESTAMPS,
    after_prefix,
    typed,
    typed_attributes,
)
from seriatim.model import InputError
from tests.filters.cases import KEYS, keys

numbers = keys("number")


@given(numbers)
def test_nothing_is_between_a_number_and_the_next(number: Any) -> None:
    following = NUMBERS.successor(number)
    if following is None:
        assert number == FLOAT_MAX
        return
    assert number < following
    # A float or an integer between them would be one of these.
    nearest = float(number)
    for candidate in (nearest, math.nextafter(nearest, math.inf), math.floor(number) + 1):
        is_value = isinstance(candidate, float) or abs(candidate) < 2**63
        assert not (is_value and number < candidate < following)
    assert isinstance(following, float) or -(2**63) <= following < 2**63
    assert NUMBERS.predecessor(following) == number


def test_where_integers_are_denser_than_floats_and_where_they_end() -> None:
    assert NUMBERS.successor(2**53) == 2**53 + 1
    assert NUMBERS.successor(2**63 - 1) == 2.0**63
    assert NUMBERS.successor(2.0**63) == math.nextafter(2.0**63, math.inf)
    assert NUMBERS.predecessor(-(2**63)) == math.nextafter(-(2.0**63), -math.inf)
    assert NUMBERS.predecessor(NUMBERS.least) is None
    assert NUMBERS.successor(0) == NUMBERS.successor(-0.0) == 5e-324


def test_zero_is_one_number() -> None:
    assert NUMBERS.code(-0.0) == NUMBERS.code(0.0) == NUMBERS.code(0)
    assert NUMBERS.literal(-0.0) == "0"


@given(st.text(max_size=3), st.text(max_size=3))
def test_nothing_is_between_a_string_and_the_next(string: str, other: str) -> None:
    following = STRINGS.successor(string)
    assert following is not None
    assert not string < other < following
    assert STRINGS.predecessor(following) == string


@given(keys("string"), keys("string"))
def test_strings_with_a_prefix_are_a_span(prefix: str, other: str) -> None:
    end = after_prefix(prefix)
    for string in (other, prefix + other):
        assert string.startswith(prefix) == (prefix <= string and (end is None or string < end))


@pytest.mark.parametrize("kind", sorted(DOMAINS))
@given(data=st.data())
def test_codes_keep_the_order_and_literals_the_value(kind: str, data: st.DataObject) -> None:
    domain = DOMAINS[kind]
    low, high = sorted([data.draw(keys(kind)), data.draw(keys(kind))])
    assert 0 <= domain.code(low) <= domain.code(high) < 2**domain.code_bits
    for key in (low, high):
        assert domain.least <= key
        assert typed("x", domain.value(key)) == (kind, key)
        assert typed("x", parse_value(domain.literal(key))) == (kind, key)


@pytest.mark.parametrize("kind", sorted(DOMAINS))
def test_the_few_keys_of_the_tests_include_the_smallest(kind: str) -> None:
    assert DOMAINS[kind].least in KEYS[kind]


def test_the_same_moment_in_two_zones_is_one_value() -> None:
    utc = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert typed("at", utc) == typed("at", utc.astimezone(timezone(timedelta(hours=5, minutes=30))))
    assert TIMESTAMPS.literal(typed("at", utc)[1]) == "2026-11-16T12:00:00Z"


class Region(StrEnum):
    EUROPE = "EU"


def test_subclasses_count_as_what_they_are() -> None:
    assert typed("region", Region.EUROPE) == ("string", "EU")
    assert typed("flag", True) == ("boolean", True)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "NoneType is not a type of attributes"),
        ([1], "list is not a type of attributes"),
        (math.nan, "nan is not a number"),
        (math.inf, "inf is not a number"),
        (2**63 + 1, "neither a 64-bit integer nor a 64-bit float"),
        (10**400, "neither a 64-bit integer nor a 64-bit float"),
        ("\ud800", "half of a surrogate pair is not a character"),
        ("x" * (EVENT_STRING_CHARACTERS_MAX + 1), "1025 characters, and an attribute may have 1024"),
        (datetime(2026, 1, 1), "a timestamp without a time zone"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "a timestamp outside the years 1 to 9999 in UTC"),
    ],
)
def test_what_is_not_a_value_is_named(value: object, problem: str) -> None:
    with pytest.raises(InputError, match=f"^price: {problem}; "):
        typed("price", value)


def test_an_event_has_a_limited_number_of_attributes() -> None:
    attributes = {f"a{i}": i for i in range(EVENT_ATTRIBUTES_MAX)}
    assert len(typed_attributes(attributes)) == EVENT_ATTRIBUTES_MAX
    with pytest.raises(InputError, match="attributes: 65 of them"):
        typed_attributes(attributes | {"more": 1})
