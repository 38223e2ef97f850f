"""Explaining: what waits for what, since when, and for which process, as data and in sentences."""

import asyncio

from seriatim.client import Explanation
from seriatim.model import BROKER
from seriatim.model import Event as Message
from seriatim.protocols.with_broker import Delivered
from tests.client.test_publishing import Gate
from tests.client.world import feed_of, take, until, world


async def test_nothing_waits() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        assert not bus.explain()
        assert str(bus.explain()) == "nothing waits"
        assert events.explain() == Explanation()


async def test_a_held_event_names_what_it_waits_for_and_whom_to_ask() -> None:
    async with world(mode="ticket") as w, w.bus() as bus, bus.subscribe("a", "b") as events:
        event = Message("x-1", "a", "x")
        feed_of(events)._driver.deliver(BROKER, Delivered("a", 1, {"b": 4}, event))
        [held] = bus.explain().held
        waiting = held.waiting
        assert (waiting.topic, waiting.number, waiting.waits_for, waiting.home) == ("a", 1, ("b", 4), "root")
        assert 0 <= held.seconds < 60
        expected = f"{events.name}: a 1 is held since {held.seconds:.1f} s: b 4 is not done (node root knows)"
        assert held.sentence == expected
        assert expected in str(bus.explain())


async def test_what_is_not_published_yet() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        broker.is_shut = True
        futures = [bus.publish_nowait("a", b"1")]
        await until("it is under way", lambda: len(broker.ignored) == 1)
        futures += [bus.publish_nowait("a", b"2"), bus.publish_nowait("b", b"3")]
        await until("both of a and b are under way", lambda: len(broker.ignored) == 2)
        lines = bus.explain().unpublished
        assert "a: 1 events wait for the next message" in lines
        assert "1 events of a: request 1 waits for the broker" in lines
        broker.is_shut = False
        await asyncio.gather(*futures)
        assert not bus.explain()


async def test_a_change_under_way_names_who_has_not_answered() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        [host] = w.cluster.hosts
        w.cluster._switchboard.unplug("root")
        adding = asyncio.ensure_future(events.add("b"))
        await until("the change is under way", lambda: bool(events.explain().notes))
        assert "a change of topics is under way: node root has not answered for b" in str(events.explain())
        w.cluster._switchboard.attach("root", host.driver.deliver)
        await adding
        await bus.publish("b", b"1")
        await take(events, 1)
