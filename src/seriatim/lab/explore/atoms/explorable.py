"""Sequencing atoms, as the explorer sees them."""

from random import Random

from seriatim.lab.explore.atoms.cast import PROPER
from seriatim.lab.explore.atoms.random_worlds import random_atoms, random_forest, random_retirement
from seriatim.lab.explore.atoms.variants import VARIANTS
from seriatim.lab.explore.atoms.worlds import WORLDS
from seriatim.lab.explore.engine.plan import Explorable, Journey
from seriatim.lab.explore.engine.walk import BusyWalk

# Of six worlds, two are about atoms that are put in and taken out, and one is about trees that join and come apart.
KINDS = (random_atoms, random_atoms, random_retirement, random_atoms, random_forest, random_retirement)


def draw(random: Random, index: int, name: str, variant: str | None) -> Journey:
    return Journey(KINDS[index % len(KINDS)](random, name), BusyWalk)


ATOMS = Explorable("atoms", "sequencing atoms", PROPER, WORLDS, VARIANTS, draw, "retire")
