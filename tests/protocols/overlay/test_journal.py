"""A broker's journal and state as bytes: whoever reads them back has the same broker, with its routes and its links."""

from functools import partial
from typing import Any

import msgspec
import pytest

from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.walk import BusyWalk, random_of
from seriatim.lab.explore.overlay.random_worlds import random_overlay
from seriatim.protocols.link import Link
from seriatim.protocols.node import JournaledNode, NodeState, Stepped, TookOver
from seriatim.protocols.overlay import Broker, Order
from seriatim.protocols.overlay.messages import Between, Input, ToClient
from seriatim.protocols.overlay.state import BrokerState

records = msgspec.msgpack.Decoder(list[Stepped[Input] | TookOver])
links = msgspec.msgpack.Decoder(dict[str, Link[Between | ToClient]])


def walked(order: Order, index: int) -> Run:
    random = random_of(31, index)
    overlay = random_overlay(random, f"world {index}", (order,))
    run = Run(overlay.build())
    BusyWalk(run, random).go()
    return run


@pytest.mark.parametrize("order", ["rooted", "resolution"])
def test_a_journal_read_back_gives_the_same_broker(order: Order) -> None:
    compared = 0
    for index in range(30):
        run = walked(order, index)
        for address, process in run.processes.items():
            node: Any = process.machine
            if not process.journal or not isinstance(node, JournaledNode):
                continue
            journal = records.decode(msgspec.msgpack.encode(process.journal))
            assert journal == process.journal
            create = partial(Broker, node.inner.place, node.inner.options)
            again = JournaledNode.take_over(create, node.retry_ms, journal)
            assert again.inner.state == node.inner.state, f"{address} of world {index}"
            assert again.state.epoch == node.state.epoch + 1
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("order", ["rooted", "resolution"])
def test_a_snapshot_stands_for_what_was_before_it(order: Order) -> None:
    compared = 0
    for index in range(30):
        run = walked(order, index)
        for process in run.processes.values():
            if len(process.journal) < 4:
                continue
            half = len(process.journal) // 2
            node: Any = process.machine
            create = partial(Broker, node.inner.place, node.inner.options)
            before = JournaledNode.take_over(create, node.retry_ms, process.journal[:half])
            inner = msgspec.msgpack.decode(msgspec.msgpack.encode(before.inner.state), type=BrokerState)
            assert inner == before.inner.state
            kept = links.decode(msgspec.msgpack.encode(before.state.links))
            assert kept == before.state.links
            snapshot = NodeState(inner, kept, before.state.epoch, set(before.state.gone))
            again = JournaledNode.take_over(create, node.retry_ms, process.journal[half:], snapshot)
            assert again.inner.state == node.inner.state
            sent = {address: link.sent for address, link in node.state.links.items() if link.sent}
            assert {address: link.sent for address, link in again.state.links.items() if link.sent} == sent
            compared += 1
    assert compared > 20
