"""The experiments of papers 001 and 002: small runs agree with what the papers state, and with what can be counted."""

from random import Random

import pytest

from seriatim.lab.experiments import Results, Trial, comparisons, find
from seriatim.lab.experiments.experiment import Experiment, Parameters
from seriatim.lab.experiments.paper001.broker_model import (
    TREE_AND_CLIENTS,
    TREE_BESIDE_CLIENTS,
    Brokers,
    draw_messages,
    latencies,
    run_brokers,
)
from seriatim.lab.experiments.paper001.changing import PRINTED, PRINTED_VIEWS, UNDER_WAY, run_churn, run_one_change
from seriatim.lab.experiments.paper001.discussion import ALL_QUEUE, STATED, Discussion, run_discussion
from seriatim.lab.experiments.paper001.static_trees import (
    RANDOM,
    REGULAR,
    SRPT,
    VCUBE,
    VCUBE_WINDOW,
    run_change_load,
    run_one_message,
    run_topics,
)
from seriatim.lab.experiments.paper001.tree_model import Model, Planned, run
from seriatim.model import InputError
from tests.lab.experiments.srpt_worlds import BrokerWorld

HOP = 102.0


def verdicts(experiment: Experiment, points: list[Parameters], seeds: int = 1) -> dict[str, str]:
    runs = [
        Trial(parameters=point, seed=seed, measures=experiment.run(point, seed))
        for point in points
        for seed in range(1, seeds + 1)
    ]
    return {row.point: row.verdict for row in comparisons(experiment, Results(runs)) if row.verdict != "not measured"}


def test_one_message_takes_as_long_as_the_papers_say() -> None:
    """Fig. 4a at 1,024 nodes."""
    points = [point for point in find("001-fig4a").grid() if point["size"] == 1_024]
    found = verdicts(find("001-fig4a"), points, seeds=2)
    assert found.pop("SRPT, 100 %") == "within"
    assert found == {f"{system}, 1,024 nodes, 25 %": "within" for system in (VCUBE, SRPT)}


def test_one_message_costs_one_copy_for_each_subscriber_and_forwarders_cost_more() -> None:
    for size in (8, 64):
        parameters: Parameters = {"size": size, "subscribers": 25, "system": VCUBE}
        assert run_one_message(parameters, 1)["messages"] == size // 4 - 1
    srpt = [run_one_message({"size": 8, "subscribers": 25, "system": SRPT}, seed)["messages"] for seed in range(300)]
    assert sum(srpt) / len(srpt) == pytest.approx(2.71, rel=0.1), "the mean over all pairs of subscribers"


@pytest.mark.parametrize("id", ["001-fig5a", "001-fig5b"])
def test_a_root_is_a_bottleneck_as_the_papers_say(id: str) -> None:
    points = [point for point in find(id).grid() if point["size"] == 256 and point["publishers"] == 100]
    assert verdicts(find(id), points) == {"SRPT, 256 nodes, 100 %": "within"}


def test_queues_of_srpt_are_those_of_table_1() -> None:
    points = [point for point in find("001-table1").grid() if point["system"] == SRPT]
    found = verdicts(find("001-table1"), points)
    assert len(found) == 7
    assert set(found.values()) == {"within"}


def test_topics_with_zipf_cost_stop_and_wait_but_not_a_window() -> None:
    def latency(system: str, popularity: str) -> float:
        point: Parameters = {"size": 64, "topics": 16, "messages": 1_024, "interval": 500}
        return run_topics(point | {"system": system, "popularity": popularity}, 1)["latency"]

    assert latency(VCUBE, "Zipf 0.825") > 1.05 * latency(VCUBE, "uniform")
    assert latency(VCUBE_WINDOW, "Zipf 0.825") == pytest.approx(latency(VCUBE_WINDOW, "uniform"), rel=0.02)


def test_a_discussion_has_an_answer_of_everybody_in_causal_order() -> None:
    world = Discussion(32, 2, "uniform 100", 1)
    world.run()
    assert len(world.seen) == 32
    assert all(len(seen.notified) == 32 for seen in world.seen.values())
    assert min(world.held()) == 0.0
    for name, seen in world.seen.items():
        if seen.at > 0.0:
            for question in world.asked:
                asked = world.seen[question].notified
                assert all(asked[id] <= time for id, time in seen.notified.items()), f"{name} before {question}"


def test_a_pause_is_one_of_two_distributions() -> None:
    with pytest.raises(InputError, match="'normal 5' is not a distribution"):
        Discussion(4, 1, "normal 5", 1)


def test_more_is_waited_for_more_barriers_have_that_size() -> None:
    measures = run_discussion({"size": 32, "waits": 4, "pause": "exponential 50"}, 1)
    assert measures["receptions"] == 32 * 31
    assert 0.0 < measures["exactly"] <= 100.0
    assert measures["none"] <= measures["below_10"] <= 100.0


def test_short_pauses_make_small_barriers_and_long_delays() -> None:
    """001-pauses at a quarter of the size: what the paper says of barriers and of delays needs different pauses."""
    short, long = (run_discussion({"size": 64, "waits": 1, "pause": f"uniform {pause}"}, 1) for pause in (10, 200))
    assert short["barrier_mean"] < long["barrier_mean"]
    assert short["none"] < long["none"]
    assert short["delay_max"] > long["delay_max"]


def test_another_reading_of_a_discussion_plays_it_whole() -> None:
    other, stated = (Discussion(64, 16, "uniform 10", 1, each) for each in (ALL_QUEUE, STATED))
    for world in (other, stated):
        world.run()
        assert len(world.seen) == 64
        assert all(len(seen.notified) == 64 for seen in world.seen.values())
    received = [{name: seen.received for name, seen in world.seen.items()} for world in (other, stated)]
    assert received[0] != received[1], "it makes a difference, somewhere"


def test_a_broker_sends_to_its_subscribers_one_after_the_other() -> None:
    """One message, four brokers with three clients each: everything can be counted."""
    world = BrokerWorld(4, 12, root=0)
    world.publish(4, "e0", "T", 0.0)  # a client of broker 0
    world.run()
    received = world.seen["e0"].received
    assert received[0] == HOP
    assert (received[1], received[2]) == (2 * HOP, 2 * HOP + 1)
    assert received[3] == received[2] + HOP
    assert [received[id] for id in (4, 8, 12)] == [2 * HOP + 2 + place for place in range(3)]
    assert [received[id] for id in (7, 11, 15)] == [received[3] + HOP + place for place in range(3)]


@pytest.mark.parametrize(("brokers", "clients", "interval"), [(4, 12, 500.0), (8, 56, 20.0), (16, 240, 60.0)])
def test_brokers_without_machines_take_as_long_as_with_them(brokers: int, clients: int, interval: float) -> None:
    """Far apart, and so dense that queues grow."""
    random = Random(f"brokers {brokers}")
    root = random.randrange(brokers)
    planned = draw_messages(random, list(range(brokers, brokers + clients)), interval)
    world = BrokerWorld(brokers, clients, root)
    for row, publication in enumerate(planned):
        world.publish(publication.source, f"e{row}", "T", publication.at)
    world.run()
    played, model = world.latencies(), latencies(Brokers(brokers=brokers, clients=clients, root=root), planned)
    assert model.tree == pytest.approx(played.tree, rel=1e-12)
    assert model.broker_to_subscriber == pytest.approx(played.broker_to_subscriber, rel=1e-12)


def test_a_queue_for_clients_alone_keeps_the_tree_free_of_them() -> None:
    planned = [Planned(float(at), 8) for at in range(0, 400, 4)]
    one, two = (
        latencies(Brokers(brokers=8, clients=56, root=0, queues=queues), planned)
        for queues in (TREE_AND_CLIENTS, TREE_BESIDE_CLIENTS)
    )
    assert one.tree > 1.2 * two.tree
    assert two.broker_to_subscriber > one.broker_to_subscriber


def test_fewer_brokers_have_shorter_trees_and_longer_queues() -> None:
    few, many = (run_brokers({"system": f"SRPT-B {brokers}", "size": 256, "interval": 500}, 1) for brokers in (8, 64))
    assert few["tree"] < many["tree"]
    assert few["broker_to_subscriber"] > many["broker_to_subscriber"]


@pytest.mark.parametrize("system", [VCUBE, VCUBE_WINDOW])
def test_who_stays_misses_nothing_when_members_change(system: str) -> None:
    measures = run_one_change({"system": system, "size": 32, "churn": 25.0, "messages": 32}, 1)
    assert measures["complete"] == 100.0
    assert measures["members_at_end"] == 24.0
    assert measures["deliveries"] <= 24 * 32


def test_the_printed_algorithm_plays_the_same_change() -> None:
    measures = run_one_change({"system": PRINTED, "size": 32, "churn": 25.0, "messages": 32}, 1)
    assert measures["members_at_end"] == 24.0
    assert 0.0 < measures["deliveries"] <= 24 * 32


def test_views_in_acknowledgements_keep_a_leaver_for_ever() -> None:
    """Table II: as printed nobody who left receives half of all messages; with views some receive nearly all."""
    printed, views = (
        run_one_change({"system": system, "size": 128, "churn": 25.0, "messages": 16}, 1)
        for system in (PRINTED, PRINTED_VIEWS)
    )
    assert printed["never_forgotten"] == 0.0
    assert views["never_forgotten"] >= 2.0
    assert views["false_positives"] >= 8.0 * views["never_forgotten"] > printed["false_positives"]


def test_who_leaves_while_subscriptions_are_under_way_is_kept_as_printed_and_forgotten_by_ours() -> None:
    """002-leavers at an eighth of the size."""
    printed, ours = (
        run_one_change({"system": system, "size": 64, "churn": 25.0, "messages": 8, "start": UNDER_WAY}, 1)
        for system in (PRINTED, VCUBE)
    )
    assert printed["kept"] == printed["never_forgotten"] > 0.0
    assert (ours["kept"], ours["unserved"], ours["members_at_end"]) == (0.0, 0.0, 48.0)


def test_receptions_after_a_cutoff_do_not_count() -> None:
    planned = [Planned(0.0, 0), Planned(50.0, 1)]
    outcome = run(Model(size=4, members=range(4)), planned)
    assert outcome.mean_latency_until(1e9, planned) == pytest.approx(outcome.mean_latency(planned, range(4)))
    assert outcome.mean_latency_until(110.0, planned) == pytest.approx((102.0 + 103.0) / 2.0), "two copies of the first"
    assert outcome.mean_latency_until(10.0, planned) == 0.0


def test_regular_messages_wait_as_long_for_each_other_but_no_message_comes_early() -> None:
    point: Parameters = {"size": 32, "topics": 4, "messages": 256, "interval": 500, "popularity": "uniform"}
    regular, random = (
        run_topics(point | {"system": VCUBE, "arrivals": arrivals}, 1)["waited_at_source"]
        for arrivals in (REGULAR, RANDOM)
    )
    assert 0.0 < regular < random


def test_changes_load_a_root_and_a_joiners_publication_waits_for_its_subscription() -> None:
    """001-load at a sixteenth of the size: the root of 60 members can send 166 changes in a second, not 240."""

    def measure(system: str, churn: float) -> dict[str, float]:
        return run_change_load({"system": system, "members": 60, "seconds": 5, "churn": churn}, 1)

    still, below, above = (measure(SRPT, churn) for churn in (0.0, 50.0, 200.0))
    assert still["changes"] == 0.0
    assert still["queue_busiest"] < below["queue_busiest"] < 0.1 * above["queue_busiest"]
    assert measure(VCUBE, 0.0)["waited_at_source"] == 0.0
    assert measure(VCUBE, 50.0)["waited_at_source"] > 100.0


@pytest.mark.parametrize("system", [VCUBE, SRPT])
def test_who_stays_misses_nothing_under_churn(system: str) -> None:
    still, lively = (
        run_churn({"system": system, "members": 24, "churn": churn, "seconds": 10}, 1) for churn in (0.0, 20.0)
    )
    assert (still["changes"], still["lost"], lively["lost"]) == (0.0, 0.0, 0.0)
    assert lively["changes"] > 20.0
    assert lively["sent"] > still["sent"]
    if system == VCUBE:
        assert still["false_positives"] == 0.0, "only subscribers are in its trees"
