"""One process of a system of equal processes, a peer or a broker: its machine, its journal, its connections.

All processes of a system are given the same file, and connect through runtime/net/system_door.py. This is the part
that peers and brokers share.
"""

import asyncio
import logging
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from seriatim.live.founding import AnyFounded, AnyMachine
from seriatim.live.host import MachineHost
from seriatim.model import Address, Behind, Closed, RemoteError, SeriatimError, Taken
from seriatim.protocols.machine import Payload
from seriatim.runtime import Driver, FileJournal, Journal, Switchboard
from seriatim.runtime.net.connection import Throttle, TransportOptions
from seriatim.runtime.net.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.system import explain_refusal
from seriatim.runtime.net.system_door import SHOWN_MAX, SystemDoor, SystemVisitor
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, VERSION, Decoders, Envelope, Hello, Ping, Refusal, Welcome
from seriatim.server import health
from seriatim.server.health import Ledger, Trouble
from seriatim.server.schemas import SystemFile

logger = logging.getLogger(__name__)

# Retry soon, because a process that comes back cannot always connect to the others itself.
DIALING = DialerOptions(retry_max_s=1.0, refused_s=5.0)
WAITS_SHOWN_MAX = 100
APPEND_S = 5.0  # a journal that takes longer for one append is a trouble

# In refusals: another process has the id, and is connected; a later epoch of it was heard.
TAKEN, BEHIND = b"taken", b"behind"


class SystemHost(MachineHost[AnyMachine, AnyFounded]):
    """Start it, and stop it at the end. When it cannot continue, `failed` is done and holds a SeriatimError."""

    admits: ClassVar[str]  # who may connect if no token is required
    decoders: ClassVar[Decoders]  # how the frames of the others are read
    fix: ClassVar[str]  # for one that is behind
    taken_s: float  # after so long the earlier process of an id is known to be dead, if it is

    def __init__(
        self,
        config: SystemFile,
        name: object,
        node: Address,
        journal: Journal | None,
    ) -> None:
        super().__init__(
            node,
            switchboard=Switchboard(),
            journal=journal if journal is not None else FileJournal(config.journal(name)),
        )
        self.description = config.description
        self.process = secrets.token_hex(8)
        self.security = config.load_security()
        self.at = config.places[name]
        self._shown = f"{config.kind} {name}"
        self._ledger = Ledger(node)
        self._listener: SystemListener | None = None
        self._dialer: SystemDialer | None = None
        self._taken_since: float | None = None

    @abstractmethod
    def connections(self, driver: Driver) -> "tuple[SystemListener, SystemDialer]":
        """The port, and the connections to others; neither is open yet."""

    @abstractmethod
    def admit(self, name: Address, epoch: int, process: str) -> Problem | None:
        """A process claims to be this one, in this epoch. None: it is accepted."""

    def heard_of(self, names: list[Address]) -> int:
        """The latest epoch of the only one of these; 0: of several, or nothing is known."""
        return 0

    def refused(self, refusal: Refusal) -> None:
        """Called when another process says that this one is not the only one, or is behind (TAKEN, BEHIND).

        A process that does not look whether its earlier life has ended may say so for a while.
        """
        if refusal.report == BEHIND:
            self.fail(Behind(f"{self._shown} has stopped: {refusal.reason}. {self.fix}"))
            return
        now = asyncio.get_running_loop().time()
        self._taken_since = now if self._taken_since is None else self._taken_since
        if now - self._taken_since > self.taken_s:
            fix = "Stop one of them; each needs an id of its own"
            self.fail(Taken(f"{self._shown} has stopped: {refusal.reason}. {fix}"))

    def turned_away(self, by: Address) -> None:
        """Called when a process refuses the connection because another process has our id. It is alive, but not
        connected."""

    @abstractmethod
    def met(self, name: Address, epoch: int) -> None:
        """Called when a connection to this process has been made. `epoch`: its epoch."""

    @abstractmethod
    def take(self, source: Address, message: Any) -> None:
        """Handle a message from another process. RemoteError: the message is not allowed."""

    @abstractmethod
    def difference(self, report: bytes) -> str:
        """How the file of another process differs from ours, by its report."""

    @abstractmethod
    def report(self) -> bytes:
        """The report for observers."""

    async def serve(self, driver: Driver) -> None:
        """ConnectionFailed: the port cannot be used."""
        self._listener, self._dialer = self.connections(driver)
        if self.at.is_exposed(self.security):
            text = "port is open to every machine: node=%s address=%s admits=%s fix=%s"
            logger.warning(text, self.node, self.at.address, self.admits, "set a token_file")
        driver.start()
        await driver.settled()
        await self._listener.start()
        self._dialer.start()

    def send(self, source: Address, target: Address, message: Payload) -> None:
        self.switchboard.send(source, target, message)

    async def disconnect(self) -> None:
        if self._dialer is not None:
            await self._dialer.stop()
        if self._listener is not None:
            await self._listener.stop()

    def fail(self, error: BaseException) -> None:
        super().fail(error if isinstance(error, SeriatimError) else Closed(f"{self._shown} broke: {error!r}"))

    @property
    def address(self) -> str:
        assert self._listener is not None, "start it first"
        return self._listener.address

    @property
    def refusals(self) -> dict[str, int]:
        """How many connections were refused or closed, by reason."""
        return {**self._listener.refused, **self._listener.violations} if self._listener is not None else {}

    def unreached(self) -> list[str]:
        """The processes it could not connect to, and why."""
        problems = self._dialer.problems() if self._dialer is not None else {}
        return [f"{node} is not connected: {story}" for node, story in problems.items()]

    @abstractmethod
    def explain(self) -> list[str]:
        """What waits for what, and which processes cannot be reached."""

    @abstractmethod
    def missing(self) -> Iterable[Address]:
        """The processes without which this one cannot do its work, and which are not connected."""

    def problems(self) -> list[health.Problem]:
        """The current problems, and how long each has lasted."""
        return self._ledger.update(self.troubles())

    def troubles(self) -> Iterator[Trouble]:
        if self.failed.done():
            yield Trouble("failed", "", f"has failed: {self.failed.result()}")
            return
        if self._driver is None or self._dialer is None:
            yield Trouble("starting", "", "is starting")
            return
        if (age_s := self._driver.appending_s) > APPEND_S:
            reason = f"the journal does not accept records: {self._driver.backlog:,} steps wait for it"
            yield Trouble("journal", "", reason, age_s)
        tried = self._dialer.problems()
        for name in self.missing():
            why = f"tried {tried[name]}" if name in tried else "it has not dialed"
            yield Trouble("link", name, f"{name} is not connected: {why}")

    def waits(self) -> dict[str, Any]:
        """What waits, shortened to fit into a report."""
        waits = self.explain()
        return {
            "waits": waits[:WAITS_SHOWN_MAX],
            "left_out": max(0, len(waits) - WAITS_SHOWN_MAX),
            "problems": [each.sentence for each in self.problems()],
        }


class SystemListener(SystemDoor):
    """Where other processes of the system, and observers, connect."""

    host: SystemHost[Any, Any]

    def __init__(self, host: SystemHost[Any, Any], others_max: int, throttle: Throttle | None = None) -> None:
        super().__init__(
            host,
            host.at.bind or host.at.address,
            kind=host.kind,
            name=host.node,
            security=host.security,
            transport=TransportOptions(),
            others_max=others_max,
        )
        self.throttle = throttle

    def visitor(self) -> "SystemGuest":
        return SystemGuest(self)

    def report_for(self, problem: Problem) -> bytes:
        if problem.kind == "id" and problem.retry:
            return TAKEN
        return BEHIND if problem.kind == "epoch" else super().report_for(problem)


class SystemGuest(SystemVisitor):
    """A connection that another process of the system, or an observer, has made."""

    def __init__(self, listener: SystemListener) -> None:
        super().__init__(listener, listener.throttle)
        self._host = listener.host

    def prepare(self, hello: Hello) -> int:
        self.stops_reading_when_full = False  # both sides are equal: if both stopped, each would wait for the other
        return FRAME_BYTES_MAX

    def settled(self, hello: Hello) -> None:
        self._host.met(self.name, hello.epoch)

    def decode(self, body: bytes) -> Ping | Envelope[Any] | Welcome | Refusal:
        decoders = self._host.decoders
        return decoders.from_client(body) if self.role == "client" else decoders.for_node(body)

    def turned_away(self, refusal: Refusal) -> None:
        self._host.turned_away(self.name)

    def heard(self, envelope: Envelope[Any]) -> None:
        self._host.take(envelope.source, envelope.message)


class SystemDialer(Dialer):
    """The connections that one process makes to others of its system."""

    def __init__(self, host: SystemHost[Any, Any], peers: list[Peer], role: Literal["node", "peer"]) -> None:
        super().__init__(
            host.switchboard,
            peers,
            cluster=host.description.cluster,
            name=host.node,
            role=role,
            security=host.security,
            options=DIALING,
            decoders=host.decoders,
            on_connect=lambda node: host.met(node, self._epochs[node]),
        )
        self._host = host
        self._epochs: dict[Address, int] = {}
        self._known = {peer.node for peer in peers}
        self.deliver = self._deliver

    def greeting(self) -> Hello:
        """The hello, with the present epoch and the digest of the shared configuration."""
        hello, host = self.hello, self._host
        digest, heard = host.description.digest, host.heard_of([*self._known])
        return Hello(
            VERSION, hello.cluster, hello.role, hello.name, hello.token, host.epoch, host.process, digest, heard
        )

    def welcomed(self, welcome: Welcome) -> Refusal | None:
        for name in welcome.nodes:
            if name == self._host.node:
                raise RemoteError(f"{name} answers, which is this process; two processes cannot have the same id")
            if name not in self._known:
                raise RemoteError(f"{name[:SHOWN_MAX]!r} answers, which is not one of those to connect to here")
            if (problem := self._host.admit(name, welcome.epoch, welcome.process)) is not None:
                return Refusal(problem.reason, problem.retry)
            self._epochs[name] = welcome.epoch
        return None

    def refusal(self, refusal: Refusal, address: str) -> str:
        """The reason of a refusal; names the difference if the configurations differ."""
        if refusal.report in (TAKEN, BEHIND):
            for name in self._known:
                if address in self._peers[name].addresses:
                    self._host.turned_away(name)
            self._host.refused(refusal)
            return refusal.reason
        return explain_refusal(refusal, self._host.difference)

    def _deliver(self, source: Address, target: Address, message: Payload) -> None:
        self._host.take(source, message)
