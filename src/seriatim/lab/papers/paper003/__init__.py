"""Paper 003 as printed, for tests that show where it is wrong. Use `protocols.overlay` for anything else."""

from seriatim.lab.papers.paper003.broker import PrintedBroker, UnacknowledgedBroker

__all__ = ["PrintedBroker", "UnacknowledgedBroker"]
