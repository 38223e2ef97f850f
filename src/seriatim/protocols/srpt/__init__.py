"""SRPT: a single root per topic, the baselines of papers 001 and 002. README.md in this folder describes them."""

from seriatim.protocols.srpt.broker import Broker, Client
from seriatim.protocols.srpt.node import Node
from seriatim.protocols.srpt.overlay import Overlay

__all__ = ["Broker", "Client", "Node", "Overlay"]
