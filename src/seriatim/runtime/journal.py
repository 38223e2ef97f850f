"""The seam to durable storage: an append-only log of records with one writer at a time.

A machine's records are appended before the effects they belong to leave the process. Implementations: a local file
(runtime/file_journal.py), a replicated stream (brokers/nats_journal.py), memory (below, for tests and `memory://`).
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Recovered(Struct):
    """What an opened journal holds: the last snapshot, if there is one, and all records after it."""

    snapshot: bytes | None
    records: list[bytes]


class Journal(Protocol):
    """One machine's journal. Every method but `open` may raise Fenced; all may raise JournalError."""

    @property
    def bytes_since_snapshot(self) -> int:
        """How much would have to be replayed."""
        ...

    async def open(self) -> Recovered:
        """Become the only writer, and read everything. A writer before us is refused from now on, or refuses us."""
        ...

    async def append(self, records: Sequence[bytes]) -> None:
        """Append all of them. Durable when this returns. One call at a time."""
        ...

    async def snapshot(self, state: bytes) -> None:
        """`state` stands for everything appended so far, which may be forgotten.

        May finish in the background, where appends go on; a failure then shows at a later append.
        """
        ...

    async def close(self) -> None:
        """Stop being the writer. May be called twice."""
        ...


class MemoryJournal:
    """Survives nothing but its process."""

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
        """Nothing to do."""
