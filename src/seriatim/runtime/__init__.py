"""Drives protocol machines for real: clock, journal, timers, TCP. It has no ordering logic."""

from seriatim.runtime.clock import Clock
from seriatim.runtime.driver import Driver
from seriatim.runtime.journal.file_journal import FileJournal
from seriatim.runtime.journal.interface import Journal, Recovered
from seriatim.runtime.net.switchboard import Switchboard

__all__ = ["Clock", "Driver", "FileJournal", "Journal", "Recovered", "Switchboard"]
