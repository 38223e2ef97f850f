"""From results to what is shown: the rows that reports draw, and the paper's statements with ours beside them."""

from msgspec import Struct

from seriatim.lab.experiments.experiment import Experiment, split_measure
from seriatim.lab.experiments.results import Measurement, NotMeasuredError, Results, sample_of


class Comparison(Struct, frozen=True):
    """One statement of the paper, and ours. `verdict`: within, outside, or not measured."""

    experiment: str
    point: str
    paper: str
    ours: str
    band: str
    verdict: str
    reason: str
    citation: str


def measurements(experiment: Experiment, results: Results) -> list[Measurement]:
    """One row per curve, x and measure, over seeds; curves in the order of the grid."""
    order = {experiment.variant(point): index for index, point in enumerate(experiment.grid(full=True))}
    values: dict[tuple[str, str, str], list[float]] = {}
    stated: dict[tuple[str, str, str], float | None] = {}
    for run in results.runs:
        variant = experiment.variant(run.parameters)
        for name, value in (run.measures or {}).items():
            measure, at = split_measure(name)
            key = (variant, str(run.parameters[experiment.x]) if at is None else at, measure)
            values.setdefault(key, []).append(value)
            if key not in stated:
                numbers = (fact.states(name, run.parameters) for fact in experiment.facts)
                stated[key] = next((number for number in numbers if number is not None), None)
    rows = []
    for key, given in sorted(values.items(), key=lambda item: order.get(item[0][0], len(order))):
        sample = sample_of(given)
        rows.append(Measurement(experiment.id, *key, sample.mean, sample.std, sample.count, stated[key]))
    return rows


def comparisons(experiment: Experiment, results: Results) -> list[Comparison]:
    """Every statement of the paper about this experiment."""
    rows = []
    for fact in experiment.facts:
        try:
            ours, is_within = fact.judge(results)
        except NotMeasuredError:
            ours, is_within = "not measured", None
        verdict = {True: "within", False: "outside", None: "not measured"}[is_within]
        reason = fact.reason if is_within is False else ""
        citation = fact.citation or experiment.citation
        rows.append(Comparison(experiment.id, fact.point, fact.paper, ours, fact.band, verdict, reason, citation))
    return rows
