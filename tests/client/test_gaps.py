"""Gaps: numbers that will never come, and what each policy makes of them."""

import asyncio

import pytest

from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.brokers.packs import BATCH_HEADER
from seriatim.client import Event, GapPolicy, Subscription
from seriatim.model import APPLICATION, BROKER, Gap, GapError, InputError, TimedOut
from seriatim.model import Event as Message
from seriatim.protocols.with_broker import Append, Appended
from tests.client.crashes import Store, kill
from tests.client.world import World, data, feed_of, take, until, world
from tests.nonsense import Nonsense
from tests.waiting import a_moment


async def lost_for(policy: GapPolicy, w: World, store: Store, show: bool = False) -> Subscription:
    """A durable subscription that has seen event 1 and finds on its return that 2 to 4 are gone."""
    async with w.bus() as bus:
        async with w.bus(journals=store.open_journal) as reader, reader.subscribe("a", durable="d") as events:
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
            await events.acknowledge()
        for i in (2, 3, 4):
            await bus.publish("a", b"%d" % i)
        assert isinstance(w.broker, MemoryBroker)
        w.broker.trim("a", 5)
    back = w.bus(journals=store.open_journal)
    await back.__aenter__()
    return await back.subscribe("a", durable="d", gaps=policy, show_gaps=show).__aenter__()


async def test_skip_goes_on_behind_the_gap_and_tells() -> None:
    async with world() as w, w.bus() as bus:
        events = await lost_for(GapPolicy.skip(), w, Store())
        await until("the gap is told", lambda: bool(events.gaps))
        await bus.publish("a", b"5")
        assert data(await take(events, 1)) == ["5"]
        assert list(events.gaps) == [Gap("a", 2, 4, "the topic began anew")]
        await events.close()


async def test_gaps_are_shown_in_their_place() -> None:
    async with world() as w, w.bus() as bus:
        events = await lost_for(GapPolicy.skip(), w, Store(), show=True)
        await until("the gap is told", lambda: bool(events.gaps))
        await bus.publish("a", b"5")
        first, second = await take(events, 2)
        assert first == Gap("a", 2, 4, "the topic began anew")  # type: ignore[comparison-overlap]
        assert isinstance(second, Event) and second.data == b"5"
        await events.close()


async def test_raise_raises_in_the_gaps_place_and_goes_on_if_asked_again() -> None:
    store = Store()
    async with world() as w, w.bus() as bus:
        events = await lost_for(GapPolicy.raise_(), w, store)
        with pytest.raises(GapError, match="a 2…4 will never come: the topic began anew") as caught:
            await events.next()
        assert (caught.value.topic, caught.value.first, caught.value.last) == ("a", 2, 4)
        await kill(events)  # it was not dealt with: it comes again
        async with (
            w.bus(journals=store.open_journal) as reader,
            reader.subscribe("a", durable="d", gaps=GapPolicy.raise_()) as events,
        ):
            with pytest.raises(GapError):
                await events.next()
            await bus.publish("a", b"5")
            assert data(await take(events, 1)) == ["5"]


async def test_wait_waits_and_explains() -> None:
    async with world() as w, w.bus() as bus:
        events = await lost_for(GapPolicy.wait(), w, Store())
        await bus.publish("a", b"5")
        await until("the home has answered", lambda: "is lost" in str(events.explain()))
        assert "a 2 is lost: this wait does not end by itself" in str(events.explain())
        with pytest.raises(TimedOut):
            await events.next(0.02)
        assert not events.gaps
        await events.close()


async def test_a_lossy_broker_is_bounded_and_tells() -> None:
    seen: list[Event | Gap] = []
    async with (
        world(MemoryBroker(seed=11, loss=0.2)) as w,
        w.bus() as bus,
        bus.subscribe("a", "b", gaps=GapPolicy.skip(after_s=0.1), show_gaps=True) as events,
    ):

        async def read() -> None:
            async for item in events:
                seen.append(item)

        def reached(topic: str) -> int:
            return max((number for item in seen if item.topic == topic for number in numbers_of(item)), default=0)

        reading = asyncio.ensure_future(read())
        for i in range(50):
            await bus.publish("ab"[i % 2], b"%d" % i)
        while min(reached("a"), reached("b")) < 25:  # of the last one, nobody knows that it is lost before the next
            await bus.publish_many([("a", b"more"), ("b", b"more")])
            await a_moment(0.02)
    await reading
    for topic in "ab":
        told = sorted(number for item in seen if item.topic == topic for number in numbers_of(item))
        assert told == list(range(1, told[-1] + 1)), "each number is an event or in a gap"
    assert any(isinstance(item, Gap) for item in seen)


def numbers_of(item: Event | Gap) -> range:
    return range(item.first, item.last + 1) if isinstance(item, Gap) else range(item.number, item.number + 1)


@pytest.mark.parametrize("policy", [GapPolicy.wait(), GapPolicy.raise_()])
async def test_a_pack_that_cannot_be_read_is_a_gap(policy: GapPolicy) -> None:
    async with world() as w, w.bus(gaps=policy) as bus, bus.subscribe("a") as events:
        hostile = w.broker.attach("mallory", lambda message: None)
        hostile.send(Append(Message("m", "a", "mallory", b"not a pack", {BATCH_HEADER: "1"})))
        await until("it arrived", lambda: bool(events.gaps))
        await bus.publish("a", b"2")
        if policy.kind == "raise":
            with pytest.raises(GapError, match="a 1…1 will never come: unreadable"):
                await events.next()
        assert data(await take(events, 1)) == ["2"]
        [gap] = events.gaps
        assert (gap.topic, gap.first, gap.last) == ("a", 1, 1)
        assert events.rejected == 1
        assert "rejected" in str(bus.explain())


async def test_a_broker_that_breaks_the_protocol_harms_nothing() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        feed_of(events)._from_broker(Appended("a", "nonsense", 5))
        feed_of(events)._driver.deliver(BROKER, Nonsense())
        feed_of(events)._driver.deliver(APPLICATION, Nonsense())
        await bus.publish("a", b"1")
        assert data(await take(events, 1)) == ["1"]
        await asyncio.sleep(0)


@pytest.mark.parametrize("after_s", [0, -1, float("nan"), float("inf")])
def test_times_are_checked(after_s: float) -> None:
    with pytest.raises(InputError, match="after_s"):
        GapPolicy.skip(after_s)
    with pytest.raises(InputError, match="unknown gap policy"):
        GapPolicy("hope")  # type: ignore[arg-type]
