"""Subscribing: order across topics, changes while events flow, buckets, back-pressure, ends."""

import asyncio

import pytest

from seriatim.brokers import Deliver, OnError
from seriatim.brokers.memory.broker import MemoryBroker, MemoryPort
from seriatim.client import Limits
from seriatim.client.tree.source import TreeView
from seriatim.model import Address, Closed, InputError, RequestRefused, SeriatimError, TimedOut
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Refused
from seriatim.protocols.with_broker import Listen
from tests.client.world import data, feed_of, take, until, world


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_two_subscribers_see_the_same_order_across_topics(mode: str) -> None:
    broker = MemoryBroker(seed=5, reordering=0.4, delay_ms=1.0)
    tree = SequencingTree.star({"a": 1, "b": 2, "c": 1}, 2)
    async with (
        world(broker, mode=mode, tree=tree) as w,
        w.bus() as one,
        w.bus() as two,
        one.subscribe("a", "b", "c") as first,
        two.subscribe("a", "b", "c") as second,
    ):
        for i in range(60):
            await asyncio.gather(one.publish("abc"[i % 3], b"one %d" % i), two.publish("ab"[i % 2], b"two %d" % i))
        assert data(await take(first, 120)) == data(await take(second, 120))


async def test_entering_waits_for_the_join_and_history_is_not_given() -> None:
    async with world() as w, w.bus() as bus:
        await bus.publish_many("t", [b"before"] * 3)
        async with bus.subscribe("t") as events:
            await bus.publish("t", b"after")
            [event] = await take(events, 1)
            assert (event.data, event.number > 1) == (b"after", True)
            with pytest.raises(TimedOut, match=r"waited 0.05 s for an event of t: none came"):
                await events.next(0.05)


async def test_topics_are_added_and_removed_while_events_flow() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        await bus.publish("b", b"b0")
        await bus.publish("a", b"a1")
        await events.add("b", "c")
        assert events.topics == {"a", "b", "c"}
        await bus.publish("b", b"b1")
        assert data(await take(events, 2)) == ["a1", "b1"]
        await bus.publish("b", b"b2")
        await bus.publish("a", b"a2")
        await until("both are ready", lambda: events.unread == 2)
        await events.remove("b")
        await bus.publish("b", b"b3")
        await bus.publish("c", b"c1")
        got = await take(events, 2)
        assert data(got) == ["a2", "c1"]
        assert events.topics == {"a", "c"}


async def test_a_change_inside_the_loop() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        await bus.publish("a", b"open b")
        seen = []
        async for event in events:
            seen.append(event.data)
            if event.data == b"open b":
                await events.add("b")
                await bus.publish("b", b"close")
            elif event.data == b"close":
                break
        assert seen == [b"open b", b"close"]


async def test_concurrent_changes_take_turns() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        await asyncio.gather(*(events.add(topic) for topic in "bcdef"))
        await asyncio.gather(events.remove("b", "c"), events.add("g"), events.remove("a"))
        assert events.topics == set("defg")
        await bus.publish_many([(topic, topic.encode()) for topic in "abcdefg"])
        assert sorted(data(await take(events, 4))) == list("defg")


async def test_wrong_changes_are_refused_and_change_nothing() -> None:
    tree = SequencingTree({"n": None}, {"a": "n"})
    async with world(tree=tree) as w, w.bus() as bus, bus.subscribe("a") as events:
        with pytest.raises(InputError, match="b is not held; name some of a"):
            await events.remove("a", "b")
        with pytest.raises(InputError, match=r"expected one name, got .*; give them one by one: subscribe\("):
            bus.subscribe(["a", "b"])  # type: ignore[arg-type]
        with pytest.raises(InputError, match="no topic is named"):
            await events.add()
        with pytest.raises(InputError, match="no node is home to it"):
            await events.add("nowhere")
        assert events.topics == {"a"}
        await bus.publish("a", b"x")
        assert data(await take(events, 1)) == ["x"]


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_names_that_share_a_bucket(mode: str) -> None:
    """One bucket for everything: the broker orders all names as one topic, the application sees its own."""

    async with world(MemoryBroker(buckets=1), mode=mode) as w, w.bus() as bus, bus.subscribe("x") as events:
        await bus.publish("y", b"y1")
        await bus.publish_many("x", [b"x1", b"x2"])
        assert data(await take(events, 2)) == ["x1", "x2"]
        await events.add("y")
        view = feed_of(events).view
        assert isinstance(view, TreeView)
        assert view.subscriber.state.version == 1, "a second name of a bucket needs no sequencer"
        await bus.publish_many([("y", b"y2"), ("z", b"z1"), ("x", b"x3")])
        assert sorted(data(await take(events, 2))) == ["x3", "y2"]
        await bus.publish("x", b"x4")
        await bus.publish("y", b"y3")
        await until("both are ready", lambda: events.unread == 2)
        await events.remove("x")
        assert data(await take(events, 1)) == ["y3"]
        await events.remove("y")
        assert events.topics == set()


async def test_unordered_events_come_as_they_arrive() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a", "b", ordered=False) as events:
        await bus.publish_many([("a", b"1"), ("b", b"2")])
        assert sorted(data(await take(events, 2))) == ["1", "2"]
        await events.add("c")
        await events.remove("a")
        await bus.publish_many([("a", b"3"), ("c", b"4")])
        assert data(await take(events, 1)) == ["4"]
        async with bus.subscribe("a", "b", ordered=False, start="first") as replay:
            assert sorted(data(await take(replay, 3))) == ["1", "2", "3"]


async def test_unordered_repeats_are_dropped() -> None:
    broker = MemoryBroker(seed=1, duplication=1.0)
    async with world(broker) as w, w.bus() as bus, bus.subscribe("a", ordered=False) as events:
        for i in range(20):
            await bus.publish("a", b"%d" % i)
        assert data(await take(events, 20)) == [str(i) for i in range(20)]
        with pytest.raises(TimedOut):
            await events.next(0.05)


async def test_batches_give_what_is_there() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("t") as events:
        await bus.publish_many("t", [b"%d" % i for i in range(2500)])
        await until("all are ready", lambda: events.unread == 2500)
        sizes, got = [], []
        async for batch in events.batches(1000):
            sizes.append(len(batch))
            got += data(batch)
            if len(got) == 2500:
                break
        assert sizes == [1000, 1000, 500]
        assert got == [str(i) for i in range(2500)]
        with pytest.raises(InputError, match="max: 0 is too small"):
            await anext(events.batches(0))


async def test_an_application_that_lags_pauses_the_broker() -> None:
    limits = Limits(unread_events=100)
    async with world() as w, w.bus() as bus, w.bus(limits=limits) as reader, reader.subscribe("t") as events:
        for _ in range(20):
            await bus.publish_many("t", [b"x"] * 50)
        await until("the broker is paused", lambda: bool(events.explain().notes))
        assert 100 < events.unread <= 150
        assert "paused" in str(reader.explain())
        got = await take(events, 1000)
        assert len(got) == 1000
        assert not events.explain()


async def test_bytes_count_too() -> None:
    limits = Limits(unread_bytes=1_000_000)
    async with world() as w, w.bus() as bus, w.bus(limits=limits) as reader, reader.subscribe("t") as events:
        await bus.publish_many("t", [bytes(100_000)] * 50)
        await until("the broker is paused", lambda: "paused" in str(events.explain()))
        assert events.unread < 20
        assert len(await take(events, 50)) == 50


class Strict(MemoryBroker):
    """A broker that, while it is paused, gives a machine nothing at all: no answers either."""

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> MemoryPort:
        held: list[Payload] = []
        paused = False

        def strictly(message: Payload) -> None:
            if paused:
                held.append(message)
            else:
                deliver(message)

        def pause(topic: str | None = None) -> None:
            nonlocal paused
            paused = True

        def resume(topic: str | None = None) -> None:
            nonlocal paused
            paused = False
            while held and not paused:
                deliver(held.pop(0))

        port = super().attach(address, strictly, on_error)
        port.pause, port.resume = pause, resume  # type: ignore[method-assign]
        return port


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_change_is_possible_while_the_application_lags(mode: str) -> None:
    limits = Limits(unread_events=10)
    async with (
        world(Strict(), mode=mode) as w,
        w.bus() as bus,
        w.bus(limits=limits) as reader,
        reader.subscribe("t") as events,
    ):
        for _ in range(10):
            await bus.publish_many("t", [b"x"] * 5)
        await until("the broker is paused", lambda: "paused" in str(events.explain()))
        await events.add("u")
        await bus.publish("u", b"y")
        assert data(await take(events, 51)).count("y") == 1


async def test_closing_ends_the_loop_of_another_task() -> None:
    async with world() as w, w.bus() as bus:
        subscription = bus.subscribe("t")
        async with subscription as events:
            seen: list[bytes] = []

            async def read() -> None:
                async for event in events:
                    seen.append(event.data)

            reading = asyncio.ensure_future(read())
            await bus.publish("t", b"x")
            await until("it is read", lambda: len(seen) == 1)
            await events.close()
            await reading
        with pytest.raises(Closed):
            await events.next()
        with pytest.raises(Closed):
            await events.add("u")
        with pytest.raises(Closed):
            await subscription.__aenter__()


async def test_nothing_is_lost_when_next_times_out_or_is_cancelled() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("t") as events:
        got = []
        for i in range(30):
            waiting = asyncio.ensure_future(events.next(0.001))
            bus.publish_nowait("t", b"%d" % i)
            if i % 3 == 0:
                await asyncio.sleep(0)
                waiting.cancel()
            result = (await asyncio.gather(waiting, return_exceptions=True))[0]
            if not isinstance(result, BaseException):
                got.append(result)
        got += await take(events, 30 - len(got))
        assert data(got) == [str(i) for i in range(30)]


async def test_a_join_that_nobody_answers_times_out_and_says_who() -> None:
    async with world() as w, w.bus(timeout_s=0.2) as bus:
        w.cluster._switchboard.unplug("root")
        with pytest.raises(TimedOut, match=r"waited 0\.2 s for a change of topics: node root has not answered for t"):
            async with bus.subscribe("t"):
                pass


async def test_a_broker_that_refuses_ends_the_join() -> None:
    async with world(mode="ticket") as w, w.bus() as bus, bus.subscribe("a") as events:
        feed = feed_of(events)
        adding = asyncio.ensure_future(events.add("b"))
        await asyncio.sleep(0)
        feed._refused_by_broker(Listen("b"), SeriatimError("no permission"))
        with pytest.raises(RequestRefused, match="the broker refused: no permission"):
            await adding
        feed._refused_by_broker(Listen("a"), SeriatimError("no permission any more"))
        with pytest.raises(RequestRefused, match="no permission any more"):
            await events.next()


async def test_a_sequencer_that_refuses_ends_the_join() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        feed = feed_of(events)
        adding = asyncio.ensure_future(events.add("b"))
        await asyncio.sleep(0)
        feed._notified([Refused(2, "b", "no node is home to b")])
        with pytest.raises(RequestRefused, match="a sequencer refused: no node is home to b"):
            await adding


async def test_a_broken_driver_ends_the_iterator_with_the_reason() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        reading = asyncio.ensure_future(events.next())
        await asyncio.sleep(0)
        feed_of(events)._driver.end(SeriatimError("broken on purpose"))
        with pytest.raises(SeriatimError, match="broken on purpose"):
            await reading
        with pytest.raises(SeriatimError, match="broken on purpose"):
            await events.next()
        assert "has ended: broken on purpose" in str(bus.explain())


async def test_leaving_tells_the_nodes() -> None:
    async with world() as w, w.bus() as bus:
        async with bus.subscribe("a", "b"):
            holders = w.cluster.hosts[0].machine.state.sequencer.couplings.holders
            assert [sorted(holder.topics) for holder in holders.values()] == [["a", "b"]]
        assert all(not holder.topics for holder in holders.values())


async def test_what_is_not_entered_cannot_be_used() -> None:
    async with world() as w:
        bus = w.bus()
        with pytest.raises(Closed, match="enter the bus first"):
            bus.subscribe("t")
        async with bus:
            events = bus.subscribe("t")
            with pytest.raises(Closed, match="enter the subscription first"):
                await events.next()
            with pytest.raises(Closed, match="used once"):
                await bus.__aenter__()
        with pytest.raises(Closed, match="the bus is closed"):
            await bus.publish("t", b"x")


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        ({"start": 7, "ordered": False}, "events that are not ordered have no position"),
        ({"start": "yesterday"}, "unknown value 'yesterday'"),
        ({"acknowledge": "never"}, "unknown value 'never'"),
        ({"durable": "a b"}, "durable: 'a b' is not a name"),
        ({"durable": "d", "ordered": False}, "unordered subscriptions are not durable"),
        ({"gaps": "skip"}, "expected a GapPolicy, got 'skip'"),
    ],
)
async def test_wishes_are_checked_at_once(wishes: dict[str, object], problem: str) -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(InputError, match=problem):
            bus.subscribe("t", **wishes)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="topics: no topic is named"):
            bus.subscribe()
