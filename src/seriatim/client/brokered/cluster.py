"""The cluster a bus is connected to: a broker, its sequencers, and a place for journals of durable subscriptions.

Two kinds: a real cluster, found through its broker (`open_remote`), and one that lives in this process for `memory://`
(embedded.py). A session does not know which one it has.
"""

from typing import Protocol

from msgspec import Struct, field

from seriatim.brokers import Broker
from seriatim.client.brokered.early import Early
from seriatim.model import Address
from seriatim.runtime import Clock, Journal, Switchboard
from seriatim.server.description import ClusterDescription


class Network:
    """How the machines of one client reach the nodes. This one is for nodes of the same process."""

    def __init__(self, switchboard: Switchboard) -> None:
        self.switchboard = switchboard  # where machines of this process are attached

    async def open(self) -> None:
        """Connect to the nodes. ConnectionFailed says what was tried."""

    def down(self) -> list[str]:
        """Missing connections, one sentence each."""
        return []

    async def close(self) -> None:
        """Disconnect. May be called twice."""


class Cluster(Protocol):
    """One open connection to a cluster: the broker that carries the events, and how its nodes order them."""

    broker: Broker
    description: ClusterDescription

    def network(self, name: Address) -> Network:
        """A network for the machines whose addresses are `name` or begin with `name/`."""
        ...

    def journal(self, durable: str) -> Journal | None:
        """The journal of a durable subscription. None: the cluster cannot keep journals."""
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...


class Connection(Struct, frozen=True):
    """The state that the sources of one session share."""

    cluster: Cluster
    network: Network
    clock: Clock
    early: Early = field(default_factory=Early)
