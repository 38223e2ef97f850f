"""`memory://`: a broker and the nodes of a sequencing tree (one node, unless told otherwise) in this process."""

from seriatim.brokers import Broker
from seriatim.brokers.urls import open_broker
from seriatim.client.brokered.embedded import EmbeddedCluster, embedded_options
from seriatim.client.settings import Settings
from seriatim.live.tree.host import NodeHost
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime import Switchboard
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.server.description import ClusterDescription


def embedded_tree(
    broker: Broker, options: TreeOptions, tree: SequencingTree | None = None
) -> EmbeddedCluster[NodeHost]:
    """A cluster that has not started yet."""
    description = ClusterDescription.of("memory", tree or SequencingTree.single(), options)

    def hosts(switchboard: Switchboard) -> list[NodeHost]:
        return [
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

    return EmbeddedCluster(broker, description, hosts)


async def start_tree(settings: Settings) -> EmbeddedCluster[NodeHost]:
    """The cluster that these settings ask for."""
    broker = open_broker(settings.url)
    cluster = embedded_tree(broker, embedded_options(broker, settings.mode, settings.causal))
    await cluster.start()
    return cluster
