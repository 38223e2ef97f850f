"""Peers that are broken on purpose, one rule each: a checker that does not catch them is no checker.

The names are what the rule is called in the protocol's README, with `no-` in front.
"""

from seriatim.model import InputError
from seriatim.protocols.vcube import Peer

VCUBE_VARIANTS: dict[str, tuple[str, type[Peer]]] = {}


def peer_of(variant: str | None) -> type[Peer]:
    """The peer of this variant; without a name, the proper one."""
    if variant is None:
        return Peer
    if variant not in VCUBE_VARIANTS:
        raise InputError("variant", f"there is none called {variant!r}", f"use one of {', '.join(VCUBE_VARIANTS)}")
    return VCUBE_VARIANTS[variant][1]
