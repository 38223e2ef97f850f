"""Pure arithmetic of ordering, shared by protocols, simulator and auditors."""

from seriatim.order.guarantees import GUARANTEES, Guarantee, implied_by, implies
from seriatim.order.tree import SequencingTree

__all__ = ["GUARANTEES", "Guarantee", "SequencingTree", "implied_by", "implies"]
