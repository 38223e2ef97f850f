"""A broker or a client as it runs: with links, and a broker with its journal and its epoch (protocols/node.py)."""

from typing import ClassVar

from seriatim.model import Address
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Node as AnyNode
from seriatim.protocols.overlay.messages import Forget, Stepped


class Node(AnyNode):
    """The machine that a driver runs, around a `Broker` or a `Client`."""

    stepped: ClassVar[type[Stepped]] = Stepped

    def _gone(self, message: Payload) -> Address | None:
        return message.client if isinstance(message, Forget) else None
