"""One station of a cluster of sequencing atoms, running in this process: its machine, journal and port to the broker.

Clients that nobody reaches any more for twice their lease are forgotten, with their links and memberships.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from seriatim.brokers import Broker
from seriatim.model import APPLICATION, BROKER, Address, Closed, InputError, JournalError, Node, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions
from seriatim.protocols.atoms.live_messages import Alive, Amnesia, Join, Leave, Nonsense, Place
from seriatim.protocols.atoms.messages import Forget, Publish, Refused, Stray
from seriatim.protocols.atoms.station_node import StationNode
from seriatim.protocols.atoms.written import Written
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.runtime import Clock, Driver, Journal, Switchboard
from seriatim.server.atoms_founding import Founded, encode_founded, encode_snapshot, rebuild
from seriatim.server.atoms_items import ItemPort
from seriatim.server.atoms_plan import placement_of

logger = logging.getLogger(__name__)

LOOKS_PER_LEASE = 10
BROKER_EPOCH = 1  # the broker never restarts as far as links are concerned


class LiveStation:
    """Starts, runs and stops one station. `failed` is done when it ended by itself: fenced, or a broken journal."""

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
    ) -> None:
        self.node: Node = founded.node
        self.options = options
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._founded = founded
        self._stations = {founded.coordinator, *founded.ingresses, *founded.hosts}
        self._plan = plan
        self._broker = broker
        self._switchboard = switchboard
        self._journal = journal
        self._lease_s = 2.0 * lease_ms / 1000.0
        self._port: ItemPort | None = None
        self._driver: Driver | None = None
        self._unreached: dict[Address, float] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def driver(self) -> Driver:
        """The running driver."""
        assert self._driver is not None, "start it first"
        return self._driver

    @property
    def machine(self) -> StationNode:
        """The station's machine, to look at."""
        machine = self.driver.machine
        assert isinstance(machine, StationNode)
        return machine

    @property
    def epoch(self) -> int:
        """How often a process has taken the station over."""
        return self.machine.state.epoch

    async def start(self) -> None:
        """Open the journal (which fences or refuses any other process), rebuild the station, and serve."""
        try:
            rebuilt = rebuild(self._founded, self.options, await self._journal.open())
            placement = self._planned(rebuilt.machine)
            if rebuilt.is_new:
                await self._journal.append([encode_founded(rebuilt.founded)])
        except BaseException:
            await self._journal.close()
            raise
        machine, founded, clock = rebuilt.machine, rebuilt.founded, Clock(rebuilt.at_least)
        link = machine.state.links.get(BROKER)
        received = link.sent - len(link.unacknowledged) if link is not None else 0
        self._port = ItemPort(
            self.node, self._broker, self._acknowledged, self._end, received=received, founding=founded.founding
        )
        self._driver = driver = Driver(
            self.node,
            machine,
            clock,
            send=self._send,
            notify=self._told,
            journal=self._journal,
            encode_state=lambda: encode_snapshot(founded, machine, clock.now_ms()),
        )
        driver.failed.add_done_callback(self._on_failed)
        self._switchboard.attach(self.node, self._from_network)
        driver.start()
        if placement is not None:
            driver.command(APPLICATION, Place(placement))
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())
        logger.info("station started", extra={"node": self.node, "epoch": self.epoch, "roles": machine.inner.roles})

    async def stop(self) -> None:
        """Orderly: what is journaled is sent, then the journal is closed."""
        self._switchboard.unplug(self.node)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._driver is not None:
            await self._driver.stop()
        if self._port is not None:
            await self._port.close()
        await self._journal.close()

    def explain(self) -> list[str]:
        """What waits here, and for what."""
        lines = self.machine.explain()
        if self._port is not None and self._port.refused:
            lines.append(f"the broker does not take items: {self._port.refused}")
        return lines

    def _planned(self, machine: StationNode) -> dict[str, Node] | None:
        """Where the plan puts atoms, if that is news to the coordinator. GraphError: the plan is for other members."""
        registrar = machine.inner.registrar
        if self._plan is None or registrar is None:
            return None
        wanted, known = registrar.state.wanted, registrar.state.placement
        placement = placement_of(self._plan, wanted, self._founded.hosts, self.options.threshold, known)
        return placement if placement != known else None

    # ── in and out ────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_network(self, source: Address, message: Payload) -> None:
        if isinstance(message, Alive):
            said = self.machine.answer_alive(source, message)
            if said is not None:
                self._switchboard.send(self.node, source, said)
            return
        body = message.body if isinstance(message, Frame) else message
        if isinstance(body, Publish | Join | Leave):
            try:
                self._check_client(source, body.event.topic if isinstance(body, Publish) else body.topic)
            except InputError as error:  # no client of ours asks for it; whoever does, waits
                logger.warning("refused", extra={"at": self.node, "source": source, "reason": str(error)})
                return
        self.driver.deliver(source, message)

    def _check_client(self, source: Address, topic: Topic) -> None:
        """What is journaled is carried out at every start again, so what cannot be must not get that far."""
        if source in (*self._stations, COORDINATOR, BROKER, APPLICATION):
            raise InputError("name", f"{source!r} is not a name for a client", "choose another one")
        self._broker.check_slots(topic)

    def _send(self, source: Address, target: Address, message: Payload) -> None:
        if target == BROKER:
            assert self._port is not None, "attached before the driver starts"
            self._port.send(message)
        else:
            self._switchboard.send(source, target, message)

    def _acknowledged(self, received: int) -> None:
        self.driver.deliver(BROKER, Frame(BROKER_EPOCH, 0, received))

    def _end(self, error: JournalError) -> None:
        self.driver.end(error)

    def _told(self, notices: Sequence[Payload]) -> None:
        """What is wrong, and is none of a client's business, is for whoever runs this."""
        for notice in notices:
            match notice:
                case Stray():
                    extra = {"at": self.node, "atom": notice.atom, "source": notice.source}
                    logger.error("a message for an atom that is not here; it is kept, the rest goes on", extra=extra)
                case Nonsense():
                    extra = {"at": self.node, "source": notice.source, "reason": notice.reason}
                    logger.error("passed over", extra=extra)
                case Amnesia():
                    extra = {"at": self.node, "source": notice.source, "known": str(notice.known)}
                    logger.error("has lost its journal; what is for it is kept until it is restored", extra=extra)
                case Refused():
                    extra = {"at": self.node, "topic": notice.topic, "reason": notice.reason}
                    logger.warning("refused", extra=extra)

    # ── clients that are gone ─────────────────────────────────────────────────────────────────────────────────────

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / LOOKS_PER_LEASE)
            self._sweep(time.monotonic())

    def _sweep(self, now_s: float) -> None:
        clients = self.machine.links_of_clients(self._stations)
        self._unreached = {
            client: self._unreached.get(client, now_s) for client in clients if not self._switchboard.reaches(client)
        }
        for client, since_s in list(self._unreached.items()):
            if now_s - since_s >= self._lease_s:
                logger.info("forgotten", extra={"at": self.node, "client": client})
                del self._unreached[client]
                try:
                    self.driver.command(APPLICATION, Forget(client))
                except Closed:
                    return

    def _on_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        self._switchboard.unplug(self.node)
        if not failed.cancelled() and not self.failed.done():
            logger.error("station stopped", extra={"node": self.node, "reason": str(failed.result())})
            self.failed.set_result(failed.result())
