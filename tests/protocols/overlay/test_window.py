"""A backlog of any size gets through: never more is under way than a connection can hold."""

from typing import Any

import pytest

from seriatim.model import APPLICATION, Event
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Effects
from seriatim.protocols.overlay.client import Client
from seriatim.protocols.overlay.messages import Publish, Reached
from seriatim.protocols.overlay.running import ClientNode
from seriatim.protocols.overlay.window import UNDER_WAY_BYTES_MAX, UNDER_WAY_MESSAGES_MAX

RETRY_MS = 500.0


def node_with(count: int, size: int) -> ClientNode:
    """A client that has published so much, and has not reached its broker yet."""
    node = ClientNode(Client("c", "B"), RETRY_MS)
    for number in range(1, count + 1):
        publish(node, number, size)
    return node


def publish(node: ClientNode, number: int, size: int) -> Effects:
    return node.step(APPLICATION, Publish(Event(str(number), "t", "c", bytes(size))), 0.0)


def numbers(effects: Effects) -> list[int]:
    return [frame.number for _, frame in effects.send if isinstance(frame, Frame) and frame.number]


def answer(node: ClientNode, received: int, now: float = 1.0) -> Effects:
    frame: Frame[Any] = Frame(1, 0, received)
    return node.step("B", frame, now)


@pytest.mark.parametrize(("count", "size"), [(100, 1_000_000), (3 * UNDER_WAY_MESSAGES_MAX, 0), (3, 10_000_000)])
def test_a_backlog_goes_out_in_portions(count: int, size: int) -> None:
    node = node_with(count, size)
    under_way = numbers(node.step(APPLICATION, Reached("B"), 1.0))
    received = 0
    while under_way:
        assert under_way == list(range(received + 1, received + 1 + len(under_way))), "in order, and once"
        assert len(under_way) <= UNDER_WAY_MESSAGES_MAX
        assert len(under_way) == 1 or len(under_way) * size <= UNDER_WAY_BYTES_MAX
        received = under_way[len(under_way) // 2]
        del under_way[: len(under_way) // 2 + 1]
        under_way += numbers(answer(node, received))
    assert received == count


def test_what_is_new_waits_behind_the_backlog() -> None:
    node = node_with(9, 1_000_000)
    assert numbers(node.step(APPLICATION, Reached("B"), 1.0)) == [1, 2, 3, 4]
    assert numbers(publish(node, 10, 0)) == []
    assert numbers(answer(node, 4)) == [5, 6, 7, 8]
    assert numbers(answer(node, 8)) == [9, 10]
    assert numbers(publish(node, 11, 0)) == [11]


def test_a_new_connection_begins_at_what_was_acknowledged() -> None:
    node = node_with(9, 1_000_000)
    node.step(APPLICATION, Reached("B"), 1.0)
    assert numbers(answer(node, 2)) == [5, 6]
    assert numbers(node.step(APPLICATION, Reached("B"), 2.0)) == [3, 4, 5, 6]
    assert numbers(answer(node, 9)) == [], "it had them all"
    assert numbers(publish(node, 10, 0)) == [10]


def test_the_clock_repeats_no_more_than_is_under_way_and_ever_more_seldom() -> None:
    node = node_with(9, 1_000_000)
    node.step(APPLICATION, Reached("B"), 0.0)
    ticks = [numbers(node.tick(RETRY_MS * n)) for n in range(1, 9)]
    assert ticks == [[1, 2, 3, 4], [1, 2, 3, 4], [], [1, 2, 3, 4], [], [], [], [1, 2, 3, 4]]
    assert numbers(answer(node, 1)) == [5]
    assert numbers(node.tick(RETRY_MS * 9)) == [], "it moves on"
    assert numbers(node.tick(RETRY_MS * 10)) == [2, 3, 4, 5]
