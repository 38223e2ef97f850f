"""Attributes travel as headers, and arrive as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.filters import HEADER_PREFIX, Attributes, attributes_of, headers_of
from seriatim.filters.limits import EVENT_ATTRIBUTES_MAX
from seriatim.filters.values import typed_attributes
from seriatim.model import InputError
from tests.filters.cases import events


@given(events())
def test_what_is_sent_arrives(attributes: Attributes) -> None:
    headers = headers_of(attributes)
    assert typed_attributes(attributes_of(headers)) == typed_attributes(attributes)
    for name, text in headers.items():
        assert name.startswith(HEADER_PREFIX)
        assert text.isascii()
        assert text.isprintable()


def test_headers_as_they_look() -> None:
    assert headers_of({"price": 101.5, "region": "EU\r\nx", "name": "é😀", "is_open": True}) == {
        "Attribute-price": "101.5",
        "Attribute-region": r'"EU\r\nx"',
        "Attribute-name": r'"\u00e9\ud83d\ude00"',
        "Attribute-is_open": "true",
    }


def test_any_client_may_write_them() -> None:
    headers = {"Attribute-name": ' "é😀" ', "Attribute-count": "1.50e1", "Nats-Msg-Id": "7", "attribute-other": "1"}
    assert attributes_of(headers) == {"name": "é😀", "count": 15}
    assert attributes_of(None) == {}


@pytest.mark.parametrize(
    ("header", "text", "message"),
    [
        ("Attribute-region", "EU", 'header Attribute-region: EU is not a value; .*"EU"'),
        ("Attribute-zip", "007", "007 is not a number"),
        ("Attribute-price", "1 2", "one value is all there may be"),
        ("Attribute-price", "", "the value is missing"),
        ("Attribute-a b", "1", "not a name"),
        ("Attribute-", "1", "not a name"),
        ("Attribute-text", '"' + 2_000 * "x" + '"', "2000 characters, and an attribute may have 1024"),
    ],
)
def test_what_cannot_be_read_is_absent_and_told(header: str, text: str, message: str) -> None:
    problems: list[InputError] = []
    assert attributes_of({header: text, "Attribute-good": "1"}, problems) == {"good": 1}
    (problem,) = problems
    with pytest.raises(InputError, match=message):
        raise problem


def test_too_many_attributes_are_none() -> None:
    headers = headers_of({f"a{i}": i for i in range(EVENT_ATTRIBUTES_MAX)})
    assert len(attributes_of(headers)) == EVENT_ATTRIBUTES_MAX
    problems: list[InputError] = []
    assert attributes_of(headers | {"Attribute-more": "1"}, problems) == {}
    assert "65 attributes, and an event may have 64" in str(problems[0])


@given(st.dictionaries(st.sampled_from(["Attribute-a", "Attribute-b"]), st.text(max_size=12)))
def test_no_header_stops_anybody(headers: dict[str, str]) -> None:
    problems: list[InputError] = []
    assert len(attributes_of(headers, problems)) + len(problems) == len(headers)


def test_publishers_are_told() -> None:
    with pytest.raises(InputError, match="attribute 'a b': not a name"):
        headers_of({"a b": 1})
    with pytest.raises(InputError, match="price: nan is not a number"):
        headers_of({"price": float("nan")})
