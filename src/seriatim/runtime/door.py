"""A port that lets strangers in only after they have said who they are: listening, accepting, TLS, bounds, closing.

What somebody must say, and what it may do then, is for the subclass: `Listener` for sequencers (listener.py),
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
from seriatim.runtime.addresses import bound_address, listen_on, split_address
from seriatim.runtime.connection import Connection, Throttle, TransportOptions
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.wire import HELLO_BYTES_MAX, Envelope, Refusal

logger = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 64
ACCEPT_PAUSE_S = 0.5  # when the process has no file descriptors left
STOPPED = "the server stops"


class Problem(NamedTuple):
    """Why somebody is not let in. `kind` is what is counted; `retry`: it may be later."""

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
        self._strangers: dict[Visitor, None] = {}  # in the order they came
        self._sockets: list[socket.socket] = []
        self._arriving: dict[asyncio.Task[None], socket.socket] = {}
        self._running = False

    @property
    def address(self) -> str:
        """The first address; after the start with the port that was given."""
        return self.addresses[0]

    async def start(self) -> None:
        """Listen. InputError: the files of `security`; ConnectionFailed: the address cannot be used."""
        self._context = self.security.server_context()
        self._sockets = self._bind()
        self._running = True
        self.opened()
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
        self.closing()
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
    def opened(self) -> None:
        """The sockets are there; nobody is let in yet."""

    @abstractmethod
    def closing(self) -> None:
        """Nobody is let in any more."""

    @abstractmethod
    def visitor(self) -> "Visitor":
        """Somebody connects."""

    def came(self, visitor: "Visitor") -> None:
        """Somebody is connected and has not said who it is."""
        self._all.add(visitor)
        visitor.closed.add_done_callback(lambda _: self._all.discard(visitor))
        if not self._running:
            visitor.abort(STOPPED)
            return
        if len(self._all) > self.sockets_max:
            self.refused["too many sockets"] += 1
            visitor.abort("too many sockets")
            return
        self._strangers[visitor] = None
        if len(self._strangers) > self._strangers_max:
            oldest = next(iter(self._strangers))
            self.refused["too many strangers"] += 1
            oldest.abort("too many connections that do not say who they are")

    def no_stranger(self, visitor: "Visitor") -> None:
        """It has said who it is, or is gone."""
        self._strangers.pop(visitor, None)

    # ── accepting ─────────────────────────────────────────────────────────────────────────────────────────────────

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
            if len(self._arriving) >= self._strangers_max:
                self.refused["too many strangers"] += 1
                accepted.close()
                continue
            task = loop.create_task(self._take_in(accepted))
            self._arriving[task] = accepted
            task.add_done_callback(self._arrived)

    async def _take_in(self, accepted: socket.socket) -> None:
        """The handshake of TLS happens here, if there is one, within a bound."""
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
            logger.info("no connection", extra={"reason": str(error) or type(error).__name__})
            accepted.close()

    def _arrived(self, task: "asyncio.Task[None]") -> None:
        accepted = self._arriving.pop(task)
        if task.cancelled():  # perhaps before it began
            accepted.close()


class Visitor(Connection):
    """One connection of somebody else to our port. Its first frame says who it is, within a bound.

    `refusals_are`: how loud it is told in the log that somebody was not let in.
    """

    refusals_are = logging.INFO

    def __init__(self, door: Door, throttle: Throttle | None) -> None:
        super().__init__(door.transport, body_bytes_max=HELLO_BYTES_MAX, throttle=throttle)
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
        logger.warning("broke the protocol", extra={"peer": self.peer, "who": self.name, "reason": reason})
        self.close(reason, Refusal(reason))

    def ended(self, reason: str) -> None:
        self.has_said_hello()
        if self.role:
            extra = {"peer": self.peer, "role": self.role, "who": self.name, "reason": reason}
            logger.info("disconnected", extra=extra)

    def carry(self, source: Address, message: Payload) -> None:
        """To whoever is at the other end: what a switchboard is given as its outlet."""
        self.post(Envelope(source, self.name, message))

    def has_said_hello(self) -> None:
        """No need to wait for it any longer."""
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._door.no_stranger(self)

    def refuse(self, problem: Problem, role: str, who: str, report: bytes = b"") -> None:
        """It is not let in, and told why."""
        self._door.refused[problem.kind] += 1
        extra = {"peer": self.peer, "role": role, "who": who, "reason": problem.reason}
        logger.log(self.refusals_are, "not let in", extra=extra)
        self.close(problem.reason, Refusal(problem.reason, problem.retry, report))

    def _too_late(self) -> None:
        self._door.refused["no hello"] += 1
        reason = f"no hello within {self._options.hello_timeout_s:g} s"
        self.close(reason, Refusal(reason))
