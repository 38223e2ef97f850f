"""The experiments of paper 000: their grids, and that small runs agree with what the paper states."""

import pytest

from seriatim.lab.experiments import Parameters, Results, Trial, comparisons, experiments, find, measurements
from seriatim.lab.experiments.experiment import Experiment
from seriatim.model import InputError

FIGURES = [f"000-fig{number}" for number in range(7, 15)]


def reproduce(experiment: Experiment, seeds: int = 1, **where: object) -> dict[str, str]:
    """Trial the points of the quick grid that have these parameters; the verdict on each statement."""
    points = [point for point in experiment.grid() if where.items() <= point.items()]
    assert points
    runs = [
        Trial(parameters=point, seed=seed, measures=experiment.run(point, seed))
        for point in points
        for seed in range(1, seeds + 1)
    ]
    return {row.point: row.verdict for row in comparisons(experiment, Results(runs))}


def test_every_figure_is_there() -> None:
    assert list(experiments())[:8] == FIGURES


@pytest.mark.parametrize("id", list(experiments()))
def test_an_experiment_is_complete(id: str) -> None:
    experiment = find(id)
    quick, full = experiment.grid(), experiment.grid(full=True)
    assert quick and all(point in full for point in quick)
    assert experiment.x in quick[0]
    assert experiment.facts
    for point in full:
        assert experiment.check(point) == point
    assert all(row.verdict == "not measured" for row in comparisons(experiment, Results([])))


@pytest.mark.parametrize("id", [id for id in experiments() if find(id).shares])
def test_experiments_that_share_runs_have_the_same_ones(id: str) -> None:
    experiment = find(id)
    other = find(experiment.runs_as)
    assert (experiment.axes, experiment.run, experiment.seeds) == (other.axes, other.run, other.seeds)


def test_unknown_experiments_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean '000-fig7'"):
        find("000-fig77")


def test_sizes_are_the_papers() -> None:
    """Fig. 7 at 1 and 10 topics each."""
    verdicts = reproduce(find("000-fig7"), subscribed=10_000) | {
        point: verdict
        for point, verdict in reproduce(find("000-fig7"), subscribed=100_000).items()
        if verdict != "not measured"
    }
    stated = [
        f"shape {shape}, {each}"
        for shape in ("0.349", "0.901")
        for each in ("10 topics each (calibrated)", "1 topic each")
    ]
    assert {point: verdicts[point] for point in stated} == dict.fromkeys(stated, "within")
    assert verdicts["0.901 against 0.349"] == "within"


def test_what_servers_forward_is_as_the_paper_states_for_spray() -> None:
    verdicts = reproduce(find("000-fig12"), layout="paper")
    assert verdicts == {"server 1": "within", "servers 2 to 5": "within"}


def test_latency_and_throughput_at_full_load_are_the_papers() -> None:
    runs = [
        Trial(parameters=point, seed=1, measures=find("000-fig9").run(point, 1))
        for point in find("000-fig9").grid()
        if point["layout"] == "paper"
    ]
    for id in ("000-fig9", "000-fig10"):
        assert {row.verdict for row in comparisons(find(id), Results(runs))} == {"within"}


def test_measurements_hold_the_papers_number_where_it_states_one() -> None:
    where: Parameters = {"shape": "0.349", "subscribed": 100_000}
    runs = [
        Trial(parameters=dict(where), seed=seed, measures={"entries": 40.0 + seed, "share[3]": 0.5}) for seed in (1, 3)
    ]
    failed = Trial(parameters=dict(where), seed=2, measures=None, error="lost")
    rows = measurements(find("000-fig7"), Results([*runs, failed]))
    shown = [(row.variant, row.x, row.measure, row.mean, row.count, row.paper) for row in rows]
    assert shown == [
        ("0.349", "100000", "entries", 42.0, 2, 46.0),
        ("0.349", "3", "share", 0.5, 2, None),
    ]
    assert rows[0].std == pytest.approx(2**0.5)
    (first, *_) = comparisons(find("000-fig7"), Results(runs))
    assert (first.paper, first.ours, first.verdict) == ("46", "42 ± 12.7", "within")


def test_a_number_outside_its_band_is_said_to_be() -> None:
    runs = [Trial(parameters={"shape": "0.349", "subscribed": 100_000}, seed=1, measures={"entries": 60.0})]
    (first, *_) = comparisons(find("000-fig7"), Results(runs))
    assert (first.ours, first.verdict) == ("60 (one seed)", "outside")
