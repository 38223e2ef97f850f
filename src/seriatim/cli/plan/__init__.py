"""`seriatim plan`."""

from seriatim.cli.plan.command import command

__all__ = ["command"]
