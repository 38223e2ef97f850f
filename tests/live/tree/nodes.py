"""What tests of a node host share: a broker that takes everything and answers nothing, and clients that ask."""

import asyncio
from collections.abc import Iterable
from typing import Any

from seriatim.brokers import Broker, Deliver, OnError, Port
from seriatim.live.tree.host import NodeHost
from seriatim.model import Address, Node, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Granted, Refused, Settled, Ticket
from seriatim.runtime import Journal, Switchboard

TICKETS = TreeOptions(mode="ticket")
TREE = SequencingTree.single(["A", "B"])


class SilentBroker(Broker, Port):
    """In ticket mode a node tells the broker about voids only, and these tests have none."""

    keeps_log = False
    lossy = False
    payload_bytes_max = 1_000_000

    def __init__(self) -> None:
        self.sent: list[Payload] = []
        self.last_epoch: int | None = None
        self.deliver: dict[Address, Deliver] = {}

    def ordered_topic(self, name: Topic) -> Topic:
        return name

    def check_slots(self, topic: Topic) -> None:
        """Whatever it is called."""

    async def capture(self, names: Iterable[Topic]) -> None:
        """Nobody else publishes."""

    async def stamped_epoch(self, node: Node) -> int | None:
        return self.last_epoch

    def know(self, topics: Iterable[Topic]) -> None:
        """No stamps come."""

    def configure(self, mode: Any, home_of: Any) -> None:
        """Nothing to prepare."""

    async def open(self) -> None:
        """Nothing to connect to."""

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> "SilentBroker":
        self.deliver[address] = deliver
        return self

    def send(self, message: Payload) -> None:
        self.sent.append(message)

    def pause(self, topic: Topic | None = None) -> None:
        """Nothing is delivered anyway."""

    def resume(self, topic: Topic | None = None) -> None:
        """Nothing is delivered anyway."""

    async def close(self) -> None:
        """Nothing to close."""


class Site:
    """One process that may run the node: a switchboard with clients, and hosts one after the other."""

    def __init__(self, tree: SequencingTree = TREE, options: TreeOptions = TICKETS) -> None:
        self.tree = tree
        self.options = options
        self.broker = SilentBroker()
        self.switchboard = Switchboard()
        self.answers: dict[Address, asyncio.Queue[Payload]] = {}

    def host(
        self, journal: Journal, node: str | None = None, heals: bool = False, is_reshaped: bool = False
    ) -> NodeHost:
        node = node if node is not None else self.tree.root
        return NodeHost(
            self.tree,
            node,
            self.options,
            broker=self.broker,
            switchboard=self.switchboard,
            journal=journal,
            heals=heals,
            is_reshaped=lambda: is_reshaped,
            confirm_ms=0.0,  # there are no neighbours here
        )

    def send(self, client: Address, message: Payload, node: str | None = None) -> None:
        if client not in self.answers:
            self.answers[client] = asyncio.Queue()

            def take(source: Address, answer: Payload) -> None:
                self.answers[client].put_nowait(answer)

            self.switchboard.attach(client, take)
        self.switchboard.send(client, node if node is not None else self.tree.root, message)

    async def answer(self, client: Address, timeout_s: float = 60.0) -> Payload:
        return await asyncio.wait_for(self.answers[client].get(), timeout_s)

    async def ticket(self, client: Address, request: int, topic: Topic = "A", count: int = 1) -> Granted:
        self.send(client, Ticket(request, topic, count))
        granted = await self.answer(client)
        assert isinstance(granted, Granted), granted
        return granted

    async def refusal(self, client: Address, request: int, topic: Topic = "A", count: int = 1) -> Refused:
        self.send(client, Ticket(request, topic, count))
        refused = await self.answer(client)
        assert isinstance(refused, Refused), refused
        return refused

    def settle(self, client: Address, granted: Granted) -> None:
        self.send(client, Settled(granted.topic, granted.first))
