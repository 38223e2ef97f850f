"""The words for what a cluster promises, for files, arguments and commands, and how older words are read.

"global": a sequencing tree; one order of all events fits what everybody sees. "pairwise": a sequencing tree; any two
subscribers agree on what both see. "atoms": sequencing atoms, which give pairwise order.

Earlier versions used "tree", and `causal` for today's global order with publishers that also keep their own order
across topics. Both are still accepted, with a notice.
"""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from seriatim.model import InputError

Order: TypeAlias = Literal["global", "pairwise", "atoms"]
ORDERS: tuple[Order, ...] = get_args(Order)
OLD_WORD = "tree"


class OldKeyword(Struct, frozen=True):
    """A keyword of an earlier version, and what it means today."""

    keyword: str
    meaning: str


TREE_IS_GLOBAL = OldKeyword(
    "order", 'order "tree" is an older keyword and means "global" now; write "global", or leave it out'
)
CAUSAL_IS_GLOBAL = OldKeyword(
    "causal",
    "global order needs no causal = true: reactions always come after what they react to. It is read as "
    "global order in which each publisher also keeps its own order across topics",
)


class Chosen(Struct, frozen=True):
    """The order that somebody asked for, in today's words. `order` None: none was named."""

    order: Order | None
    notices: tuple[OldKeyword, ...] = ()


def read_order(order: object, causal: bool) -> Chosen:
    """The order that these words mean, and what to tell whoever wrote them. InputError: there is no such order."""
    if order not in (None, OLD_WORD, *ORDERS):
        raise InputError("order", f"unknown order {order!r}", 'use "global", "pairwise" or "atoms"')
    if causal and order == "pairwise":
        problem = "pairwise order does not order topics that one subscription alone holds together"
        raise InputError("causal", problem, 'leave it out, or use order "global"')
    notices = [TREE_IS_GLOBAL] if order == OLD_WORD else []
    if causal and order != "atoms":
        notices.append(CAUSAL_IS_GLOBAL)
    chosen = next((each for each in ORDERS if each == order), "global" if causal else None)
    return Chosen(chosen, tuple(notices))
