"""One broker as a part of this process: the machine, its journal, its connections, and whom it gives up.

*Journal.* Every input is on disk before anything it causes leaves, so a process that is killed goes on where it was:
with its routing table, and with everything that somebody has not acknowledged.

*Neighbours* that are not connected for a while are suspected: nobody waits for their answers until they are back. What
is for them is kept. *Clients* that are not connected for longer, or that fetch too little, are forgotten: their
subscriptions end, and they are told so when they come back.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence

from seriatim.model import APPLICATION, Address, Closed, SeriatimError
from seriatim.overlay.config import OverlayConfig
from seriatim.overlay.connecting import BrokerDialer, BrokerListener
from seriatim.overlay.founding import Rebuilt, encode_founded, encode_snapshot, rebuild
from seriatim.overlay.report import BrokerReport
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay.messages import Answers, Forget, Reached, Suspect
from seriatim.protocols.overlay.running import Amnesia, BrokerNode, Nonsense
from seriatim.runtime import Clock, Driver, FileJournal, Journal, Switchboard
from seriatim.runtime.connection import Throttle, TransportOptions
from seriatim.runtime.dialer import DialerOptions
from seriatim.runtime.door import Problem
from seriatim.runtime.system import encode_report

logger = logging.getLogger(__name__)

DIALING = DialerOptions(retry_max_s=1.0, refused_s=5.0)  # a parent that comes back is found soon
BACKLOG_MAX = 20_000  # inputs that may wait for the journal before nothing more is read
WAITS_SHOWN_MAX = 100
LOOKS = 4  # within the shortest time that is watched for


class LiveBroker:
    """Start it to serve, stop it to go. `failed` is done when the broker cannot go on, and holds why."""

    def __init__(self, config: OverlayConfig, name: Address, *, journal: Journal | None = None) -> None:
        self.config = config
        self.name = config.check_broker(name)
        self.place = config.overlay.places[name]
        self.description = config.description
        self.payload_bytes_max = config.options.payload_bytes_max
        self.clients_max = config.options.clients_max
        self.process = secrets.token_hex(8)
        self.switchboard = Switchboard()
        self.failed: asyncio.Future[SeriatimError] = asyncio.get_running_loop().create_future()
        self._journal: Journal = journal if journal is not None else FileJournal(config.journal(name))
        self._security = config.load_security()
        self._machine: BrokerNode | None = None
        self._driver: Driver | None = None
        self._listener: BrokerListener | None = None
        self._dialer: BrokerDialer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._epochs: dict[Address, int] = {}  # the latest that each neighbour has shown
        self._missing: dict[Address, float] = {}  # neighbours and clients that are not connected, since when
        self._unheard: set[Address] = set()  # clients of an earlier process that have not said how far they are
        self._unjudged: set[Address] = set()  # … at the last look
        self._started_at = 0.0

    # ── beginning and ending ──────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Go on from the journal and listen. JournalError: another process has the journal; ConnectionFailed: the
        port."""
        recovered = await self._journal.open()
        rebuilt = rebuild(self.place, self.config.options.protocol, recovered)
        if rebuilt.is_new:
            await self._journal.append([encode_founded(rebuilt.founded)])
        self._machine = rebuilt.machine
        driver = self._make_driver(rebuilt)
        throttle = Throttle(lambda: driver.backlog, BACKLOG_MAX)
        place = self.config.brokers[self.name]
        self._listener = BrokerListener(self, place.bind or place.address, self._security, TransportOptions(), throttle)
        parent = self.config.brokers[self.place.parent].address if self.place.parent is not None else ""
        self._dialer = BrokerDialer(self, parent, self._security, DIALING)
        if place.is_exposed(self._security):
            logger.warning("every machine that reaches this port may be a client", extra={"fix": "set a token_file"})
        now = asyncio.get_running_loop().time()
        self._missing = dict.fromkeys([*self.place.neighbours, *rebuilt.machine.clients], now)
        self._unheard = set(rebuilt.machine.clients)
        self._unjudged = set(self._unheard)
        self._started_at = now
        self._driver = driver  # from here on it can be spoken to, and must be stopped
        driver.start()
        await driver.settled()
        await self._listener.start()
        self._dialer.start()
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def _make_driver(self, rebuilt: Rebuilt) -> Driver:
        machine, founded = rebuilt.machine, rebuilt.founded
        clock = Clock(rebuilt.at_least)
        driver = Driver(
            self.name,
            machine,
            clock,
            send=self.switchboard.send,
            notify=self._told,
            journal=self._journal,
            encode_state=lambda: encode_snapshot(founded, machine, clock.now_ms()),
        )
        driver.failed.add_done_callback(self._on_driver_failed)
        return driver

    async def stop(self) -> None:
        """Write what is to be written, and disconnect. May be called twice, and at any stage."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.stop()
        if self._dialer is not None:
            await self._dialer.stop()
        if self._listener is not None:
            await self._listener.stop()
        await self._journal.close()

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._listener is not None, "start it first"
        return self._listener.address

    @property
    def machine(self) -> BrokerNode:
        """The broker and its links."""
        assert self._machine is not None, "start it first"
        return self._machine

    @property
    def epoch(self) -> int:
        """How many processes have been this broker, with this journal."""
        return self.machine.state.epoch

    @property
    def connected(self) -> list[Address]:
        """The neighbours it has a connection to."""
        return [each for each in self.place.neighbours if self._is_connected(each)]

    @property
    def clients(self) -> int:
        """How many are connected."""
        return self._listener.clients if self._listener is not None else 0

    @property
    def refusals(self) -> dict[str, int]:
        """How often somebody was not let in, or was sent away, and for what."""
        return {**self._listener.refused, **self._listener.violations} if self._listener is not None else {}

    @property
    def steps(self) -> int:
        """Inputs handled by this process."""
        return self._driver.steps if self._driver is not None else 0

    @property
    def appends(self) -> int:
        """Appends to the journal by this process."""
        return self._driver.appends if self._driver is not None else 0

    def knows(self, client: Address) -> bool:
        return self.machine.knows(client)

    def explain(self) -> list[str]:
        """What waits for what, and who cannot be reached."""
        waits = self.machine.explain()
        for node, story in self._dialer.problems().items() if self._dialer is not None else ():
            waits.append(f"{node} is not connected: {story}")
        for child in self.place.children:
            if not self._is_connected(child):
                waits.append(f"{child} is not connected: it has to connect to this one")
        return waits

    def report(self) -> bytes:
        waits = self.explain()
        state = self.machine.inner.state
        return encode_report(
            BrokerReport(
                broker=self.name,
                system=self.description,
                epoch=self.epoch,
                connected=self.connected,
                suspected=sorted(state.suspected),
                clients=self.clients,
                subscriptions=sum(map(len, state.routes.wanted.values())),
                advertisements=sum(map(len, state.routes.offered.values())),
                waits=waits[:WAITS_SHOWN_MAX],
                left_out=max(0, len(waits) - WAITS_SHOWN_MAX),
            )
        )

    # ── from connections ──────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, neighbour: Address, epoch: int, process: str) -> Problem | None:
        """An earlier epoch is another process, or one that has lost its journal."""
        latest = self._epochs.get(neighbour, 0)
        if epoch < latest:
            reason = f"broker {neighbour!r} was in epoch {latest} already: two processes cannot have one id"
            return Problem("epoch", f"{reason}, and none may go on without its journal")
        self._epochs[neighbour] = epoch
        return None

    def take(self, source: Address, message: Payload) -> None:
        if self._driver is not None and not self.failed.done():
            self._unheard.discard(source)
            self._driver.deliver(source, message)

    def reached(self, address: Address) -> None:
        self._missing.pop(address, None)
        if address in self.machine.inner.state.suspected:
            self.take(APPLICATION, Answers(address))
        self.take(APPLICATION, Reached(address))

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        """Suspect and forget whom it is time for."""
        options = self.config.options
        pause_s = min(options.suspect_after_ms / 1000.0, options.remember_s) / LOOKS
        while True:
            await asyncio.sleep(pause_s)
            self._look(asyncio.get_running_loop().time())

    def _look(self, now: float) -> None:
        options, state = self.config.options, self.machine.inner.state
        most = options.remember_events
        for neighbour in self.place.neighbours:
            if self._is_missing(neighbour, now, options.suspect_after_ms / 1000.0) and neighbour not in state.suspected:
                logger.warning("not connected: nobody waits for it", extra={"broker": neighbour})
                self.take(APPLICATION, Suspect(neighbour))
        for client in self.machine.clients:
            if self._is_missing(client, now, options.remember_s):
                self._forget(client, f"it was not connected for {options.remember_s:g} s")
            elif client not in self._unjudged and (kept := self.machine.unacknowledged(client)) > most:
                self._forget(client, f"{kept} messages wait for it, and {most} are the most")
        self._judge(now)

    def _judge(self, now: float) -> None:
        """After a restart nothing counts as acknowledged: how much waits for a client is known when it has answered.

        Its answer is on its way into the machine when it comes, so it counts from the look after the next one on.
        """
        if now - self._started_at > self.config.options.remember_s:  # connected, and says nothing
            self._unheard.clear()
        self._unjudged = set(self._unheard)

    def _is_missing(self, address: Address, now: float, longer_than_s: float) -> bool:
        if self._is_connected(address):
            self._missing.pop(address, None)
            return False
        return now - self._missing.setdefault(address, now) > longer_than_s

    def _is_connected(self, address: Address) -> bool:
        if address == self.place.parent:
            return self._dialer is not None and self._dialer.connected(address)
        return self.switchboard.reaches(address)

    def _forget(self, client: Address, why: str) -> None:
        logger.info("forgotten", extra={"client": client, "reason": why})
        self._missing.pop(client, None)
        self.take(APPLICATION, Forget(client))
        if self._listener is not None:
            self._listener.send_away(client, f"{self.name} has forgotten {client}: {why}")

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            if isinstance(notice, Nonsense):
                logger.warning("passed over", extra={"source": notice.source, "reason": notice.reason})
            elif isinstance(notice, Amnesia):
                logger.error(
                    "a neighbour has lost its journal",
                    extra={"broker": notice.source, "acknowledged": notice.acknowledged, "known": notice.known},
                )

    def _on_driver_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        error = failed.result()
        if not self.failed.done():
            reason = error if isinstance(error, SeriatimError) else Closed(f"broker {self.name} broke: {error!r}")
            self.failed.set_result(reason)
            logger.error("ended", extra={"broker": self.name, "reason": str(reason)})
