"""The port of a process of a system (system.py): which connections it admits, and how they end.

Handshake: `Hello` and `Welcome` say version, cluster, name, epoch and process of either side, the digest of what they
were given, and the token of the role. A refused connection is told why; others are not affected. Observers get the
report of the process, and may send nothing else.
"""

import logging
from abc import abstractmethod
from typing import Any, Protocol

from seriatim.model import Address, RemoteError
from seriatim.runtime.net.connection import Throttle, TransportOptions
from seriatim.runtime.net.door import Door, Problem, Visitor
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Outlet, Switchboard
from seriatim.runtime.net.system import SystemDescription
from seriatim.runtime.net.wire import VERSION, Envelope, Hello, Ping, Refusal, Welcome

logger = logging.getLogger(__name__)

SHOWN_MAX = 100  # characters of what somebody else wrote, in a reason or the log
STRANGERS_MAX = 256
OBSERVERS_MAX = 64


class Host(Protocol):
    """The process behind a port, as its connections see it."""

    process: str
    switchboard: Switchboard

    @property
    def description(self) -> SystemDescription:
        """The description that the process was given."""

    @property
    def epoch(self) -> int:
        """The number of this life of the process."""

    def report(self) -> bytes:
        """The report for an observer."""


class SystemDoor(Door):
    """The port of one process: others of its system connect there, and observers. `kind`: what it is called;
    `others_max`: how many may be connected besides observers."""

    def __init__(
        self,
        host: Host,
        bind: str,
        *,
        kind: str,
        name: Address,
        security: SecurityOptions,
        transport: TransportOptions,
        others_max: int,
    ) -> None:
        super().__init__(
            bind,
            security=security,
            transport=transport,
            strangers_max=STRANGERS_MAX,
            sockets_max=2 * STRANGERS_MAX + OBSERVERS_MAX + others_max,
        )
        self.host = host
        self.kind = kind
        self.name = name
        self.connected: dict[Address, SystemVisitor] = {}
        self.observers = 0

    def problem(self, hello: Hello) -> Problem | None:
        """Why a connection is refused. Checks the token first: others learn nothing about the system."""
        if hello.version != VERSION:
            return Problem("version", f"it speaks version {hello.version}, and this {self.kind} {VERSION}")
        if (problem := self.security.problem_with(hello.role, hello.token)) is not None:
            return Problem("token", problem.replace("node", self.kind))
        if hello.role == "observer":
            if self.observers >= OBSERVERS_MAX:
                return Problem("observers", f"{self.observers} observers are connected already", retry=True)
            return None
        if (problem_with_role := self.problem_with_role(hello)) is not None:
            return problem_with_role
        cluster = self.host.description.cluster
        if hello.cluster != cluster:
            return Problem("cluster", f"this is {cluster!r}, not {hello.cluster[:SHOWN_MAX]!r}")
        return self.problem_with_other(hello)

    @abstractmethod
    def problem_with_role(self, hello: Hello) -> Problem | None:
        """Why this role may not connect here; None: it may."""

    @abstractmethod
    def problem_with_other(self, hello: Hello) -> Problem | None:
        """Why this process of the system may not connect; None: it may."""

    def report_for(self, problem: Problem) -> bytes:
        """The report that is sent with a refusal, if the descriptions differ."""
        return self.host.report() if problem.kind == "description" else b""


class SystemVisitor(Visitor):
    """A connection that another process of the system, or an observer, has made."""

    refusals_are = logging.WARNING  # somebody wrote two files that should be one

    def __init__(self, door: SystemDoor, throttle: Throttle | None) -> None:
        super().__init__(door, throttle)
        self.process = ""
        self._system = door
        self._outlet: Outlet | None = None

    @abstractmethod
    def prepare(self, hello: Hello) -> int:
        """A process of the system was admitted. Returns the largest frame that it may send."""

    @abstractmethod
    def settled(self, hello: Hello) -> None:
        """The process is connected from now on."""

    @abstractmethod
    def decode(self, body: bytes) -> Ping | Envelope[Any] | Welcome | Refusal:
        """Decode a frame of a process of the system."""

    @abstractmethod
    def turned_away(self, refusal: Refusal) -> None:
        """Called when the process refuses us although it has connected to us."""

    @abstractmethod
    def heard(self, envelope: Envelope[Any]) -> None:
        """Take a message that the process sent in its own name. RemoteError: it must not send this."""

    def take(self, frame: Hello | Ping | Envelope[Any] | Welcome | Refusal) -> None:
        if type(frame) is Envelope:
            if frame.source != self.name:
                raise RemoteError(f"{self.name} speaks for {frame.source[:SHOWN_MAX]!r}")
            self.heard(frame)
        elif type(frame) is Hello:
            self._introduce(frame)
        elif type(frame) is Refusal:
            self.turned_away(frame)
            self.close(f"turned away: {frame.reason[:SHOWN_MAX]}")
        elif type(frame) is Welcome:
            raise RemoteError("a welcome came, which only the side that accepts a connection may send")

    def ended(self, reason: str) -> None:
        door = self._system
        if self.role == "observer":
            door.observers -= 1
        elif self._outlet is not None:
            door.host.switchboard.unplug(self.name, self._outlet)
            if door.connected.get(self.name) is self:
                del door.connected[self.name]
        super().ended(reason)

    def _introduce(self, hello: Hello) -> None:
        door, host = self._system, self._system.host
        problem = door.problem(hello)
        if problem is not None:
            self.refuse(problem, hello.role, hello.name[:SHOWN_MAX], door.report_for(problem))
            return
        self.has_said_hello()
        self.role, self.name, self.process = hello.role, hello.name, hello.process
        cluster = host.description.cluster
        if hello.role == "observer":
            door.observers += 1
            self._read = _refuse_more
            self.post(Welcome(VERSION, cluster, [door.name], report=host.report()))
            return
        most = self._framing.body_bytes_max = self.prepare(hello)
        self._read = self.decode
        older = door.connected.get(self.name)
        door.connected[self.name] = self
        if older is not None:
            older.close("replaced", Refusal("replaced: there is a newer connection of the same name"))
        self.post(Welcome(VERSION, cluster, [door.name], most, host.epoch, host.process))
        self._outlet = self.carry
        host.switchboard.plug(self.name, self._outlet)
        logger.info("connected: peer=%s role=%s who=%s epoch=%s", self.peer, self.role, self.name, hello.epoch)
        self.settled(hello)


def _refuse_more(body: bytes) -> Ping:
    raise RemoteError("an observer may send only its hello")
