"""The sequencing tree, as the explorer sees it."""

from functools import partial
from random import Random

from seriatim.lab.explore.engine.plan import Explorable, Journey
from seriatim.lab.explore.tree.cast import PROPER
from seriatim.lab.explore.tree.random_worlds import TreeWalk, random_story, random_world
from seriatim.lab.explore.tree.variants import VARIANTS
from seriatim.lab.explore.tree.worlds import WORLDS

STORY_EVERY = 8  # every eighth world is a quiet story about leaving


def draw(random: Random, index: int, name: str, variant: str | None) -> Journey:
    if index % STORY_EVERY == STORY_EVERY - 1:
        return Journey(random_story(random, name), partial(TreeWalk, calm=True))
    return Journey(random_world(random, name), TreeWalk)


TREE = Explorable("tree", "sequencing-tree machines", PROPER, WORLDS, VARIANTS, draw, "move")
