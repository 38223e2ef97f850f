"""An error points at its character and says what to write instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.filters import Contradiction, FilterError, parse, parse_value
from seriatim.filters.limits import FILTER_CHARACTERS_MAX
from seriatim.model import InputError


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "an empty filter; write a predicate such as price > 100, or true for all events"),
        ("price", 5, "an operator is missing after price; "),
        ("price >", 7, "the value is missing after price >; "),
        ("price > 100 and", 15, 'a predicate is missing after "and"; '),
        ("price == 100", 6, "== is not an operator; write ="),
        ("price <> 100", 6, "<> is not an operator; write !="),
        ("price => 100", 6, "=> is not an operator; write >="),
        ("name like 100", 5, "like is not an operator; there are no patterns; "),
        ("price between 1 and 2", 6, "between is not an operator; write two predicates"),
        ("price is null", 6, "is is not an operator; a predicate holds only where the attribute is present"),
        ("price = null", 8, "null is not a value; a predicate holds only where the attribute is present"),
        ("region = EU", 9, 'EU is not a value after region =; write a string in double quotes: "EU"'),
        ("region = 'EU'", 9, "' is not a quotation mark of filters; write a string in double quotes"),
        ("region = “EU”", 9, "“ is not a quotation mark of filters; "),
        ('region = "EU', 9, "a string without an end; "),
        (r'region = "E\q"', 11, r"in a string: Invalid \\escape"),
        ('region = "a\nb"', 11, "in a string: Invalid control character"),
        (r'region = "\ud800"', 9, "half of a surrogate pair is not a character"),
        ("flag = TRUE", 7, "TRUE is not a value; write true"),
        ("100 < price", 0, "100 stands where the name of an attribute belongs; write price > 100"),
        ('"EU" = region', 0, '"EU" stands where the name of an attribute belongs; write region = "EU"'),
        ("1 < price < 5", 0, "1 stands where the name of an attribute belongs; write price > 1"),
        ("price > 1 < 5", 10, "two comparisons in a row; write two predicates"),
        ("a > 1 or b > 1", 6, "there is no or; a filter is a conjunction; subscribe with two filters"),
        ("a > 1 || b > 1", 6, r"there is no \|\|; a filter is a conjunction"),
        ("a > 1 && b > 1", 6, "&& between predicates; write and"),
        ("a > 1 AND b > 1", 6, "AND between predicates; write and"),
        ("a > 1, b > 1", 5, ", between predicates; write and"),
        ("a > 1 b > 1", 6, "b after a predicate; write and before the next one"),
        ("not a > 1", 0, "there is no negation of a predicate; "),
        ("a not > 1", 6, "> after not; write not in"),
        ("(a > 1)", 0, "a filter needs no parentheses; leave them out"),
        ("a IN (1)", 2, "IN is not an operator; write in"),
        ("a in 1", 5, r"the list is missing after in; write in \("),
        ("a in ()", 6, "an empty list; list at least one value"),
        ("a in (1 2)", 8, "2 in a list; write , before another value"),
        ("a in (1, 2", 10, "the end in a list; "),
        ('a in (1, "x")', 0, "a in: number and string in one list; give values of one type"),
        ("a prefix 1", 0, "a: a number has no prefix; "),
        ("a > true", 0, "a: booleans have no order; write a = true or a = false"),
        ("a > 007", 4, "007 is not a number; write it as in JSON"),
        ("a > -.5", 4, "-.5 is not a number; "),
        ("a > 0x10", 4, "0x10 is not a number; "),
        ("a > 1e999", 4, "1e999 is larger than any number; "),
        (
            "a > 9223372036854775809",
            4,
            "9223372036854775809 is not a 64-bit integer; write the nearest float: 9.223372036854776e",
        ),
        ("a > " + "1" * 65, 4, "a number of 65 characters; "),
        ("a > 2026-11-16", 4, "2026-11-16 is not a timestamp; write day, time and zone: 2026-11-16T00:00:00Z"),
        ("a > 2026-11-16T12:00:00", 4, "2026-11-16T12:00:00 is not a timestamp; "),
        ("a > 2026-02-30T12:00:00Z", 4, "not a timestamp: day is out of range for month"),
        ("a > 2026-11-16T24:00:00Z", 4, "2026-11-16T24:00:00Z is not a timestamp; "),
        ("a > 2026-11-16T12:00:00+19:00", 4, r"2026-11-16T12:00:00\+19:00 is not a timestamp; "),
        ("a > 0001-01-01T00:00:00+01:00", 4, "a timestamp outside the years 1 to 9999"),
        ("a. > 1", 0, "a. is not the name of an attribute; write dots only between words"),
        ("and > 1", 0, "and: a word of the filter language; "),
        ("a > $1", 4, r"\$ means nothing here; "),
        ("price-x > 1", 5, "- means nothing here; "),
        ("a" * 65 + " > 1", 0, "65 characters, and a name may have 64"),
        ("true and a > 1", 5, "true stands alone for all events; "),
        (" and ".join(f"a != {i}" for i in range(257)), 3218, "more than 256 values; "),
        (" and ".join(f"a{i} = 1" for i in range(33)), 374, "33 attributes, and a filter may name 32"),
    ],
)
def test_an_error_points_at_its_character(text: str, position: int, message: str) -> None:
    with pytest.raises(FilterError, match=message) as caught:
        parse(text)
    assert caught.value.position == position
    assert str(caught.value).startswith(f"filter, character {position + 1}: ")


def test_the_place_is_shown_below_the_message() -> None:
    with pytest.raises(FilterError) as caught:
        parse('price > 100 and region == "EU"')
    assert str(caught.value).splitlines() == [
        "filter, character 24: == is not an operator; write =",
        '  price > 100 and region == "EU"',
        "                         ^",
    ]


def test_of_a_long_filter_the_neighbourhood_is_shown() -> None:
    text = " and ".join(f"a{i} > {i}" for i in range(30)).replace("a20 >", "a20 ==")
    with pytest.raises(FilterError) as caught:
        parse(text)
    _, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :].startswith("== 20")
    assert line.startswith("  …")
    assert line.endswith("…")


def test_a_contradiction_points_at_the_predicate_that_makes_it_one() -> None:
    with pytest.raises(Contradiction) as caught:
        parse("price > 100 and x = 1 and price < 50 and y = 2")
    assert str(caught.value).splitlines() == [
        "filter, character 27: no number has price > 100 and price < 50: it matches nothing; leave one of them out",
        "  price > 100 and x = 1 and price < 50 and y = 2",
        "                            ^",
    ]


def test_a_text_that_is_too_long_is_not_read() -> None:
    with pytest.raises(FilterError, match="65537 characters, and a filter may have 65536"):
        parse("x" * (FILTER_CHARACTERS_MAX + 1))
    with pytest.raises(FilterError, match="NoneType is not text"):
        parse(None)  # type: ignore[arg-type]


PARTS = [
    "price",
    "and",
    "or",
    "not",
    "in",
    "prefix",
    "(",
    ")",
    ",",
    '"',
    '"a"',
    "1",
    "=",
    ">",
    "!",
    "\\",
    "\x00",
    "true",
    "2026-11-16",
    "T12:00:00Z",
    "-",
    ".",
    "e",
]
PARTS += [" ", "\n", "\0", "\u2019", "\u0663"]  # a quotation mark and a digit that are not those of the language


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(max_size=30))
def test_whatever_the_text_it_is_a_filter_or_a_filter_error(text: str) -> None:
    try:
        found = parse(text)
    except FilterError as error:
        assert error.position is not None
        assert 0 <= error.position <= len(text)
        assert str(error)
    else:
        assert parse(str(found)) == found


def test_one_value() -> None:
    assert parse_value(" 1.5 ") == 1.5
    assert parse_value('"EU"') == "EU"
    with pytest.raises(InputError, match="one value is all there may be; leave out 2 and what follows"):
        parse_value("1 2")
