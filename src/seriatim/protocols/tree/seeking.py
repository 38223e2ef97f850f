"""A client whose request is not answered asks other nodes where topics live: their home may have left the tree.

A home that is there sends a client that asks for a topic which has moved to the new one. A node that has left answers
nobody. So with each retry a client asks another node for the moves it does not know of, one node after the other.
"""

from collections.abc import Iterable

from seriatim.model import Node
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Locate


def ask_around(tree: SequencingTree, silent: Iterable[Node], turn: int, effects: Effects) -> int:
    """Ask other nodes about those that do not answer; `turn` decides which. Returns the next turn.

    If several do not answer, some of them may be there: a home that tells what it knows of a number still counts as
    silent while the number does not come. The others may have left as well. So one of the silent nodes is asked, too,
    each in its turn: it may answer this.
    """
    asked = sorted(set(silent))
    others = [node for node in sorted(tree.parents) if node not in asked] if asked else []
    groups = [group for group in (others, asked if len(asked) > 1 else []) if group]
    effects.send.extend((group[turn % len(group)], Locate(tree.moves.number)) for group in groups)
    return turn + 1 if groups else turn
