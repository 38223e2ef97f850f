"""A machine of the atoms as it runs: with a journal and links, and with receivers that can be forgotten."""

from seriatim.model import Address
from seriatim.protocols.atoms.messages import Forget
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Node as AnyNode


class Node(AnyNode):
    """The machine that a driver runs, around the one that orders (protocols/node.py)."""

    def _gone(self, message: Payload) -> Address | None:
        return message.receiver if isinstance(message, Forget) else None
