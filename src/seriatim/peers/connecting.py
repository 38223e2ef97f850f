"""The connections of one peer: one to each other peer, made by the one with the lower id.

The handshake is that of system_door.py; the epoch of a peer is the number of its births. After it a connection carries
parcels from that peer to this one and nothing else: one in another name, or one that no peer can have sent, ends it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from seriatim.model import APPLICATION, Address, InputError, Node, RemoteError
from seriatim.peers.report import PeersDescription, decode_report, difference
from seriatim.peers.roster import Roster
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Cube, address_of
from seriatim.protocols.vcube.cube import Id, id_at
from seriatim.protocols.vcube.linked import Connected, Parcel
from seriatim.runtime import system_door
from seriatim.runtime.connection import TransportOptions
from seriatim.runtime.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.door import Problem
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.system import explain_refusal
from seriatim.runtime.system_door import SHOWN_MAX, SystemDoor, SystemVisitor
from seriatim.runtime.wire import FRAME_BYTES_MAX, VERSION, Envelope, Hello, Ping, Refusal, Welcome, decode_from_peer


class Host(system_door.Host, Protocol):
    """The peer of this process, as its connections see it (live.py)."""

    id: Id
    roster: Roster
    description: PeersDescription
    cube: Cube

    def take(self, source: Address, parcel: Parcel) -> None:
        """Something from another peer. RemoteError: it must not have been sent."""

    def command(self, source: Address, command: Payload) -> None:
        """For the machine."""


class PeerListener(SystemDoor):
    """Where the peers with lower ids, and observers, connect."""

    host: Host

    def __init__(self, host: Host, bind: str, security: SecurityOptions, transport: TransportOptions) -> None:
        super().__init__(
            host,
            bind,
            kind="peer",
            name=address_of(host.id),
            security=security,
            transport=transport,
            others_max=2 * len(host.cube.ids),
        )

    def visitor(self) -> "PeerVisitor":
        return PeerVisitor(self)

    def problem_with_role(self, hello: Hello) -> Problem | None:
        return None if hello.role == "peer" else Problem("role", f"this is a peer, and takes peers, not a {hello.role}")

    def problem_with_other(self, hello: Hello) -> Problem | None:
        host = self.host
        id = id_at(hello.name) if len(hello.name) <= SHOWN_MAX else None
        if id is None or id not in host.cube:
            return Problem("id", f"there is no {hello.name[:SHOWN_MAX]!r} in the list of peers here")
        if id == host.id:
            return Problem("id", f"peer {id} is this process; two processes cannot have one id")
        if hello.digest != host.description.digest:
            return Problem("description", "its list of peers or its options are not the same as here")
        return host.roster.admit(id, hello.epoch, hello.process)


class PeerVisitor(SystemVisitor):
    """A connection that another peer, or an observer, has made."""

    def __init__(self, listener: PeerListener) -> None:
        super().__init__(listener, None)
        self.stops_reading_when_full = False  # both sides are alike: if both stopped, they would wait for each other
        self._host = listener.host

    def prepare(self, hello: Hello) -> int:
        return FRAME_BYTES_MAX

    def settled(self, hello: Hello) -> None:
        id = id_at(hello.name)
        assert id is not None, "it was let in"
        self._host.command(APPLICATION, Connected(id, hello.epoch))

    def decode(self, body: bytes) -> Ping | Envelope[Any]:
        frame: Ping | Envelope[Any] = decode_from_peer(body)
        return frame

    def heard(self, envelope: Envelope[Any]) -> None:
        self._host.take(envelope.source, envelope.message)


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
        return Hello(VERSION, hello.cluster, "peer", hello.name, hello.token, host.epoch, host.process, digest)

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
        ours = self.host.description
        return explain_refusal(refusal, lambda report: difference(ours, decode_report(report).system))

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
