"""What a bus is connected to: a broker, the sequencers behind it, and a place for journals of durable subscriptions.

Two kinds: a real cluster, found through its broker (`open_remote`), and one that lives in this process for `memory://`
(embedded.py). A bus does not know which one it has.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from seriatim.brokers import Broker
from seriatim.model import Address
from seriatim.runtime import Journal, Switchboard
from seriatim.runtime.description import ClusterDescription

JournalFactory: TypeAlias = Callable[[str], Journal]  # from the name of a durable subscription to its journal
Journals: TypeAlias = str | Path | JournalFactory


class Network(Protocol):
    """How the machines of one client reach the nodes."""

    @property
    def switchboard(self) -> Switchboard:
        """Where machines of this process are attached."""
        ...

    async def open(self) -> None:
        """Connect to the nodes. ConnectionFailed says what was tried."""
        ...

    def down(self) -> list[str]:
        """Connections that should be there and are not, one sentence each."""
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...


class Cluster(Protocol):
    """One open connection to a cluster."""

    @property
    def broker(self) -> Broker:
        """The broker that carries the events."""
        ...

    @property
    def description(self) -> ClusterDescription:
        """The tree and how it orders."""
        ...

    def network(self, name: Address) -> Network:
        """A network for the machines whose addresses are `name` or begin with `name/`."""
        ...

    def journal(self, durable: str) -> Journal | None:
        """The journal of a durable subscription, if the cluster itself can keep one. None: somebody else must."""
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...
