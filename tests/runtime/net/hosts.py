"""Servers and clients for the tests of the transport: real sockets, nodes that answer a ticket with its own numbers."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from seriatim.live.tree import wire
from seriatim.model import Address, Node
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Granted, Ticket
from seriatim.runtime.net.connection import TransportOptions
from seriatim.runtime.net.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.net.listener import Listener, ListenerOptions
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Switchboard
from tests.waiting import until as until

CLUSTER = "test"
TREE = SequencingTree({"root": None, "left": "root", "right": "root"}, {}, default_home="root")
QUICK = DialerOptions(retry_min_s=0.01, retry_max_s=0.1, refused_s=0.5)
WAIT_S = 60.0  # a bound for a busy machine; everything here takes milliseconds


def answering(switchboard: Switchboard, node: Node) -> None:
    """A node that grants every ticket the numbers of its request."""

    def deliver(source: Address, message: Payload) -> None:
        if isinstance(message, Ticket):
            switchboard.send(
                node, source, Granted(message.request, message.topic, message.request, message.request, {})
            )

    switchboard.attach(node, deliver)


@asynccontextmanager
async def serving(
    *nodes: Node,
    bind: str | Sequence[str] = "127.0.0.1:0",
    security: SecurityOptions | None = None,
    options: ListenerOptions | None = None,
    backlog: Callable[[], int] | None = None,
    transport: TransportOptions | None = None,
    tree: SequencingTree = TREE,
) -> AsyncIterator[Listener]:
    """A server that runs these nodes (none: `root`)."""
    switchboard = Switchboard()
    for node in nodes or ("root",):
        answering(switchboard, node)
    if transport is not None:
        options = ListenerOptions(transport=transport)
    listener = Listener(
        switchboard,
        tree,
        cluster=CLUSTER,
        decoders=wire.TREE,
        bind=bind,
        security=security,
        options=options,
        backlog=backlog,
    )
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


class Asker:
    """A client machine that remembers what it was answered."""

    def __init__(self, switchboard: Switchboard, address: Address) -> None:
        self.address = address
        self.answers: list[tuple[Address, Payload]] = []
        self._switchboard = switchboard
        switchboard.attach(address, lambda source, message: self.answers.append((source, message)))

    def ask(self, request: int, node: Node = "root", topic: str = "t") -> None:
        self.send(node, Ticket(request, topic, 1))

    def send(self, node: Node, message: Payload) -> None:
        self._switchboard.send(self.address, node, message)

    def requests(self) -> list[int]:
        """The request numbers that were answered, in order."""
        return [message.request for _, message in self.answers if isinstance(message, Granted)]


@asynccontextmanager
async def dialing(
    *addresses: str,
    name: Address = "client",
    node: Node = "root",
    security: SecurityOptions | None = None,
    options: DialerOptions = QUICK,
    cluster: str = CLUSTER,
    on_connect: Callable[[Node], None] | None = None,
) -> AsyncIterator[tuple[Dialer, Asker]]:
    """A client with one machine, `name/asker`, that looks for `node` at these addresses."""
    switchboard = Switchboard()
    asker = Asker(switchboard, f"{name}/asker")
    dialer = Dialer(
        switchboard,
        [Peer(node, addresses)],
        cluster=cluster,
        decoders=wire.TREE,
        name=name,
        security=security,
        options=options,
        on_connect=on_connect,
    )
    dialer.start()
    try:
        yield dialer, asker
    finally:
        await dialer.stop()


async def works(listener: Listener, name: Address = "witness", security: SecurityOptions | None = None) -> None:
    """A new client connects, asks and is answered: the server is unharmed."""
    async with dialing(listener.address, name=name, security=security) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer for the witness")
