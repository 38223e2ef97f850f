"""One station as this process serves it. Every station talks to every other one."""

from collections.abc import Mapping
from typing import Any

from seriatim.live.atoms.founding import Founded
from seriatim.live.atoms.host import LiveStation
from seriatim.live.atoms.wire import ATOMS
from seriatim.live.served import Served
from seriatim.model import Address, Node
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions
from seriatim.runtime import Journal
from seriatim.server.config import ON_BROKER


class ServedStation(Served[LiveStation]):
    """Stations before this one in the file are dialed; those after it dial."""

    decoders = ATOMS
    reserved = (COORDINATOR,)
    lost = "start over, with empty journals on all nodes and a new cluster name"

    def make_host(self, journal: Journal) -> LiveStation:
        config, limits = self._config, self._config.limits
        founded = Founded(
            node=self.node,
            coordinator=config.coordinator,
            ingresses=config.playing("ingress"),
            hosts=config.playing("host"),
            causal=config.causal,
        )
        options = AtomsOptions(
            causal=config.causal,
            retry_ms=config.times.retry_ms,
            kept_events_max=limits.kept_events_max,
            kept_bytes_max=limits.kept_bytes_max,
        )
        return LiveStation(
            founded,
            options,
            broker=self._process.broker,
            switchboard=self.switchboard,
            journal=journal,
            lease_ms=config.times.subscriber_lease_ms,
            plan=self._process.plan,
            life=self.life(),
            takes_over=config.nodes[self.node].journal in ON_BROKER,
        )

    def neighbours(self) -> Mapping[Node, frozenset[Node]]:
        everybody = frozenset(self._config.nodes)
        return {node: everybody - {node} for node in everybody}

    def dials(self) -> list[Node]:
        nodes = list(self._config.nodes)
        return nodes[: nodes.index(self.node)]

    def needed(self) -> list[Node]:
        return list(self.others())

    def others(self) -> Mapping[Node, str]:
        return {node: "node" for node in self._config.nodes if node != self.node}

    def details(self, host: LiveStation) -> dict[str, Any]:
        station = host.machine.inner
        coordinator, ingress, hosted = station.state.coordinator, station.state.ingress, station.state.host
        members: set[Address] = set()
        for each in coordinator.wanted.values() if coordinator is not None else ():
            members |= each
        return {
            "roles": station.roles,
            "topics": len(ingress.topics) if ingress is not None else 0,
            "issued": sum(ingress.places.values()) if ingress is not None else 0,
            "subscribers": len(members),
            "groups": len(coordinator.graph.groups) if coordinator is not None else 0,
            "atoms": len(hosted.atoms) if hosted is not None else 0,
            "strays": len(hosted.strays) if hosted is not None else 0,
        }

    def waits(self, host: LiveStation) -> list[str]:
        return host.explain()
