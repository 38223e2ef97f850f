"""`seriatim audit`."""

from seriatim.cli.audit.command import command

__all__ = ["command"]
