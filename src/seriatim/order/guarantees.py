"""The guarantees of an ordering, as data: for each, one sentence, a citation, and the guarantees it includes.

Three axes. *Agreement among subscribers* grows from `per-topic` over `tno` to `acyclic`. *Order of causes* grows from
`fifo` over `fifo-across-topics` to `causal`. `causal-total` is above `causal` and `tno`. *Bookkeeping* (`integrity`,
`completeness`) is about which events arrive, not in which order, and implies nothing on the other axes.

Two things are easy to get wrong and are kept apart here. Agreement among subscribers says nothing about the publisher's
own order: all of them may see it reversed, so `per-topic` does not include `fifo`. And pairwise agreement does not make
one order for everybody: holders of {A,B}, {B,C}, {C,A} may see a<b, b<c, c<a, so `tno` does not include `acyclic`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from seriatim.model import InputError


class Guarantee(Struct, frozen=True):
    """One promise. `includes` names the next weaker ones; `implies` follows them all the way down."""

    name: str
    promise: str
    citation: str
    includes: tuple[str, ...] = ()


_BROADCASTS = "Hadzilacos and Toueg, A Modular Approach to Fault-Tolerant Broadcasts and Related Problems, 1994"

_ALL = (
    Guarantee(
        "fifo",
        "Events of one publisher on one topic are notified in the order it published them.",
        f"FIFO order: {_BROADCASTS}; within a topic: paper 000 §4, paper 001 §3.2.2",
    ),
    Guarantee(
        "fifo-across-topics",
        "Events of one publisher are notified in the order it published them, whatever their topics.",
        f"FIFO order: {_BROADCASTS}; paper 003 §II is weaker: there the receivers only agree with each other",
        ("fifo",),
    ),
    Guarantee(
        "per-topic",
        "Two subscribers notified of the same two events of one topic see them in the same order.",
        "paper 003 §II (local total order, for one topic); paper 000 §2",
    ),
    Guarantee(
        "tno",
        "Two subscribers notified of the same two events see them in the same order, whatever their topics.",
        "paper 000 §2 Property 1 (total notification order); paper 003 §II (pairwise total order)",
        ("per-topic",),
    ),
    Guarantee(
        "acyclic",
        "One order of all events fits what every subscriber saw.",
        f"global total order: {_BROADCASTS}; paper 004 §1.2 names what is given up without it",
        ("tno",),
    ),
    Guarantee(
        "causal",
        "An event is never notified before one that its publisher had published, or been notified of, earlier.",
        "Lamport, Time, Clocks, and the Ordering of Events, 1978; paper 001 §3.2.1; paper 000 §4",
        ("fifo-across-topics",),
    ),
    Guarantee(
        "causal-total",
        "Both causal and tno.",
        f"causal atomic broadcast: {_BROADCASTS}; paper 000 §4; paper 004 §3.1",
        ("causal", "tno"),
    ),
    Guarantee(
        "integrity",
        "An event is notified at most once, only if it was published, only on a topic held, under one id and number.",
        f"uniform integrity: {_BROADCASTS}",
    ),
    Guarantee(
        "completeness",
        "Between its cut and its last notified event of a topic, a holder misses no event of that topic.",
        f"validity and agreement: {_BROADCASTS}; paper 003 §II (liveness)",
    ),
)

GUARANTEES: Mapping[str, Guarantee] = MappingProxyType({guarantee.name: guarantee for guarantee in _ALL})


def _close() -> dict[str, frozenset[str]]:
    closed: dict[str, frozenset[str]] = {}
    for guarantee in _ALL:  # weakest first: what it includes is already closed
        closed[guarantee.name] = frozenset({guarantee.name}).union(*(closed[name] for name in guarantee.includes))
    return closed


_CLOSED = _close()


def implied_by(name: str) -> frozenset[str]:
    """Every guarantee that holds wherever this one holds, itself among them."""
    if name not in _CLOSED:
        raise InputError("guarantee", f"unknown guarantee {name!r}", f"use one of {', '.join(GUARANTEES)}")
    return _CLOSED[name]


def implies(stronger: str, weaker: str) -> bool:
    """Whether every history with the first guarantee has the second; a guarantee implies itself."""
    implied_by(weaker)  # so that a misspelt name is an error, not a no
    return weaker in implied_by(stronger)
