"""Connections to the nodes that others run: a client's to the sequencers, and a node's to its parent.

For each node there is a list of addresses, several where standbys may take over. Connections are shared: one per
address, whatever nodes are reached through it. A server says which nodes run there, and says it again when that
changes; a node is *connected* while some open connection says so. Until then its addresses are tried in turn, with
growing pauses. Nothing is queued for a node that is not connected: machines repeat unanswered messages, and
`on_connect` tells them when to do so.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from seriatim.model import Address, ConnectionFailed, InputError, Node
from seriatim.protocols.machine import Payload
from seriatim.runtime.net.addresses import split_address
from seriatim.runtime.net.connection import Connection, Throttle, TransportOptions, check_positive
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Outlet, Switchboard
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, VERSION, Decoders, Envelope, Hello, Ping, Refusal, Welcome

logger = logging.getLogger(__name__)

Decode: TypeAlias = Callable[[bytes], "Ping | Envelope[Any] | Welcome | Refusal"]
Deliver: TypeAlias = Callable[[Address, Address, Payload], None]  # source, target, message


class Peer(Struct, frozen=True):
    """A node of another process, and where it may run."""

    node: Node
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.addresses:
            raise InputError(f"addresses of node {self.node!r}", "no address was given", "give at least one host:port")
        for address in self.addresses:
            split_address(f"addresses of node {self.node!r}", address)


class DialerOptions(Struct, frozen=True, kw_only=True):
    """When to try again.

    The pause is `retry_min_s` after the first failure, and each further one doubles it, up to `retry_max_s`. The real
    pause is half of that or more, at random. `refused_s`: how long an address is left alone after a refusal that will
    not change by itself: wrong token, cluster or version.
    """

    retry_min_s: float = 0.05
    retry_max_s: float = 5.0  # a connection that did not last this long counts as a failure
    refused_s: float = 30.0
    transport: TransportOptions = TransportOptions()

    def __post_init__(self) -> None:
        check_positive(self, "retry_min_s", "retry_max_s", "refused_s")


class Dialer:
    """Keeps the nodes of `peers` plugged into the switchboard while they can be reached.

    `name`: who connects. In the role "client", all its addresses here must be the name or begin with `name/`; in the
    role "node" it is the node, in its present `epoch`. `on_connect(node)` must not block and must not raise.

    A subclass may say who we are at each connection (`greeting`), check the server that answers (`welcomed`), and
    explain why we are not let in (`refusal`).
    """

    def __init__(
        self,
        switchboard: Switchboard,
        peers: Iterable[Peer],
        *,
        cluster: str,
        name: Address,
        decoders: Decoders,
        role: Literal["client", "node", "peer"] = "client",
        epoch: int = 0,
        security: SecurityOptions | None = None,
        options: DialerOptions | None = None,
        throttle: Throttle | None = None,
        on_connect: Callable[[Node], None] | None = None,
    ) -> None:
        security = security if security is not None else SecurityOptions()
        self.switchboard = switchboard
        self.options = options if options is not None else DialerOptions()
        self.throttle = throttle
        self.hello = Hello(VERSION, cluster, role, name, security.token_of(role), epoch)
        self.context = security.client_context()
        self.decode: Decode = decoders.for_client if role == "client" else decoders.for_node
        self.deliver: Deliver = switchboard.deliver  # may raise RemoteError, which ends the connection
        self._peers = {peer.node: peer for peer in peers}
        self._on_connect = on_connect
        self._source = name if role == "node" else None  # whose messages alone go through these connections
        self._lines: dict[str, Line] = {}
        self._searches: dict[Node, Search] = {}
        self._plugged: dict[Node, tuple[Dialed, Outlet]] = {}
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        self._searches = {node: Search(self, peer) for node, peer in self._peers.items()}

    def change(self, peers: Iterable[Peer]) -> None:
        """Connect to these nodes at these addresses from now on. Connections that still fit are kept."""
        wanted = {peer.node: peer for peer in peers}
        for node in [node for node in self._peers if node not in wanted]:
            self._unplug(node)
            self._end_search(node)
        changed = {node for node, peer in wanted.items() if self._peers.get(node) != peer}
        self._peers = wanted
        for node in sorted(changed) if self._is_started else ():
            self._end_search(node)
            self._searches[node] = Search(self, wanted[node])
            if node in self._plugged:
                self._searches[node].got()
        used = {address for peer in wanted.values() for address in peer.addresses}
        for address, line in list(self._lines.items()):
            if address not in used:
                del self._lines[address]
                if line.connection is not None:
                    line.connection.close("no node is looked for there any more")
        self.refresh()

    def _end_search(self, node: Node) -> None:
        if (search := self._searches.pop(node, None)) is not None:
            search.task.cancel()

    async def stop(self) -> None:
        """Disconnect. May be called twice."""
        tasks = [search.task for search in self._searches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        open_ = [line.connection for line in self._lines.values() if line.connection is not None]
        for connection in open_:
            connection.close("closed here")
        await asyncio.gather(*(connection.wait_closed() for connection in open_))
        self._searches.clear()
        self._is_started = False

    def connected(self, node: Node) -> bool:
        """Whether messages to this node are being sent now."""
        return node in self._plugged

    def problems(self) -> dict[Node, str]:
        """For each node that is not connected: what was tried, and why it failed."""
        return {
            node: self._searches[node].story() if node in self._searches else "not started"
            for node in self._peers
            if node not in self._plugged
        }

    def all_failed(self) -> bool:
        """Whether every node that is not connected was tried at each of its addresses, without success."""
        missing = [self._searches[node] for node in self._peers if node not in self._plugged]
        return all(search.failures > 0 for search in missing)

    async def wait_connected(self, node: Node, timeout_s: float) -> None:
        """Wait until the node is connected. ConnectionFailed: the time is over, or the node refuses us permanently."""
        if node not in self._peers:
            raise InputError("node", f"{node!r} is not one of {', '.join(sorted(self._peers))}", "name one of them")
        search = self._searches.get(node)
        if search is None:
            raise ConnectionFailed(f"node {node!r} is not connected: the connection was never started")
        waits = [asyncio.ensure_future(search.found.wait()), asyncio.ensure_future(search.refused.wait())]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not search.found.is_set():
            how = "refused" if search.refused.is_set() else f"not connected after {timeout_s:g} s"
            raise ConnectionFailed(f"node {node!r}: {how}; tried {search.story()}")

    # ── for subclasses ────────────────────────────────────────────────────────────────────────────────────────────

    def greeting(self) -> Hello:
        """The first frame on every connection."""
        return self.hello

    def welcomed(self, welcome: Welcome) -> Refusal | None:
        """Called when a server lets us in, and when it has news. RemoteError: it is not the server that we want; a
        Refusal: nor is it, and it is told why."""
        return None

    def refusal(self, refusal: Refusal, address: str) -> str:
        """The reason why the server at this address does not let us in."""
        return refusal.reason

    # ── for the parts below ───────────────────────────────────────────────────────────────────────────────────────

    def line(self, address: str) -> "Line":
        """The only line to this address, created if needed."""
        if address not in self._lines:
            self._lines[address] = Line(self, address)
        return self._lines[address]

    def refresh(self) -> None:
        """Plug in the nodes that are reached now, unplug the others. The newest connection to claim a node gets it."""
        claims: dict[Node, Dialed] = {}
        for line in self._lines.values():
            dialed = line.connection
            if dialed is not None and dialed.open:
                for node in dialed.nodes:
                    if node in self._peers and (node not in claims or claims[node].welcomed_at < dialed.welcomed_at):
                        claims[node] = dialed
        for node in self._peers:
            current = self._plugged.get(node)
            claim = claims.get(node)
            if current is not None and current[0] is not claim:
                self._unplug(node)
            if claim is not None and (current is None or current[0] is not claim):
                self._plug(node, claim)
        used = {dialed for dialed, _ in self._plugged.values()}
        for line in list(self._lines.values()):  # one connection to a server is enough
            dialed = line.connection
            if dialed is not None and dialed not in used and not dialed.nodes.isdisjoint(self._plugged):
                dialed.close("another connection reaches the same nodes")

    def _plug(self, node: Node, dialed: "Dialed") -> None:
        def outlet(source: Address, message: Payload) -> None:
            dialed.post(Envelope(source, node, message))

        self.switchboard.plug(node, outlet, source=self._source)
        self._plugged[node] = (dialed, outlet)
        if (search := self._searches.get(node)) is not None:
            search.got()
        logger.info("connected: node=%s address=%s", node, dialed.line.address)
        if self._on_connect is not None:
            self._on_connect(node)

    def _unplug(self, node: Node) -> None:
        if node not in self._plugged:
            return
        dialed, outlet = self._plugged.pop(node)
        self.switchboard.unplug(node, outlet, source=self._source)
        if (search := self._searches.get(node)) is not None:
            search.lost()
        logger.info("disconnected: node=%s address=%s reason=%s", node, dialed.line.address, dialed.line.reason)


class Search:
    """Looks for one node among its addresses, whenever it is not connected."""

    def __init__(self, dialer: Dialer, peer: Peer) -> None:
        self.peer = peer
        self.found = asyncio.Event()
        self.refused = asyncio.Event()  # some address has, for good
        self._missing = asyncio.Event()
        self._missing.set()
        self._dialer = dialer
        self.failures = 0  # rounds of all addresses without success
        self._next = 0
        self._found_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(self._run())
        self.task.add_done_callback(self._stopped)

    def story(self) -> str:
        """The addresses that were tried, and why each failed."""
        node = self.peer.node
        return "; ".join(f"{line.address}: {line.reason_for(node)}" for line in self._lines())

    def got(self) -> None:
        self.found.set()
        self.refused.clear()
        self._missing.clear()
        self._found_at = self._loop.time()

    def lost(self) -> None:
        """The node is no longer connected. Only a connection that lasted resets the count of failures."""
        lasted_s = self._loop.time() - self._found_at
        self.failures = 1 if lasted_s >= self._dialer.options.retry_max_s else self.failures + 1
        self.found.clear()
        self._missing.set()

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """Report a task that ended in another way than by cancellation: that is a defect in this file."""
        if not task.cancelled() and (error := task.exception()) is not None:
            problem = {"message": f"the search for node {self.peer.node!r} broke", "exception": error, "task": task}
            self._loop.call_exception_handler(problem)

    def _lines(self) -> "list[Line]":
        return [self._dialer.line(address) for address in self.peer.addresses]

    async def _run(self) -> None:
        while True:
            await self._missing.wait()
            if self.failures:
                await self._pause()
            await self._round()
            if not self.found.is_set():
                self.failures += 1

    async def _round(self) -> None:
        """Try every address once, the last successful one first."""
        lines = self._lines()
        for turn in range(len(lines)):
            if self.found.is_set():
                return
            index = (self._next + turn) % len(lines)
            await lines[index].connect()
            if self.found.is_set():
                self._next = index
                return
        self.refused.clear()
        if any(line.refused for line in lines):
            self.refused.set()

    async def _pause(self) -> None:
        """Wait: longer with every failure, and only until some connection finds the node."""
        options = self._dialer.options
        pause_s = min(options.retry_max_s, options.retry_min_s * 2 ** min(self.failures - 1, 30))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s * random.uniform(0.5, 1.0)):
                await self.found.wait()


class Line:
    """The connection to one address, made again whenever somebody asks for it."""

    def __init__(self, dialer: Dialer, address: str) -> None:
        self.address = address
        self.connection: Dialed | None = None
        self.reason = "not tried yet"
        self.refused = False  # and trying again soon will not help
        self._dialer = dialer
        self._host, self._port = split_address("address", address)
        self._loop = asyncio.get_running_loop()
        self._connecting = asyncio.Lock()
        self._not_before = 0.0

    def reason_for(self, node: Node) -> str:
        if self.connection is not None and self.connection.welcomed_at and node not in self.connection.nodes:
            return "the node does not run there now"
        return self.reason

    async def connect(self) -> None:
        """Connect if there is no connection; `reason` says what came of it."""
        async with self._connecting:
            if self.connection is None and self._loop.time() >= self._not_before:
                await self._dial()

    def was_refused(self, reason: str, *, retry: bool) -> None:
        """The other side refused us. It says whether trying again may help."""
        self.refused = not retry
        if not retry:
            refused_s = self._dialer.options.refused_s
            self._not_before = self._loop.time() + refused_s
            logger.error("connection refused: peer=%s reason=%s again_in_s=%s", self.address, reason, refused_s)

    async def _dial(self) -> None:
        dialer = self._dialer
        transport = dialer.options.transport
        self.refused = False
        dialed = Dialed(dialer, self)
        try:
            async with asyncio.timeout(transport.connect_timeout_s):
                await self._loop.create_connection(
                    lambda: dialed,
                    self._host,
                    self._port,
                    ssl=dialer.context,
                    server_hostname=self._host if dialer.context is not None else None,
                    ssl_shutdown_timeout=transport.close_timeout_s if dialer.context is not None else None,
                )
        except TimeoutError:
            self.reason = f"no connection within {transport.connect_timeout_s:g} s"
            return
        except OSError as error:
            self.reason = explain_failure(error)
            if isinstance(error, ssl.SSLCertVerificationError):  # trying again soon will not help
                self.was_refused(self.reason, retry=False)
            return
        try:
            async with asyncio.timeout(transport.hello_timeout_s):
                await dialed.answered.wait()
        except TimeoutError:
            dialed.abort(f"connected, but no answer within {transport.hello_timeout_s:g} s")


class Dialed(Connection):
    """One connection that we made."""

    def __init__(self, dialer: Dialer, line: Line) -> None:
        super().__init__(
            dialer.options.transport, dialer.decode, body_bytes_max=FRAME_BYTES_MAX, throttle=dialer.throttle
        )
        self.line = line
        self.nodes: frozenset[Node] = frozenset()
        self.answered = asyncio.Event()
        self.welcomed_at = 0.0
        self._dialer = dialer
        self._is_client = dialer.hello.role == "client"
        self._deliver = dialer.deliver

    def begun(self) -> None:
        self.line.connection = self
        self.post(self._dialer.greeting())

    def take(self, frame: Ping | Envelope[Any] | Welcome | Refusal) -> None:
        if type(frame) is Envelope:
            if frame.source in self.nodes and (self._is_client or frame.target == self._dialer.hello.name):
                self._deliver(frame.source, frame.target, frame.message)
        elif type(frame) is Welcome:
            self._welcome(frame)
        elif type(frame) is Refusal:
            reason = self._dialer.refusal(frame, self.line.address)
            self.line.was_refused(reason, retry=frame.retry)
            self.close(f"refused: {reason}")

    def violated(self, reason: str) -> None:
        logger.warning("protocol violated: peer=%s reason=%s", self.peer, reason)
        self.close(f"it does not speak our protocol: {reason}")

    def ended(self, reason: str) -> None:
        self.line.reason = reason
        if not self.answered.is_set() and reason.startswith("the other side"):
            self.line.reason += " without an answer; does it expect TLS, or none?"
        if self.line.connection is self:
            self.line.connection = None
        self.answered.set()
        self._dialer.refresh()

    def _welcome(self, welcome: Welcome) -> None:
        if self._dialer.line(self.line.address) is not self.line:  # given up while it was being made
            self.close("no node is looked for there any more")
            return
        if (refusal := self._dialer.welcomed(welcome)) is not None:
            logger.warning("server turned away: peer=%s reason=%s", self.peer, refusal.reason)
            self.close(refusal.reason, refusal)
            return
        self.nodes = frozenset(welcome.nodes)
        self.welcomed_at = self._loop.time()
        self.post_bytes_max = min(FRAME_BYTES_MAX, welcome.frame_bytes_max)
        self.line.reason = "connected"
        self._dialer.refresh()
        self.answered.set()


def explain_failure(error: OSError) -> str:
    """Why a connection was not made, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); check authority and the host name"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or str(error)).replace('_', ' ').lower()}); does it speak TLS?"
    if isinstance(error, socket.gaierror):
        return f"the host is not known ({error.strerror})"
    return os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__
