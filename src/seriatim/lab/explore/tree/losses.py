"""Random worlds in which nodes lose their journals, and are healed."""

from dataclasses import replace
from random import Random

from msgspec import structs

from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.tree.cast import TreeWorld
from seriatim.lab.explore.tree.random_worlds import random_world
from seriatim.protocols.tree.messages import Reshape

TICKS_MAX = 60  # a node that waits to be healed asks again and again: no clock may run too far ahead of the others


def random_loss(random: Random, name: str) -> TreeWorld:
    """A world of log mode with several nodes, of which one loses its journal, or two do, or one twice; never all.

    Not where a node starts from an older copy: of two nodes that know too little, neither can tell the other. Nor where
    nodes join or leave: such a tree is not healed.
    """
    world, attempt = random_world(random, name), 1
    while world.options.mode != "log" or len(world.tree.parents) == 1 or _is_reshaped(world):
        attempt += 1
        world = replace(random_world(random, f"{name}, {attempt}"), name=name)  # some of it is drawn by name
    budgets = {
        address: replace(each, copies=0, ticks=min(each.ticks, TICKS_MAX)) for address, each in world.budgets.items()
    }
    nodes = random.sample(sorted(world.tree.parents), min(2, len(world.tree.parents) - 1))
    for _ in range(random.choice([1, 1, 1, 2])):
        node = random.choice(nodes)
        known = budgets.get(node, Budget(ticks=TICKS_MAX))
        budgets[node] = replace(known, losses_of_journal=known.losses_of_journal + 1)
    options = structs.replace(world.options, stages_ahead=random.choice([0, 1, 1, 2, 4, 256]))
    return replace(world, budgets=budgets, options=options)


def _is_reshaped(world: TreeWorld) -> bool:
    return any(isinstance(command, Reshape) for script in world.scripts.values() for command in script)
