"""SRPT: a single root per topic, the baselines of papers 001 and 002. README.md in this folder describes them."""

from seriatim.lab.papers.srpt.broker import Broker, Client
from seriatim.lab.papers.srpt.node import SrptNode
from seriatim.lab.papers.srpt.overlay import Overlay

__all__ = ["Broker", "Client", "Overlay", "SrptNode"]
