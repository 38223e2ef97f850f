"""The experiments of paper 003: small overlays show what the paper states, and what can be counted by hand."""

from typing import Any

import pytest

from seriatim.lab.experiments import Results, Trial, comparisons, find
from seriatim.lab.experiments.experiment import Parameters
from seriatim.lab.experiments.paper003.overlay_runs import run_degree, run_detection, run_livelock
from seriatim.lab.experiments.paper003.overlay_worlds import (
    CENTRAL,
    FAST,
    FIFO,
    PLAIN,
    PROGRESSIVE,
    RESOLUTION,
    ROOTED,
    SEQUENCER,
    CentralSequencer,
    Costs,
    OverlayLoad,
    OverlayWorld,
    chain_of_cores,
)

SYSTEMS = (FIFO, SEQUENCER, ROOTED, RESOLUTION, CENTRAL, PLAIN, PROGRESSIVE, FAST)


def small_world(system: str, costs: Costs | None = None, **workload: Any) -> OverlayWorld:
    """40 clients at 10 edges, for two rounds of publications."""
    load = OverlayLoad(
        system=system,
        cores=2,
        subscriptions=20,
        advertisements=20,
        seconds=8.0,
        costs=costs or Costs(sequencer_ms=1.0),
        **workload,
    )
    world = OverlayWorld(load, keep=lambda subscriber: True)
    world.run(drain_ms=5_000.0)
    return world


def test_the_papers_topology_has_five_edges_on_each_core_and_its_root_in_the_middle() -> None:
    overlay = chain_of_cores(16)
    assert len(overlay.parents) == 96
    assert overlay.root == "core 8"
    assert max(len(overlay.path(broker)) for broker in overlay.parents) == 10


@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_that_is_owed_is_notified_once(system: str) -> None:
    world = small_world(system)
    assert len(world.published) == 40
    assert len(world.latencies) == world.owed() == 40 * 20
    assert all(len(seen) == len(set(seen)) == 40 for seen in world.kept.values())


@pytest.mark.parametrize("system", (SEQUENCER, ROOTED, RESOLUTION, CENTRAL))
def test_what_promises_one_order_keeps_it_under_load(system: str) -> None:
    slow = Costs(handle_ms=5.0, link_ms=5.0, sequencer_ms=1.0)
    orders = {tuple(seen) for seen in small_world(system, costs=slow).kept.values()}
    assert len(orders) == 1


def test_per_publisher_order_is_not_one_order() -> None:
    slow = Costs(handle_ms=5.0, link_ms=50.0)
    assert len({tuple(seen) for seen in small_world(FIFO, costs=slow).kept.values()}) > 1


def test_groups_and_publishers_apart_get_only_what_is_theirs() -> None:
    groups = small_world(ROOTED, groups=2)
    assert groups.owed() == len(groups.latencies) == 40 * 10
    near = small_world(CENTRAL, near=True)
    assert near.owed() == len(near.latencies) == 40 * 10
    assert near.brokers[near.overlay.root].seen.handled == 40, "everything climbs to the root"
    kept = small_world(ROOTED, near=True)
    assert kept.brokers[kept.overlay.root].seen.handled == 20, "what is about the other core stays there"
    apart = small_world(ROOTED, apart=True)
    assert apart.owed() == len(apart.latencies) == 40 * 1


def test_what_conflicts_with_nothing_is_as_fast_as_per_publisher_order() -> None:
    fifo, rooted = (small_world(system, apart=True) for system in (FIFO, ROOTED))
    assert sum(rooted.latencies) <= 1.1 * sum(fifo.latencies)


def test_a_sequencer_that_is_asked_too_often_turns_requests_away() -> None:
    sequencer = CentralSequencer(service_ms=10.0, waiting_max=1)
    assert [sequencer.ask(0.0) for _ in range(3)] == [10.0, 20.0, None]
    assert sequencer.ask(15.0) == 30.0


def test_detection_looks_at_whole_tables_or_stops_early() -> None:
    where: Parameters = {"conflict": 100, "seconds": 2}
    few, many = (run_detection(where | {"system": PROGRESSIVE, "entries": entries}, 1) for entries in (80, 160))
    assert many["rows_edge"] == 4.0 * few["rows_edge"] == (80 * 19 // 20) ** 2, "all of the other edges"
    few, many = (run_detection(where | {"system": FAST, "entries": entries}, 1) for entries in (80, 160))
    assert many["rows_edge"] == few["rows_edge"] == 1.0
    assert many["detection_edge_ms"] < 0.8


def test_fast_detection_looks_longer_where_less_conflicts() -> None:
    rows = [
        run_detection({"system": FAST, "entries": 80, "conflict": conflict, "seconds": 1}, 2)["rows_edge"]
        for conflict in (25, 100)
    ]
    assert rows[0] > rows[1]


def test_an_unoptimised_queue_is_never_all_acknowledged() -> None:
    found = {
        system: run_livelock({"system": system, "rate": 120, "round_ms": 2_000, "seconds": 60}, 1)["notified"]
        for system in (PLAIN, FAST, ROOTED)
    }
    assert found[PLAIN] == 0.0
    assert found[FAST] > 90.0 and found[ROOTED] > 90.0


def test_the_degree_of_ours_is_one_and_that_of_per_publisher_order_is_not() -> None:
    small: Parameters = {"hop_ms": 8.0, "cores": 2, "seconds": 9}
    fifo, rooted = (run_degree(small | {"system": system}, 1) for system in (FIFO, ROOTED))
    assert rooted["degree"] == 1.0 and rooted["conflicts"] == 0.0
    assert fifo["degree"] < 1.0 and fifo["conflicts"] > 0.0


def test_facts_say_within_outside_and_not_measured() -> None:
    experiment = find("003-livelock")
    point: Parameters = {"system": PLAIN, "round_ms": 2_000, "rate": 120}
    runs = [Trial(parameters=point, seed=1, measures={"notified": 0.0, "latency_ms": 0.0})]
    assert [row.verdict for row in comparisons(experiment, Results(runs))] == [
        "within",
        "not measured",
        "not measured",
    ]
