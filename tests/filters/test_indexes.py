"""Both indexes answer what asking every filter answers, through any sequence of additions and removals."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.filters import (
    EVERYTHING,
    Attributes,
    Constraint,
    Filter,
    MatchIndex,
    OverlapIndex,
    Predicate,
    attribute,
    parse,
)
from seriatim.filters.limits import FILTER_VALUES_MAX
from seriatim.filters.stored import COPIES_MAX, GROUP_MAX, PREFIX_MAX, TUPLE_MAX
from seriatim.model import InputError
from tests.filters.cases import events, filters

STORED = st.lists(filters() | st.just(EVERYTHING), max_size=60)


@settings(max_examples=200)
@given(STORED, st.lists(events(), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_matching_is_asking_every_filter(stored: list[Filter], tried: list[Attributes], random: Random) -> None:
    index: MatchIndex[int] = MatchIndex()
    held: dict[int, Filter] = {}
    for key, each in enumerate(stored):
        index.add(key, each)
        held[key] = each
        if random.random() < 0.3:
            gone = random.choice(sorted(held))
            index.remove(gone)
            del held[gone]
    for event in tried:
        assert sorted(index.match(event)) == [key for key in sorted(held) if held[key].matches(event)]
    assert len(index) == len(held)
    for key, each in held.items():
        assert index.filter(key) == each
        index.remove(key)
    assert len(index) == 0
    assert index.match({"a": 1, "b": "b", "c": True}) == []
    assert index.visited == 1  # nothing is left behind


@settings(max_examples=200)
@given(STORED, st.lists(filters() | st.just(EVERYTHING), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_overlap_is_asking_every_filter(stored: list[Filter], tried: list[Filter], random: Random) -> None:
    index: OverlapIndex[int] = OverlapIndex()
    held: dict[int, Filter] = {}
    for key, each in enumerate(stored):
        index.add(key, each)
        held[key] = each
        if random.random() < 0.3:
            gone = random.choice(sorted(held))
            index.remove(gone)
            del held[gone]
    for each in tried:
        intersecting = [key for key in sorted(held) if held[key].intersects(each)]
        covering = [key for key in sorted(held) if held[key].covers(each)]
        assert sorted(index.intersecting(each)) == intersecting
        assert sorted(index.covering(each)) == covering
        assert sorted(index.covered(each)) == [key for key in sorted(held) if each.covers(held[key])]
        assert index.intersects_any(each) == bool(intersecting)
        assert index.covered_by_any(each) == bool(covering)
    for key in held:
        index.remove(key)
    assert len(index) == 0
    assert index.intersecting(EVERYTHING) == []
    assert index.visited == 0


def test_each_way_of_storing_a_constraint_and_its_limits() -> None:
    a, b = attribute("a"), attribute("b")
    long = "x" * (PREFIX_MAX + 1)
    stored = [
        a.one_of(*range(0, 2 * FILTER_VALUES_MAX, 2)),
        (a >= 0) & a.none_of(*range(0, 20, 2)),
        a.one_of(2**60, 2**60 + 1),  # neighbours: a span
        a.one_of(*range(0, 40, 2)) & b.one_of(*range(0, 40, 2)),  # 400 copies would be too many
        b.prefix(long[:-1]),
        b.prefix(long),
        b.prefix("\U0010ffff"),
        b.prefix("x") & (b != "xx"),
        attribute("c") == True,  # noqa: E712
        attribute("c") != True,  # noqa: E712
        attribute("c").one_of(True, False),
    ]
    assert COPIES_MAX < 20 * 20
    tried: list[Attributes] = [
        *({"a": i, "b": i} for i in range(-1, 40)),
        {"a": 2**60 + 1, "b": long + "y", "c": True},
        {"a": 2.5, "b": long[:-1], "c": False},
        {"b": "\U0010ffff\U0010ffff"},
        {"b": "xx"},
        {"b": "x", "c": "true"},
    ]
    index: MatchIndex[int] = MatchIndex()
    for key, each in enumerate(stored):
        index.add(key, each)
    matched: Counter[int] = Counter()
    for event in tried:
        expected = [key for key, each in enumerate(stored) if each.matches(event)]
        assert sorted(index.match(event)) == expected
        matched.update(expected)
    assert set(matched) == set(range(len(stored)))


def test_many_holders_of_one_filter_and_many_filters_of_one_group() -> None:
    index: MatchIndex[str] = MatchIndex()
    shared = parse("price > 1")
    holders = [f"s{i}" for i in range(3 * TUPLE_MAX)]
    for holder in holders:
        index.add(holder, shared)
    assert index.match({"price": 2}) == holders
    for holder in holders[:-1]:
        index.remove(holder)
    assert index.match({"price": 2}) == holders[-1:]
    lists = [attribute("region").one_of("EU", f"r{i}") for i in range(3 * GROUP_MAX)]
    for i, each in enumerate(lists):
        index.add(f"l{i}", each)
    assert len(index.match({"region": "EU"})) == len(lists)
    for i in range(len(lists) - 1):
        index.remove(f"l{i}")
    assert index.match({"region": "EU"}) == [f"l{len(lists) - 1}"]


@pytest.mark.parametrize("make", [MatchIndex, OverlapIndex])
def test_keys_are_checked(make: type[MatchIndex[str]] | type[OverlapIndex[str]]) -> None:
    index = make()
    index.add("s", EVERYTHING)
    assert "s" in index
    assert "t" not in index
    with pytest.raises(InputError, match="key 's': holds a filter already; remove it first, or use another key"):
        index.add("s", EVERYTHING)
    with pytest.raises(InputError, match="key 't': holds no filter here; add it first"):
        index.remove("t")
    with pytest.raises(InputError, match="key 't': holds no filter here"):
        index.filter("t")


def ticker(count: int, random: Random) -> list[Filter]:
    """One symbol in ten for each filter, and a band of prices that a hundredth of the events are in."""
    made = []
    for _ in range(count):
        low = random.uniform(0, 990)
        symbol = Predicate("symbol", "=", "string", (f"s{random.randrange(count // 10)}",))
        made.append(
            Filter.of(
                [symbol, *(attribute("price") >= low).predicates(), *(attribute("price") < low + 10).predicates()]
            )
        )
    return made


def test_the_cost_of_matching_follows_what_matches_not_what_is_stored() -> None:
    visits = []
    for count in (1_000, 20_000):
        index: MatchIndex[int] = MatchIndex()
        for key, each in enumerate(ticker(count, Random(3))):
            index.add(key, each)
        visited = [
            index.visited
            for i in range(100)
            if index.match({"symbol": f"s{i}", "price": 10.0 * i, "volume": 5}) is not None
        ]
        visits.append(max(visited))
    assert visits[1] <= visits[0] + 20
    assert visits[1] <= 100


def test_the_cost_of_overlap_follows_the_answer_not_what_is_stored() -> None:
    visits = []
    for count in (1_000, 20_000):
        index: OverlapIndex[int] = OverlapIndex()
        for key, each in enumerate(ticker(count, Random(4))):
            index.add(key, each)
        worst = 0
        for probe in ticker(count, Random(5))[:100]:
            assert len(index.intersecting(probe)) <= 10
            worst = max(worst, index.visited)
        visits.append(worst)
    assert visits[1] <= 2 * visits[0]
    assert visits[1] <= 400


def test_long_lists_are_found_by_their_values() -> None:
    """A hundred names each out of very many: no box would tell them apart."""
    random = Random(6)
    index: MatchIndex[int] = MatchIndex()
    lists = [random.sample(range(1_000_000), 100) for _ in range(300)]
    for key, names in enumerate(lists):
        index.add(key, attribute("customer").one_of(*(f"c{name}" for name in names)))
    assert 17 in index.match({"customer": f"c{lists[17][5]}"})
    assert index.visited <= 10


def test_many_filters_with_one_box_are_added_and_removed() -> None:
    """`price != x` allows nearly everything: all of them have the same box, and no cut separates them."""
    index: MatchIndex[int] = MatchIndex()
    for key in range(2_000):
        index.add(key, attribute("price") != key)
    index.add(-1, attribute("price") > 5_000)
    assert sorted(index.match({"price": 7})) == [key for key in range(2_000) if key != 7]
    assert len(index.match({"price": 6_000})) == 2_001
    for key in range(1_990):
        index.remove(key)
    assert sorted(index.match({"price": 6_000})) == [-1, *range(1_990, 2_000)]


def test_signatures_that_do_not_fit_the_event_are_not_looked_at() -> None:
    index: MatchIndex[int] = MatchIndex()
    for key in range(5_000):
        constraints = sorted([Constraint("price", "number", (1,)), Constraint(f"x{key}", "boolean", (True,))])
        index.add(key, Filter(constraints))
    assert index.match({"price": 2, "x17": True, "y": 1}) == [17]
    assert index.visited <= 5
