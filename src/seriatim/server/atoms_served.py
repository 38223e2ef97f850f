"""One station as this process serves it: as served.py, but every station talks to every other one."""

from typing import Any

from msgspec import structs

from seriatim.model import Address, Node
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions
from seriatim.runtime import Journal
from seriatim.runtime.atoms_wire import ATOMS
from seriatim.runtime.dialer import Dialer, Peer
from seriatim.runtime.listener import Listener, ListenerOptions
from seriatim.server.atoms_founding import Founded
from seriatim.server.atoms_host import LiveStation
from seriatim.server.config import ClusterConfig
from seriatim.server.served import BACKLOG_NOTED, ServedNode
from seriatim.server.status import LinkStatus, NodeStatus


def founded_by(config: ClusterConfig, node: Node) -> Founded:
    """What a station's journal begins with."""
    return Founded(
        node=node,
        coordinator=config.coordinator,
        ingresses=config.playing("ingress"),
        hosts=config.playing("host"),
        causal=config.causal,
    )


class ServedStation(ServedNode):
    """Stations before this one in the file are dialed; those after it dial."""

    host: Any  # a LiveStation

    def _make_listener(self) -> Listener:
        config, own = self._config, self._config.nodes[self.node]
        everybody = frozenset(config.nodes)
        self._dialed: list[Peer] = []
        return Listener(
            self.switchboard,
            config.tree,
            cluster=config.cluster,
            bind=own.bind or own.addresses[self.place],
            security=self._security,
            options=ListenerOptions(clients_max=config.limits.connections_max),
            backlog=self._backlog,
            neighbours={node: everybody - {node} for node in everybody},
            decoders=ATOMS,
            reserved=[COORDINATOR],
        )

    def dial(self, parent: Node) -> None:
        """The station runs elsewhere; it is called when this one is active, and not before."""
        self._dialed.append(Peer(parent, self._config.nodes[parent].addresses))
        self._parent = self._dialed[0]

    def _start_dialing(self, parent: Peer) -> None:
        self.dialer = Dialer(
            self.switchboard,
            self._dialed,
            cluster=self._config.cluster,
            name=self.node,
            role="node",
            epoch=self.host.epoch if self.host is not None else 0,
            security=self._security,
            throttle=self.listener.throttle,
            decoders=ATOMS,
        )
        self.dialer.start()

    def _make_host(self, journal: Journal) -> Any:
        config, limits = self._config, self._config.limits
        self._journal = journal
        return LiveStation(
            founded_by(config, self.node),
            AtomsOptions(
                causal=config.causal,
                retry_ms=config.times.retry_ms,
                kept_events_max=limits.kept_events_max,
                kept_bytes_max=limits.kept_bytes_max,
            ),
            broker=self._broker,
            switchboard=self.switchboard,
            journal=journal,
            lease_ms=config.times.subscriber_lease_ms,
            plan=self.plan,
        )

    async def _survey_forever(self) -> None:
        """Everything is counted when somebody asks."""

    # ── looking at it ─────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> NodeStatus:
        """How it is."""
        base = structs.replace(super().status(), parent=None)
        host: LiveStation | None = self.host
        if host is None or self.role != "active":
            return base
        station = host.machine.inner
        coordinator, hosted = station.state.coordinator, station.state.host
        members: set[Address] = set()
        for each in coordinator.wanted.values() if coordinator is not None else ():
            members |= each
        issued = sum(station.state.ingress.places.values()) if station.state.ingress is not None else 0
        return structs.replace(
            base,
            roles=station.roles,
            topics=len(station.state.ingress.topics) if station.state.ingress is not None else 0,
            issued=issued,
            subscribers=len(members),
            groups=len(coordinator.graph.groups) if coordinator is not None else 0,
            atoms=len(hosted.atoms) if hosted is not None else 0,
            strays=len(hosted.strays) if hosted is not None else 0,
            links={
                address: LinkStatus(
                    connected=self._reaches(address), unacknowledged=len(link.unacknowledged), sent=link.sent
                )
                for address, link in host.machine.state.links.items()
                if address in self._config.nodes
            },
        )

    def explain(self) -> list[str]:
        """What is unfinished here, and what each of it waits for."""
        host: LiveStation | None = self.host
        if host is None or self.role != "active":
            return [f"{self.role}: {self.reason}" if self.reason else self.role]
        lines = []
        if self.dialer is not None:
            lines += [f"node {node} is not connected: tried {story}" for node, story in self.dialer.problems().items()]
        dialed = {peer.node for peer in self._dialed}
        for node in self._config.nodes:
            if node != self.node and node not in dialed and not self._reaches(node):
                lines.append(f"node {node} is not connected: it has not dialed")
        if host.driver.backlog >= BACKLOG_NOTED:
            lines.append(f"{host.driver.backlog:,} steps wait for the journal")
        return lines + host.explain()

    def _reaches(self, neighbour: Node) -> bool:
        if self.dialer is not None and any(peer.node == neighbour for peer in self._dialed):
            return self.dialer.connected(neighbour)
        return self.switchboard.reaches(neighbour)
