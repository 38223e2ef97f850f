"""The switchboard by itself: order, routes, and machines that fail."""

import asyncio
from typing import Any

from msgspec import Struct

from seriatim.model import Address
from seriatim.protocols.machine import Payload
from seriatim.runtime.net.switchboard import DELIVERED_AT_ONCE, Switchboard
from tests.runtime.net.hosts import until


class Number(Struct, frozen=True):
    value: int


class Box:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.got: list[tuple[Address, Payload]] = []

    def __call__(self, source: Address, message: Payload) -> None:
        self.got.append((source, message))


async def test_messages_keep_their_order_and_never_arrive_inside_a_step() -> None:
    board, box = Switchboard(), Box()
    inside = False

    def echo(source: Address, message: Payload) -> None:
        nonlocal inside
        assert isinstance(message, Number)
        assert not inside, "called from inside another step"
        inside = True
        board.send("echo", "box", message)
        if message.value % 2 == 0:
            board.send("echo", "echo", Number(message.value + 1))
        inside = False

    board.attach("echo", echo)
    board.attach("box", box)
    count = 3 * DELIVERED_AT_ONCE
    for number in range(0, 2 * count, 2):
        board.send("me", "echo", Number(number))
    assert box.got == [] and board.queued == count
    await until(lambda: len(box.got) == 2 * count, "everything")
    numbers = [message.value for _, message in box.got if isinstance(message, Number)]
    assert [number for number in numbers if number % 2 == 0] == list(range(0, 2 * count, 2))
    assert [number for number in numbers if number % 2] == list(range(1, 2 * count, 2))


async def test_a_flood_does_not_keep_the_loop_from_its_other_work() -> None:
    board, box = Switchboard(), Box()
    board.attach("box", box)
    for number in range(10 * DELIVERED_AT_ONCE):
        board.send("me", "box", Number(number))
    turns = 0
    while board.queued:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10


async def test_a_machine_that_raises_harms_nobody_else() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    board, box = Switchboard(), Box()

    def broken(source: Address, message: Payload) -> None:
        raise KeyError(message)

    board.attach("broken", broken)
    board.attach("box", box)
    board.send("me", "broken", Number(1))
    board.send("me", "box", Number(2))
    await until(lambda: box.got == [("me", Number(2))], "the message behind it")
    board.send("me", "box", Number(3))
    await until(lambda: len(box.got) == 2, "a later message")
    assert [type(error) for error in reported] == [KeyError]


async def test_plugging_and_unplugging() -> None:
    board, older, newer = Switchboard(), Box(), Box()
    board.plug("client", older)
    board.plug("client", newer)
    board.unplug("client", older)  # it was replaced meanwhile
    board.send("root", "client", Number(1))
    assert (older.got, newer.got) == ([], [("root", Number(1))])
    board.unplug("client", newer)
    assert not board.reaches("client")
    board.send("root", "client", Number(2))
    assert board.dropped == 1


async def test_two_sources_may_reach_one_address_by_different_ways() -> None:
    board, left, right = Switchboard(), Box(), Box()
    board.plug("root", left, source="left")
    board.plug("root", right, source="right")
    board.send("left", "root", Number(1))
    board.send("right", "root", Number(2))
    board.send("other", "root", Number(3))
    assert (left.got, right.got, board.dropped) == ([("left", Number(1))], [("right", Number(2))], 1)
    board.unplug("root", right, source="left")
    board.unplug("root", left, source="left")
    board.send("left", "root", Number(4))
    board.send("right", "root", Number(5))
    assert (len(left.got), len(right.got), board.dropped) == (1, 2, 2)


async def test_what_comes_from_outside_goes_to_machines_of_this_process_only() -> None:
    board, local, remote = Switchboard(), Box(), Box()
    board.attach("root", local)
    board.plug("client", remote)
    board.deliver("x", "root", Number(1))
    board.deliver("x", "client", Number(2))
    await until(lambda: local.got == [("x", Number(1))], "the local one")
    assert remote.got == [] and board.dropped == 1


async def test_comings_and_goings_are_told() -> None:
    board = Switchboard()
    seen: list[list[str]] = []

    def changed() -> None:
        seen.append(sorted(board.attached))

    board.on_change.append(changed)
    board.attach("root", Box())
    board.plug("client", Box())
    board.attach("left", Box())
    board.unplug("client")
    board.unplug("root")
    board.on_change.remove(changed)
    board.unplug("left")
    assert seen == [["root"], ["left", "root"], ["left"]]


async def test_what_is_queued_for_a_machine_that_goes_is_dropped() -> None:
    board, box = Switchboard(), Box()
    board.attach("box", box)
    board.send("me", "box", Number(1))
    board.unplug("box")
    await until(lambda: board.dropped == 1, "the drop")
    assert box.got == []
