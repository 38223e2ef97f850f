"""Machines that are broken on purpose, one rule each: a checker that does not catch them is no checker."""

from seriatim.explore.tree import PROPER, Cast
from seriatim.model import InputError

VARIANTS: dict[str, Cast] = {}


def cast_of(variant: str | None) -> Cast:
    """The cast of this variant; without a name, the proper one."""
    if variant is None:
        return PROPER
    if variant not in VARIANTS:
        raise InputError("variant", f"there is none called {variant!r}", f"use one of {', '.join(sorted(VARIANTS))}")
    return VARIANTS[variant]
