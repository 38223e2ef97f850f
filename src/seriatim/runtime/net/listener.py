"""The port of a sequencer server: admits clients and neighbouring nodes, and passes their messages to the nodes here.

A new connection must say who it is within a time limit and show the token of its role. Then it may speak for itself
only: a client for its name and `name/...`, a node for its own name and to its neighbours. Anything else closes that
connection. The reason is logged and counted, and other connections are not affected.

The nodes that run here are the machines attached to the switchboard that the tree knows. When they change, all
connected clients are told; when no node is left, all are sent away to try elsewhere.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from seriatim.model import APPLICATION, BROKER, Address, Node, RemoteError
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.runtime.net.connection import Throttle, TransportOptions, check_positive
from seriatim.runtime.net.door import Door, Problem, Visitor
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Outlet, Switchboard
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, VERSION, Decoders, Envelope, Hello, Ping, Refusal, Welcome

logger = logging.getLogger(__name__)

NAME_CHARACTERS_MAX = 256
ADDRESS_CHARACTERS_MAX = 512
SHOWN_MAX = 100  # characters of what somebody else wrote, in a reason or the log


class ListenerOptions(Struct, frozen=True, kw_only=True):
    """Limits on what clients and nodes may ask of a server."""

    clients_max: int = 4_096  # connections of clients; nodes are bounded by the tree
    strangers_max: int = 256  # connections that have not said who they are; one more, and the oldest is closed
    addresses_max: int = 1_024  # source addresses one client may use on a connection
    client_frame_bytes_max: int = 1024 * 1024
    backlog_max: int = 20_000  # with more than this many messages waiting, nothing is read
    transport: TransportOptions = TransportOptions()

    def __post_init__(self) -> None:
        check_positive(self, "clients_max", "strangers_max", "addresses_max", "client_frame_bytes_max", "backlog_max")


class Listener(Door):
    """Listens on one address or several. Of one switchboard there is one listener: it knows who speaks for whom.

    `backlog`: what waits in the nodes here besides what the switchboard has queued. `neighbours`: who may speak to
    whom, where that is not along the tree. `decoders`: what they say. `reserved`: what no client may be called, besides
    the names of nodes.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        tree: SequencingTree,
        *,
        cluster: str,
        decoders: Decoders,
        bind: str | Sequence[str] = "127.0.0.1:0",
        security: SecurityOptions | None = None,
        options: ListenerOptions | None = None,
        backlog: Callable[[], int] | None = None,
        neighbours: Mapping[Node, frozenset[Node]] | None = None,
        reserved: Iterable[Address] = (),
    ) -> None:
        self.options = options if options is not None else ListenerOptions()
        along_the_tree = {node: frozenset(tree.neighbours(node)) for node in tree.parents}
        self.neighbours_of: Mapping[Node, frozenset[Node]] = neighbours if neighbours is not None else along_the_tree
        self.decoders = decoders
        self._known = self.neighbours_of.keys()
        self._reserved = frozenset((*self._known, BROKER, APPLICATION, *reserved))
        super().__init__(
            bind,
            security=security,
            transport=self.options.transport,
            strangers_max=self.options.strangers_max,
            sockets_max=self.options.clients_max + 2 * self.options.strangers_max + len(self._known),
        )
        self.switchboard = switchboard
        self.tree = tree
        self.cluster = cluster
        self.nodes: frozenset[Node] = frozenset()
        self.received = 0  # frames of connections that are closed; `status` adds the open ones
        self.sent = 0
        self.guests: set[Guest] = set()
        self.owners: dict[Address, Guest] = {}
        self.throttle = Throttle(
            lambda: switchboard.queued + (backlog() if backlog is not None else 0), self.options.backlog_max
        )
        self.clients = 0
        self.epochs: dict[Node, int] = {}  # the latest that each node has connected with

    @property
    def neighbours(self) -> list[Node]:
        """Nodes that are connected."""
        return sorted(guest.name for guest in self.guests if guest.role == "node")

    async def start(self) -> None:
        await super().start()
        self.switchboard.on_change.append(self._nodes_changed)
        self._nodes_changed()

    async def stop(self) -> None:
        if self._running:
            self.switchboard.on_change.remove(self._nodes_changed)
        await super().stop()

    def visitor(self) -> "Guest":
        return Guest(self)

    def problem(self, hello: Hello) -> Problem | None:
        """Why a connection is refused. Checks the token first, so that strangers learn nothing about the cluster."""
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
        if name in self._reserved:
            return Problem("name", f"{name!r} is not a name for a client")
        if not self.nodes:
            return Problem("standby", "no node is active here", retry=True)
        if self.clients >= self.options.clients_max:
            return Problem("too many clients", f"{self.clients} clients are connected already", retry=True)
        return None

    def _problem_with_node(self, name: Node, epoch: int) -> Problem | None:
        if name not in self._known:
            return Problem("name", f"there is no node {name[:SHOWN_MAX]!r} in the tree here")
        if name in self.nodes or (self.switchboard.reaches(name) and name not in self.owners):
            return Problem("name", f"node {name!r} runs here", retry=True)
        if epoch < self.epochs.get(name, 0):
            return Problem("epoch", f"another process runs node {name!r} now, in epoch {self.epochs[name]}")
        if self.nodes.isdisjoint(self.neighbours_of[name]):
            return Problem("standby", f"no neighbour of {name!r} is active here", retry=True)
        return None

    def claim(self, guest: "Guest", address: Address) -> None:
        """`address` belongs to this connection from now on. RemoteError: it must not."""
        if address in self._reserved or len(address) > ADDRESS_CHARACTERS_MAX:
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


class Guest(Visitor):
    """One connection to our port."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener, listener.throttle)
        self._listener = listener
        self._prefix = ""
        self._outlets: dict[Address, Outlet] = {}
        self._deliver = listener.switchboard.deliver

    def take(self, frame: Hello | Ping | Envelope[Any]) -> None:
        if type(frame) is Envelope:
            source, target, listener = frame.source, frame.target, self._listener
            if source not in self._outlets:
                self._claim(source)
            if target not in listener.nodes:
                self._misdirected(target)
                return
            if self.role == "node" and target not in listener.neighbours_of[self.name]:
                raise RemoteError(f"node {self.name!r} speaks to {target!r}, which is not its neighbour")
            self._deliver(source, target, frame.message)
        elif type(frame) is Hello:
            self._introduce(frame)

    def welcome(self) -> None:
        """Tell it which nodes run here now."""
        listener = self._listener
        self.post(Welcome(VERSION, listener.cluster, sorted(listener.nodes), self._framing.body_bytes_max))

    def replaced(self) -> None:
        """A newer connection speaks for one of our addresses."""
        self.close(
            "replaced",
            Refusal("replaced: a newer connection uses the same address; is there another process of this name?"),
        )

    def ended(self, reason: str) -> None:
        listener = self._listener
        for address, outlet in self._outlets.items():
            listener.switchboard.unplug(address, outlet)
            if listener.owners.get(address) is self:
                del listener.owners[address]
        self._outlets.clear()
        listener.guests.discard(self)
        listener.clients -= self.role == "client"
        listener.received += self.received
        listener.sent += self.sent
        super().ended(reason)

    def _introduce(self, hello: Hello) -> None:
        listener = self._listener
        if (problem := listener.problem(hello)) is not None:
            self.refuse(problem, hello.role, hello.name[:SHOWN_MAX])
            return
        self.has_said_hello()
        self.role, self.name, self._prefix = hello.role, hello.name, hello.name + "/"
        listener.guests.add(self)
        if hello.role == "node":
            listener.epochs[hello.name] = hello.epoch
            if (older := listener.owners.get(hello.name)) is not None:
                older.replaced()
            self._framing.body_bytes_max = FRAME_BYTES_MAX
            self._read = listener.decoders.from_node
            self._plug(hello.name)
        else:
            listener.clients += 1
            self._framing.body_bytes_max = listener.options.client_frame_bytes_max
            self._read = listener.decoders.from_client
        self.welcome()
        logger.info("connected: peer=%s role=%s who=%s", self.peer, self.role, self.name)

    def _claim(self, source: Address) -> None:
        if source != self.name and (self.role == "node" or not source.startswith(self._prefix)):
            raise RemoteError(f"{self.role} {self.name!r} speaks for {source[:SHOWN_MAX]!r}")
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
        """A node that ran here before: the sender should look elsewhere. Any other target is a violation."""
        if target not in self._listener.tree.parents:
            raise RemoteError(f"{target[:SHOWN_MAX]!r} is not a node")
        reason = f"node {target!r} does not run here"
        self._listener.refused["elsewhere"] += 1
        self.close(reason, Refusal(reason, retry=True))
