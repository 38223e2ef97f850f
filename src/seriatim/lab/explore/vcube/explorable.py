"""VCube-PS, as the explorer sees it."""

from functools import partial
from random import Random

from seriatim.lab.explore.engine.plan import Explorable, Journey
from seriatim.lab.explore.vcube.plots import random_plot
from seriatim.lab.explore.vcube.plotting import HURRIED, PlotWalk, plotted_world
from seriatim.lab.explore.vcube.random_worlds import PeerWalk, random_peers
from seriatim.lab.explore.vcube.stories import random_story
from seriatim.lab.explore.vcube.variants import VARIANTS
from seriatim.lab.explore.vcube.worlds import WORLDS
from seriatim.protocols.vcube import Peer

KINDS, PLOT, STORY = 5, 2, 3  # of five worlds the third is a plot, the fourth a story


def draw(random: Random, index: int, name: str, variant: str | None) -> Journey:
    if index % KINDS == PLOT:
        plot = random_plot(random)
        return Journey(plotted_world(name, plot), partial(PlotWalk, steps=plot.steps, hurried=HURRIED))
    return Journey((random_story if index % KINDS == STORY else random_peers)(random, name), PeerWalk)


VCUBE: Explorable[type[Peer]] = Explorable("vcube", "VCube-PS peers", Peer, WORLDS, VARIANTS, draw, "join")
