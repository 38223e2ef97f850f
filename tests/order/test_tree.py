"""The sequencing tree against a brute-force oracle, and every way to describe one wrongly."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import InputError, Node, TreeError, UnknownTopic
from seriatim.order import Moves, Place, SequencingTree

Parents = dict[Node, Node | None]


@st.composite
def parent_maps(draw: st.DrawFn) -> Parents:
    """Any rooted tree of up to twelve nodes: each node picks its parent among those before it, listed in any order."""
    size = draw(st.integers(1, 12))
    edges: list[tuple[Node, Node | None]] = [("n0", None)]
    edges += [(f"n{i}", f"n{draw(st.integers(0, i - 1))}") for i in range(1, size)]
    return dict(draw(st.permutations(edges)))


def walk(parents: Parents, start: Node, end: Node) -> list[Node]:
    """Oracle: the shortest way between two nodes, by breadth-first search that knows nothing of up and down."""
    neighbours: dict[Node, set[Node]] = {node: set() for node in parents}
    for node, parent in parents.items():
        if parent is not None:
            neighbours[node].add(parent)
            neighbours[parent].add(node)
    ways = deque([[start]])
    while ways[0][-1] != end:
        way = ways.popleft()
        ways.extend([*way, step] for step in neighbours[way[-1]] if step not in way)
    return ways[0]


def root_of(parents: Parents) -> Node:
    return next(node for node, parent in parents.items() if parent is None)


@given(parent_maps())
def test_meet_is_where_the_ways_to_the_root_join(parents: Parents) -> None:
    tree = SequencingTree(parents, {f"topic of {node}": node for node in parents})
    root = root_of(parents)
    assert tree.root == root
    for node in parents:
        assert list(tree.paths[node]) == walk(parents, node, root)
        for other in parents:
            # Of all nodes on both ways up, the one farthest from the root.
            shared = set(walk(parents, node, root)) & set(walk(parents, other, root))
            expected = max(shared, key=lambda step: len(walk(parents, step, root)))
            assert tree.meet_nodes(node, other) == expected
            assert tree.meet(f"topic of {node}", f"topic of {other}") == expected


@given(parent_maps())
def test_next_hop_follows_the_shortest_way(parents: Parents) -> None:
    tree = SequencingTree(parents, {})
    for node in parents:
        for target in parents:
            if node != target:
                assert tree.next_hop(node, target) == walk(parents, node, target)[1]


@given(parent_maps(), st.data())
def test_highest_is_nearest_the_root(parents: Parents, data: st.DataObject) -> None:
    tree = SequencingTree(parents, {})
    start = data.draw(st.sampled_from(sorted(parents)))
    way_up = walk(parents, start, root_of(parents))
    nodes = data.draw(st.sets(st.sampled_from(way_up)))
    assert tree.highest(nodes, start) == max(nodes, key=way_up.index, default=start)


def test_one_node_is_home_to_every_topic() -> None:
    tree = SequencingTree.single(["orders"])
    assert tree.home("orders") == tree.home("never heard of") == tree.root == "root"
    assert tree.knows("never heard of")


def test_chain_hangs_each_node_below_the_one_before() -> None:
    tree = SequencingTree.chain({"orders": 1, "stock": 3}, length=3)
    assert tree.parents == {"n1": None, "n2": "n1", "n3": "n2"}
    assert tree.home("stock") == "n3"
    assert tree.meet("orders", "stock") == "n1"


def test_star_hangs_every_leaf_below_the_root() -> None:
    tree = SequencingTree.star({"orders": 1, "stock": 2, "audit": 0}, leaves=2)
    assert tree.parents == {"n0": None, "n1": "n0", "n2": "n0"}
    assert tree.meet("orders", "stock") == tree.home("audit") == "n0"


def test_a_chain_of_thousands_is_checked_in_one_walk() -> None:
    assert SequencingTree.chain({}, length=3000).root == "n1"


def test_the_tree_keeps_its_own_copy_of_what_it_was_given() -> None:
    parents: Parents = {"a": None}
    homes = {"orders": "a"}
    tree = SequencingTree(parents, homes)
    parents["b"] = "a"
    homes["stock"] = "a"
    assert tree.parents == {"a": None}
    assert not tree.knows("stock")


def test_a_topic_without_home_is_named() -> None:
    tree = SequencingTree({"a": None}, {"orders": "a"})
    assert not tree.knows("stock")
    with pytest.raises(UnknownTopic, match="topic 'stock': no node is home to it; add it to the tree's homes"):
        tree.home("stock")
    with pytest.raises(UnknownTopic):
        tree.meet("orders", "stock")


BAD_TREES: dict[str, tuple[Callable[[], SequencingTree], str, str, str]] = {
    # case: (how to build it, field, part of the problem, part of the fix)
    "empty": (lambda: SequencingTree({}, {}), "parents", "no nodes", "name at least one node"),
    "unnamed node": (lambda: SequencingTree({"": None}, {}), "parents", "empty name", "give every node a name"),
    "unknown parent": (
        lambda: SequencingTree({"a": None, "b": "c"}, {}),
        "parents['b']",
        "unknown parent 'c'",
        "add 'c' or correct the name",
    ),
    "two roots": (
        lambda: SequencingTree({"a": None, "b": None, "c": "b"}, {}),
        "parents",
        "more than one root: a, b",
        "give all but one of them a parent",
    ),
    "its own parent": (lambda: SequencingTree({"a": "a"}, {}), "parents['a']", "cycle a → a", "or no parent"),
    "cycle, no root": (
        lambda: SequencingTree({"a": "b", "b": "c", "c": "a"}, {}),
        "parents['a']",
        "cycle a → b → c → a",
        "a parent outside the cycle, or no parent",
    ),
    "disconnected: a cycle apart from the root": (
        lambda: SequencingTree({"root": None, "a": "root", "d": "b", "b": "c", "c": "b"}, {}),
        "parents['d']",
        "cycle b → c → b",
        "a parent outside the cycle",
    ),
    "unnamed topic": (
        lambda: SequencingTree({"a": None}, {"": "a"}),
        "homes",
        "a topic has an empty name",
        "give every topic a name",
    ),
    "home on an unknown node": (
        lambda: SequencingTree({"b": "a", "a": None}, {"orders": "x"}),
        "homes['orders']",
        "unknown node 'x'",
        "use one of a, b",
    ),
    "default home on an unknown node": (
        lambda: SequencingTree({"a": None}, {}, default_home="x"),
        "default_home",
        "unknown node 'x'",
        "use one of a",
    ),
    "chain without nodes": (lambda: SequencingTree.chain({}, length=0), "length", "0 is too small", "at least 1"),
    "star with fewer than no leaves": (
        lambda: SequencingTree.star({}, leaves=-1),
        "leaves",
        "-1 is too small",
        "at least 1",
    ),
    "home beyond the end of the chain": (
        lambda: SequencingTree.chain({"orders": 4}, length=3),
        "homes['orders']",
        "unknown node 'n4'",
        "use one of n1, n2, n3",
    ),
}


@pytest.mark.parametrize("case", BAD_TREES)
def test_a_bad_tree_is_refused_with_field_and_fix(case: str) -> None:
    build, field, problem, fix = BAD_TREES[case]
    with pytest.raises(TreeError) as caught:
        build()
    error = caught.value
    assert isinstance(error, InputError)
    assert error.field == field
    assert problem in error.problem
    assert fix in error.fix
    assert str(error) == f"{error.field}: {error.problem}; {error.fix}"


# ── topics that move ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_view_knows_its_own_moves_and_changes_nobody_else() -> None:
    tree = SequencingTree.star({"A": 1, "B": 2}, 2)
    moves = Moves()
    view = tree.view(moves)
    view.move("A", Place("n2", 3))
    assert (view.home("A"), tree.home("A")) == ("n2", "n1")
    assert (view.meet("A", "B"), tree.meet("A", "B")) == ("n2", "n0")
    assert moves == Moves(3, {"A": Place("n2", 3)}, "A", "n1"), "enough to see it again"
    assert tree.view(moves).home("A") == "n2"


def test_the_home_at_the_time_of_the_move_before_is_remembered() -> None:
    view = SequencingTree.star({"A": 1, "B": 2}, 2).view(Moves())
    view.move("A", Place("n2", 1))
    view.move("A", Place("n0", 4))
    assert [view.home_at("A", number) for number in (1, 3, 4)] == ["n2", "n2", "n0"]
    assert view.home_at("B", 1) == view.home("B")


def test_old_news_of_a_topic_is_no_news() -> None:
    view = SequencingTree.star({"A": 1}, 2).view(Moves())
    assert view.learn(0, {"A": Place("n2", 5)}) == ["A"]
    assert view.learn(4, {"A": Place("n1", 3)}) == []
    assert (view.home("A"), view.moves.number, view.moved("A"), view.moved("B")) == ("n2", 4, 5, 0)
    assert view.moves.after(4) == {"A": Place("n2", 5)}
