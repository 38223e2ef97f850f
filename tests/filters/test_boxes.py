"""The tree of boxes finds what a look at every box finds, and looks at few of them."""

from random import Random
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.filters import boxes as boxes_module
from seriatim.filters.boxes import LEAF_MAX, BoxTree, Codes, Condition


class Box(NamedTuple):
    codes: Codes


def meets(box: Box, conditions: list[Condition]) -> bool:
    return all(box.codes[2 * i] <= a and box.codes[2 * i + 1] >= b for i, a, b in conditions)


def found(tree: BoxTree[Box], conditions: list[Condition]) -> list[Box]:
    return sorted(box for boxes in tree.search(conditions) for box in boxes if meets(box, conditions))


BITS = st.sampled_from([2, 6, 64])


@st.composite
def boxes(draw: st.DrawFn, dimensions: int) -> Box:
    codes: list[int] = []
    for _ in range(dimensions):
        codes += sorted(draw(BITS.flatmap(lambda bits: st.integers(0, 2**bits - 1))) for _ in range(2))
    return Box(tuple(codes))


@pytest.mark.parametrize("leaf_max", [1, 3, LEAF_MAX])
@settings(max_examples=60)
@given(data=st.data())
def test_added_and_removed_boxes_are_found_and_not_found(leaf_max: int, data: st.DataObject) -> None:
    with patch.object(boxes_module, "LEAF_MAX", leaf_max):  # small leaves make a deep tree of few boxes
        check_additions_and_removals(data)


def check_additions_and_removals(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(1, 3))
    tree: BoxTree[Box] = BoxTree()
    stored: list[Box] = []
    for box in data.draw(st.lists(boxes(dimensions), max_size=80)):
        tree.add(box)
        stored.append(box)
        if len(stored) % 3 == 0:
            tree.remove(stored.pop(data.draw(st.integers(0, len(stored) - 1))))
    assert len(tree) == len(stored)
    assert sorted(tree) == sorted(stored)
    for _ in range(5):
        probe = data.draw(boxes(dimensions)).codes
        point: list[Condition] = [(i, probe[2 * i], probe[2 * i]) for i in range(dimensions)]
        meeting: list[Condition] = [(i, probe[2 * i + 1], probe[2 * i]) for i in range(dimensions)]
        inside: list[Condition] = [(i, probe[2 * i], probe[2 * i + 1]) for i in range(dimensions)]
        for conditions in (point, meeting, inside, []):
            assert found(tree, conditions) == sorted(box for box in stored if meets(box, conditions))
    for box in stored:
        tree.remove(box)
    assert len(tree) == 0
    assert list(tree) == []


def test_a_leaf_is_cut_by_what_is_in_it_not_by_what_was() -> None:
    tree: BoxTree[Box] = BoxTree()
    gone = Box((0, 0))
    tree.add(gone)
    others = [Box((64 + i, 127)) for i in range(LEAF_MAX + 1)]
    for box in others[: LEAF_MAX - 1]:
        tree.add(box)
    tree.remove(gone)
    for box in others[LEAF_MAX - 1 :]:
        tree.add(box)
    assert found(tree, []) == others


def test_boxes_with_the_same_codes_share_a_leaf() -> None:
    tree = BoxTree([Box((1, 2)) for _ in range(3 * LEAF_MAX)])
    tree.add(Box((1, 3)))
    assert len(tree) == 3 * LEAF_MAX + 1
    assert len(found(tree, [(0, 1, 1)])) == 3 * LEAF_MAX + 1
    assert found(tree, [(0, 1, 3)]) == [Box((1, 3))]


def narrow(count: int, order: str) -> list[Box]:
    """Boxes [x, x + 10] over [0, 10 * count]."""
    starts = [10 * i for i in range(count)]
    if order == "falling":
        starts.reverse()
    elif order == "random":
        Random(1).shuffle(starts)
    return [Box((start, start + 10)) for start in starts]


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
def test_a_search_looks_at_few_boxes_however_many_there_are_and_in_whatever_order_they_came(order: str) -> None:
    visits = []
    for count in (1_000, 30_000):
        tree = BoxTree(narrow(count, order))
        worst = 0
        for probe in range(0, 10 * count, 997):
            assert 1 <= len(found(tree, [(0, probe, probe)])) <= 2
            worst = max(worst, tree.visited)
        visits.append(worst)
    assert visits[1] <= 150
    assert visits[1] <= visits[0] + 50  # 30 times as many: five more levels


def test_two_dimensions_are_cut_by_turns_also_where_their_codes_vary_in_other_bits() -> None:
    """`price > x and at > t`: half of the boxes allow the price, half of them the time, and hardly any both."""
    random = Random(2)
    tree = BoxTree(
        Box((random.randrange(2**20, 2**21) << 40, 2**64 - 1, random.randrange(2**20), 2**64 - 1))
        for _ in range(20_000)
    )
    probe = [(0, (2**20 + 2**14) << 40, (2**20 + 2**14) << 40), (1, 2**14, 2**14)]
    assert len(found(tree, probe)) <= 20
    assert tree.visited <= 1_000
