"""Spark looks for data sources in modules of such names: `spark.read.format("seriatim")` works without registration."""

from seriatim.pipeline.source import SeriatimSource as DefaultSource
from seriatim.pipeline.source import register

__all__ = ["DefaultSource", "register"]
