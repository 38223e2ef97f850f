"""Exploration of the real machines: every interleaving of a small world, or random walks through many larger ones."""

from seriatim.lab.explore.engine.search import search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.tree.cast import TreeWorld, change, publish

__all__ = ["Space", "TreeWorld", "change", "publish", "search"]
