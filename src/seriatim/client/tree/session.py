"""A session with a sequencing tree: `nats://`, `nats+core://`, and `memory://`, which starts a tree in this process."""

from seriatim.brokers.urls import kind_of
from seriatim.client.brokered.cluster import Cluster
from seriatim.client.brokered.embedded import open_embedded
from seriatim.client.brokered.machines import PublisherView
from seriatim.client.brokered.session import BrokerSession
from seriatim.client.session import Wishes
from seriatim.client.tree.embedded import start_tree
from seriatim.client.tree.source import DurableSource, TreeSource
from seriatim.model import Address, InputError
from seriatim.protocols.tree import Publisher
from seriatim.runtime import Journal


class TreeSession(BrokerSession):
    """What `connect` opens unless it is asked for something else."""

    substrate = "tree"

    async def _find_cluster(self) -> Cluster:
        if kind_of(self.settings.url).in_process:
            return await open_embedded(self.settings, start_tree)
        from seriatim.client.brokered.discovery import open_remote  # lazily: memory:// needs no network
        from seriatim.live.tree.wire import TREE

        return await open_remote(self.settings, TREE)

    def _publisher(self, cluster: Cluster) -> PublisherView:
        machine = Publisher(cluster.description.tree, self.name, cluster.description.options)
        return PublisherView(machine, machine.explain)

    def _source(self, address: Address, wishes: Wishes, log_name: str) -> TreeSource:
        key, durable = self.settings.stamp_key, wishes.durable
        if durable is None:
            return TreeSource(self.connection, address, wishes, log_name, key)
        return DurableSource(self.connection, address, wishes, log_name, key, lambda: self._journal(durable))

    def _journal(self, durable: str) -> Journal:
        journal = self.settings.journal(durable)
        if journal is None:
            journal = self.connection.cluster.journal(durable)
        if journal is None:
            problem = "a durable subscription needs a journal, and this cluster has none"
            raise InputError("durable", problem, 'connect(journals="folder")')
        return journal
