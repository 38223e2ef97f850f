"""Two real nodes in two processes' worth of sockets, with a network between them that keeps breaking.

The transport promises nothing about what is under way when a connection breaks; the links inside the machines number
and repeat. Together: every ticket gets its number, once, in order, with a stamp that went through both nodes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from seriatim.live.tree import wire
from seriatim.model import Node
from seriatim.order import SequencingTree
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Granted, Joined, Settled, Subscribe, Ticket
from seriatim.runtime.clock import Clock
from seriatim.runtime.driver import Driver
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.runtime.net.dialer import Dialer, Peer
from seriatim.runtime.net.listener import Listener
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Switchboard
from tests.proxy import TO_CLIENT, TO_TARGET, FaultProxy
from tests.runtime.net.hosts import CLUSTER, QUICK, WAIT_S, Asker, until
from tests.waiting import a_moment

TREE = SequencingTree({"root": None, "left": "root"}, {"orders": "left", "prices": "root"})
OPTIONS = TreeOptions(mode="ticket", retry_ms=30.0)
SECURITY = SecurityOptions(token="the-token-of-clients", node_token="the-token-of-all-nodes")
TOPICS = frozenset({"orders", "prices"})


@asynccontextmanager
async def node_server(node: Node) -> AsyncIterator[Listener]:
    """One node, its driver and its port."""
    switchboard = Switchboard()
    machine = SequencerNode(TREE, node, OPTIONS)
    driver = Driver(node, machine, Clock(), send=switchboard.send, journal=MemoryJournal())
    switchboard.attach(node, driver.deliver)
    driver.start()
    listener = Listener(
        switchboard, TREE, cluster=CLUSTER, decoders=wire.TREE, security=SECURITY, backlog=lambda: driver.backlog
    )
    await listener.start()
    try:
        yield listener
        await driver.settled()
    finally:
        await listener.stop()
        await driver.stop()


@asynccontextmanager
async def dialed(switchboard: Switchboard, name: str, role: Any, **nodes: str) -> AsyncIterator[Dialer]:
    """Connections to these nodes."""
    peers = [Peer(node, (address,)) for node, address in nodes.items()]
    dialer = Dialer(
        switchboard, peers, cluster=CLUSTER, decoders=wire.TREE, name=name, role=role, security=SECURITY, options=QUICK
    )
    dialer.start()
    try:
        yield dialer
    finally:
        await dialer.stop()


@pytest.mark.both_loops
@pytest.mark.parametrize("seed", range(2))
async def test_every_ticket_climbs_over_a_link_that_keeps_breaking(seed: int) -> None:
    randomness = Random(seed)
    switchboard = Switchboard()
    async with (
        node_server("root") as root,
        node_server("left") as left,
        FaultProxy.before(root.address) as proxy,
        dialed(left.switchboard, "left", "node", root=proxy.address),
        dialed(switchboard, "client", "client", root=root.address, left=left.address) as client,
    ):
        for node in ("root", "left"):
            await client.wait_connected(node, WAIT_S)
        for name in ("client/one", "client/two"):  # two subscribers hold both topics: they are coupled
            subscriber = Asker(switchboard, name)
            subscriber.send("left", Subscribe(1, "orders", TOPICS))
            subscriber.send("root", Subscribe(1, "prices", TOPICS))
            await until(lambda box=subscriber: len(box.answers) == 2, "both topics joined")
            assert all(isinstance(message, Joined) for _, message in subscriber.answers)
        publisher = Asker(switchboard, "client/publisher")
        for request in range(1, 301):
            publisher.ask(request, node="left", topic="orders")
            if request % 10 == 0:
                publisher.send("root", Ticket(request, "prices", 1))
            fault = randomness.random()
            if fault < 0.03:
                proxy.cut()
            elif fault < 0.06:
                proxy.cut_after[randomness.choice([TO_TARGET, TO_CLIENT])] = randomness.randrange(500)
            await a_moment(0.001)

        def granted(topic: str) -> list[Granted]:
            answers = [message for _, message in publisher.answers]
            assert all(isinstance(message, Granted) for message in answers)
            return [each for each in answers if isinstance(each, Granted) and each.topic == topic]

        await until(lambda: len(granted("orders")) == 300 and len(granted("prices")) == 30, "all grants", 120.0)
        assert [grant.first for grant in granted("orders")] == list(range(1, 301))
        assert [grant.first for grant in granted("prices")] == list(range(1, 31))
        assert any(grant.entries for grant in granted("orders")), "no stamp names the other topic: not coupled"
        assert proxy.connections > 3, "the link never broke"
        for number in range(1, 301):
            publisher.send("left", Settled("orders", number))
