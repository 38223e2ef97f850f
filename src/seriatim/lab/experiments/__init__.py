"""Experiments of the papers: what they state, and ours beside it. Pure Python; pipeline/sweep.py runs them on Spark."""

from seriatim.lab.experiments.experiment import (
    Axis,
    Comparison,
    Experiment,
    Measures,
    Parameters,
    comparisons,
    measurements,
)
from seriatim.lab.experiments.facts import Fact, at_least, at_most, same, shape
from seriatim.lab.experiments.registry import experiments, find
from seriatim.lab.experiments.results import Measurement, Results, Sample, Trial

__all__ = [
    "Axis",
    "Comparison",
    "Experiment",
    "Fact",
    "Measurement",
    "Measures",
    "Parameters",
    "Results",
    "Sample",
    "Trial",
    "at_least",
    "at_most",
    "comparisons",
    "experiments",
    "find",
    "measurements",
    "same",
    "shape",
]
