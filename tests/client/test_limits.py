"""Every limit of a client at its edge: what still fits, and what is one too many."""

import asyncio

import pytest

from seriatim import Limits
from seriatim.client.events import Event
from seriatim.client.inbox import Inbox
from seriatim.model import Gap, InputError, QueueFull
from tests.client.test_publishing import Gate
from tests.client.world import world


async def test_as_many_bytes_as_it_says_and_the_event_that_goes_beyond() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus(limits=Limits(queue_bytes=100_000)) as bus:
        broker.is_shut = True
        first = [bus.publish_nowait("t", b"x" * 50_000), bus.publish_nowait("t", b"x" * 50_000)]
        with pytest.raises(QueueFull, match="wait to be published"):
            bus.publish_nowait("t", b"x")
        broker.is_shut = False
        await asyncio.gather(*first)
        await bus.publish("t", b"x" * 300_000)  # larger than the limit, and nothing else waits


@pytest.mark.parametrize("unread", [4, 5])
def test_the_broker_is_asked_to_pause_with_one_more_than_the_limit(unread: int) -> None:
    inbox = Inbox(Limits(unread_events=4, unread_bytes=1_000), show_gaps=False)
    for number in range(unread):
        inbox.put([Event("t", b"", None, f"e{number}", "p", {}, number + 1)], 10)
    assert inbox.room.is_exceeded is (unread == 5)
    while not inbox.room.is_half_free:
        inbox.take(1)
    assert inbox.room.events == 2


def test_the_latest_gaps_are_remembered_and_all_are_counted() -> None:
    inbox = Inbox(Limits(gaps=2), show_gaps=False)
    for number in (1, 2, 3):
        inbox.put_gap(Gap("t", number, number, "lost"))
    assert ([gap.first for gap in inbox.gaps], inbox.gap_count) == ([2, 3], 3)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10", None])
def test_only_whole_numbers_above_zero(wrong: object) -> None:
    for name in Limits.__struct_fields__:
        with pytest.raises(InputError, match=f"limits.{name}"):
            Limits(**{name: wrong})  # type: ignore[arg-type]
