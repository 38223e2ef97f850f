"""Pure arithmetic of ordering, shared by protocols, simulator and auditors."""

from seriatim.order.coupling import CouplingState, CouplingTable, Holder, Shift
from seriatim.order.holdback import Held, HoldBack, Lane, Released
from seriatim.order.passage import Passage, PassageState, PassageTable
from seriatim.order.tree import SequencingTree

__all__ = [
    "CouplingState",
    "CouplingTable",
    "Held",
    "HoldBack",
    "Holder",
    "Lane",
    "Passage",
    "PassageState",
    "PassageTable",
    "Released",
    "SequencingTree",
    "Shift",
]
