"""Exploration of the real machines: every interleaving of a small world, or random walks through many larger ones."""

from seriatim.explore.checks import Checks, Fact, Violation
from seriatim.explore.run import ExplorerError, Run
from seriatim.explore.search import SearchOptions, SearchResult, search
from seriatim.explore.space import Space
from seriatim.explore.swarm import Swarm, SwarmOptions, SwarmResult, walk_world
from seriatim.explore.trace import shrink, transcript
from seriatim.explore.tree import Cast, TreeWorld, change, publish
from seriatim.explore.variants import VARIANTS, cast_of
from seriatim.explore.vcube import VCubeWorld
from seriatim.explore.vcube_variants import VCUBE_VARIANTS, peer_of
from seriatim.explore.vcube_worlds import named_peer_world, named_peer_worlds
from seriatim.explore.world import Budget, Channel, Role, Transition, World
from seriatim.explore.worlds import named_world, named_worlds

__all__ = [
    "VARIANTS",
    "VCUBE_VARIANTS",
    "Budget",
    "Cast",
    "Channel",
    "Checks",
    "ExplorerError",
    "Fact",
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
    "VCubeWorld",
    "Violation",
    "World",
    "cast_of",
    "change",
    "named_peer_world",
    "named_peer_worlds",
    "named_world",
    "named_worlds",
    "peer_of",
    "publish",
    "search",
    "shrink",
    "transcript",
    "walk_world",
]
