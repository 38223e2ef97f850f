"""The content-based overlay, as the explorer sees it."""

from random import Random

from seriatim.lab.explore.engine.plan import Explorable, Journey
from seriatim.lab.explore.engine.walk import BusyWalk
from seriatim.lab.explore.overlay.random_worlds import random_meeting, random_overlay
from seriatim.lab.explore.overlay.variants import VARIANTS, orders_of
from seriatim.lab.explore.overlay.worlds import WORLDS
from seriatim.protocols.overlay import Broker

KINDS = (random_overlay, random_overlay, random_meeting)  # every third world is about hearing of another publisher


def draw(random: Random, index: int, name: str, variant: str | None) -> Journey:
    return Journey(KINDS[index % len(KINDS)](random, name, orders_of(variant)), BusyWalk)


OVERLAY: Explorable[type[Broker]] = Explorable(
    "overlay", "content-based brokers", Broker, WORLDS, VARIANTS, draw, "pair"
)
