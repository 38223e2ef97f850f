"""A client whose request is not answered asks other nodes where topics live: their home may have left the tree.

A home that is there sends a client that asks for a topic which has moved to the new one. A node that has left answers
nobody. So with each retry a client asks one other node for the moves it does not know of, one node after the other.
"""

from collections.abc import Iterable

from seriatim.model import Node
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Locate


def ask_around(tree: SequencingTree, silent: Iterable[Node], turn: int, effects: Effects) -> int:
    """Ask one other node about those that do not answer; `turn` decides which one. Returns the next turn."""
    asked = set(silent)
    others = [node for node in sorted(tree.parents) if node not in asked] if asked else []
    if not others:
        return turn
    effects.send.append((others[turn % len(others)], Locate(tree.moves.number)))
    return turn + 1
