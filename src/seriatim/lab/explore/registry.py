"""The protocols that can be explored, by name."""

from functools import partial
from random import Random
from typing import Any

from seriatim.lab.explore.atoms import cast as atoms_cast
from seriatim.lab.explore.atoms import variants as atoms_variants
from seriatim.lab.explore.atoms import worlds as atoms_worlds
from seriatim.lab.explore.atoms.random_worlds import random_atoms, random_forest, random_retirement
from seriatim.lab.explore.engine.plan import Explorable, Journey, pick
from seriatim.lab.explore.engine.walk import BusyWalk
from seriatim.lab.explore.overlay import variants as overlay_variants
from seriatim.lab.explore.overlay import worlds as overlay_worlds
from seriatim.lab.explore.overlay.random_worlds import random_meeting, random_overlay
from seriatim.lab.explore.tree import cast as tree_cast
from seriatim.lab.explore.tree import variants as tree_variants
from seriatim.lab.explore.tree import worlds as tree_worlds
from seriatim.lab.explore.tree.healing_variants import HEALING
from seriatim.lab.explore.tree.losses import random_loss
from seriatim.lab.explore.tree.random_worlds import TreeWalk, random_story, random_world
from seriatim.lab.explore.vcube import stories as vcube_stories
from seriatim.lab.explore.vcube import variants as vcube_variants
from seriatim.lab.explore.vcube import worlds as vcube_worlds
from seriatim.lab.explore.vcube.plots import random_plot
from seriatim.lab.explore.vcube.plotting import HURRIED, PlotWalk, plotted_world
from seriatim.lab.explore.vcube.random_worlds import PeerWalk, random_peers
from seriatim.protocols.overlay import Broker
from seriatim.protocols.vcube import Peer

# Of six worlds of atoms, two are about atoms that are put in and taken out, and one about trees that join and come
# apart. Every third world of the overlay is about hearing of another publisher.
ATOMS_KINDS = (random_atoms, random_atoms, random_retirement, random_atoms, random_forest, random_retirement)
OVERLAY_KINDS = (random_overlay, random_overlay, random_meeting)


def draw_tree(random: Random, index: int, name: str, variant: str | None) -> Journey:
    """Every eighth world is a quiet story about leaving; in every sixteenth, nodes lose their journals."""
    if index % 16 == 13 or variant in HEALING:
        return Journey(random_loss(random, name), TreeWalk)
    if index % 8 == 7:
        return Journey(random_story(random, name), partial(TreeWalk, calm=True))
    return Journey(random_world(random, name), TreeWalk)


def draw_vcube(random: Random, index: int, name: str, variant: str | None) -> Journey:
    """Draw a world. Of each five worlds, the third is a plot and the fourth a story."""
    if index % 5 == 2:
        plot = random_plot(random)
        return Journey(plotted_world(name, plot), partial(PlotWalk, steps=plot.steps, hurried=HURRIED))
    return Journey((vcube_stories.random_story if index % 5 == 3 else random_peers)(random, name), PeerWalk)


def draw_atoms(random: Random, index: int, name: str, variant: str | None) -> Journey:
    return Journey(ATOMS_KINDS[index % len(ATOMS_KINDS)](random, name), BusyWalk)


def draw_overlay(random: Random, index: int, name: str, variant: str | None) -> Journey:
    kind = OVERLAY_KINDS[index % len(OVERLAY_KINDS)]
    return Journey(kind(random, name, overlay_variants.orders_of(variant)), BusyWalk)


TREE = Explorable(
    "tree", "sequencing-tree machines", tree_cast.PROPER, tree_worlds.WORLDS, tree_variants.VARIANTS, draw_tree, "move"
)
VCUBE: Explorable[type[Peer]] = Explorable(
    "vcube", "VCube-PS peers", Peer, vcube_worlds.WORLDS, vcube_variants.VARIANTS, draw_vcube, "join"
)
ATOMS = Explorable(
    "atoms", "sequencing atoms", atoms_cast.PROPER, atoms_worlds.WORLDS, atoms_variants.VARIANTS, draw_atoms, "retire"
)
OVERLAY: Explorable[type[Broker]] = Explorable(
    "overlay", "content-based brokers", Broker, overlay_worlds.WORLDS, overlay_variants.VARIANTS, draw_overlay, "pair"
)
PROTOCOLS: dict[str, Explorable[Any]] = {each.name: each for each in (TREE, VCUBE, ATOMS, OVERLAY)}


def explorable(protocol: str) -> Explorable[Any]:
    """The protocol of this name."""
    return pick("protocol", protocol, PROTOCOLS)
