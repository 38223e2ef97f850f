"""A graph as text: what is read is what was written, and a text that was tampered with is refused by name."""

import tomllib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from seriatim.protocols.atoms import GraphError, SequencingGraph, build
from seriatim.protocols.atoms.colocation import colocate_along_paths
from seriatim.protocols.atoms.overlaps import Group
from seriatim.protocols.atoms.written import as_written, digest_of, graph_of, parse, write

HOSTS = ("one", "two", "three")


def graph(seed: int) -> SequencingGraph:
    random = Random(seed)
    members = {
        f'T "{topic}" é.1': random.sample([f"r{each}" for each in range(9)], random.randint(1, 4))
        for topic in range(random.randint(1, 9))
    }
    made = build(members)
    for atom in made.atoms.values():
        atom.host = random.choice(HOSTS)
    return made


@pytest.mark.parametrize("seed", range(30))
def test_what_is_read_is_what_was_written(seed: int) -> None:
    made = graph(seed)
    assert graph_of(parse(tomllib.loads(write(as_written(made, HOSTS))))) == made


def test_without_names_of_members_they_must_be_known_and_the_same() -> None:
    made = build({"A.1": ["r", "s"], "B.1": ["r", "s", "t"], "C.1": ["s", "t"]})
    written = as_written(made, [""])
    written.members = None
    assert all(not route.members for route in graph_of(written).groups.values())
    assert graph_of(written, {"A": ["s", "r"], "B": ["t", "s", "r"], "C": ["s", "t"]}) == made
    with pytest.raises(GraphError, match="not those of the plan"):
        graph_of(written, {"A": ["s", "t"], "B": ["t", "s", "r"], "C": ["s", "t"]})
    assert digest_of(["a", "b", "b"]) == digest_of(["b", "a"]) != digest_of(["a", "c"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: table.update(order="tree"), "not a plan of atoms"),
        (lambda table: table.update(topics=[1]), "does not fit"),
        (lambda table: table.update(colour="red"), "colour"),
        (lambda table: table.update(sizes=[1]), "for 3 topics"),
        (lambda table: table["chains"].append({"host": "h", "atoms": "0&1"}), "listed twice"),
        (lambda table: table["chains"][0].update(host="nobody's"), "not among the hosts"),
        (lambda table: table["chains"][0].update(atoms="0&9"), "not a pair of topics"),
        (lambda table: table["chains"][0].update(atoms="0&1", next="1&2"), "leads to B.1&C.1"),
        (lambda table: table["chains"][0].update(atoms="0&1"), "its groups need one|need one"),
        (lambda table: table["chains"][0].update(next="0&1"), "never ends"),
        (
            lambda table: table.update(chains=[{"host": "h", "atoms": "0&1"}, {"host": "h", "atoms": "1&2"}]),
            "C1: B.1 enters at|C1: the path of B.1",
        ),
        (lambda table: table["chains"][0].update(atoms="0&1 1&2 0&2"), "need no atom"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(change: Callable[[dict[str, Any]], None], problem: str) -> None:
    table: dict[str, Any] = tomllib.loads(write(as_written(build({"A.1": "rs", "B.1": "rst", "C.1": "stu"}), ["h"])))
    table["chains"] = [{"host": "h", "atoms": "0&1 1&2"}]
    graph_of(parse(table))
    change(table)
    with pytest.raises(GraphError, match=problem):
        graph_of(parse(table))


def pieces_by_sets(graph: SequencingGraph, load_max: float, rates: dict[Group, float]) -> dict[str, int]:
    """The pieces of `colocate_along_paths`, made the slow way: with the set of groups that pass each piece."""
    passing: dict[str, set[Group]] = {name: set() for name in graph.atoms}
    for group in graph.groups:
        for name in graph.path(group):
            passing[name].add(group)
    children, depths = graph.children(), graph.depths()
    pieces: list[set[Group]] = []
    nodes: dict[str, int] = {}
    for name in sorted(graph.atoms, key=lambda each: (-depths[each], each)):
        groups = passing[name]
        home: int | None = None
        for number in sorted(
            {nodes[child] for child in children[name]}, key=lambda each: (-len(pieces[each] & groups), each)
        ):
            joint = pieces[number] | (groups if home is None else pieces[home])
            if sum(rates[group] for group in joint) > load_max:
                continue
            if home is None:
                home = number
            else:
                nodes = {atom: home if piece == number else piece for atom, piece in nodes.items()}
            pieces[home] = joint
        if home is None:
            home = len(pieces)
            pieces.append(set(groups))
        nodes[name] = home
    names: dict[int, int] = {}
    return {name: names.setdefault(nodes[name], len(names)) for name in sorted(nodes)}


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_those_of_counting_every_group(seed: int) -> None:
    random = Random(seed)
    members = {f"T{topic}.1": random.sample("abcdefghijkl", random.randint(1, 6)) for topic in range(14)}
    made = build(members)
    rates = {group: float(random.randint(1, 5)) for group in members}
    for load_max in (1.0, 8.0, 20.0, 60.0):
        assert colocate_along_paths(made, load_max, rates) == pieces_by_sets(made, load_max, rates)
