"""The protocols that can be explored, by name."""

from typing import Any

from seriatim.lab.explore.atoms.explorable import ATOMS
from seriatim.lab.explore.engine.plan import Explorable, pick
from seriatim.lab.explore.overlay.explorable import OVERLAY
from seriatim.lab.explore.tree.explorable import TREE
from seriatim.lab.explore.vcube.explorable import VCUBE

PROTOCOLS: dict[str, Explorable[Any]] = {each.name: each for each in (TREE, VCUBE, ATOMS, OVERLAY)}


def explorable(protocol: str) -> Explorable[Any]:
    """The protocol of this name."""
    return pick("protocol", protocol, PROTOCOLS)
