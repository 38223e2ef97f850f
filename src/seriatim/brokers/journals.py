"""The journal of a durable subscription on the broker itself, where the broker has journals.

A durable subscription can then go on on another machine, and a second process with its name fences the first. The
journal has a connection of its own, which is opened and closed with it.
"""

import re
from collections.abc import Sequence

from seriatim.brokers.capabilities import FencedJournals
from seriatim.brokers.seam import Broker
from seriatim.model import Closed
from seriatim.runtime import Journal, Recovered


def durable_journal(broker: Broker, durable: str, *, cluster: str, replicas: int) -> "DurableJournal | None":
    """The journal of the durable subscription of this name. None: this broker has no journals."""
    journals = broker.journals(f"{cluster}-durable", replicas)  # another name than the nodes' journals have
    return DurableJournal(journals, durable) if journals is not None else None


class DurableJournal:
    """One journal and its connection."""

    def __init__(self, journals: FencedJournals, durable: str) -> None:
        self._journals = journals
        self._durable = durable
        self._journal: Journal | None = None

    @property
    def bytes_since_snapshot(self) -> int:
        return self._opened().bytes_since_snapshot

    async def open(self) -> Recovered:
        name = re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found.group()):02x}", self._durable)
        await self._journals.open()
        self._journal = self._journals.journal(name)
        return await self._journal.open()

    async def append(self, records: Sequence[bytes]) -> None:
        await self._opened().append(records)

    async def snapshot(self, state: bytes) -> None:
        await self._opened().snapshot(state)

    async def close(self) -> None:
        journal, self._journal = self._journal, None
        try:
            if journal is not None:
                await journal.close()
        finally:
            await self._journals.close()

    def _opened(self) -> Journal:
        if self._journal is None:
            raise Closed(f"the journal of {self._durable!r} is closed")
        return self._journal
