"""Paper 004 as printed, for tests that show where it is wrong. Use `protocols.atoms` for anything else."""

from seriatim.lab.papers.paper004.sequencer import Sequencer

__all__ = ["Sequencer"]
