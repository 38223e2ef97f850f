"""Co-location and placement: the paper's heuristics, where they break their promise, and ours beside them."""

from collections.abc import Mapping
from math import hypot
from random import Random

import pytest

from seriatim.model import InputError
from seriatim.protocols.atoms import SequencingGraph, build, check
from seriatim.protocols.atoms.colocation import (
    colocate_along_paths,
    colocate_by_overlaps,
    hops,
    loads,
    overlaps_of,
    receiver_loads,
)
from seriatim.protocols.atoms.overlaps import group_of
from seriatim.protocols.atoms.placement import (
    Site,
    latencies,
    node_paths,
    place_by_distances,
    place_by_neighbours,
)


def zipf(groups: int, hosts: int, seed: int, scale: float = 2.0) -> dict[str, list[str]]:
    """Sizes as in section 4.1 of the paper, and somewhat larger, so that there is more to place."""
    random = Random(seed)
    harmonic = sum(1 / rank for rank in range(1, hosts + 1))
    sizes = [max(2, min(hosts, round(scale * hosts / rank / harmonic))) for rank in range(1, groups + 1)]
    return {
        group_of(f"T{rank}", 1): [f"r{host}" for host in random.sample(range(hosts), size)]
        for rank, size in enumerate(sizes)
    }


def even(graph: SequencingGraph) -> dict[str, float]:
    return dict.fromkeys(graph.groups, 1.0)


def plane(machines: int, hosts: int, seed: int) -> Site:
    """Machines and members at random places of a square; a member is at a machine."""
    random = Random(seed)
    places = [(random.random(), random.random()) for _ in range(machines)]

    def distance(one: int, other: int) -> float:
        (a, b), (c, d) = places[one], places[other]
        return hypot(a - c, b - d)

    return Site(range(machines), {f"r{host}": random.randrange(machines) for host in range(hosts)}, distance)


def mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


@pytest.mark.parametrize("seed", range(8))
def test_every_atom_gets_one_node_and_step_one_puts_subsets_together(seed: int) -> None:
    graph = build(zipf(24, 40, seed))
    check(graph)
    nodes = colocate_by_overlaps(graph, Random(seed))
    assert nodes.keys() == graph.atoms.keys()
    overlaps = overlaps_of(graph)
    largest = max(sorted(overlaps), key=lambda name: len(overlaps[name]))
    subsets = {name for name, members in overlaps.items() if members <= overlaps[largest]}
    assert {nodes[name] for name in subsets} == {nodes[largest]}


def test_the_paper_promises_a_load_that_its_first_step_exceeds() -> None:
    """Two overlaps that are subsets of a third one have nobody in common: no receiver gets what their node sees."""
    graph = build({"A.1": "abcd", "B.1": "abcd", "C.1": "abxy", "D.1": "abzw", "E.1": "cdpq", "F.1": "cdrs"})
    nodes = colocate_by_overlaps(graph, Random(1))
    assert len({nodes["A.1&B.1"], nodes["C.1&D.1"], nodes["E.1&F.1"]}) == 1
    rates = even(graph)
    assert max(loads(graph, nodes, rates).values()) == 6 > max(receiver_loads(graph, rates).values()) == 4


@pytest.mark.parametrize("seed", range(8))
def test_pieces_are_connected_and_within_their_load(seed: int) -> None:
    graph = build(zipf(24, 40, seed))
    rates = even(graph)
    cap = max(receiver_loads(graph, rates).values())
    nodes = colocate_along_paths(graph, cap, rates)
    assert nodes.keys() == graph.atoms.keys()
    for node in set(nodes.values()):
        atoms = {name for name, each in nodes.items() if each == node}
        roots = {name for name in atoms if graph.atoms[name].next not in atoms}
        assert len(roots) == 1
    found = loads(graph, nodes, rates)
    alone = {node for node in found if list(nodes.values()).count(node) == 1}
    assert all(load <= cap for node, load in found.items() if node not in alone)
    without_cap = colocate_along_paths(graph, float("inf"), rates)
    assert set(hops(graph, without_cap).values()) == {0}


def test_pieces_along_paths_make_fewer_hops_than_the_papers_nodes() -> None:
    theirs = ours = 0.0
    for seed in range(6):
        graph = build(zipf(24, 40, seed))
        rates = even(graph)
        printed = colocate_by_overlaps(graph, Random(seed))
        load = max(loads(graph, printed, rates).values())
        theirs += mean(hops(graph, printed))
        ours += mean(hops(graph, colocate_along_paths(graph, load, rates)))
    assert ours < 0.5 * theirs


def test_nodes_get_machines_of_their_own_and_ours_are_nearer() -> None:
    theirs = ours = 0.0
    for seed in range(6):
        members = zipf(16, 32, seed)
        graph = build(members)
        paths = node_paths(graph, colocate_by_overlaps(graph, Random(seed)))
        site = plane(60, 32, seed)
        printed = place_by_neighbours(paths, site, Random(seed))
        better = place_by_distances(paths, members, site)
        for placed in (printed, better):
            assert placed.keys() == {node for path in paths.values() for node in path}
            assert len(set(placed.values())) == len(placed)
        theirs += mean(latencies(paths, members, printed, site))
        ours += mean(latencies(paths, members, better, site))
    assert ours < 0.8 * theirs


def test_too_few_machines() -> None:
    graph = build({"A.1": "ab", "B.1": "ab", "C.1": "ab"})
    paths = node_paths(graph, {name: index for index, name in enumerate(graph.atoms)})
    site = Site(range(2), {"a": 0, "b": 1}, lambda one, other: abs(one - other))
    with pytest.raises(InputError, match="co-locate more"):
        place_by_distances(paths, {group: "ab" for group in graph.groups}, site)
    with pytest.raises(InputError, match="machines"):
        place_by_neighbours(paths, site, Random(1))


def test_a_group_without_atoms_goes_straight() -> None:
    graph = build({"A.1": "ab"})
    site = Site(range(2), {"a": 0, "b": 1}, lambda one, other: abs(one - other))
    assert latencies(node_paths(graph, {}), {"A.1": "ab"}, {}, site) == {"A.1": 0.5}
