"""`memory://` with order="atoms": broker and one station with all roles in the application's own process."""

from msgspec import structs

from seriatim.brokers import Broker
from seriatim.client.embedded import LocalNetwork, embedded_options
from seriatim.model import Address, InputError
from seriatim.order import SequencingTree
from seriatim.protocols.atoms import AtomsOptions
from seriatim.runtime import Journal, Switchboard
from seriatim.runtime.description import ClusterDescription
from seriatim.runtime.journal import MemoryJournal
from seriatim.server.atoms_founding import Founded
from seriatim.server.atoms_host import LiveStation

STATION = "root"
LEASE_MS = 30_000.0


class EmbeddedAtoms:
    """A broker and a station, without servers."""

    def __init__(self, broker: Broker, causal: bool, name: str = "memory") -> None:
        if broker.lossy or not broker.keeps_log:
            raise InputError("url", "atoms need a broker that loses nothing", "leave out loss and keeps_log")
        self.broker = broker
        options = embedded_options(broker, "ticket", causal)
        described = ClusterDescription.of(name, SequencingTree.single(node=STATION), options)
        self.description = structs.replace(described, order="atoms", coordinator=STATION, ingresses=[STATION])
        self._switchboard = Switchboard()
        founded = Founded(node=STATION, coordinator=STATION, ingresses=(STATION,), hosts=(STATION,), causal=causal)
        self._station = LiveStation(
            founded,
            AtomsOptions(causal=causal, retry_ms=options.retry_ms),
            broker=broker,
            switchboard=self._switchboard,
            journal=MemoryJournal(),
            lease_ms=LEASE_MS,
        )

    async def start(self) -> None:
        """Open the broker and run the station."""
        await self.broker.open()
        self.broker.configure("ticket", self.description.tree.home)
        await self._station.start()

    def network(self, name: Address) -> LocalNetwork:
        return LocalNetwork(self._switchboard)

    def journal(self, durable: str) -> Journal | None:
        """There are no durable subscriptions."""
        return None

    async def close(self) -> None:
        await self._station.stop()
        await self.broker.close()
