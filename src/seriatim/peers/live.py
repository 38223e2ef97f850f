"""One peer as a part of this process: the machine, its journal of births, its connections.

A process that starts is always a new life: what its predecessor had sent and not finished is over, and the journal says
which life comes next. The birth is on disk before anybody hears of it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence

import msgspec

from seriatim.model import APPLICATION, Address, Closed, Fenced, RemoteError, SeriatimError, Topic, event_bytes
from seriatim.peers.config import PeersConfig
from seriatim.peers.connecting import PeerDialer, PeerListener
from seriatim.peers.report import PeerReport
from seriatim.peers.roster import Roster
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Peer, address_of
from seriatim.protocols.vcube.cube import Id, Life, births_of, id_of, name_of
from seriatim.protocols.vcube.linked import (
    Connected,
    Depart,
    LinkedPeer,
    LinkOptions,
    Parcel,
    publication_in,
)
from seriatim.protocols.vcube.messages import Born, Replaced
from seriatim.runtime import Clock, Driver, FileJournal, Journal, Switchboard
from seriatim.runtime.connection import TransportOptions
from seriatim.runtime.dialer import DialerOptions
from seriatim.runtime.system import encode_report

logger = logging.getLogger(__name__)

# A connection loses nothing as long as it lasts, and what the last one lost is repeated as soon as there is a new one.
# So repeating by the clock is the last resort.
LINKS = LinkOptions(retry_ms=5_000.0, retry_ms_max=30_000.0)
RETRY_MAX_S = 1.0  # a peer that comes back is found soon: it cannot connect to those with lower ids itself
REFUSED_S = 5.0
WAITS_SHOWN_MAX = 100


class LivePeer:
    """Enter it to be born, leave it to depart. `notify` is given what the machine tells its application, in order.

    `failed` is done when the peer cannot go on, and holds why.
    """

    def __init__(
        self,
        config: PeersConfig,
        id: Id,
        notify: Callable[[Sequence[Payload]], None],
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.id = config.check_id(id)
        self.config = config
        self.description = config.description
        self.cube = config.cube
        self.process = secrets.token_hex(8)
        self.switchboard = Switchboard()
        self.roster = Roster(self._status)
        self.clock = clock if clock is not None else Clock()
        self.failed: asyncio.Future[SeriatimError] = asyncio.get_running_loop().create_future()
        self._notify = notify
        self._journal: Journal = journal if journal is not None else FileJournal(config.journal(id))
        self._security = config.load_security()
        self._machine = LinkedPeer(Peer(self.cube, id, config.options.protocol), LINKS)
        self._driver: Driver | None = None
        self._listener: PeerListener | None = None
        self._dialer: PeerDialer | None = None

    # ── beginning and ending ──────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Be born and listen. JournalError: another process has this peer's journal; ConnectionFailed: its port."""
        recovered = await self._journal.open()
        births = [msgspec.msgpack.decode(record, type=Born) for record in recovered.records]
        protocol = self.config.options.protocol
        self._machine = LinkedPeer(Peer.restart(self.cube, self.id, protocol, births), LINKS)
        transport = TransportOptions()
        place = self.config.peers[self.id]
        self._listener = PeerListener(self, place.bind or place.address, self._security, transport)
        addresses = {other: each.address for other, each in self.config.peers.items()}
        options = DialerOptions(retry_max_s=RETRY_MAX_S, refused_s=REFUSED_S, transport=transport)
        self._dialer = PeerDialer(self, addresses, self._security, options, self._on_connect)
        driver = Driver(
            address_of(self.id),
            self._machine,
            self.clock,
            send=self.switchboard.send,
            notify=self._told,
            journal=self._journal,
        )
        driver.failed.add_done_callback(self._on_driver_failed)
        await self._listener.start()
        if place.is_exposed(self._security):
            logger.warning("every machine that reaches this port may be a peer", extra={"fix": "set a token_file"})
        self._driver = driver  # from here on it can be spoken to, and must be stopped
        driver.start()
        await driver.settled()
        self._dialer.start()

    async def stop(self) -> None:
        """Tell the others that this life is over, and disconnect. May be called twice, and at any stage."""
        driver, self._driver = self._driver, None
        if driver is not None and not driver.failed.done() and not self.failed.done():
            driver.command(APPLICATION, Depart())
        if driver is not None:
            await driver.stop()
        if self._dialer is not None:
            await self._dialer.stop()
        if self._listener is not None:
            await self._listener.stop()
        await self._journal.close()

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def life(self) -> Life:
        """The present one."""
        return self._machine.peer.life

    @property
    def name(self) -> str:
        """The present life as people read it."""
        return name_of(self.life)

    @property
    def epoch(self) -> int:
        """How often this peer was born, the present life included."""
        return births_of(self.life)

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._listener is not None, "start it first"
        return self._listener.address

    @property
    def connected(self) -> list[Id]:
        """The peers it has a connection to."""
        return [id for id in self.cube.ids if self.switchboard.reaches(address_of(id))]

    @property
    def topics(self) -> list[Topic]:
        """What is held."""
        return self._machine.peer.topics

    @property
    def refusals(self) -> dict[str, int]:
        """How often somebody was not let in, or was sent away, and for what."""
        return {**self._listener.refused, **self._listener.violations} if self._listener is not None else {}

    def explain(self) -> list[str]:
        """What waits for what, and who cannot be reached."""
        waits = list(self._machine.peer.explain())
        for node, story in self._dialer.problems().items() if self._dialer is not None else ():
            waits.append(f"{node} is not connected: {story}")
        return waits

    def living(self) -> list[Id]:
        """The other peers that are not held for dead."""
        return list(self._machine.peer.living())

    def report(self) -> bytes:
        """For observers, and for who was given another list."""
        waits = self.explain()
        return encode_report(
            PeerReport(
                id=self.id,
                life=self.name,
                system=self.description,
                statuses={str(id): status for id, status in sorted(self._machine.peer.state.statuses.items())},
                connected=self.connected,
                topics=self.topics,
                waits=waits[:WAITS_SHOWN_MAX],
                left_out=max(0, len(waits) - WAITS_SHOWN_MAX),
            )
        )

    # ── what it does ──────────────────────────────────────────────────────────────────────────────────────────────

    def command(self, source: Address, command: Payload) -> None:
        """For the machine. InputError: it is wrong, and nothing has changed; Closed: the peer has ended."""
        if self.failed.done():
            raise self.failed.result()
        if self._driver is None:
            raise Closed(f"peer {self.id} is not running")
        self._driver.command(source, command)

    def take(self, source: Address, parcel: Parcel) -> None:
        """Something from another peer. RemoteError: it must not have been sent."""
        if self._driver is None or self.failed.done():
            return
        if source != address_of(parcel.frame.epoch):
            raise RemoteError(f"{source} sent something in the name of peer {id_of(parcel.frame.epoch)}")
        self.roster.heard(id_of(parcel.frame.epoch), births_of(parcel.frame.epoch))
        pub = publication_in(parcel.frame.body)
        most = self.config.options.payload_bytes_max
        if pub is not None and (size := event_bytes(pub.event.payload, pub.event.headers)) > most:
            raise RemoteError(f"{source} sent an event of {size} bytes, and {most} are the most")
        try:
            self._driver.command(source, parcel)
        except Closed:
            return

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _status(self, id: Id) -> int:
        return self._machine.peer.state.statuses.get(id, 0)

    def _on_connect(self, id: Id, births: int) -> None:
        if self._driver is not None and not self.failed.done():
            self._driver.command(APPLICATION, Connected(id, births))

    def _told(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            if isinstance(notice, Replaced):
                life = f"{self.id}.{notice.births}"
                self._fail(Fenced(f"another process is peer {self.id} now, in its life {life}; this one has stopped"))
        self._notify(notices)

    def _on_driver_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        error = failed.result()
        self._fail(error if isinstance(error, SeriatimError) else Closed(f"peer {self.id} broke: {error!r}"))

    def _fail(self, error: SeriatimError) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
            logger.error("ended", extra={"peer": self.id, "reason": str(error)})
