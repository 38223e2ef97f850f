"""Experiments of the papers: their results, and ours beside them. Pure Python; pipeline/sweep.py runs them on Spark."""

from seriatim.lab.experiments.experiment import (
    Axis,
    Comparison,
    Experiment,
    Measures,
    Parameters,
    comparisons,
    measurements,
)
from seriatim.lab.experiments.facts import same
from seriatim.lab.experiments.registry import experiments, find
from seriatim.lab.experiments.results import Measurement, Results, Trial

__all__ = [
    "Axis",
    "Comparison",
    "Experiment",
    "Measurement",
    "Measures",
    "Parameters",
    "Results",
    "Trial",
    "comparisons",
    "experiments",
    "find",
    "measurements",
    "same",
]
