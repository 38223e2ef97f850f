"""The sequencing graph: what is refused, what construction gives for any memberships, and how far that is from a
bound."""

from itertools import permutations
from random import Random

import pytest

from seriatim.model import InputError
from seriatim.protocols.atoms import Atom, GraphError, Route, SequencingGraph, build, check, lower_bound, plan_of
from seriatim.protocols.atoms.bounds import clique_bound
from seriatim.protocols.atoms.changing import apply_decay, apply_growth, plan_decay, plan_growth
from seriatim.protocols.atoms.overlaps import atom_of, coupled_pairs, group_of
from tests.protocols.atoms.oracle import problems_of

TRIANGLE = {"G0.1": "ABD", "G1.1": "ABC", "G2.1": "BCD"}  # figure 2 of the paper


def memberships(random: Random, groups: int, hosts: int, share: float) -> dict[str, list[str]]:
    found = {}
    for index in range(groups):
        chosen = [f"r{host}" for host in range(hosts) if random.random() < share]
        found[group_of(f"T{index}", 1)] = chosen or [f"r{random.randrange(hosts)}"]
    return found


# ── the checker ───────────────────────────────────────────────────────────────────────────────────────────────────

OWNED = {"G0": ["Q01", "Q02"], "G1": ["Q01", "Q12"], "G2": ["Q02", "Q12"]}


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ({"G0": ["Q01", "Q02"], "G1": ["Q01", "Q02", "Q12"], "G2": ["Q02", "Q12"]}, None),
        ({"G0": ["Q01", "Q02"], "G1": ["Q01", "Q12"], "G2": ["Q02", "Q12"]}, "C2"),  # figure 2(a)
        ({"G0": ["Q01", "Q02"], "G1": ["Q12", "Q02", "Q01"], "G2": ["Q02", "Q12"]}, "direction"),
        ({"G0": ["Q01", "Q02"], "G1": ["Q01"], "G2": ["Q02", "Q12"]}, "C1"),
        ({"G0": ["Q01", "Q02", "Q01"], "G1": ["Q01", "Q02", "Q12"], "G2": ["Q02", "Q12"]}, "C1"),
    ],
)
def test_the_checker_knows_each_rule(paths: dict[str, list[str]], problem: str | None) -> None:
    found = problems_of(paths, OWNED)
    assert [each.split(":")[0] for each in found][:1] == ([] if problem is None else [problem]), found


def test_a_graph_that_lacks_an_atom_or_has_one_too_many_is_refused() -> None:
    members = {group: frozenset(each) for group, each in TRIANGLE.items()}
    with pytest.raises(GraphError, match=r"G0\.1&G1\.1: no such atom"):
        check(SequencingGraph({}, {group: Route(each) for group, each in members.items()}))
    lonely = SequencingGraph(
        {"A.1&B.1": Atom(("A.1", "B.1"))}, {"A.1": Route(frozenset("ab")), "B.1": Route(frozenset("bc"))}
    )
    with pytest.raises(GraphError, match="need no atom"):
        check(lonely)
    check(lonely := SequencingGraph({}, lonely.groups))
    dangling = build(TRIANGLE)
    next(iter(dangling.atoms.values())).next = "nowhere"
    with pytest.raises(GraphError, match="nowhere"):
        check(dangling)


def test_a_loop_is_refused() -> None:
    graph = build(TRIANGLE)
    root = next(atom for atom in graph.atoms.values() if atom.next is None)
    root.next = next(iter(graph.atoms))
    with pytest.raises(GraphError, match="never ends"):
        check(graph)


@pytest.mark.parametrize("seed", range(40))
def test_both_checkers_say_the_same_of_graphs_with_a_mistake(seed: int) -> None:
    random = Random(seed)
    graph = build(memberships(random, 10, 8, 0.5))
    names = sorted(graph.atoms)
    group = random.choice([group for group in sorted(graph.groups) if graph.path(group)])
    route, mistake = graph.groups[group], random.choice(["entry", "end", "next"])
    if mistake == "next":
        graph.atoms[random.choice(graph.path(group))].next = random.choice(names)
    elif mistake == "entry":
        route.entry = random.choice(names)
    else:
        route.end = random.choice(names)
    try:
        expected = problems_of({each: graph.path(each) for each in graph.groups}, graph.owned())
    except GraphError:  # a path that does not end where it should
        expected = ["C1"]
    if expected:
        with pytest.raises(GraphError):
            check(graph)
    else:
        check(graph)


# ── construction ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_triangle_of_the_paper_needs_one_pass_through() -> None:
    graph = build(TRIANGLE)
    check(graph)
    assert graph.pass_through() == lower_bound(coupled_pairs(TRIANGLE, 2)) == 1


def test_groups_that_do_not_overlap_twice_meet_no_atom() -> None:
    graph = build({"A.1": "ab", "B.1": "bc", "C.1": "d"})
    check(graph)
    assert not graph.atoms and graph.path("A.1") == []
    assert len(build({"A.1": "ab", "B.1": "bc", "C.1": "d"}, threshold=1).atoms) == 1


def test_incarnations_of_a_topic_are_coupled_by_one_member() -> None:
    assert set(build({"A.1": "ab", "A.2": "bc", "B.1": "cd"}).atoms) == {"A.1&A.2"}


@pytest.mark.parametrize("seed", range(60))
def test_any_memberships(seed: int) -> None:
    random = Random(seed)
    groups = memberships(random, random.randint(1, 25), random.randint(2, 20), random.choice([0.1, 0.3, 0.6, 0.9]))
    threshold = random.choice([1, 2])
    graph = build(groups, threshold)
    check(graph, threshold)
    assert problems_of({group: graph.path(group) for group in groups}, graph.owned()) == []
    bound = lower_bound(coupled_pairs(groups, threshold))
    assert graph.pass_through() >= bound
    lengths = graph.lengths()
    assert lengths == {group: len(graph.path(group)) for group in groups}
    passing = sum(name in graph.path(group)[:-1] for name in graph.atoms for group in groups)
    assert sum(graph.crossings().values()) == passing


def test_construction_does_not_depend_on_the_order_of_groups() -> None:
    groups = memberships(Random(3), 12, 8, 0.5)
    shuffled = list(groups)
    Random(4).shuffle(shuffled)
    assert build({group: groups[group] for group in shuffled}) == build(groups)


def test_a_group_without_members_is_refused() -> None:
    with pytest.raises(GraphError, match="no members"):
        build({"A.1": []})


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def best_chain(pairs: list[tuple[str, str]]) -> int:
    """The fewest pass-throughs of all chains, by trying them all. A chain is one kind of forest."""
    best = None
    for order in permutations(pairs):
        total = -2 * len(order)
        for group in {group for pair in pairs for group in pair}:
            places = [place for place, pair in enumerate(order) if group in pair]
            total += places[-1] - places[0] + 1
        best = total if best is None else min(best, total)
    return best or 0


@pytest.mark.parametrize("seed", range(25))
def test_the_bound_is_below_every_chain_and_construction_is_near_the_best_one(seed: int) -> None:
    random = Random(seed)
    while True:
        groups = memberships(random, random.randint(3, 6), random.randint(3, 6), 0.5)
        pairs = coupled_pairs(groups, 2)
        if 3 <= len(pairs) <= 7:
            break
    chain = best_chain(list(pairs))
    assert lower_bound(pairs) <= chain
    assert lower_bound(pairs) <= build(groups).pass_through() <= chain + 3


def test_the_bound_of_a_clique_is_within_two_of_what_is_built() -> None:
    for size in (3, 5, 8, 13, 21):
        built = build({group_of(f"T{index}", 1): "ab" for index in range(size)})
        check(built)
        assert clique_bound(size) <= built.pass_through() <= 2 * clique_bound(size)


def test_a_ring_of_groups_needs_all_but_two() -> None:
    size = 7
    ring = {
        group_of(f"T{i}", 1): [f"r{i}a", f"r{i}b", f"r{(i + 1) % size}a", f"r{(i + 1) % size}b"] for i in range(size)
    }
    pairs = coupled_pairs(ring, 2)
    assert len(pairs) == size and lower_bound(pairs) == size - 2
    graph = build(ring)
    check(graph)
    assert graph.pass_through() == size - 2


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_keeps_its_shape_through_any_changes(seed: int) -> None:
    random = Random(seed)
    receivers = [f"r{i}" for i in range(random.randint(2, 8))]
    threshold = random.choice([1, 2, 2])
    graph, incarnations, current = SequencingGraph(), dict.fromkeys("ABCDEFGH", 0), dict[str, str]()
    for _ in range(60):
        topic = random.choice("ABCDEFGH")
        old = current.get(topic)
        if old is None or random.random() < 0.6:
            incarnations[topic] += 1
            group = group_of(topic, incarnations[topic])
            members = frozenset(random.sample(receivers, random.randint(1, len(receivers))))
            before = {other: graph.path(other) for other in graph.groups}
            apply_growth(graph, plan_growth(graph, group, members, threshold, old))
            check(graph, threshold)
            for other, path in before.items():  # nobody leaves an atom out that it passed before
                assert [atom for atom in graph.path(other) if atom in path] == path
            current[topic] = group
            if old is not None and atom_of(group, old) in graph.atoms:
                assert graph.groups[group].entry == graph.groups[old].entry
        if old is not None:
            if current[topic] == old:
                del current[topic]
            apply_decay(graph, plan_decay(graph, old))
            check(graph, threshold)
            owned = graph.owned()
            assert all(
                graph.path(each)[:1] in ([], owned[each][:0]) or graph.path(each)[0] in owned[each] for each in owned
            )
    for group in list(graph.groups):
        apply_decay(graph, plan_decay(graph, group))
        check(graph, threshold)
    assert graph == SequencingGraph()


def test_trees_come_apart_again() -> None:
    graph = build({"A.1": "ab", "B.1": "ab", "C.1": "cd", "D.1": "cd"})
    apply_growth(graph, plan_growth(graph, "E.1", frozenset("abcd"), 2))
    assert sum(atom.next is None for atom in graph.atoms.values()) == 1
    apply_decay(graph, plan_decay(graph, "E.1"))
    assert sum(atom.next is None for atom in graph.atoms.values()) == 2


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="hosts: nothing was given"):
        plan_of({"A": "ab"}, [], ["i1"])
    with pytest.raises(GraphError, match="is not in the plan"):
        plan_of({"A": "ab", "B": "ab"}, ["h1"], ["i1"], placement={"A.1&B.1": "h2"})
