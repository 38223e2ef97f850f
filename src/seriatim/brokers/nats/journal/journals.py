"""Journals of a process's nodes on a NATS cluster: one connection for all of them.

It is not the broker's connection, so that appends do not wait behind events.
"""

from seriatim.brokers.naming import escape
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.brokers.nats.link import NatsLink
from seriatim.model import Closed, Node


class NatsJournals:
    """Open it, then ask for journals. Close the journals before this."""

    def __init__(
        self, servers: list[str], credentials: NatsCredentials | None = None, *, cluster: str, replicas: int = 1
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._link = NatsLink(servers, credentials, name=f"seriatim journals {cluster}")
        self._is_open = False

    async def open(self) -> None:
        """Connect. ConnectionFailed says what was tried."""
        await self._link.open()
        self._is_open = True

    def journal(self, node: Node, *, beat_s: float | None = None) -> NatsJournal:
        """A journal of this node, to be opened. `beat_s`: the seconds between signs of life, for standbys."""
        if not self._is_open:
            raise Closed("the journals are not connected")
        name = escape(node)
        return NatsJournal(
            self._link,
            f"{self._cluster}-journal-{name}",
            subject=f"_{self._cluster}.journal.{name}",
            replicas=self._replicas,
            beat_s=beat_s,
        )

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        self._is_open = False
        await self._link.close()
