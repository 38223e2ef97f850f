"""An experiment: a grid of parameters, a function that runs one point of it, and the statements of its paper.

An experiment knows nothing about where it runs. `run` is a pure function of parameters and seed, so a point is the same
number in this process, in a child process and on a cluster; pipeline/sweep.py runs many of them as rows of a table.

A measure named `share[3]` is a separate point: the measure `share` at x = 3. This is for figures whose x axis is a part
of the system (a server) and not a parameter.
"""

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, TypeAlias

from msgspec import Struct, structs

from seriatim.lab.experiments.facts import Fact
from seriatim.lab.experiments.results import Measurement, NotMeasuredError, Results, sample_of
from seriatim.model import InputError

Value: TypeAlias = str | int | float
Parameters: TypeAlias = dict[str, Value]
Measures: TypeAlias = dict[str, float]

_AT = re.compile(r"(.+)\[([^\]]+)\]")


class Axis(Struct, frozen=True):
    """One parameter and the values it takes; `quick` are few enough for a test."""

    name: str
    quick: tuple[Value, ...]
    full: tuple[Value, ...] = ()  # without any: the same

    def __post_init__(self) -> None:
        if not self.full:
            structs.force_setattr(self, "full", self.quick)


def _everything(parameters: Parameters) -> bool:
    return True


class Experiment(Struct, frozen=True, kw_only=True):
    """One reproducible experiment. `x` is the parameter on the x axis; the other axes tell curves apart."""

    id: str
    title: str
    citation: str
    x: str
    measures: Mapping[str, str]  # those worth drawing, with their units; a run may return more
    axes: tuple[Axis, ...]
    run: Callable[[Parameters, int], Measures]
    facts: tuple[Fact, ...] = ()
    is_wanted: Callable[[Parameters], bool] = _everything
    seeds: int = 3
    limit_s: float = 300.0
    shares: str | None = None  # id of another experiment with the same axes and runs: one sweep serves both

    def again(
        self, id: str, title: str, citation: str, measures: Mapping[str, str], facts: tuple[Fact, ...]
    ) -> "Experiment":
        """Another experiment that looks at the same runs."""
        return structs.replace(
            self, id=id, title=title, citation=citation, measures=measures, facts=facts, shares=self.runs_as
        )

    @property
    def runs_as(self) -> str:
        """The id that runs of this experiment go by."""
        return self.shares or self.id

    def grid(self, full: bool = False) -> list[Parameters]:
        """Every combination of values, in the order of the axes."""
        names = [axis.name for axis in self.axes]
        values = [axis.full if full else axis.quick for axis in self.axes]
        points = (dict(zip(names, point, strict=True)) for point in product(*values))
        return [point for point in points if self.is_wanted(point)]

    def check(self, parameters: Any) -> Parameters:
        """Parameters that came from outside, a table or a command line; raises if they are not this experiment's."""
        wanted = {axis.name for axis in self.axes}
        if not isinstance(parameters, dict) or parameters.keys() != wanted:
            given = ", ".join(sorted(parameters)) if isinstance(parameters, dict) else repr(parameters)
            raise InputError(
                "parameters", f"{self.id} takes {', '.join(sorted(wanted))}, not {given}", "give just these"
            )
        return parameters

    def variant(self, parameters: Parameters) -> str:
        """Which curve a point belongs to: the values that tell it from others."""
        return ", ".join(str(parameters[axis.name]) for axis in self.axes if axis.name != self.x and len(axis.full) > 1)


def split_measure(name: str) -> tuple[str, str | None]:
    """`share[3]` → share, 3; any other name has no x of its own."""
    found = _AT.fullmatch(name)
    return (found.group(1), found.group(2)) if found else (name, None)


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
