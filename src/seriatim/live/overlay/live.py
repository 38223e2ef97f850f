"""One broker of an overlay in this process: its machine, its journal, its connections.

*Journal.* Every input is on disk before anything it causes is sent. So a broker that is killed goes on where it was:
with its routing table, and with every message that was not acknowledged.

*Neighbours* that are not connected for a while are suspected: nobody waits for their answers until they are back.
Messages for them are kept. *Clients* that are not connected for longer, or that read too slowly, are forgotten: their
subscriptions end, and they are told so when they come back.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from seriatim.live.founding import Rebuilt
from seriatim.live.overlay.config import OverlayConfig
from seriatim.live.overlay.connecting import BrokerDialer, BrokerListener
from seriatim.live.overlay.founding import Founded, rebuild
from seriatim.live.overlay.report import BrokerReport, decode_report, difference
from seriatim.live.system import SystemHost
from seriatim.model import APPLICATION, Address
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Amnesia, Nonsense
from seriatim.protocols.overlay.messages import Answers, Forget, Reached, Suspect
from seriatim.protocols.overlay.running import BrokerNode
from seriatim.runtime import Driver, Journal, Recovered
from seriatim.runtime.net.connection import Throttle
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.system import encode_report

logger = logging.getLogger(__name__)

BACKLOG_MAX = 20_000  # inputs that may wait for the journal before nothing more is read
LOOKS = 4  # within the shortest time that is watched for


class LiveBroker(SystemHost[BrokerNode, Founded]):
    """One broker of an overlay."""

    kind = "broker"
    admits = "clients"

    def __init__(self, config: OverlayConfig, name: Address, *, journal: Journal | None = None) -> None:
        self.config = config
        self.name = config.check_broker(name)
        self.place = config.overlay.places[name]
        self.payload_bytes_max = config.options.payload_bytes_max
        self.clients_max = config.options.clients_max
        super().__init__(
            config,
            name,
            name,
            description=config.description,
            security=config.load_security(),
            journal=journal,
        )
        self._watching: asyncio.Task[None] | None = None
        self._epochs: dict[Address, int] = {}  # the latest that each neighbour has shown
        self._missing: dict[Address, float] = {}  # neighbours and clients that are not connected, since when
        self._unheard: set[Address] = set()  # clients of an earlier process that have not said how far they are
        self._unjudged: set[Address] = set()  # … at the last look
        self._started_at = 0.0

    # ── beginning and ending ──────────────────────────────────────────────────────────────────────────────────────

    async def rebuild(self, recovered: Recovered) -> Rebuilt[BrokerNode, Founded]:
        return rebuild(self.place, self.config.options.protocol, recovered)

    def state(self, machine: BrokerNode) -> object:
        return machine.state

    def connections(self, driver: Driver) -> tuple[BrokerListener, BrokerDialer]:
        return BrokerListener(self, Throttle(lambda: driver.backlog, BACKLOG_MAX)), BrokerDialer(self)

    async def serve(self, driver: Driver) -> None:
        now = asyncio.get_running_loop().time()
        self._missing = dict.fromkeys([*self.place.neighbours, *self.machine.clients], now)
        self._unheard = set(self.machine.clients)
        self._unjudged = set(self._unheard)
        self._started_at = now
        await super().serve(driver)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Write the journal, and disconnect. May be called twice, and at any stage."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await super().stop()

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> int:
        return self.machine.state.epoch

    @property
    def connected(self) -> list[Address]:
        """The neighbours it has a connection to."""
        return [each for each in self.place.neighbours if self._is_connected(each)]

    @property
    def clients(self) -> int:
        """How many are connected."""
        return self._listener.clients if isinstance(self._listener, BrokerListener) else 0

    def knows(self, client: Address) -> bool:
        return self.machine.knows(client)

    def explain(self) -> list[str]:
        waits = self.machine.explain() + self.unreached()
        for child in self.place.children:
            if not self._is_connected(child):
                waits.append(f"{child} is not connected: it must connect to this broker")
        return waits

    def report(self) -> bytes:
        state = self.machine.inner.state
        return encode_report(
            BrokerReport(
                broker=self.name,
                system=self.config.description,
                epoch=self.epoch,
                connected=self.connected,
                suspected=sorted(state.suspected),
                clients=self.clients,
                subscriptions=sum(map(len, state.routes.wanted.values())),
                advertisements=sum(map(len, state.routes.offered.values())),
                **self.waits(),
            )
        )

    def difference(self, report: bytes) -> str:
        return difference(self.config.description, decode_report(report).system)

    # ── from connections ──────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, name: Address, epoch: int, process: str) -> Problem | None:
        """A process in an earlier epoch is a second one, or has lost its journal."""
        latest = self._epochs.get(name, 0)
        if epoch < latest:
            reason = f"broker {name!r} was in epoch {latest} already: two processes cannot have one id"
            return Problem("epoch", f"{reason}, and a broker cannot go on without its journal")
        self._epochs[name] = epoch
        return None

    def take(self, source: Address, message: Any) -> None:
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
        """Suspect neighbours and forget clients when it is time."""
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
                logger.warning("neighbour suspected: broker=%s neighbour=%s", self.name, neighbour)
                self.take(APPLICATION, Suspect(neighbour))
        for client in self.machine.clients:
            if self._is_missing(client, now, options.remember_s):
                self._forget(client, f"it was not connected for {options.remember_s:g} s")
            elif client not in self._unjudged and (kept := self.machine.unacknowledged(client)) > most:
                self._forget(client, f"{kept} messages wait for it; at most {most} are kept")
        self._judge(now)

    def _judge(self, now: float) -> None:
        """After a restart nothing counts as acknowledged, so how much waits for a client is known once it has answered.

        The machine may not have taken the answer at the next look, so it counts from the look after that.
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
        logger.info("client forgotten: broker=%s client=%s reason=%s", self.name, client, why)
        self._missing.pop(client, None)
        self.take(APPLICATION, Forget(client))
        if isinstance(self._listener, BrokerListener):
            self._listener.send_away(client, f"{self.name} has forgotten {client}: {why}")

    def told(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            if isinstance(notice, Nonsense):
                logger.warning(
                    "message skipped: broker=%s source=%s reason=%s", self.name, notice.source, notice.reason
                )
            elif isinstance(notice, Amnesia):
                text = "neighbour has lost its journal: broker=%s source=%s acknowledged=%s known=%s"
                logger.error(text, self.name, notice.source, notice.acknowledged, notice.known)
