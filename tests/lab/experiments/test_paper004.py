"""The experiments of paper 004: what the machines take is what the delays add up to, and small runs agree with the
paper."""

from random import Random

import pytest

from seriatim.lab.experiments import Results, Trial, comparisons, find
from seriatim.lab.experiments.experiment import Experiment, Parameters
from seriatim.lab.experiments.paper004.atom_counts import BY_CHANCE, IN_MOST, run_nodes, run_occupancy
from seriatim.lab.experiments.paper004.atom_latency import layout_of, played, run_penalty, run_stretch
from seriatim.lab.experiments.paper004.atom_layouts import HOST_ROUTERS, LAYOUTS, OURS, PLACED, PRINTED
from seriatim.lab.experiments.paper004.memberships import SIZES, occupancy_memberships, zipf_memberships
from seriatim.lab.experiments.paper004.transit_stub import length
from seriatim.model import InputError


def verdicts(experiment: Experiment, points: list[Parameters], seeds: int) -> dict[str, str]:
    runs = [
        Trial(parameters=point, seed=seed, measures=experiment.run(point, seed))
        for point in points
        for seed in range(1, seeds + 1)
    ]
    return {row.point: row.verdict for row in comparisons(experiment, Results(runs)) if row.verdict != "not measured"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_machines_take_as_long_as_the_delays_on_the_path_add_up_to(layout: str) -> None:
    planned = layout_of({"layout": layout, "groups": 16}, 1)
    deliveries = played(planned)
    members = planned.members
    assert len(deliveries) == sum(len(each) * (len(each) - 1) for each in members.values()), "each to each, and once"
    for each in deliveries:
        computed = length(planned.topology, planned.way(each.sender, each.topic, each.receiver))
        assert each.taken_ms == pytest.approx(computed, abs=1e-3)


def test_a_layout_has_each_node_at_a_router_of_its_own() -> None:
    for layout in LAYOUTS:
        planned = layout_of({"layout": layout, "groups": 16, "machines": HOST_ROUTERS}, 2)
        assert len(set(planned.places.values())) == len(planned.places)
        assert set(planned.places.values()) <= set(planned.hosts.values())
        assert {node for path in planned.paths.values() for node in path} == set(planned.places)


def test_our_places_are_nearer_than_the_printed_ones() -> None:
    """The same nodes: only where they are differs."""
    printed, placed = (run_stretch({"layout": layout, "groups": 32}, 1) for layout in (PRINTED, PLACED))
    assert printed["nodes"] == placed["nodes"]
    assert printed["hops"] == placed["hops"]
    assert placed["stretch_median"] < printed["stretch_median"]


def test_pieces_have_fewer_hops_and_load_no_node_more() -> None:
    for groups in (16, 64):
        printed, ours = (run_nodes({"groups": groups, "nodes": nodes}, 1) for nodes in (PRINTED, OURS))
        assert ours["stress_max"] <= printed["stress_max"]
        assert ours["node_count"] < printed["node_count"]


def test_nodes_stress_and_paths_are_as_the_paper_states() -> None:
    points: list[Parameters] = [{"groups": groups, "nodes": PRINTED} for groups in (1, 8, 16, 30, 64)]
    assert set(verdicts(find("004-fig5"), points, 8).values()) == {"within"}
    assert set(verdicts(find("004-fig6"), points, 8).values()) == {"within"}
    assert verdicts(find("004-fig7"), points, 2) == {
        "numbers collected, 64 groups, worst": "within",
        "atoms passed, 64 groups, worst": "outside",
    }


def test_a_fixed_factor_does_not_let_the_stress_settle() -> None:
    """Why sizes grow with the number of groups: the other readings of the paper miss Fig. 6."""
    for sizes in set(SIZES) - {"mean share"}:
        few, many = (run_nodes({"groups": groups, "nodes": PRINTED, "sizes": sizes}, 1) for groups in (8, 64))
        assert many["stress"] < 0.3 * few["stress"]


def test_the_highest_penalties_are_those_of_close_pairs() -> None:
    measures = run_penalty({"layout": OURS, "groups": 32}, 1)
    assert measures["highest_among_close"] > 0.9
    tenths = [measures[f"penalty[{place}]"] for place in range(1, 11)]
    assert measures["penalty_max"] > tenths[0] > max(tenths[1:])
    assert min(tenths) == tenths[-1] > 1.0


def test_occupancy_peaks_and_then_falls_to_one_node() -> None:
    curve = {
        occupancy: run_occupancy({"occupancy": occupancy, "member": BY_CHANCE}, 1)["node_count"]
        for occupancy in (0.0, 0.05, 0.2, 0.5, 1.0)
    }
    assert curve[0.0] == 0.0
    assert curve[0.2] == max(curve.values())
    assert curve[1.0] == 1.0
    chance, most = (
        run_occupancy({"occupancy": 0.95, "member": member}, 1)["node_count"] for member in (BY_CHANCE, IN_MOST)
    )
    assert most == 1.0 < chance


def test_sizes_of_groups_follow_their_rank() -> None:
    members = zipf_memberships(16, 128, 1, "first is everybody")
    assert [len(each) for each in members.values()] == [round(128 / rank) for rank in range(1, 17)]
    shared = zipf_memberships(64, 128, 1)
    assert sum(map(len, shared.values())) / 64 / 128 == pytest.approx(0.08, rel=0.05)


def test_an_occupancy_is_a_probability() -> None:
    assert occupancy_memberships(4, 8, 0.0, 1) == {}
    assert all(len(each) == 8 for each in occupancy_memberships(4, 8, 1.0, 1).values())
    with pytest.raises(InputError, match="occupancy"):
        occupancy_memberships(4, 8, Random(1).uniform(1.1, 2.0), 1)
