"""A port that admits a connection only after it has identified itself: listening, accepting, TLS, bounds, closing.

The subclass decides what a connection must say and what it may do: `Listener` for sequencers (listener.py),
`SystemDoor` for peers and for brokers of an overlay (system_door.py).
"""

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from seriatim.model import Address, ConnectionFailed, InputError
from seriatim.protocols.machine import Payload
from seriatim.runtime.net.addresses import bound_address, listen_on, split_address
from seriatim.runtime.net.connection import Connection, Throttle, TransportOptions
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.wire import HELLO_BYTES_MAX, Envelope, Refusal, decode_hello

logger = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 64
ACCEPT_PAUSE_S = 0.5  # when the process has no file descriptors left
STOPPED = "the server stops"


class Problem(NamedTuple):
    """Why a connection is refused. `kind` is the name of the counter; `retry`: it may succeed later."""

    kind: str
    reason: str
    retry: bool = False


class Door(ABC):
    """Listens on one address or several. `strangers_max`: connections that have not said who they are; one more, and
    the oldest is closed. `sockets_max`: all connections."""

    def __init__(
        self,
        bind: str | Sequence[str],
        *,
        security: SecurityOptions | None,
        transport: TransportOptions,
        strangers_max: int,
        sockets_max: int,
    ) -> None:
        self.security = security if security is not None else SecurityOptions()
        self.transport = transport
        self.sockets_max = sockets_max
        self.addresses = [bind] if isinstance(bind, str) else list(bind)
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        for address in self.addresses:
            split_address("bind", address)  # a mistake shows here, not at the start
        if not self.addresses:
            raise InputError("bind", "no address to listen on", "give at least one host:port")
        self._strangers_max = strangers_max
        self._context: ssl.SSLContext | None = None
        self._all: set[Visitor] = set()  # those that are just being closed, too
        self.strangers: dict[Visitor, None] = {}  # in the order they came
        self._sockets: list[socket.socket] = []
        self._arriving: dict[asyncio.Task[None], socket.socket] = {}
        self._running = False

    @property
    def address(self) -> str:
        """The first address; after the start with the port that was given."""
        return self.addresses[0]

    async def start(self) -> None:
        """Listen. InputError: a file of `security` cannot be used. ConnectionFailed: the address cannot be used."""
        self._context = self.security.server_context()
        self._sockets = self._bind()
        self._running = True
        for listening in self._sockets:
            self._watch(listening)
        tls, token = self._context is not None, bool(self.security.token)
        logger.info("listening: addresses=%s tls=%s token=%s", ",".join(self.addresses), tls, token)

    async def stop(self) -> None:
        """Close all connections, in a bounded time."""
        if not self._running:
            return
        self._running = False
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        tasks = list(self._arriving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        visitors = list(self._all)
        for visitor in visitors:
            if visitor.open:
                visitor.close(STOPPED, Refusal(STOPPED, retry=True))
            else:
                visitor.abort(STOPPED)
        await asyncio.gather(*(visitor.wait_closed() for visitor in visitors))

    # ── for subclasses ────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def visitor(self) -> "Visitor":
        """The object for a new connection."""

    def came(self, visitor: "Visitor") -> None:
        """A connection is open and has not said who it is."""
        self._all.add(visitor)
        visitor.closed.add_done_callback(lambda _: self._all.discard(visitor))
        if not self._running:
            visitor.abort(STOPPED)
            return
        if len(self._all) > self.sockets_max:
            self.refused["too many sockets"] += 1
            visitor.abort("too many sockets")
            return
        self.strangers[visitor] = None
        if len(self.strangers) > self._strangers_max:
            oldest = next(iter(self.strangers))
            self.refused["too many strangers"] += 1
            oldest.abort("too many connections that do not say who they are")

    # ── accepting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _bind(self) -> list[socket.socket]:
        """Listen on all addresses, or on none."""
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

    def _watch(self, listening: socket.socket) -> None:
        if self._running:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept connections. Not a task: a cancelled task may lose the socket that it has just accepted."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # most likely there are no file descriptors left
                logger.error("cannot accept connections: reason=%s pause_s=%s", error, ACCEPT_PAUSE_S)
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE_S, self._watch, listening)
                return
            self.accepted += 1
            accepted.setblocking(False)
            if len(self._arriving) >= self._strangers_max:
                self.refused["too many strangers"] += 1
                accepted.close()
                continue
            task = loop.create_task(self._take_in(accepted))
            self._arriving[task] = accepted
            task.add_done_callback(self._arrived)

    async def _take_in(self, accepted: socket.socket) -> None:
        """Start a connection. The TLS handshake happens here, with a time limit."""
        transport = self.transport
        encrypted = self._context is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self.visitor,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=transport.hello_timeout_s if encrypted else None,
                ssl_shutdown_timeout=transport.close_timeout_s if encrypted else None,
            )
        except OSError as error:  # ssl.SSLError and timeouts are among them
            self.refused["tls"] += 1
            logger.info("handshake failed: reason=%s", str(error) or type(error).__name__)
            accepted.close()

    def _arrived(self, task: "asyncio.Task[None]") -> None:
        accepted = self._arriving.pop(task)
        if task.cancelled():  # perhaps before it began
            accepted.close()


class Visitor(Connection):
    """One connection to our port. Its first frame says who it is, within a time limit.

    `refusals_are`: the log level for refused connections.
    """

    refusals_are = logging.INFO

    def __init__(self, door: Door, throttle: Throttle | None) -> None:
        super().__init__(door.transport, decode_hello, body_bytes_max=HELLO_BYTES_MAX, throttle=throttle)
        self.role = ""
        self.name = ""
        self.stops_reading_when_full = True
        self._door = door
        self._hello_timer: asyncio.TimerHandle | None = None

    def begun(self) -> None:
        timeout_s = self._options.hello_timeout_s
        self._hello_timer = self._loop.call_later(timeout_s, self._too_late)
        self._door.came(self)

    def violated(self, reason: str) -> None:
        kind = "hello" if not self.role else self.role
        self._door.violations[kind] += 1
        logger.warning("protocol violated: peer=%s who=%s reason=%s", self.peer, self.name, reason)
        self.close(reason, Refusal(reason))

    def ended(self, reason: str) -> None:
        self.has_said_hello()
        if self.role:
            logger.info("disconnected: peer=%s role=%s who=%s reason=%s", self.peer, self.role, self.name, reason)

    def carry(self, source: Address, message: Payload) -> None:
        """Send to the other end. A switchboard is given this as its outlet."""
        self.post(Envelope(source, self.name, message))

    def has_said_hello(self) -> None:
        """The connection has said who it is: end the time limit."""
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._door.strangers.pop(self, None)

    def refuse(self, problem: Problem, role: str, who: str, report: bytes = b"") -> None:
        self._door.refused[problem.kind] += 1
        text = "connection refused: peer=%s role=%s who=%s reason=%s"
        logger.log(self.refusals_are, text, self.peer, role, who, problem.reason)
        self.close(problem.reason, Refusal(problem.reason, problem.retry, report))

    def _too_late(self) -> None:
        self._door.refused["no hello"] += 1
        reason = f"no hello within {self._options.hello_timeout_s:g} s"
        self.close(reason, Refusal(reason))
