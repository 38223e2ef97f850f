"""The connections of one peer: one to each other peer, made by the one with the lower id.

Handshake: `Hello` and `Welcome` say version, cluster, id, births and process of either side, the digest of list and
options, and the token. Whoever is refused hears why; nobody else is affected. After that a connection carries parcels
from that peer to this one and nothing else: one in another name, or one that no peer can have sent, ends it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from seriatim.model import APPLICATION, Address, InputError, Node, RemoteError
from seriatim.peers.report import PeersDescription, decode_report, difference
from seriatim.peers.roster import Roster
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Cube, address_of
from seriatim.protocols.vcube.cube import Id, id_at
from seriatim.protocols.vcube.linked import Connected, Parcel
from seriatim.runtime.connection import TransportOptions
from seriatim.runtime.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.door import Door, Problem, Visitor
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.switchboard import Outlet, Switchboard
from seriatim.runtime.wire import (
    FRAME_BYTES_MAX,
    UNREADABLE,
    VERSION,
    Envelope,
    Hello,
    Refusal,
    Welcome,
    decode_from_peer,
    decode_hello,
)

logger = logging.getLogger(__name__)

SHOWN_MAX = 100  # characters of what somebody else wrote, in a reason or the log
STRANGERS_MAX = 256
OBSERVERS_MAX = 64


class Host(Protocol):
    """The peer of this process, as its connections see it (live.py)."""

    id: Id
    process: str
    roster: Roster
    switchboard: Switchboard
    description: PeersDescription
    cube: Cube

    @property
    def births(self) -> int:
        """Of its present life."""

    def report(self) -> bytes:
        """For who asks."""

    def take(self, source: Address, parcel: Parcel) -> None:
        """Something from another peer. RemoteError: it must not have been sent."""

    def command(self, source: Address, command: Payload) -> None:
        """For the machine."""


class PeerListener(Door):
    """Where the peers with lower ids, and observers, connect."""

    def __init__(self, host: Host, bind: str, security: SecurityOptions, transport: TransportOptions) -> None:
        super().__init__(
            bind,
            security=security,
            transport=transport,
            strangers_max=STRANGERS_MAX,
            sockets_max=2 * STRANGERS_MAX + OBSERVERS_MAX + 2 * len(host.cube.ids),
        )
        self.host = host
        self.connected: dict[Id, PeerVisitor] = {}
        self.observers = 0

    def opened(self) -> None:
        """Nothing else to open."""

    def closing(self) -> None:
        """Nothing else to close."""

    def visitor(self) -> "PeerVisitor":
        return PeerVisitor(self)

    def problem(self, hello: Hello) -> Problem | None:
        """Why somebody may not come in. The token first: others learn nothing about the system."""
        host = self.host
        if hello.version != VERSION:
            return Problem("version", f"it speaks version {hello.version}, and this peer {VERSION}")
        if (problem := self.security.problem_with(hello.role, hello.token)) is not None:
            return Problem("token", problem)
        if hello.role == "observer":
            if self.observers >= OBSERVERS_MAX:
                return Problem("observers", f"{self.observers} observers are connected already", retry=True)
            return None
        if hello.role != "peer":
            return Problem("role", f"this is a peer, and takes peers, not a {hello.role}")
        if hello.cluster != host.description.cluster:
            return Problem("cluster", f"this is {host.description.cluster!r}, not {hello.cluster[:SHOWN_MAX]!r}")
        id = id_at(hello.name) if len(hello.name) <= SHOWN_MAX else None
        if id is None or id not in host.cube:
            return Problem("id", f"there is no {hello.name[:SHOWN_MAX]!r} in the list of peers here")
        if id == host.id:
            return Problem("id", f"peer {id} is this process; two processes cannot have one id")
        if hello.digest != host.description.digest:
            return Problem("description", "its list of peers or its options are not the same as here")
        return host.roster.admit(id, hello.epoch, hello.process)


class PeerVisitor(Visitor):
    """A connection that another peer, or an observer, has made."""

    def __init__(self, listener: PeerListener) -> None:
        super().__init__(listener, None)
        self.stops_reading_when_full = False  # both sides are alike: if both stopped, they would wait for each other
        self._listener = listener
        self._host = listener.host
        self._id: Id = -1
        self._outlet: Outlet | None = None

    def take(self, body: bytes) -> None:
        try:
            if not self.role:
                self._introduce(decode_hello(body))
                return
            if self.role == "observer":
                raise RemoteError("an observer only asks")
            frame = decode_from_peer(body)
        except UNREADABLE as error:
            raise RemoteError(f"a frame of {len(body)} bytes cannot be read: {error}") from None
        if type(frame) is Envelope:
            if frame.source != self.name:
                raise RemoteError(f"{self.name} speaks for {frame.source[:SHOWN_MAX]!r}")
            self._host.take(frame.source, frame.message)

    def ended(self, reason: str) -> None:
        if self.role == "observer":
            self._listener.observers -= 1
        elif self._outlet is not None:
            self._host.switchboard.unplug(self.name, self._outlet)
            if self._listener.connected.get(self._id) is self:
                del self._listener.connected[self._id]
        super().ended(reason)

    def _introduce(self, hello: Hello) -> None:
        listener, host = self._listener, self._host
        problem = listener.problem(hello)
        if problem is not None:
            listener.refused[problem.kind] += 1
            extra = {"peer": self.peer, "who": hello.name[:SHOWN_MAX], "reason": problem.reason}
            logger.warning("not let in", extra=extra)
            report = host.report() if problem.kind == "description" else b""
            self.close(problem.reason, Refusal(problem.reason, problem.retry, report))
            return
        self.has_said_hello()
        self.role, self.name = hello.role, hello.name
        cluster, name = host.description.cluster, address_of(host.id)
        if hello.role == "observer":
            listener.observers += 1
            self.post(Welcome(VERSION, cluster, [name], report=host.report()))
            return
        id = id_at(hello.name)
        assert id is not None, "it was let in"
        self._id = id
        self._framing.body_bytes_max = FRAME_BYTES_MAX
        older = listener.connected.get(id)
        listener.connected[id] = self
        if older is not None:
            older.close("replaced", Refusal("replaced: there is a newer connection of the same peer"))
        self.post(Welcome(VERSION, cluster, [name], FRAME_BYTES_MAX, host.births, host.process))
        self._outlet = self.carry
        host.switchboard.plug(self.name, self._outlet)
        logger.info("connected", extra={"peer": self.name, "life": hello.epoch})
        host.command(APPLICATION, Connected(id, hello.epoch))


class PeerDialer(Dialer):
    """Connections to the peers with higher ids."""

    def __init__(
        self,
        host: Host,
        addresses: dict[Id, str],
        security: SecurityOptions,
        options: DialerOptions,
        on_connect: Callable[[Id, int], None],
    ) -> None:
        self.host = host
        self._births: dict[Id, int] = {}
        super().__init__(
            host.switchboard,
            peers_to_dial(host.id, addresses),
            cluster=host.description.cluster,
            name=address_of(host.id),
            role="peer",
            security=security,
            options=options,
            on_connect=self._connected,
        )
        self.deliver = self._deliver
        self._on_peer = on_connect

    def greeting(self) -> Hello:
        """Our life may be another one than at the last connection."""
        hello, host = self.hello, self.host
        digest = host.description.digest
        return Hello(VERSION, hello.cluster, "peer", hello.name, hello.token, host.births, host.process, digest)

    def welcomed(self, welcome: Welcome) -> None:
        for name in welcome.nodes:
            id = id_at(name)
            if id is None or id not in self.host.cube:
                raise RemoteError(f"{name[:SHOWN_MAX]!r} answers, which is not in the list of peers here")
            if id == self.host.id:
                raise RemoteError(f"peer {id} answers, which is this process; two processes cannot have one id")
            if (problem := self.host.roster.admit(id, welcome.epoch, welcome.process)) is not None:
                raise RemoteError(problem.reason)
            self._births[id] = welcome.epoch

    def refusal(self, refusal: Refusal) -> str:
        """Names what differs, if that is why."""
        if not refusal.report:
            return refusal.reason
        try:
            theirs = decode_report(refusal.report).system
        except RemoteError as error:
            return f"{refusal.reason} ({error})"
        differs = difference(self.host.description, theirs) or "nothing that this release knows of"
        return f"{refusal.reason}: {differs}"

    def _connected(self, node: Node) -> None:
        id = id_at(node)
        assert id is not None, "only peers are dialled"
        self._on_peer(id, self._births[id])

    def _deliver(self, source: Address, target: Address, message: Payload) -> None:
        self.host.take(source, message)


def peers_to_dial(id: Id, addresses: dict[Id, str]) -> Iterable[Peer]:
    """One connection per pair is enough: the lower id makes it."""
    if id not in addresses:
        raise InputError("id", f"{id} is not among the peers", "add it to the list that all peers are given")
    return [Peer(address_of(other), (address,)) for other, address in sorted(addresses.items()) if other > id]
