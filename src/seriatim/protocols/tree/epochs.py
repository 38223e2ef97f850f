"""Clients refuse what a node said before it was taken over: they repeat the request and get the same answer."""

from seriatim.model import Node


def is_current(epochs: dict[Node, int], node: Node, epoch: int) -> bool:
    """Whether `node` has not spoken in a later epoch before; remembers the latest."""
    if epoch < epochs.get(node, 0):
        return False
    epochs[node] = epoch
    return True
