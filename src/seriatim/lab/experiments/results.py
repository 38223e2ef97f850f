"""Results of runs: one row per (parameters, seed), samples over seeds, and the table that reports draw."""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

Where: TypeAlias = Mapping[str, str | int | float]  # parameters that a point has

# Student's t, two sided, 95 %: by degrees of freedom from 1.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.96

Found = TypeVar("Found")


class Trial(Struct, frozen=True, kw_only=True):
    """One run. `error` says what went wrong; then there are no measures."""

    parameters: dict[str, str | int | float]
    seed: int
    measures: dict[str, float] | None
    error: str | None = None
    elapsed_s: float = 0.0


class Sample(Struct, frozen=True):
    """One measure at one point, over seeds."""

    mean: float
    std: float
    count: int

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % confidence interval of the mean; infinite for a single seed."""
        if self.count < 2:
            return float("inf")
        t = _STUDENT[self.count - 2] if self.count - 2 < len(_STUDENT) else _NORMAL
        return t * self.std / sqrt(self.count)


class Measurement(Struct, frozen=True):
    """A row of what reports draw. `paper` is the paper's own number for this point, where it states one."""

    experiment: str
    variant: str
    x: str
    measure: str
    mean: float
    std: float
    count: int
    paper: float | None


def sample_of(values: Sequence[float]) -> Sample:
    return Sample(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


class NotMeasuredError(Exception):
    """The grid that was run lacks a point that is asked for."""


class Results:
    """All runs of one experiment; those that failed count for nothing but are kept."""

    def __init__(self, runs: Iterable[Trial]) -> None:
        self.runs = sorted(runs, key=lambda run: (sorted(map(str, run.parameters.items())), run.seed))
        self.failures = [run for run in self.runs if run.measures is None]

    def measures(self, where: Where) -> list[dict[str, float]]:
        """The measures of every run that has these parameters, and maybe others. There must be one."""
        runs = (run for run in self.runs if where.items() <= run.parameters.items())
        return _measured([run.measures for run in runs if run.measures is not None])

    def values(self, measure: str, where: Where) -> list[float]:
        """One number per run; there must be one."""
        return _measured([measures[measure] for measures in self.measures(where) if measure in measures])

    def sample(self, measure: str, where: Where) -> Sample:
        """Over seeds. The parameters must name one point."""
        return sample_of(self.values(measure, where))

    def mean(self, measure: str, where: Where) -> float:
        return self.sample(measure, where).mean

    def curve(self, measure: str, x: str, where: Where) -> dict[Any, float]:
        """Means by the parameter `x`, in its order, for the other parameters given; it may have no point."""
        points: dict[str | int | float, list[float]] = {}
        for run in self.runs:
            if run.measures is not None and measure in run.measures and where.items() <= run.parameters.items():
                points.setdefault(run.parameters[x], []).append(run.measures[measure])
        return {at: fmean(points[at]) for at in sorted(points, key=lambda at: (isinstance(at, str), at))}


def _measured(found: list[Found]) -> list[Found]:
    if not found:
        raise NotMeasuredError
    return found
