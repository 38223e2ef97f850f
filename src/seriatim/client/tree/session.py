"""A session with a sequencing tree: `nats://`, `nats+core://`, and `memory://`, which starts a tree in this process."""

from msgspec import structs

from seriatim.brokers import Broker
from seriatim.brokers.urls import open_broker
from seriatim.client.brokered.cluster import Cluster
from seriatim.client.brokered.embedded import EmbeddedCluster, embedded_options
from seriatim.client.brokered.machines import PublisherView
from seriatim.client.brokered.session import BrokerSession
from seriatim.client.session import Wishes
from seriatim.client.tree.source import DurableSource, TreeSource
from seriatim.live.tree.host import NodeHost
from seriatim.model import Address, InputError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import Publisher, TreeOptions
from seriatim.protocols.tree.options import TreeOrder
from seriatim.runtime import Journal, Switchboard
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.runtime.net.wire import Decoders
from seriatim.server.description import ClusterDescription


class TreeSession(BrokerSession):
    """The session that `connect` opens by default."""

    substrate = "tree"

    def _embedded(self) -> EmbeddedCluster[NodeHost]:
        broker = open_broker(self.settings.url)
        settings = self.settings
        order: TreeOrder = "pairwise" if settings.order == "pairwise" else "global"
        return embedded_tree(broker, embedded_options(broker, settings.mode, order, bool(settings.causal)))

    def _decoders(self) -> Decoders:
        from seriatim.live.tree.wire import TREE

        return TREE

    def _publisher(self, cluster: Cluster) -> PublisherView:
        settings, cluster_wide = self.settings, cluster.description.options
        options = structs.replace(
            cluster_wide,
            confirm=settings.confirm or "placed",
            own_order=settings.own_order or cluster_wide.own_order,
        )
        machine = Publisher(cluster.description.tree, self.name, options)
        return PublisherView(
            machine,
            machine.explain,
            places=options.mode == "log" and options.confirm == "placed",
            why_not=machine.why_held,
            why_unplaced=machine.why_unplaced,
            own_order=options.own_order,
            home_of=lambda topic: machine.tree.home(topic),
        )

    def _source(self, address: Address, wishes: Wishes, log_name: str) -> TreeSource:
        key, durable = self.settings.stamp_key, wishes.durable
        if durable is None:
            return TreeSource(self.connection, address, wishes, log_name, key)
        folder = self.settings.journal_folder(durable)
        return DurableSource(self.connection, address, wishes, log_name, key, lambda: self._journal(durable), folder)

    def _journal(self, durable: str) -> Journal:
        journal = self.settings.journal(durable)
        if journal is None:
            journal = self.connection.cluster.journal(durable)
        if journal is None:
            problem = "a durable subscription needs a journal, and this cluster has none"
            raise InputError("durable", problem, 'connect(journals="folder")')
        return journal


def embedded_tree(
    broker: Broker, options: TreeOptions, tree: SequencingTree | None = None
) -> EmbeddedCluster[NodeHost]:
    """A cluster that has not started yet."""
    description = ClusterDescription.of("memory", tree or SequencingTree.single(), options)
    switchboard = Switchboard()
    hosts = [
        NodeHost(
            description.tree,
            node,
            description.options,
            broker=broker,
            switchboard=switchboard,
            journal=MemoryJournal(),
        )
        for node in description.parents
    ]
    return EmbeddedCluster(broker, description, switchboard, hosts)
