"""Reference only: the algorithm of papers 001 and 002 exactly as printed, with its failures. Use protocols.vcube."""

from seriatim.protocols.paper001.node import Node, NodeState

__all__ = ["Node", "NodeState"]
