"""Pure arithmetic of ordering, shared by protocols, simulator and auditors."""

from seriatim.order.tree import SequencingTree

__all__ = ["SequencingTree"]
