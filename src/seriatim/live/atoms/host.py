"""One station of a cluster of sequencing atoms, running in this process: its machine, journal and port to the broker.

A client that has been unreachable for twice its lease is forgotten, with its links and memberships.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from seriatim.brokers import Broker
from seriatim.live.atoms.founding import Founded, rebuild
from seriatim.live.atoms.items import ItemPort
from seriatim.live.atoms.plan import placement_of
from seriatim.live.founding import Rebuilt
from seriatim.live.host import MachineHost
from seriatim.live.life import NodeLife
from seriatim.model import APPLICATION, BROKER, Address, Behind, Closed, InputError, Node, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions
from seriatim.protocols.atoms.live_messages import Alive, Join, Leave, Place
from seriatim.protocols.atoms.messages import Forget, Publish, Refused, Stray
from seriatim.protocols.atoms.station_node import Outdated, StationNode
from seriatim.protocols.atoms.written import Written
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Amnesia, Nonsense
from seriatim.runtime import Driver, Journal, Recovered, Switchboard

logger = logging.getLogger(__name__)

LOOKS_PER_LEASE = 10
BROKER_EPOCH = 1  # links treat the broker as one that never restarts


class LiveStation(MachineHost[StationNode, Founded]):
    """Starts, runs and stops one station. `life`: how it is registered; `takes_over`: also from one that answers."""

    kind = "station"

    def __init__(
        self,
        founded: Founded,
        options: AtomsOptions,
        *,
        broker: Broker,
        switchboard: Switchboard,
        journal: Journal,
        lease_ms: float,
        plan: Written | None = None,
        life: NodeLife | None = None,
        takes_over: bool = False,
    ) -> None:
        super().__init__(founded.node, switchboard=switchboard, journal=journal)
        self.options = options
        self._founded = founded
        self._stations = {founded.coordinator, *founded.ingresses, *founded.hosts}
        self._plan = plan
        self._placement: dict[str, Node] | None = None
        self._life = life if life is not None else NodeLife(founded.node, broker, "", "")
        self._takes_over = takes_over
        self._broker = broker
        self._lease_s = 2.0 * lease_ms / 1000.0
        self._port: ItemPort | None = None
        self._unreached: dict[Address, float] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def epoch(self) -> int:
        return self.machine.state.epoch

    async def prepare(self) -> None:
        await self._life.look(takes_over=self._takes_over)

    async def rebuild(self, recovered: Recovered) -> Rebuilt[StationNode, Founded]:
        rebuilt = rebuild(self._founded, self.options, recovered)
        state = rebuilt.machine.state
        is_new = recovered.snapshot is None and not recovered.records
        self._life.check(0 if is_new else state.epoch - 1, state.inputs)
        await self._life.register(rebuilt.machine)
        self._founded = rebuilt.current
        self._placement = self._planned(rebuilt.machine)
        return rebuilt

    def state(self, machine: StationNode) -> object:
        return machine.state

    async def serve(self, driver: Driver) -> None:
        link = self.machine.state.links.get(BROKER)
        received = link.sent - len(link.unacknowledged) if link is not None else 0
        founding = self._founded.founding
        self._port = ItemPort(
            self.node, self._broker, self._acknowledged, driver.end, received=received, founding=founding
        )
        self.switchboard.attach(self.node, self._from_network)
        driver.start()
        self._life.watch(driver, lambda: self.machine.state.inputs, driver.end)
        if self._placement is not None:
            driver.command(APPLICATION, Place(self._placement))
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())
        roles = ",".join(self.machine.inner.roles)
        logger.info("station started: node=%s epoch=%s roles=%s", self.node, self.epoch, roles)

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        await super().stop()

    async def leave(self) -> None:
        await self._life.end()

    async def disconnect(self) -> None:
        if self._port is not None:
            await self._port.close()

    def explain(self) -> list[str]:
        """What waits here, and what it waits for."""
        lines = self.machine.explain()
        if self._port is not None and self._port.refused:
            lines.append(f"the broker refuses items: {self._port.refused}")
        return lines

    def _planned(self, machine: StationNode) -> dict[str, Node] | None:
        """The plan's hosts of atoms, if the coordinator lacks them. GraphError: the plan is for other members."""
        registrar = machine.inner.registrar
        if self._plan is None or registrar is None:
            return None
        wanted, known = registrar.state.wanted, registrar.state.placement
        placement = placement_of(self._plan, wanted, self._founded.hosts, self.options.threshold, known)
        return placement if placement != known else None

    def _from_network(self, source: Address, message: Payload) -> None:
        if isinstance(message, Alive):
            said = self.machine.answer_alive(source, message)
            if said is not None:
                self.switchboard.send(self.node, source, said)
            return
        body = message.body if isinstance(message, Frame) else message
        if isinstance(body, Publish | Join | Leave):
            try:
                self._check_client(source, body.event.topic if isinstance(body, Publish) else body.topic)
            except InputError as error:  # our clients never send this; others get no answer
                logger.warning("request refused: node=%s client=%s reason=%s", self.node, source, error)
                return
        self.driver.deliver(source, message)

    def _check_client(self, source: Address, topic: Topic) -> None:
        """Refuse invalid requests before they are journaled, because the journal is replayed at every start."""
        if source in (*self._stations, COORDINATOR, BROKER, APPLICATION):
            raise InputError("name", f"{source!r} is not a name for a client", "choose another one")
        self._broker.check_slots(topic)

    def send(self, source: Address, target: Address, message: Payload) -> None:
        if target == BROKER:
            assert self._port is not None, "attached before the driver starts"
            assert type(message) is Frame, "a station sends the broker items, on a link"
            self._port.send(message)
        else:
            self.switchboard.send(source, target, message)

    def _acknowledged(self, received: int) -> None:
        self.driver.deliver(BROKER, Frame(BROKER_EPOCH, 0, received))

    def told(self, notices: Sequence[Payload]) -> None:
        """Log what the operator must know."""
        for notice in notices:
            match notice:
                case Stray():
                    text = "message for an atom that is not here, kept: node=%s atom=%s source=%s"
                    logger.error(text, self.node, notice.atom, notice.source)
                case Nonsense():
                    text = "message skipped: node=%s source=%s reason=%s"
                    logger.error(text, self.node, notice.source, notice.reason)
                case Amnesia():
                    text = "station has lost its journal; messages for it are kept until it is restored: "
                    logger.error(text + "node=%s source=%s known=%s", self.node, notice.source, notice.known)
                case Outdated():
                    why = f"its journal is not the newest, {notice.source} has seen more of it: {notice.reason}"
                    self.driver.end(Behind(f"station {self.node} has stopped: {why}. {self._life.help}"))
                case Refused():
                    text = "request refused: node=%s topic=%s reason=%s"
                    logger.warning(text, self.node, notice.topic, notice.reason)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / LOOKS_PER_LEASE)
            self._sweep(time.monotonic())

    def _sweep(self, now_s: float) -> None:
        clients = self.machine.links_of_clients(self._stations)
        self._unreached = {
            client: self._unreached.get(client, now_s) for client in clients if not self.switchboard.reaches(client)
        }
        for client, since_s in list(self._unreached.items()):
            if now_s - since_s >= self._lease_s:
                logger.info("client forgotten: node=%s client=%s", self.node, client)
                del self._unreached[client]
                try:
                    self.driver.command(APPLICATION, Forget(client))
                except Closed:
                    return
