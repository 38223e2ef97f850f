"""Filters answer exactly: against what predicates mean, tried out on every event that could tell a difference."""

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from seriatim.filters import EVERYTHING, Contradiction, Filter, FilterError, Predicate, attribute, parse
from seriatim.filters.limits import FILTER_ATTRIBUTES_MAX, FILTER_STRING_CHARACTERS_MAX, FILTER_VALUES_MAX
from seriatim.model import InputError
from tests.filters.cases import all_hold, conjunctions, events, events_to_try, filter_or_none, filters, plain


@given(conjunctions())
def test_a_filter_matches_what_its_predicates_say_and_is_refused_if_nothing_can(predicates: list[Predicate]) -> None:
    found = filter_or_none(predicates)
    matched = 0
    for event in events_to_try(predicates):
        expected = all_hold(predicates, event)
        matched += expected
        assert (found is not None and found.matches(plain(event))) == expected
    assert (found is None) == (matched == 0)
    if found is not None:
        assert found.matches(found.witness())


@settings(max_examples=300)
@given(conjunctions(2), conjunctions(2))
def test_intersection_and_cover_are_exact(ours: list[Predicate], theirs: list[Predicate]) -> None:
    one, other = filter_or_none(ours), filter_or_none(theirs)
    if one is None or other is None:
        return
    in_both = only_theirs = 0
    for event in events_to_try(ours + theirs):
        is_ours, is_theirs = all_hold(ours, event), all_hold(theirs, event)
        in_both += is_ours and is_theirs
        only_theirs += is_theirs and not is_ours
    both = one.intersection(other)
    assert one.intersects(other) == other.intersects(one) == (both is not None) == (in_both > 0)
    assert one.covers(other) == (only_theirs == 0)
    assert both == filter_or_none(ours + theirs)


@given(filters(), filters())
def test_cover_is_an_order_and_equality_is_cover_both_ways(one: Filter, other: Filter) -> None:
    assert one.covers(one)
    assert EVERYTHING.covers(one)
    assert (one == other) == (one.covers(other) and other.covers(one))
    both = one.intersection(other)
    if both is not None:
        assert one.covers(both)
        assert other.covers(both)
        assert both == one & other


@given(filters(5))
def test_the_canonical_text_is_read_back_as_the_same_filter(one: Filter) -> None:
    again = parse(str(one))
    assert again == one
    assert hash(again) == hash(one)
    assert str(again) == str(one)
    assert len(one.predicates()) <= 5 * 4
    assert pickle.loads(pickle.dumps(one)) == one


@given(filters(), filters())
def test_equal_filters_have_equal_texts_and_only_they(one: Filter, other: Filter) -> None:
    assert (one == other) == (str(one) == str(other))


@given(filters(), events())
def test_matching_needs_what_the_filter_names_and_nothing_else(one: Filter, event: dict[str, object]) -> None:
    named = {constraint.name for constraint in one.constraints}
    attributes = {name: value for name, value in event.items() if name in named}
    assert one.matches(event) == one.matches(attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("price>100", "price > 100"),
        ("price ≥ 1.0", "price >= 1"),
        ("price >= -0.0", "price >= 0"),
        ("price >= 10 and price >= 20", "price >= 20"),
        ("price < 20 and price >= 20.0 and price <= 20", None),
        ("price <= 20 and price >= 20.0", "price = 20"),
        ("id > 9007199254740992 and id < 9007199254740994", "id = 9007199254740993"),
        ("price != 2 and price != 1", "price not in (1, 2)"),
        ("price in (3, 1, 2, 2) and price != 2", "price in (1, 3)"),
        ("price in (1, 2) and price > 1", "price = 2"),
        ('name >= "ab" and name < "ac"', 'name prefix "ab"'),
        ('name prefix "ab" and name prefix "a"', 'name prefix "ab"'),
        ('name prefix "ab" and name prefix "b"', None),
        ('name prefix ""', 'name >= ""'),
        ('name < "a" and name prefix ""', 'name < "a"'),
        ('name > "a" and name < "a\\u0000\\u0000"', 'name = "a\\u0000"'),
        ("is_open != true", "is_open = false"),
        ("is_open in (true, false)", "is_open in (false, true)"),
        ("is_open != true and is_open != false", None),
        ("at > 1969-12-31T23:59:59.999999Z and at < 1970-01-01T01:00:00.000001+01:00", "at = 1970-01-01T00:00:00Z"),
        ('b = 1 and a = "x"', 'a = "x" and b = 1'),
        ("true", "true"),
    ],
)
def test_one_form_for_each_set(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(Contradiction):
            parse(text)
    else:
        assert str(parse(text)) == canonical


def test_what_an_absent_attribute_and_another_type_mean() -> None:
    unequal = parse("price != 5")
    assert unequal.matches({"price": 6})
    assert not unequal.matches({})
    assert not unequal.matches({"price": "five"})
    assert not parse("flag = true").matches({"flag": 1})
    assert parse("price = 1").matches({"price": 1.0})
    assert not parse("price > 1").intersects(parse('price > "1"'))
    assert parse("price > 1").intersects(parse('region = "EU"'))
    assert not parse("price > 1").covers(EVERYTHING)


def test_python_form() -> None:
    price, region, at = attribute("price"), attribute("region"), attribute("at")
    moment = datetime(2026, 11, 16, 12, tzinfo=UTC)
    made = (price > 100) & (price <= 200) & (region == "EU") & (at >= moment)
    assert str(made) == 'at >= 2026-11-16T12:00:00Z and price > 100 and price <= 200 and region = "EU"'
    assert str((price != 3) & (price < 9)) == "price < 9 and price != 3"
    assert str(region.prefix("E") & region.none_of("EU", "EA")) == 'region prefix "E" and region not in ("EA", "EU")'
    assert str(region.one_of("EU", "US")) == 'region in ("EU", "US")'
    assert repr(price >= 1) == "parse('price >= 1')"
    assert repr(price) == "attribute('price')"


def test_python_traps_are_refused() -> None:
    price = attribute("price")
    with pytest.raises(TypeError, match="join two with `&`"):
        1 < price < 5  # noqa: B015
    with pytest.raises(TypeError, match="unhashable"):
        hash(price)
    with pytest.raises(TypeError, match="unsupported operand"):
        (price > 1) & "price < 5"  # type: ignore[operator]
    with pytest.raises(InputError, match="attribute 'a b': not a name"):
        attribute("a b")
    with pytest.raises(InputError, match="attribute 'in': a word of the filter language"):
        attribute("in")
    with pytest.raises(FilterError, match="price: NoneType is not a type of attributes"):
        price == None  # noqa: B015, E711
    with pytest.raises(FilterError, match="no value; list at least one"):
        price.one_of()


def test_a_contradiction_names_the_fewest_predicates() -> None:
    price = attribute("price")
    with pytest.raises(Contradiction) as caught:
        _ = (price > 100) & (price != 7) & (price < 500) & (price.one_of(1, 2))
    assert caught.value.reason == "no number has price > 100 and price in (1, 2)"
    with pytest.raises(Contradiction, match=r"price > 1 asks for a number, price = \"x\" for a string"):
        _ = (price > 1) & (price == "x")


def test_limits() -> None:
    many = [Predicate(f"a{i}", "=", "number", (i,)) for i in range(FILTER_ATTRIBUTES_MAX + 1)]
    assert len(Filter.of(many[1:]).constraints) == FILTER_ATTRIBUTES_MAX
    with pytest.raises(FilterError, match="33 attributes, and a filter may name 32"):
        Filter.of(many)
    values = attribute("a").none_of(*range(0, 2 * FILTER_VALUES_MAX, 2))
    assert parse(str(values)) == values
    with pytest.raises(FilterError, match="257 values, and a filter may have 256"):
        _ = values & (attribute("b") > 1)
    with pytest.raises(FilterError, match="512 values"):
        values.intersection(attribute("a").none_of(*range(1, 2 * FILTER_VALUES_MAX, 2)))
    with pytest.raises(FilterError, match="a string of 257 characters"):
        attribute("a").prefix("x" * (FILTER_STRING_CHARACTERS_MAX + 1))
    control = [f"{i:02}" + "\x01" * 200 for i in range(60)]
    with pytest.raises(FilterError, match=r"7\d{4} characters, and a filter may have 65536"):
        attribute("a").one_of(*control)


def test_what_two_filters_at_the_limits_ask_for_an_event_can_have() -> None:
    one = Filter.of(Predicate(f"a{i}", ">", "string", ("x" * 256,)) for i in range(FILTER_ATTRIBUTES_MAX))
    other = Filter.of(Predicate(f"b{i}", ">", "string", ("x" * 256,)) for i in range(FILTER_ATTRIBUTES_MAX))
    event = one.witness() | other.witness()
    assert one.intersects(other)
    assert one.matches(event)
    assert other.matches(event)
