"""A session with a cluster: a broker that carries the events, and nodes that order them.

Tree and atoms differ in their machines, and in the cluster that `memory://` starts: see tree/session.py and
atoms/session.py.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from seriatim.brokers.urls import kind_of
from seriatim.client.brokered.cluster import Cluster, Connection
from seriatim.client.brokered.embedded import EmbeddedCluster, open_embedded
from seriatim.client.brokered.machines import PublisherView
from seriatim.client.brokered.outbox import BrokerOutbox
from seriatim.client.brokered.source import BrokerSource
from seriatim.client.explain import Explanation
from seriatim.client.logs import PublicationLog, open_publication_log
from seriatim.client.session import Session, Wishes
from seriatim.client.settings import Settings
from seriatim.model import Address, Closed
from seriatim.runtime.net.wire import Decoders


class BrokerSession(Session):
    """`open_cluster`: how to find the cluster, if not by the URL."""

    outbox: BrokerOutbox | None = None

    def __init__(self, settings: Settings, open_cluster: Callable[[], Awaitable[Cluster]] | None = None) -> None:
        super().__init__(settings, settings.name or "client")
        self._open_cluster = open_cluster if open_cluster is not None else self._find_cluster
        self._connection: Connection | None = None
        self._publications: PublicationLog | None = None
        self._reader: BrokerSource | None = None  # the source whose log says what this publisher has seen

    @abstractmethod
    def _embedded(self) -> EmbeddedCluster[Any]:
        """A cluster in this process, for `memory://`; not started yet."""

    @abstractmethod
    def _decoders(self) -> Decoders:
        """Decoders for the messages of remote nodes."""

    @abstractmethod
    def _publisher(self, cluster: Cluster) -> PublisherView:
        """A new publisher's machine."""

    @abstractmethod
    def _source(self, address: Address, wishes: Wishes, log_name: str) -> BrokerSource:
        """A new subscription's source."""

    @property
    def connection(self) -> Connection:
        """Broker, nodes and clock. Closed: it is not open."""
        if self._connection is None:
            raise Closed("the bus is not connected")
        return self._connection

    async def _find_cluster(self) -> Cluster:
        """Connect to the cluster that the URL names, or start it in this process."""
        if kind_of(self.settings.url).in_process:
            return await open_embedded(self.settings, self._embedded)
        from seriatim.client.brokered.discovery import open_remote  # lazily: memory:// needs no network

        return await open_remote(self.settings, self._decoders())

    async def open(self) -> None:
        settings = self.settings
        cluster = await self._open_cluster()
        network = cluster.network(self.name)
        self._connection = Connection(cluster, network, self._clock)
        await network.open()
        log = open_publication_log(settings.publication_log, self._clock, cluster.broker, self.name)
        self._publications, view = log, self._publisher(cluster)
        self.outbox = BrokerOutbox(self.name, view, self._connection, settings, log=log, seen=self._seen)
        self.outbox.start()

    async def close(self) -> None:
        try:
            if self.outbox is not None:
                await self.outbox.close()
        finally:
            if self._publications is not None:
                await self._publications.close(self.settings.timeout_s)
            if self._connection is not None:
                await self._connection.network.close()
                await self._connection.cluster.close()

    def source(self, wishes: Wishes) -> BrokerSource:
        cluster = self.connection.cluster
        for name in sorted(wishes.topics):
            cluster.description.tree.home(cluster.broker.ordered_topic(name))  # raises if unknown
        self._count += 1
        durable = wishes.durable
        address = f"durable/{durable}" if durable is not None else f"{self.name}/{self._count}"
        is_reader = cluster.description.causal and (self._reader is None or self._reader.is_closed)
        source = self._source(address, wishes, self.name if is_reader else address)
        if is_reader:
            self._reader = source
        return source

    def explain(self) -> Explanation:
        return Explanation(down=self._connection.network.down() if self._connection is not None else [])

    def _seen(self) -> int | None:
        """For the log of a causal system: how many events this publisher was given. LogError: they cannot be logged,
        so no event that depends on them may be published."""
        if not self.connection.cluster.description.causal:
            return None
        return self._reader.events_logged() if self._reader is not None and not self._reader.is_closed else 0
