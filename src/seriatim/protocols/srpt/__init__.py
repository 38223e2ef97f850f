"""Baselines of papers 001 and 002: one root per topic, over subscribers (SRPT-S) or over brokers (SRPT-B)."""

from seriatim.protocols.srpt.client import Client
from seriatim.protocols.srpt.node import Node, NodeState, parent_of, root_of

__all__ = ["Client", "Node", "NodeState", "parent_of", "root_of"]
