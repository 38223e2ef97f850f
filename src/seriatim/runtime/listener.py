"""The port of a sequencer server: lets clients and neighbouring nodes in, and passes what they say to the nodes here.

Whoever connects must say who it is within a bound, show the token of its role, and then speak for itself only: a client
for its name and `name/...`, a node for its own name and to its neighbours. Everything else closes that connection, with
a reason in the log and a count, and harms nobody else.

The nodes that run here are the machines attached to the switchboard that the tree knows. When they change, everybody
connected is told; with none left, everybody is sent away to try elsewhere.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from seriatim.model import APPLICATION, BROKER, Address, ConnectionFailed, InputError, Node, RemoteError
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.runtime.addresses import bound_address, listen_on, split_address
from seriatim.runtime.connection import Connection, Throttle, TransportOptions
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.switchboard import Outlet, Switchboard
from seriatim.runtime.wire import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    UNREADABLE,
    VERSION,
    Envelope,
    Hello,
    Refusal,
    Welcome,
    decode_from_client,
    decode_from_node,
    decode_hello,
)

logger = logging.getLogger(__name__)

NAME_CHARACTERS_MAX = 256
ADDRESS_CHARACTERS_MAX = 512
SHOWN_MAX = 100  # characters of what somebody else wrote, in a reason or the log
ACCEPTED_AT_ONCE = 64
ACCEPT_PAUSE_S = 0.5  # when the process has no file descriptors left


class ListenerOptions(Struct, frozen=True, kw_only=True):
    """How much others may ask of a server."""

    clients_max: int = 4_096
    """Connections of clients. Nodes are bounded by the tree."""

    strangers_max: int = 256
    """Connections that have not said who they are; one more, and the oldest is closed."""

    addresses_max: int = 1_024
    """Source addresses one client may use on a connection."""

    client_frame_bytes_max: int = 1024 * 1024
    """Largest frame a client may send."""

    backlog_max: int = 20_000
    """With more than this many messages waiting, nothing is read."""

    transport: TransportOptions = TransportOptions()

    def __post_init__(self) -> None:
        for name in ("clients_max", "strangers_max", "addresses_max", "client_frame_bytes_max", "backlog_max"):
            if getattr(self, name) < 1:
                raise InputError(name, f"{getattr(self, name)} is below 1", "give a number above 0")


class Listener:
    """Listens on one address or several. Of one switchboard there is one listener: it knows who speaks for whom.

    `backlog`: what waits in the nodes here besides what the switchboard has queued.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        tree: SequencingTree,
        *,
        cluster: str,
        bind: str | Sequence[str] = "127.0.0.1:0",
        security: SecurityOptions | None = None,
        options: ListenerOptions | None = None,
        backlog: Callable[[], int] | None = None,
    ) -> None:
        self.switchboard = switchboard
        self.tree = tree
        self.cluster = cluster
        self.security = security if security is not None else SecurityOptions()
        self.options = options if options is not None else ListenerOptions()
        self.nodes: frozenset[Node] = frozenset()
        self.addresses = [bind] if isinstance(bind, str) else list(bind)
        self.accepted = 0
        self.received = 0  # frames of connections that are closed; `status` adds the open ones
        self.sent = 0
        self.refused: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.guests: set[Guest] = set()
        self.owners: dict[Address, Guest] = {}
        self.throttle = Throttle(
            lambda: switchboard.queued + (backlog() if backlog is not None else 0), self.options.backlog_max
        )
        self.neighbours_of = {node: frozenset(tree.neighbours(node)) for node in tree.parents}
        self.clients = 0
        for address in self.addresses:
            split_address("bind", address)  # a mistake shows here, not at the start
        if not self.addresses:
            raise InputError("bind", "no address to listen on", "give at least one host:port")
        self._epochs: dict[Node, int] = {}  # the latest that each node has connected with
        self._context: ssl.SSLContext | None = None
        self._all: set[Guest] = set()  # those that are just being closed, too
        self._strangers: dict[Guest, None] = {}  # in the order they came
        self._sockets: list[socket.socket] = []
        self._arriving: dict[asyncio.Task[None], socket.socket] = {}
        self._known = self.neighbours_of.keys()
        self.sockets_max = self.options.clients_max + 2 * self.options.strangers_max + len(self._known)
        self._running = False

    @property
    def address(self) -> str:
        """The first address; after the start with the port that was given."""
        return self.addresses[0]

    @property
    def neighbours(self) -> list[Node]:
        """Nodes that are connected."""
        return sorted(guest.name for guest in self.guests if guest.role == "node")

    async def start(self) -> None:
        """Listen. InputError: the files of `security`; ConnectionFailed: the address cannot be used."""
        self._context = self.security.server_context()
        self._sockets = self._bind()
        self._running = True
        self.switchboard.watch(self._nodes_changed)
        self._nodes_changed()
        for listening in self._sockets:
            self._watch(listening)
        extra = {
            "addresses": ", ".join(self.addresses),
            "tls": self._context is not None,
            "token": bool(self.security.token),
        }
        logger.info("listening", extra=extra)

    async def stop(self) -> None:
        """Send everybody away, in a bounded time."""
        if not self._running:
            return
        self._running = False
        self.switchboard.unwatch(self._nodes_changed)
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        tasks = list(self._arriving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        guests = list(self._all)
        for guest in guests:
            if guest.open:
                guest.close("the server stops", Refusal("the server stops", retry=True))
            else:
                guest.abort("the server stops")
        await asyncio.gather(*(guest.wait_closed() for guest in guests))

    def _bind(self) -> list[socket.socket]:
        """All addresses, or none."""
        sockets: list[socket.socket] = []
        addresses: list[str] = []
        try:
            for address in self.addresses:
                made = listen_on("bind", address)
                sockets += made
                addresses.append(bound_address(address, made))
        except ConnectionFailed:
            for made_before in sockets:
                made_before.close()
            raise
        self.addresses = addresses
        return sockets

    # ── accepting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, listening: socket.socket) -> None:
        if self._running:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Somebody is at the door. Not a task: one that is cancelled may lose the socket it has just accepted."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # most likely there are no file descriptors left
                logger.error("cannot accept", extra={"reason": str(error), "pause_s": ACCEPT_PAUSE_S})
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE_S, self._watch, listening)
                return
            self.accepted += 1
            accepted.setblocking(False)
            if len(self._arriving) >= self.options.strangers_max:
                self.refused["too many strangers"] += 1
                accepted.close()
                continue
            task = loop.create_task(self._take_in(accepted))
            self._arriving[task] = accepted
            task.add_done_callback(self._arrived)

    async def _take_in(self, accepted: socket.socket) -> None:
        """The handshake of TLS happens here, if there is one, within a bound."""
        transport = self.options.transport
        encrypted = self._context is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(Guest, self),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=transport.hello_timeout_s if encrypted else None,
                ssl_shutdown_timeout=transport.close_timeout_s if encrypted else None,
            )
        except OSError as error:  # ssl.SSLError and timeouts are among them
            self.refused["tls"] += 1
            logger.info("no connection", extra={"reason": str(error) or type(error).__name__})
            accepted.close()

    def _arrived(self, task: "asyncio.Task[None]") -> None:
        accepted = self._arriving.pop(task)
        if task.cancelled():  # perhaps before it began
            accepted.close()

    def came(self, guest: "Guest") -> None:
        """Somebody is connected and has not said who it is."""
        self._all.add(guest)
        guest.closed.add_done_callback(lambda _: self._all.discard(guest))
        if not self._running:
            guest.abort("the server stops")
            return
        if len(self._all) > self.sockets_max:
            self.refused["too many sockets"] += 1
            guest.abort("too many sockets")
            return
        self._strangers[guest] = None
        if len(self._strangers) > self.options.strangers_max:
            oldest = next(iter(self._strangers))
            self.refused["too many strangers"] += 1
            oldest.abort("too many connections that do not say who they are")

    def introduce(self, guest: "Guest", hello: Hello) -> "Problem | None":
        """Let it in, unless something speaks against it."""
        if (problem := self._problem(hello)) is not None:
            self.refused[problem.kind] += 1
            return problem
        if hello.role == "node":
            self._epochs[hello.name] = hello.epoch
            if (older := self.owners.get(hello.name)) is not None:
                older.replaced()
        else:
            self.clients += 1
        self._strangers.pop(guest, None)
        self.guests.add(guest)
        return None

    def left(self, guest: "Guest") -> None:
        """It is gone."""
        self._strangers.pop(guest, None)
        self.guests.discard(guest)
        self.clients -= guest.role == "client"
        self.received += guest.received
        self.sent += guest.sent

    # ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _problem(self, hello: Hello) -> "Problem | None":
        """Why somebody may not come in. The token first: others learn nothing about the cluster."""
        name = hello.name
        if hello.version != VERSION:
            return Problem("version", f"it speaks version {hello.version}, and this server {VERSION}")
        if (problem := self.security.problem_with(hello.role, hello.token)) is not None:
            return Problem("token", problem)
        if hello.cluster != self.cluster:
            return Problem("cluster", f"this is cluster {self.cluster!r}, not {hello.cluster[:SHOWN_MAX]!r}")
        if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            return Problem("name", f"names have 1 to {NAME_CHARACTERS_MAX} printable characters")
        if hello.role == "node":
            return self._problem_with_node(name, hello.epoch)
        if name in self._known or name in (BROKER, APPLICATION):
            return Problem("name", f"{name!r} is not a name for a client")
        if not self.nodes:
            return Problem("standby", "no node is active here", retry=True)
        if self.clients >= self.options.clients_max:
            return Problem("too many clients", f"{self.clients} clients are connected already", retry=True)
        return None

    def _problem_with_node(self, name: Node, epoch: int) -> "Problem | None":
        if name not in self._known:
            return Problem("name", f"there is no node {name[:SHOWN_MAX]!r} in the tree here")
        if name in self.nodes or (self.switchboard.reaches(name) and name not in self.owners):
            return Problem("name", f"node {name!r} runs here", retry=True)
        if epoch < self._epochs.get(name, 0):
            return Problem("epoch", f"another process runs node {name!r} now, in epoch {self._epochs[name]}")
        if self.nodes.isdisjoint(self.neighbours_of[name]):
            return Problem("standby", f"no neighbour of {name!r} is active here", retry=True)
        return None

    def claim(self, guest: "Guest", address: Address) -> None:
        """`address` belongs to this connection from now on. RemoteError: it must not."""
        if address in self._known or address in (BROKER, APPLICATION) or len(address) > ADDRESS_CHARACTERS_MAX:
            raise RemoteError(f"{address[:SHOWN_MAX]!r} is not an address of a client")
        older = self.owners.get(address)
        if older is not None:
            older.replaced()
        elif self.switchboard.reaches(address):
            raise RemoteError(f"{address!r} belongs to this process")

    def _nodes_changed(self) -> None:
        nodes = frozenset(self._known & set(self.switchboard.attached))
        if nodes == self.nodes:
            return
        self.nodes = nodes
        for guest in list(self.guests):
            if nodes:
                guest.welcome()
            else:
                guest.close("no node is active here any more", Refusal("no node is active here any more", retry=True))


class Problem(NamedTuple):
    """Why somebody is not let in. `kind` is what is counted; `retry`: it may be later."""

    kind: str
    reason: str
    retry: bool = False


class Guest(Connection):
    """One connection of somebody else to our port."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener.options.transport, body_bytes_max=HELLO_BYTES_MAX, throttle=listener.throttle)
        self.role = ""
        self.name: Address = ""
        self.stops_reading_when_full = True
        self._listener = listener
        self._prefix = ""
        self._outlets: dict[Address, Outlet] = {}
        self._deliver = listener.switchboard.deliver
        self._hello_timer: asyncio.TimerHandle | None = None

    def begun(self) -> None:
        timeout_s = self._options.hello_timeout_s
        self._hello_timer = self._loop.call_later(timeout_s, self._too_late)
        self._listener.came(self)

    def take(self, body: bytes) -> None:
        role = self.role
        try:
            if role == "client":
                frame = decode_from_client(body)
            elif role == "node":
                self._from_node(body)
                return
            else:
                self._introduce(decode_hello(body))
                return
        except UNREADABLE as error:
            raise RemoteError(f"a frame of {len(body)} bytes cannot be read: {error}") from None
        if type(frame) is Envelope:
            source = frame.source
            if source not in self._outlets:
                self._claim(source)
            if frame.target not in self._listener.nodes:
                self._misdirected(frame.target)
                return
            self._deliver(source, frame.target, frame.message)

    def violated(self, reason: str) -> None:
        kind = "hello" if not self.role else self.role
        self._listener.violations[kind] += 1
        logger.warning("broke the protocol", extra={"peer": self.peer, "who": self.name, "reason": reason})
        self.close(reason, Refusal(reason))

    def welcome(self) -> None:
        """Tell it which nodes run here now."""
        listener = self._listener
        self.post(Welcome(VERSION, listener.cluster, sorted(listener.nodes), self._framing.body_bytes_max))

    def replaced(self) -> None:
        """Somebody newer speaks for one of our addresses."""
        self.close("replaced", Refusal("replaced: a newer connection uses the same address"))

    def ended(self, reason: str) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        for address, outlet in self._outlets.items():
            self._listener.switchboard.unplug(address, outlet)
            if self._listener.owners.get(address) is self:
                del self._listener.owners[address]
        self._outlets.clear()
        self._listener.left(self)
        if self.role:
            extra = {"peer": self.peer, "role": self.role, "who": self.name, "reason": reason}
            logger.info("disconnected", extra=extra)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _introduce(self, hello: Hello) -> None:
        listener = self._listener
        if (problem := listener.introduce(self, hello)) is not None:
            extra = {"peer": self.peer, "role": hello.role, "who": hello.name[:SHOWN_MAX], "reason": problem.reason}
            logger.info("not let in", extra=extra)
            self.close(problem.reason, Refusal(problem.reason, problem.retry))
            return
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self.role, self.name, self._prefix = hello.role, hello.name, hello.name + "/"
        if hello.role == "node":
            self._framing.body_bytes_max = FRAME_BYTES_MAX
            self._plug(hello.name)
        else:
            self._framing.body_bytes_max = listener.options.client_frame_bytes_max
        self.welcome()
        logger.info("connected", extra={"peer": self.peer, "role": self.role, "who": self.name})

    def _from_node(self, body: bytes) -> None:
        frame = decode_from_node(body)
        if type(frame) is Envelope:
            if frame.source != self.name:
                raise RemoteError(f"node {self.name!r} speaks for {frame.source[:SHOWN_MAX]!r}")
            if frame.target not in self._listener.nodes:
                self._misdirected(frame.target)
            elif frame.target not in self._listener.neighbours_of[self.name]:
                raise RemoteError(f"node {self.name!r} speaks to {frame.target!r}, which is not its neighbour")
            else:
                self._deliver(frame.source, frame.target, frame.message)

    def _claim(self, source: Address) -> None:
        if source != self.name and not source.startswith(self._prefix):
            raise RemoteError(f"client {self.name!r} speaks for {source[:SHOWN_MAX]!r}")
        if len(self._outlets) >= self._listener.options.addresses_max:
            raise RemoteError(f"more than {self._listener.options.addresses_max} addresses on one connection")
        self._listener.claim(self, source)
        self._plug(source)

    def _plug(self, address: Address) -> None:
        def outlet(source: Address, message: Payload) -> None:
            self.post(Envelope(source, address, message))

        self._outlets[address] = outlet
        self._listener.owners[address] = self
        self._listener.switchboard.plug(address, outlet)

    def _misdirected(self, target: Address) -> None:
        """A node that ran here a moment ago is a reason to look elsewhere; anything else is a violation."""
        if target not in self._listener.tree.parents:
            raise RemoteError(f"{target[:SHOWN_MAX]!r} is not a node")
        reason = f"node {target!r} does not run here"
        self._listener.refused["elsewhere"] += 1
        self.close(reason, Refusal(reason, retry=True))

    def _too_late(self) -> None:
        self._listener.refused["no hello"] += 1
        reason = f"no hello within {self._options.hello_timeout_s:g} s"
        self.close(reason, Refusal(reason))
