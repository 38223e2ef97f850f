"""A journal whose process can be killed at any moment, and the killing."""

import asyncio
from collections.abc import Sequence

from seriatim.client import Subscription
from seriatim.client.tree.source import DurableSource
from seriatim.model import JournalError
from seriatim.runtime import Journal, Recovered


class Store:
    """What outlives a process: the records that were durable when it died."""

    def __init__(self) -> None:
        self.snapshot: bytes | None = None
        self.records: list[bytes] = []
        self.journals: list[MortalJournal] = []

    def open_journal(self, durable: str) -> Journal:
        """For `connect(journals=...)`."""
        self.journals.append(MortalJournal(self))
        return self.journals[-1]


class MortalJournal:
    """One process's journal. Appends take a turn of the loop, so that a process can die in the middle of one."""

    def __init__(self, store: Store) -> None:
        self.is_dead = False
        self.bytes_since_snapshot = 0
        self._store = store

    async def open(self) -> Recovered:
        if any(not other.is_dead for other in self._store.journals if other is not self):
            raise JournalError("in use by another process")
        return Recovered(self._store.snapshot, list(self._store.records))

    async def append(self, records: Sequence[bytes]) -> None:
        await asyncio.sleep(0)
        if self.is_dead:
            await asyncio.get_running_loop().create_future()  # for ever: nobody is there to see
        self._store.records.extend(records)
        self.bytes_since_snapshot += sum(map(len, records))

    async def snapshot(self, state: bytes) -> None:
        await asyncio.sleep(0)
        if self.is_dead:
            await asyncio.get_running_loop().create_future()
        self._store.snapshot, self._store.records, self.bytes_since_snapshot = state, [], 0

    async def close(self) -> None:
        self.is_dead = True


async def kill(events: Subscription) -> None:
    """What kill -9 leaves: nothing is written, nothing is said to anybody."""
    source = events._source
    assert isinstance(source, DurableSource) and isinstance(source._journal, MortalJournal)
    feed = source.feed
    source._journal.is_dead = True
    driver = feed._driver
    driver.end(JournalError("killed"))
    if driver._task is not None:
        driver._task.cancel()
    if source._life is not None:  # nobody answers for it any more; what it has registered stays
        if source._life._task is not None:
            source._life._task.cancel()
        await source._life._claim.close()
    feed._network.switchboard.unplug(feed.address)
    await feed._port.close()
    events._state = "closed"
    events._on_close(events)
