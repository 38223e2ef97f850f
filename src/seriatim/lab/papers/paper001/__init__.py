"""Reference only: the algorithm of papers 001 and 002 exactly as printed, with its failures. Use protocols.vcube."""

from seriatim.lab.papers.paper001.node import CubeNode, CubeNodeState

__all__ = ["CubeNode", "CubeNodeState"]
