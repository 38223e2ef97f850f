"""One broker of an overlay in this process: its machine, its journal, its connections.

*Journal.* Every input is on disk before anything it causes is sent. So a broker that was killed continues where it was:
with its routing table, and with every message that was not acknowledged.

*Neighbours* that are not connected for a while are suspected: nobody waits for their answers until they are back.
Messages for them are kept. *Clients* that are not connected for longer, or that read too slowly, are forgotten: their
subscriptions end, and they are told so when they come back. A client says in its hello (epoch 1) that the broker must
know it. A broker that has forgotten the client, or has lost its journal, says so, and the client starts over.

*Old journals, second processes.* Every life has a later epoch than the previous one, and its neighbours know the latest
that they have seen. Until each neighbour was heard, or is suspected, a broker admits no client, and tells none that it
was forgotten. It ends with `Behind` when a neighbour knows of a later epoch, or of more than the journal holds
(protocols/overlay/running.py), and with `Taken` when another process has its name and stays connected.

*Connections.* The handshake is that of system_door.py; brokers must be given the same file, clients need not. Then a
connection carries frames between its two ends; a frame in another name closes it.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

from seriatim.live.founding import Rebuilt
from seriatim.live.overlay.config import BrokerReport, OverlayConfig, decode_report, difference
from seriatim.live.overlay.founding import Founded, rebuild
from seriatim.live.overlay.wire import OVERLAY
from seriatim.live.system import SystemDialer, SystemGuest, SystemHost, SystemListener
from seriatim.model import APPLICATION, BROKER, Address, Behind, RemoteError, event_bytes
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Amnesia, Nonsense
from seriatim.protocols.overlay.messages import Answers, Forget, Publish, Reached, Suspect
from seriatim.protocols.overlay.running import BrokerNode, Outdated
from seriatim.runtime import Driver, Journal, Recovered
from seriatim.runtime.net.connection import Throttle
from seriatim.runtime.net.dialer import Peer
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.system import encode_report
from seriatim.runtime.net.system_door import SHOWN_MAX
from seriatim.runtime.net.wire import Envelope, Hello, Refusal
from seriatim.server.health import Trouble

logger = logging.getLogger(__name__)

BACKLOG_MAX = 20_000  # inputs that may wait for the journal before nothing more is read
LOOKS = 4  # within the shortest time that is watched for
NAME_CHARACTERS_MAX = 256
FRAME_OVERHEAD_BYTES = 256 * 1024  # a filter, an id and what is around an event
FORGOTTEN = b"forgotten"  # in a refusal: start over


class LiveBroker(SystemHost[BrokerNode, Founded]):
    """One broker of an overlay."""

    kind = "broker"
    admits = "clients"
    decoders = OVERLAY
    fix = (
        "Start it with its latest journal, and stop any other process of this name. If that journal is lost, start all "
        "brokers with empty journals"
    )

    def __init__(self, config: OverlayConfig, name: Address, *, journal: Journal | None = None) -> None:
        self.config = config
        self.name = config.check_member(name)
        self.place = config.overlay.places[name]
        self.payload_bytes_max = config.options.payload_bytes_max
        self.taken_s = 2 * config.options.suspect_after_ms / 1000.0
        self.clients_max = config.options.clients_max
        super().__init__(config, name, name, journal)
        self._watching: asyncio.Task[None] | None = None
        self._epochs: dict[Address, int] = {}  # the latest that each neighbour has shown
        self._missing: dict[Address, float] = {}  # neighbours and clients that are not connected, since when
        self._unheard: set[Address] = set()  # clients of an earlier process that have not said how far they are
        self._unjudged: set[Address] = set()  # … at the last look
        self._started_at = 0.0

    async def rebuild(self, recovered: Recovered) -> Rebuilt[BrokerNode, Founded]:
        return rebuild(self.place, self.config.options.protocol, recovered)

    def state(self, machine: BrokerNode) -> object:
        return machine.state

    def connections(self, driver: Driver) -> "tuple[BrokerListener, SystemDialer]":
        """The lower of two neighbours connects; the root to nobody."""
        others_max = self.clients_max + 2 * len(self.place.children)
        above, brokers = self.place.parent, self.config.brokers
        peers = [Peer(above, (brokers[above].address,))] if above is not None else []
        listener = BrokerListener(self, others_max, Throttle(lambda: driver.backlog, BACKLOG_MAX))
        return listener, SystemDialer(self, peers, "node")

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

    @property
    def epoch(self) -> int:
        return self.machine.state.epoch

    @property
    def connected(self) -> list[Address]:
        return [each for each in self.place.neighbours if self._is_connected(each)]

    @property
    def clients(self) -> int:
        return self._listener.clients if isinstance(self._listener, BrokerListener) else 0

    def knows(self, client: Address) -> bool:
        return self.machine.knows(client)

    def explain(self) -> list[str]:
        waits = self.machine.explain() + self.unreached()
        for child in self.place.children:
            if not self._is_connected(child):
                waits.append(f"{child} is not connected: it must connect to this broker")
        return waits

    def missing(self) -> list[Address]:
        return [each for each in self.place.neighbours if not self._is_connected(each)]

    def troubles(self) -> Iterator[Trouble]:
        yield from super().troubles()
        if self._driver is not None:
            for source in sorted(self.machine.amnesiacs):
                yield Trouble("link", f"journal of {source}", f"{source} has lost its journal; restore it")

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
                subscriptions=total(state.routes.wanted),
                advertisements=total(state.routes.offered),
                **self.waits(),
            )
        )

    def difference(self, report: bytes) -> str:
        return difference(self.config.description, decode_report(report).system)

    def admit(self, name: Address, epoch: int, process: str) -> Problem | None:
        """A process in an earlier epoch is a second one, or has lost its journal."""
        latest = self._latest(name)
        if epoch < latest:
            reason = f"broker {name!r} was in epoch {latest} already, and comes in epoch {epoch}"
            return Problem("epoch", f"{reason}: its journal is an old copy, or new, or another process runs it")
        self._epochs[name] = epoch
        return None

    def _latest(self, name: Address) -> int:
        """The latest epoch in which this neighbour was heard, by this process or those before."""
        link = self.machine.state.links.get(name)
        return max(self._epochs.get(name, 0), link.peer_epoch if link is not None else 0)

    def heard_of(self, names: list[Address]) -> int:
        return self._latest(names[0]) if len(names) == 1 else 0

    def check_own(self, epoch: int, by: Address) -> Problem | None:
        """A broker below says which epoch of this one it has heard. If that is a later one, this one must stop."""
        if epoch <= self.epoch:
            return None
        reason = f"broker {by!r} has heard {self.name!r} in epoch {epoch}, and this process is in epoch {self.epoch}"
        self.fail(Behind(f"broker {self.name} has stopped: {reason}. {self.fix}"))
        return Problem("behind", reason, retry=True)  # it ends now, and one with the latest journal may come at once

    @property
    def unconfirmed(self) -> list[Address]:
        """The neighbours that may know more than the journal here, and have not been heard yet.

        Who is suspected is not waited for; the parent that says that another process is this broker, is.
        """
        suspected = self.machine.inner.state.suspected if self._taken_since is None else set()
        return [each for each in self.machine.unheard if each not in suspected]

    def take(self, source: Address, message: Any) -> None:
        if self._driver is not None and not self.failed.done():
            self._unheard.discard(source)
            self._driver.deliver(source, message)

    def met(self, name: Address, epoch: int) -> None:
        self._missing.pop(name, None)
        self._taken_since = None
        if name in self.machine.inner.state.suspected:
            self.take(APPLICATION, Answers(name))
        self.take(APPLICATION, Reached(name))

    async def _watch(self) -> None:
        """Suspect neighbours and forget clients when it is time."""
        options = self.config.options
        pause_s = min(options.suspect_after_ms / 1000.0, options.remember_s) / LOOKS
        while True:
            await asyncio.sleep(pause_s)
            self.problems()
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
            elif isinstance(notice, Outdated):
                self._outdated(notice)
            elif isinstance(notice, Amnesia):
                text = "neighbour has lost its journal: broker=%s source=%s acknowledged=%s known=%s"
                logger.error(text, self.name, notice.source, notice.acknowledged, notice.known)

    def _outdated(self, found: Outdated) -> None:
        if found.is_client:
            self._forget(found.source, f"its broker has an older journal than it has seen: {found.reason}")
        else:
            why = f"its journal is not the latest, {found.source} has seen more of it: {found.reason}"
            self.fail(Behind(f"broker {self.name} has stopped: {why}. {self.fix}"))


class BrokerListener(SystemListener):
    """Where the brokers below, clients and observers connect."""

    host: LiveBroker

    @property
    def clients(self) -> int:
        """How many are connected."""
        return sum(visitor.role == "client" for visitor in self.connected.values())

    def visitor(self) -> "BrokerGuest":
        return BrokerGuest(self)

    def send_away(self, client: Address, reason: str) -> None:
        """Tell a forgotten client so, if it is connected."""
        visitor = self.connected.get(client)
        if visitor is not None:
            visitor.close(reason, Refusal(reason, True, FORGOTTEN))

    def report_for(self, problem: Problem) -> bytes:
        return FORGOTTEN if problem.kind == "forgotten" else super().report_for(problem)

    def problem_with_role(self, hello: Hello) -> Problem | None:
        if hello.role not in ("node", "client"):
            return Problem("role", f"this is a broker; it accepts brokers and clients, not a {hello.role}")
        return None

    def problem_with_other(self, hello: Hello) -> Problem | None:
        return self._problem_with_broker(hello) if hello.role == "node" else self._problem_with_client(hello)

    def _problem_with_broker(self, hello: Hello) -> Problem | None:
        host, name = self.host, hello.name
        if name == host.name:
            return Problem("id", f"broker {name!r} is this process; two processes cannot have the same id")
        if hello.digest != host.description.digest:
            return Problem("description", "its overlay or its options differ from those here")
        if name not in host.place.children:
            return Problem("id", f"{name[:SHOWN_MAX]!r} is not below {host.name!r}")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            reason = f"another process is broker {name!r} and is connected; two processes cannot have the same id"
            return Problem("id", reason, retry=True)
        if (problem := host.check_own(hello.heard, name)) is not None:
            return problem
        return host.admit(name, hello.epoch, hello.process)

    def _problem_with_client(self, hello: Hello) -> Problem | None:
        host, name = self.host, hello.name
        if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            return Problem("name", f"names have 1 to {NAME_CHARACTERS_MAX} printable characters")
        if name in host.config.brokers or name in (BROKER, APPLICATION):
            return Problem("name", f"{name!r} is not a name for a client")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            return Problem("name", f"another client is connected as {name!r}")
        if unconfirmed := host.unconfirmed:  # an old journal does not know who is forgotten, either
            reason = f"{host.name} has not heard yet from {', '.join(unconfirmed)} whether its journal is the latest"
            return Problem("unconfirmed", reason, retry=True)
        if hello.epoch and not host.knows(name):
            reason = f"{host.name} has forgotten {name}, or has lost its journal"
            return Problem("forgotten", reason, retry=True)
        if present is None and self.clients >= host.clients_max:
            return Problem("too many clients", f"{self.clients} clients are connected already", retry=True)
        return None


class BrokerGuest(SystemGuest):
    """A connection that a broker below, a client or an observer has made."""

    _host: LiveBroker

    def prepare(self, hello: Hello) -> int:
        if hello.role == "node":
            return super().prepare(hello)
        return self._host.payload_bytes_max + FRAME_OVERHEAD_BYTES

    def heard(self, envelope: Envelope[Any]) -> None:
        if envelope.target != self._host.name:
            raise RemoteError(f"{self.name} speaks to {envelope.target[:SHOWN_MAX]!r}")
        if self.role == "client":
            check_size(envelope.message, self._host.payload_bytes_max)
        super().heard(envelope)


def check_size(frame: Frame[object], most: int) -> None:
    """RemoteError: an event of a client is too large."""
    if isinstance(frame.body, Publish):
        size = event_bytes(frame.body.event.payload, frame.body.event.headers)
        if size > most:
            raise RemoteError(f"an event has {size} bytes; at most {most} are allowed")


def total(routes: Mapping[Address, Sized]) -> int:
    """How many subscriptions or advertisements a routing table has, over all neighbours and clients."""
    return sum(map(len, routes.values()))
