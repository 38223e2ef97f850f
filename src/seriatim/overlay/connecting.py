"""The connections of one broker: one to each neighbour, made by the lower one; its clients'; and observers'.

Handshake: `Hello` and `Welcome` say version, cluster, name, epoch and process of either side, between brokers the
digest of tree and options, and the token of the role. Whoever is refused hears why; nobody else is affected. After that
a connection carries frames between these two and nothing else: one in another name ends it.

A client says in its hello (epoch 1) that the broker must know it. A broker that does not, because it has forgotten it
or has lost its journal, says so, and the client begins anew.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from seriatim.model import APPLICATION, BROKER, Address, Node, RemoteError, event_bytes
from seriatim.overlay.report import OverlayDescription, decode_report, difference
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay.messages import Publish
from seriatim.protocols.overlay.topology import Place
from seriatim.runtime.connection import Throttle, TransportOptions
from seriatim.runtime.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.door import Door, Problem, Visitor
from seriatim.runtime.overlay_wire import OVERLAY
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
    decode_hello,
)

logger = logging.getLogger(__name__)

SHOWN_MAX = 100  # characters of what somebody else wrote, in a reason or the log
NAME_CHARACTERS_MAX = 256
STRANGERS_MAX = 256
OBSERVERS_MAX = 64
FRAME_OVERHEAD_BYTES = 256 * 1024  # a filter, an id and what is around an event
FORGOTTEN = b"forgotten"  # in a refusal: begin anew
ROLES = {"node": "broker", "client": "client", "observer": "observer"}


class Host(Protocol):
    """The broker of this process, as its connections see it (live.py)."""

    place: Place
    process: str
    switchboard: Switchboard
    description: OverlayDescription
    payload_bytes_max: int
    clients_max: int

    @property
    def epoch(self) -> int:
        """Of its present process."""

    def report(self) -> bytes:
        """For who asks."""

    def knows(self, client: Address) -> bool:
        """Whether it is a client that was not forgotten."""

    def admit(self, neighbour: Address, epoch: int, process: str) -> Problem | None:
        """Somebody says that it is this neighbour. None: then it is."""

    def take(self, source: Address, message: Payload) -> None:
        """Something from a neighbour or a client."""

    def reached(self, address: Address) -> None:
        """There is a new connection to it."""


class BrokerListener(Door):
    """Where the brokers below, clients and observers connect."""

    def __init__(
        self, host: Host, bind: str, security: SecurityOptions, transport: TransportOptions, throttle: Throttle
    ) -> None:
        super().__init__(
            bind,
            security=security,
            transport=transport,
            strangers_max=STRANGERS_MAX,
            sockets_max=2 * STRANGERS_MAX + OBSERVERS_MAX + host.clients_max + 2 * len(host.place.children),
        )
        self.host = host
        self.throttle = throttle
        self.connected: dict[Address, BrokerVisitor] = {}
        self.observers = 0

    @property
    def clients(self) -> int:
        """How many are connected."""
        return sum(visitor.role == "client" for visitor in self.connected.values())

    def opened(self) -> None:
        """Nothing else to open."""

    def closing(self) -> None:
        """Nothing else to close."""

    def visitor(self) -> "BrokerVisitor":
        return BrokerVisitor(self)

    def send_away(self, client: Address, reason: str) -> None:
        """It is forgotten: if it is connected, it hears so."""
        visitor = self.connected.get(client)
        if visitor is not None:
            visitor.close(reason, Refusal(reason, True, FORGOTTEN))

    def problem(self, hello: Hello) -> Problem | None:
        """Why somebody may not come in. The token first: others learn nothing about the overlay."""
        if hello.version != VERSION:
            return Problem("version", f"it speaks version {hello.version}, and this broker {VERSION}")
        if hello.role not in ROLES:
            return Problem("role", f"this is a broker, and takes brokers and clients, not a {hello.role}")
        if (problem := self.security.problem_with(hello.role, hello.token)) is not None:
            return Problem("token", problem.replace("node", "broker"))
        if hello.role == "observer":
            if self.observers >= OBSERVERS_MAX:
                return Problem("observers", f"{self.observers} observers are connected already", retry=True)
            return None
        cluster = self.host.description.cluster
        if hello.cluster != cluster:
            return Problem("cluster", f"this is {cluster!r}, not {hello.cluster[:SHOWN_MAX]!r}")
        return self._problem_with_broker(hello) if hello.role == "node" else self._problem_with_client(hello)

    def _problem_with_broker(self, hello: Hello) -> Problem | None:
        host, name = self.host, hello.name
        if name == host.place.name:
            return Problem("id", f"broker {name!r} is this process; two processes cannot have one id")
        if hello.digest != host.description.digest:
            return Problem("description", "its overlay or its options are not the same as here")
        if name not in host.place.children:
            return Problem("id", f"{name[:SHOWN_MAX]!r} is not below {host.place.name!r}")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            reason = f"another process is broker {name!r} and is connected; two processes cannot have one id"
            return Problem("id", reason, retry=True)
        return host.admit(name, hello.epoch, hello.process)

    def _problem_with_client(self, hello: Hello) -> Problem | None:
        host, name = self.host, hello.name
        if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            return Problem("name", f"names have 1 to {NAME_CHARACTERS_MAX} printable characters")
        if name in host.description.parents or name in (BROKER, APPLICATION):
            return Problem("name", f"{name!r} is not a name for a client")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            return Problem("name", f"another client is connected as {name!r}")
        if hello.epoch and not host.knows(name):
            reason = f"{host.place.name} has forgotten {name}, or has lost its journal"
            return Problem("forgotten", reason, retry=True)
        if present is None and self.clients >= host.clients_max:
            return Problem("too many clients", f"{self.clients} clients are connected already", retry=True)
        return None


class BrokerVisitor(Visitor):
    """A connection that a broker below, a client or an observer has made."""

    def __init__(self, listener: BrokerListener) -> None:
        super().__init__(listener, listener.throttle)
        self.process = ""
        self._listener = listener
        self._host = listener.host
        self._outlet: Outlet | None = None

    def take(self, body: bytes) -> None:
        try:
            if not self.role:
                self._introduce(decode_hello(body))
                return
            if self.role == "observer":
                raise RemoteError("an observer only asks")
            frame = OVERLAY.from_node(body) if self.role == "node" else OVERLAY.from_client(body)
        except UNREADABLE as error:
            raise RemoteError(f"a frame of {len(body)} bytes cannot be read: {error}") from None
        if type(frame) is Envelope:
            if frame.source != self.name or frame.target != self._host.place.name:
                raise RemoteError(
                    f"{self.name} speaks for {frame.source[:SHOWN_MAX]!r} to {frame.target[:SHOWN_MAX]!r}"
                )
            if self.role == "client":
                check_size(frame.message, self._host.payload_bytes_max)
            self._host.take(frame.source, frame.message)

    def ended(self, reason: str) -> None:
        if self.role == "observer":
            self._listener.observers -= 1
        elif self._outlet is not None:
            self._host.switchboard.unplug(self.name, self._outlet)
            if self._listener.connected.get(self.name) is self:
                del self._listener.connected[self.name]
        super().ended(reason)

    def _introduce(self, hello: Hello) -> None:
        listener, host = self._listener, self._host
        problem = listener.problem(hello)
        if problem is not None:
            self._turn_away(problem, hello)
            return
        self.has_said_hello()
        self.role, self.name, self.process = hello.role, hello.name, hello.process
        cluster, name = host.description.cluster, host.place.name
        if hello.role == "observer":
            listener.observers += 1
            self.post(Welcome(VERSION, cluster, [name], report=host.report()))
            return
        is_broker = hello.role == "node"
        self.stops_reading_when_full = not is_broker  # two alike would wait for each other
        most = FRAME_BYTES_MAX if is_broker else host.payload_bytes_max + FRAME_OVERHEAD_BYTES
        self._framing.body_bytes_max = most
        older = listener.connected.get(self.name)
        listener.connected[self.name] = self
        if older is not None:
            older.close("replaced", Refusal("replaced: there is a newer connection of the same name"))
        self.post(Welcome(VERSION, cluster, [name], most, host.epoch, host.process))
        self._outlet = self.carry
        host.switchboard.plug(self.name, self._outlet)
        logger.info("connected", extra={"who": self.name, "role": ROLES[self.role]})
        host.reached(self.name)

    def _turn_away(self, problem: Problem, hello: Hello) -> None:
        self._listener.refused[problem.kind] += 1
        extra = {"peer": self.peer, "who": hello.name[:SHOWN_MAX], "reason": problem.reason}
        logger.warning("not let in", extra=extra)
        report = b""
        if problem.kind == "description":
            report = self._host.report()
        elif problem.kind == "forgotten":
            report = FORGOTTEN
        self.close(problem.reason, Refusal(problem.reason, problem.retry, report))


def check_size(frame: Frame[object], most: int) -> None:
    """RemoteError: a client publishes more in one event than may be."""
    if isinstance(frame.body, Publish):
        size = event_bytes(frame.body.event.payload, frame.body.event.headers)
        if size > most:
            raise RemoteError(f"an event of {size} bytes, and {most} are the most")


class BrokerDialer(Dialer):
    """The connection to the broker above; the root makes none."""

    def __init__(self, host: Host, address: str, security: SecurityOptions, options: DialerOptions) -> None:
        self.host = host
        parent = host.place.parent
        super().__init__(
            host.switchboard,
            [Peer(parent, (address,))] if parent is not None else [],
            cluster=host.description.cluster,
            name=host.place.name,
            role="node",
            security=security,
            options=options,
            on_connect=host.reached,
            decoders=OVERLAY,
        )
        self.deliver = self._deliver

    def greeting(self) -> Hello:
        """In the present epoch, with what all brokers must be given alike."""
        hello, host = self.hello, self.host
        digest = host.description.digest
        return Hello(VERSION, hello.cluster, "node", hello.name, hello.token, host.epoch, host.process, digest)

    def welcomed(self, welcome: Welcome) -> None:
        for name in welcome.nodes:
            if name != self.host.place.parent:
                raise RemoteError(f"{name[:SHOWN_MAX]!r} answers, not {self.host.place.parent!r}")
            if (problem := self.host.admit(name, welcome.epoch, welcome.process)) is not None:
                raise RemoteError(problem.reason)

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

    def _deliver(self, source: Address, target: Address, message: Payload) -> None:
        self.host.take(source, message)


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
