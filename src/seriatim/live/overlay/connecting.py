"""The connections of one broker: to its neighbours, its clients and observers. The lower of two neighbours connects.

The handshake is that of system_door.py; brokers must be given the same file, clients need not. Then a connection
carries frames between its two ends; a frame in another name closes it.

A client says in its hello (epoch 1) that the broker must know it. A broker that has forgotten the client, or has lost
its journal, says so, and the client starts anew.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from seriatim.live.overlay.wire import OVERLAY
from seriatim.live.system import SystemDialer
from seriatim.model import APPLICATION, BROKER, Address, Node, RemoteError, event_bytes
from seriatim.protocols.link import Frame
from seriatim.protocols.overlay.messages import Publish
from seriatim.runtime.net.connection import Throttle, TransportOptions
from seriatim.runtime.net.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Switchboard
from seriatim.runtime.net.system_door import SHOWN_MAX, SystemDoor, SystemVisitor
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, VERSION, Envelope, Hello, Ping, Refusal

if TYPE_CHECKING:
    from seriatim.live.overlay.live import LiveBroker

NAME_CHARACTERS_MAX = 256
FRAME_OVERHEAD_BYTES = 256 * 1024  # a filter, an id and what is around an event
FORGOTTEN = b"forgotten"  # in a refusal: start anew


class BrokerListener(SystemDoor):
    """Where the brokers below, clients and observers connect."""

    host: "LiveBroker"

    def __init__(self, host: "LiveBroker", throttle: Throttle) -> None:
        super().__init__(
            host,
            host.at.bind or host.at.address,
            kind="broker",
            name=host.name,
            security=host.security,
            transport=TransportOptions(),
            others_max=host.clients_max + 2 * len(host.place.children),
        )
        self.throttle = throttle

    @property
    def clients(self) -> int:
        """How many are connected."""
        return sum(visitor.role == "client" for visitor in self.connected.values())

    def visitor(self) -> "BrokerVisitor":
        return BrokerVisitor(self)

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
            return Problem("id", f"broker {name!r} is this process; two processes cannot have one id")
        if hello.digest != host.description.digest:
            return Problem("description", "its overlay or its options differ from those here")
        if name not in host.place.children:
            return Problem("id", f"{name[:SHOWN_MAX]!r} is not below {host.name!r}")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            reason = f"another process is broker {name!r} and is connected; two processes cannot have one id"
            return Problem("id", reason, retry=True)
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
        if hello.epoch and not host.knows(name):
            reason = f"{host.name} has forgotten {name}, or has lost its journal"
            return Problem("forgotten", reason, retry=True)
        if present is None and self.clients >= host.clients_max:
            return Problem("too many clients", f"{self.clients} clients are connected already", retry=True)
        return None


class BrokerVisitor(SystemVisitor):
    """A connection that a broker below, a client or an observer has made."""

    def __init__(self, listener: BrokerListener) -> None:
        super().__init__(listener, listener.throttle)
        self._host = listener.host

    def prepare(self, hello: Hello) -> int:
        is_broker = hello.role == "node"
        self.stops_reading_when_full = not is_broker  # two alike would wait for each other
        return FRAME_BYTES_MAX if is_broker else self._host.payload_bytes_max + FRAME_OVERHEAD_BYTES

    def settled(self, hello: Hello) -> None:
        self._host.reached(self.name)

    def decode(self, body: bytes) -> Ping | Envelope[Any]:
        return OVERLAY.from_node(body) if self.role == "node" else OVERLAY.from_client(body)

    def heard(self, envelope: Envelope[Any]) -> None:
        if envelope.target != self._host.name:
            raise RemoteError(f"{self.name} speaks to {envelope.target[:SHOWN_MAX]!r}")
        if self.role == "client":
            check_size(envelope.message, self._host.payload_bytes_max)
        self._host.take(envelope.source, envelope.message)


def check_size(frame: Frame[object], most: int) -> None:
    """RemoteError: an event of a client is too large."""
    if isinstance(frame.body, Publish):
        size = event_bytes(frame.body.event.payload, frame.body.event.headers)
        if size > most:
            raise RemoteError(f"an event has {size} bytes; at most {most} are allowed")


class BrokerDialer(SystemDialer):
    """The connection to the broker above; the root makes none."""

    def __init__(self, host: "LiveBroker") -> None:
        parent = host.place.parent
        peers = [Peer(parent, (host.config.brokers[parent].address,))] if parent is not None else []
        super().__init__(host, peers, role="node", decoders=OVERLAY, on_connect=host.reached)


class ClientDialer(Dialer):
    """A client's connection to its broker. `is_known`: whether the broker must know the client by now."""

    def __init__(
        self,
        switchboard: Switchboard,
        broker: Peer,
        *,
        cluster: str,
        name: Address,
        process: str,
        security: SecurityOptions,
        options: DialerOptions,
        is_known: Callable[[], bool],
        on_connect: Callable[[Node], None],
        on_forgotten: Callable[[str], None],
    ) -> None:
        super().__init__(
            switchboard,
            [broker],
            cluster=cluster,
            name=name,
            role="client",
            security=security,
            options=options,
            on_connect=on_connect,
            decoders=OVERLAY,
        )
        self._process = process
        self._is_known = is_known
        self._on_forgotten = on_forgotten

    def greeting(self) -> Hello:
        hello = self.hello
        return Hello(VERSION, hello.cluster, "client", hello.name, hello.token, int(self._is_known()), self._process)

    def refusal(self, refusal: Refusal) -> str:
        if refusal.report == FORGOTTEN:
            self._on_forgotten(refusal.reason)
        return refusal.reason
