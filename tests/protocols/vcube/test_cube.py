"""The arithmetic of the cube, against the paper's own table and against the definition."""

from random import Random

import pytest

from seriatim.model import InputError
from seriatim.protocols.vcube.cube import (
    Cube,
    address_of,
    births_of,
    cluster,
    cluster_of,
    id_at,
    id_of,
    life_of,
    name_of,
    nearest,
    within,
)

# Paper 001, Figure 1: c(i, s) for eight nodes.
FIGURE_1 = {
    1: ["1", "0", "3", "2", "5", "4", "7", "6"],
    2: ["2 3", "3 2", "0 1", "1 0", "6 7", "7 6", "4 5", "5 4"],
    3: ["4 5 6 7", "5 4 7 6", "6 7 4 5", "7 6 5 4", "0 1 2 3", "1 0 3 2", "2 3 0 1", "3 2 1 0"],
}


def test_clusters_are_those_of_figure_1() -> None:
    for s, rows in FIGURE_1.items():
        for i, row in enumerate(rows):
            assert cluster(i, s) == [int(word) for word in row.split()]
            assert all(cluster_of(i, j) == s for j in cluster(i, s))


def children(members: list[int], i: int, height: int) -> set[int]:
    """CHILDREN(i, t, h) of the paper."""
    return {found for s in range(1, height + 1) if (found := nearest(members, i, s)) is not None}


def test_children_are_those_of_the_papers_examples() -> None:
    everybody = list(range(8))
    assert children(everybody, 0, 3) == {1, 2, 4}
    assert children(everybody, 0, 2) == {1, 2}
    assert children(everybody, 4, 2) == {5, 6}
    assert children([0, 3, 4], 0, 3) == {3, 4}
    assert children([0, 3, 4], 4, 2) == set()
    assert children([0, 2, 3, 5, 7], 2, 3) == {3, 0, 7}  # Figure 3, right
    assert children([0, 2, 3, 5, 7], 7, 2) == {5}


def test_nearest_is_the_first_of_the_cluster_for_any_ids() -> None:
    random = Random(5)
    for _ in range(300):
        ids = sorted(random.sample(range(200), random.randint(1, 40)))
        i, s = random.randrange(200), random.randint(1, 8)
        inside = [j for j in cluster(i, s) if j in ids]
        assert nearest(ids, i, s) == (inside[0] if inside else None)
        assert list(within(ids, i, s)) == sorted(inside)


def test_a_tree_reaches_everybody_once_whatever_the_ids() -> None:
    random = Random(6)
    for _ in range(100):
        cube = Cube(random.sample(range(100), random.randint(1, 30)))
        root = random.choice(cube.ids)
        reached: list[int] = []

        def relay(cube: Cube, i: int, height: int, reached: list[int]) -> None:
            reached.append(i)
            for s, child in cube.neighbours([id for id in cube.ids if id != i], i):
                if s <= height:
                    relay(cube, child, s - 1, reached)

        relay(cube, root, cube.height, reached)
        assert sorted(reached) == list(cube.ids)


def test_lives_and_addresses() -> None:
    life = life_of(3, 2)
    assert (id_of(life), births_of(life), name_of(life), name_of(3)) == (3, 2, "3.2", "3")
    assert address_of(life) == address_of(3) == "peer3"
    assert id_at("peer3") == 3
    assert id_at("broker") is id_at("peer") is id_at("peer-1") is None


@pytest.mark.parametrize(
    ("ids", "problem"), [([], "no peer was given"), ([1, 1], "two peers"), ([-1], "range"), ([1 << 16], "range")]
)
def test_ids_that_cannot_be(ids: list[int], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Cube(ids)
