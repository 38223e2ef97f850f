"""A durable log per address, with one writer at a time.

An append names the sequence it expects to follow. Opening the journal writes a marker, so that whoever had it open
before no longer knows its end: the earlier writer's next append is refused, and that is how it learns that it has
been replaced. A lock or a lease is never needed.
"""

from collections.abc import Sequence

from msgspec import Struct

from seriatim.protocols.machine import Payload


class Opened(Struct, frozen=True):
    """Marks where a new epoch begins."""

    epoch: int


class Journal:
    """Survives the crash of every process that writes it."""

    def __init__(self) -> None:
        self.entries: list[Payload] = []
        self.epoch = 0

    @property
    def last(self) -> int:
        """The sequence number of the last entry; 0 when empty."""
        return len(self.entries)

    def open(self) -> int:
        """Begin a new epoch, and return it."""
        self.epoch += 1
        self.entries.append(Opened(self.epoch))
        return self.epoch

    def append(self, records: Sequence[Payload], expected_last: int) -> bool:
        """All of the records or none. False: somebody else has written since; you have been replaced."""
        if expected_last != len(self.entries):
            return False
        self.entries.extend(records)
        return True

    def records(self) -> list[Payload]:
        """What machines wrote, oldest first."""
        return [entry for entry in self.entries if type(entry) is not Opened]
