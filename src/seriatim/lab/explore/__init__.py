"""Exploration of the real machines: every interleaving of a small world, or random walks through many larger ones."""

from seriatim.lab.explore.engine.checks import Checks, Fact, Violation
from seriatim.lab.explore.engine.plan import Explorable, Journey, Plan, Walked, walk_plan
from seriatim.lab.explore.engine.run import ExplorerError, Run
from seriatim.lab.explore.engine.search import SearchOptions, SearchResult, search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.engine.trace import shrink, transcript
from seriatim.lab.explore.engine.world import Budget, Channel, Role, Transition, World
from seriatim.lab.explore.registry import PROTOCOLS, explorable
from seriatim.lab.explore.swarm import Swarm, SwarmOptions, SwarmResult, walk_world
from seriatim.lab.explore.tree.cast import TreeWorld, change, publish

__all__ = [
    "PROTOCOLS",
    "Budget",
    "Channel",
    "Checks",
    "Explorable",
    "ExplorerError",
    "Fact",
    "Journey",
    "Plan",
    "Role",
    "Run",
    "SearchOptions",
    "SearchResult",
    "Space",
    "Swarm",
    "SwarmOptions",
    "SwarmResult",
    "Transition",
    "TreeWorld",
    "Violation",
    "Walked",
    "World",
    "change",
    "explorable",
    "publish",
    "search",
    "shrink",
    "transcript",
    "walk_plan",
    "walk_world",
]
