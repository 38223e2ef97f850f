"""The connections of one peer: one to each other peer, made by the one with the lower id.

The handshake is that of system_door.py; the epoch of a peer is the number of its births. Then a connection carries
parcels between the two peers; a parcel in another name, or one that no peer can have sent, closes it.
"""

from typing import TYPE_CHECKING, Any

from seriatim.live.peers.wire import PEERS
from seriatim.live.system import SystemDialer
from seriatim.model import Node
from seriatim.protocols.vcube import address_of
from seriatim.protocols.vcube.cube import id_at
from seriatim.runtime.net.connection import TransportOptions
from seriatim.runtime.net.dialer import Peer
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.system_door import SHOWN_MAX, SystemDoor, SystemVisitor
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, Envelope, Hello, Ping, Welcome

if TYPE_CHECKING:
    from seriatim.live.peers.live import LivePeer


class PeerListener(SystemDoor):
    """Where the peers with lower ids, and observers, connect."""

    host: "LivePeer"

    def __init__(self, host: "LivePeer") -> None:
        super().__init__(
            host,
            host.at.bind or host.at.address,
            kind="peer",
            name=host.node,
            security=host.security,
            transport=TransportOptions(),
            others_max=2 * len(host.cube.ids),
        )

    def visitor(self) -> "PeerVisitor":
        return PeerVisitor(self)

    def problem_with_role(self, hello: Hello) -> Problem | None:
        return None if hello.role == "peer" else Problem("role", f"this peer accepts peers, not a {hello.role}")

    def problem_with_other(self, hello: Hello) -> Problem | None:
        host = self.host
        id = id_at(hello.name) if len(hello.name) <= SHOWN_MAX else None
        if id is None or id not in host.cube:
            return Problem("id", f"there is no {hello.name[:SHOWN_MAX]!r} in the list of peers here")
        if id == host.id:
            return Problem("id", f"peer {id} is this process; two processes cannot have one id")
        if hello.digest != host.description.digest:
            return Problem("description", "its list of peers or its options differ from those here")
        return host.admit(hello.name, hello.epoch, hello.process)


class PeerVisitor(SystemVisitor):
    """A connection that another peer, or an observer, has made."""

    def __init__(self, listener: PeerListener) -> None:
        super().__init__(listener, None)
        self.stops_reading_when_full = False  # both sides are alike: if both stopped, each would wait for the other
        self._host = listener.host

    def prepare(self, hello: Hello) -> int:
        return FRAME_BYTES_MAX

    def settled(self, hello: Hello) -> None:
        self._host.met(hello.name, hello.epoch)

    def decode(self, body: bytes) -> Ping | Envelope[Any]:
        return PEERS.from_node(body)

    def heard(self, envelope: Envelope[Any]) -> None:
        self._host.take(envelope.source, envelope.message)


class PeerDialer(SystemDialer):
    """Connections to the peers with higher ids: one per pair is enough, and the lower id makes it."""

    def __init__(self, host: "LivePeer") -> None:
        higher = [
            Peer(address_of(id), (place.address,)) for id, place in sorted(host.config.peers.items()) if id > host.id
        ]
        super().__init__(host, higher, role="peer", decoders=PEERS, on_connect=self._connected)
        self._peer = host
        self._births: dict[Node, int] = {}

    def welcomed(self, welcome: Welcome) -> None:
        super().welcomed(welcome)
        self._births |= dict.fromkeys(welcome.nodes, welcome.epoch)

    def _connected(self, node: Node) -> None:
        self._peer.met(node, self._births[node])
