"""Journals of durable subscriptions on the broker itself, where it can keep one: a stream of JetStream.

So a durable subscription may go on on another machine, and a second process with its name fences the first. The journal
has a connection of its own, which is opened and closed with it (nats_journals.py says why).
"""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seriatim.brokers.seam import Broker
from seriatim.model import Closed
from seriatim.runtime import Journal, Recovered

if TYPE_CHECKING:
    from seriatim.brokers.nats_journals import NatsJournals
    from seriatim.brokers.nats_link import NatsLink


def journal_on(broker: Broker, durable: str, *, cluster: str, replicas: int) -> Journal | None:
    """The journal of the durable subscription of this name. None: this broker cannot keep one."""
    jetstream = sys.modules.get("seriatim.brokers.nats_jetstream")  # if it is one, it is loaded
    if jetstream is None or not isinstance(broker, jetstream.JetStreamBroker):
        return None
    return DurableJournal(broker.link, durable, cluster=cluster, replicas=replicas)


class DurableJournal:
    """One journal and its connection."""

    def __init__(self, link: "NatsLink", durable: str, *, cluster: str, replicas: int) -> None:
        self._link = link
        self._durable = durable
        self._cluster = cluster
        self._replicas = replicas
        self._journals: NatsJournals | None = None
        self._journal: Journal | None = None

    @property
    def bytes_since_snapshot(self) -> int:
        return self._opened().bytes_since_snapshot

    async def open(self) -> Recovered:
        from seriatim.brokers.nats_journals import NatsJournals

        # A cluster of its own name, so that no node's journal is meant; letters that streams do not take are spelled.
        cluster = f"{self._cluster}-durable"
        name = re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found.group()):02x}", self._durable)
        self._journals = NatsJournals(
            self._link.servers, self._link.credentials, cluster=cluster, replicas=self._replicas
        )
        await self._journals.open()
        self._journal = self._journals.journal(name)
        return await self._journal.open()

    async def append(self, records: Sequence[bytes]) -> None:
        await self._opened().append(records)

    async def snapshot(self, state: bytes) -> None:
        await self._opened().snapshot(state)

    async def close(self) -> None:
        journal, self._journal = self._journal, None
        journals, self._journals = self._journals, None
        try:
            if journal is not None:
                await journal.close()
        finally:
            if journals is not None:
                await journals.close()

    def _opened(self) -> Journal:
        if self._journal is None:
            raise Closed(f"the journal of {self._durable!r} is closed")
        return self._journal
