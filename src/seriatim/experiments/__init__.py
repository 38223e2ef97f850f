"""Experiments of the papers: what they state, and ours beside it. Pure Python; pipeline/sweep.py runs them on Spark."""

from seriatim.experiments.experiment import Axis, Experiment, Measures, Parameters
from seriatim.experiments.facts import Fact, Judgement, at_least, at_most, same, shape
from seriatim.experiments.measurements import Comparison, comparisons, measurements
from seriatim.experiments.registry import experiments, find
from seriatim.experiments.results import Measurement, Results, Run, Sample

__all__ = [
    "Axis",
    "Comparison",
    "Experiment",
    "Fact",
    "Judgement",
    "Measurement",
    "Measures",
    "Parameters",
    "Results",
    "Run",
    "Sample",
    "at_least",
    "at_most",
    "comparisons",
    "experiments",
    "find",
    "measurements",
    "same",
    "shape",
]
