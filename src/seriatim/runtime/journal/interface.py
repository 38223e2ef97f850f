"""The seam to durable storage: an append-only log of records with one writer at a time.

A machine's records are appended before the effects they belong to leave the process. Implementations: a local file
(runtime/journal/file_journal.py), a replicated stream (brokers/nats/journal/journal.py), memory (below, for tests and `memory://`).
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Recovered(Struct):
    """The contents of an opened journal: the last snapshot, if there is one, and all records after it."""

    snapshot: bytes | None
    records: list[bytes]


class Journal(Protocol):
    """One machine's journal. Every method but `open` may raise Fenced; all may raise JournalError."""

    @property
    def bytes_since_snapshot(self) -> int:
        """The number of bytes that opening the journal would have to replay."""

    async def open(self) -> Recovered:
        """Become the only writer, and read everything. An earlier writer is refused from now on, or we are."""

    async def append(self, records: Sequence[bytes]) -> None:
        """Append all records. They are durable when this returns. One call at a time."""

    async def snapshot(self, state: bytes) -> None:
        """`state` stands for everything appended so far, which may be forgotten.

        May finish in the background, where appends go on; a failure then shows at a later append.
        """

    async def close(self) -> None:
        """Stop being the writer. May be called twice."""


class MemoryJournal:
    """Kept in memory; lost with the process."""

    def __init__(self) -> None:
        self._snapshot: bytes | None = None
        self._records: list[bytes] = []
        self._bytes = 0

    @property
    def bytes_since_snapshot(self) -> int:
        return self._bytes

    async def open(self) -> Recovered:
        return Recovered(self._snapshot, list(self._records))

    async def append(self, records: Sequence[bytes]) -> None:
        self._records.extend(records)
        self._bytes += sum(map(len, records))

    async def snapshot(self, state: bytes) -> None:
        self._snapshot, self._records, self._bytes = state, [], 0

    async def close(self) -> None:
        """Do nothing: memory needs no closing."""
