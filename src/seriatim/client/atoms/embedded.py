"""`memory://` with order="atoms": broker and one station with all roles in this process."""

from msgspec import structs

from seriatim.brokers.urls import open_broker
from seriatim.client.brokered.embedded import EmbeddedCluster, embedded_options
from seriatim.client.settings import Settings
from seriatim.live.atoms.founding import Founded
from seriatim.live.atoms.host import LiveStation
from seriatim.model import InputError
from seriatim.order import SequencingTree
from seriatim.protocols.atoms import AtomsOptions
from seriatim.runtime import Switchboard
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.server.description import ClusterDescription

STATION = "root"
LEASE_MS = 30_000.0


async def start_atoms(settings: Settings) -> EmbeddedCluster[LiveStation]:
    """The cluster that these settings ask for."""
    broker, causal = open_broker(settings.url), bool(settings.causal)
    if broker.lossy or not broker.keeps_log:
        raise InputError("url", "atoms need a broker that loses nothing", "leave out loss and keeps_log")
    options = embedded_options(broker, "ticket", causal)
    described = ClusterDescription.of("memory", SequencingTree.single(node=STATION), options)
    description = structs.replace(described, order="atoms", coordinator=STATION, ingresses=[STATION])

    def station(switchboard: Switchboard) -> list[LiveStation]:
        founded = Founded(node=STATION, coordinator=STATION, ingresses=(STATION,), hosts=(STATION,), causal=causal)
        return [
            LiveStation(
                founded,
                AtomsOptions(causal=causal, retry_ms=options.retry_ms),
                broker=broker,
                switchboard=switchboard,
                journal=MemoryJournal(),
                lease_ms=LEASE_MS,
            )
        ]

    cluster = EmbeddedCluster(broker, description, station)
    await cluster.start()
    return cluster
