"""Seriatim: every subscriber sees the same events in the same order, across topics."""

__version__ = "0.1.0"
