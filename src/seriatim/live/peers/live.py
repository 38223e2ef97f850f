"""One peer in this process: its machine, its journal of births, its connections.

Every process is a new life: it does not finish the work of the previous one. The journal counts the lives. A birth is
on disk before the peer listens.

Of any two peers the one with the lower id connects; a peer's epoch is the number of its lives. A connection carries
parcels between the two; a parcel with another sender, or one that no peer can have sent, closes it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from seriatim.live.founding import Rebuilt
from seriatim.live.peers.config import PeerReport, PeersConfig, decode_report, difference
from seriatim.live.peers.wire import PEERS
from seriatim.live.system import SystemDialer, SystemHost, SystemListener
from seriatim.model import APPLICATION, Address, Closed, Fenced, RemoteError, Topic, event_bytes
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Peer, address_of
from seriatim.protocols.vcube.cube import Id, Life, births_of, id_at, id_of, life_of, name_of
from seriatim.protocols.vcube.linked import (
    Connected,
    Depart,
    LinkedPeer,
    LinkOptions,
    Parcel,
    TurnedAway,
    publication_in,
)
from seriatim.protocols.vcube.messages import Born, Replaced
from seriatim.runtime import Clock, Driver, Journal, Recovered
from seriatim.runtime.net.dialer import Peer as Dialed
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.system import encode_report
from seriatim.runtime.net.system_door import SHOWN_MAX
from seriatim.runtime.net.wire import Hello

# A connection loses nothing while it lasts, and what the last one lost is repeated on the new one. So repeating by the
# clock is the last resort.
LINKS = LinkOptions(retry_ms=5_000.0, retry_ms_max=30_000.0)


class LivePeer(SystemHost[LinkedPeer, None]):
    """One peer. Start it to be born, stop it to depart.

    `notify` is given what the machine tells its application, in order.
    """

    kind = "peer"
    admits = "peers"
    decoders = PEERS
    fix = "Stop any other process of this id"

    def __init__(
        self,
        config: PeersConfig,
        id: Id,
        notify: Callable[[Sequence[Payload]], None],
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.id = config.check_member(id)
        self.config = config
        super().__init__(config, id, address_of(id), journal)
        self.cube = config.cube
        self.taken_s = 2 * config.options.protocol.suspect_after_ms / 1000.0
        self.clock = clock if clock is not None else Clock()
        self._roster = Roster(self._status)
        self._notify = notify
        self._departed = False
        self._rival = ""  # a later life of this peer, which may be its own past
        self._fencing: asyncio.TimerHandle | None = None

    async def rebuild(self, recovered: Recovered) -> Rebuilt[LinkedPeer, None]:
        births = [msgspec.msgpack.decode(record, type=Born) for record in recovered.records]
        peer = Peer.restart(self.cube, self.id, self.config.options.protocol, births)
        return Rebuilt(LinkedPeer(peer, LINKS), 0.0, None)

    def make_clock(self, at_least: float) -> Clock:
        return self.clock

    def connections(self, driver: Driver) -> tuple[SystemListener, SystemDialer]:
        places = sorted(self.config.peers.items())
        higher = [Dialed(address_of(id), (place.address,)) for id, place in places if id > self.id]
        return PeerListener(self, 2 * len(self.cube.ids)), SystemDialer(self, higher, "peer")

    async def stop(self) -> None:
        """Tell the others that this life is over, and disconnect. May be called twice, and at any stage."""
        if self._driver is not None and not self._departed and not self.failed.done():
            self._departed = True
            self._driver.command(APPLICATION, Depart())
        self._stop_fencing()
        await super().stop()

    @property
    def life(self) -> Life:
        return self.machine.peer.life

    @property
    def name(self) -> str:
        return name_of(self.life)

    @property
    def epoch(self) -> int:
        """How often this peer was born, the present life included."""
        return births_of(self.life)

    @property
    def connected(self) -> list[Id]:
        return [id for id in self.cube.ids if self.switchboard.reaches(address_of(id))]

    @property
    def topics(self) -> list[Topic]:
        return self.machine.peer.topics

    def explain(self) -> list[str]:
        rival = [f"peer {self.id} waits for the end of its life {self._rival}"] if self._rival else []
        return [*rival, *self.machine.peer.explain(), *self.unreached()]

    def missing(self) -> list[Address]:
        """The others, but for those that are presumed dead: they are routed around."""
        others = (id for id in self.cube.ids if id != self.id and self._status(id) and not self._status(id) % 2)
        return [address_of(id) for id in others if not self.switchboard.reaches(address_of(id))]

    def report(self) -> bytes:
        return encode_report(
            PeerReport(
                id=self.id,
                life=self.name,
                system=self.config.description,
                statuses={str(id): status for id, status in sorted(self.machine.peer.state.statuses.items())},
                connected=self.connected,
                topics=self.topics,
                **self.waits(),
            )
        )

    def difference(self, report: bytes) -> str:
        return difference(self.config.description, decode_report(report).system)

    def command(self, source: Address, command: Payload) -> None:
        """Give the machine a command. InputError: it is wrong, and nothing has changed. Closed: the peer has ended."""
        if self.failed.done():
            raise self.failed.result()
        if self._driver is None:
            raise Closed(f"peer {self.id} is not running")
        self._driver.command(source, command)

    def admit(self, name: Address, epoch: int, process: str) -> Problem | None:
        return self._roster.admit(_id_at(name), epoch, process)

    def met(self, name: Address, epoch: int) -> None:
        self._taken_since = None
        self._tell(Connected(_id_at(name), epoch))

    def turned_away(self, by: Address) -> None:
        self._tell(TurnedAway(_id_at(by)))

    def _tell(self, news: Connected | TurnedAway) -> None:
        """What a connection shows the machine, unless that has just stopped."""
        if self._driver is not None and not self.failed.done():
            with suppress(Closed):
                self._driver.command(APPLICATION, news)

    def take(self, source: Address, parcel: Parcel) -> None:
        if self._driver is None or self.failed.done():
            return
        if source != address_of(parcel.frame.epoch):
            raise RemoteError(f"{source} sent something in the name of peer {id_of(parcel.frame.epoch)}")
        self._roster.heard(id_of(parcel.frame.epoch), births_of(parcel.frame.epoch))
        pub = publication_in(parcel.frame.body)
        most = self.config.options.payload_bytes_max
        if pub is not None and (size := event_bytes(pub.event.payload, pub.event.headers)) > most:
            raise RemoteError(f"{source} sent an event of {size} bytes; at most {most} are allowed")
        try:
            self._driver.command(source, parcel)
        except Closed:
            return

    def presumes_dead(self, id: Id) -> bool:
        """Whether nothing is expected of its present life any more."""
        return self._status(id) % 2 == 1

    def _status(self, id: Id) -> int:
        return self.machine.peer.state.statuses.get(id, 0)

    def told(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            if isinstance(notice, Replaced):
                self._replaced(notice)
            elif isinstance(notice, Born):
                self._stop_fencing()
        self._notify(notices)

    def _replaced(self, notice: Replaced) -> None:
        """Stop; but if that life may be an earlier one of ours, not before it would be presumed dead."""
        self._stop_fencing()
        life = name_of(life_of(self.id, notice.births))
        error = Fenced(f"another process is peer {self.id} now, in its life {life}; this one has stopped")
        if notice.may_go_on:
            self._rival = life
            self._fencing = asyncio.get_running_loop().call_later(self.taken_s, self.fail, error)
        else:
            self.fail(error)

    def _stop_fencing(self) -> None:
        if self._fencing is not None:
            self._fencing.cancel()
            self._fencing, self._rival = None, ""


class Presence(Struct, frozen=True):
    """One process that is a peer."""

    process: str
    births: int


class Roster:
    """Which process is which peer, as far as this one knows: two processes must not have one id.

    *The connected process stays*, whatever the second one says, because the others rely on what it has acknowledged
    (PeerListener). *A later life wins* over an earlier one that is not connected, because it means a restart: the
    journal gives the new process the next life. A connection that only looks open counts until its process is presumed
    dead. If the old one is still alive, it is told that it was replaced, and stops. A process that lost its journal is
    refused until its earlier life is presumed dead; then it is told the number of its last life, and continues as the
    next one. That holds also where the earlier process was never met, and is known from what others say.

    `status`: what the peer of this process knows of another one (twice its births, one more if it is dead).
    """

    def __init__(self, status: Callable[[Id], int]) -> None:
        self._status = status
        self._present: dict[Id, Presence] = {}

    def admit(self, id: Id, births: int, process: str) -> Problem | None:
        """A process claims to be this peer. None: it is accepted."""
        known = self._present.get(id)
        said, is_dead = divmod(self._status(id), 2)
        if not is_dead and (known is None or known.process != process):
            met = known.births if known is not None else -1
            if births <= met or births < said:
                life = name_of(life_of(id, max(met, said)))
                reason = f"another process is peer {id}, in its life {life}; two processes cannot have the same id"
                return Problem("id", reason, retry=True)
        if known is None or known.process != process or known.births < births:
            self._present[id] = Presence(process, births)
        return None

    def heard(self, id: Id, births: int) -> None:
        """The process that is this peer has sent something in this life. (Reports by others about a later life do not
        count: that may be another process.)"""
        known = self._present.get(id)
        if known is not None and known.births < births:
            self._present[id] = Presence(known.process, births)


class PeerListener(SystemListener):
    """Where the peers with lower ids, and observers, connect."""

    host: LivePeer

    def problem_with_role(self, hello: Hello) -> Problem | None:
        return None if hello.role == "peer" else Problem("role", f"this peer accepts peers, not a {hello.role}")

    def problem_with_other(self, hello: Hello) -> Problem | None:
        host = self.host
        id = id_at(hello.name) if len(hello.name) <= SHOWN_MAX else None
        if id is None or id not in host.cube:
            return Problem("id", f"there is no {hello.name[:SHOWN_MAX]!r} in the list of peers here")
        if id == host.id:
            return Problem("id", f"peer {id} is this process; two processes cannot have the same id")
        if hello.digest != host.description.digest:
            return Problem("description", "its list of peers or its options differ from those here")
        present = self.connected.get(hello.name)
        if present is not None and present.process != hello.process and not host.presumes_dead(id):
            reason = f"another process is peer {id} and is connected; two processes cannot have the same id"
            return Problem("id", reason, retry=True)
        return host.admit(hello.name, hello.epoch, hello.process)


def _id_at(name: Address) -> Id:
    id = id_at(name)
    assert id is not None, "only peers are let in and dialed"
    return id
