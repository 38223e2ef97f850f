"""Subscriptions that begin with the past: what a late one gets is what an early one got."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client import Event, Subscription
from seriatim.client.brokered import feed
from seriatim.client.options import Limits
from seriatim.client.tree.session import embedded_tree
from seriatim.model import Closed, Gap, InputError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from tests.client.crashes import Store, kill
from tests.client.world import World, data, feed_of, take, until, world

TREES = {
    "single": SequencingTree.single("abc"),
    "star": SequencingTree.star({"a": 1, "b": 2, "c": 3}, leaves=3),
}


@asynccontextmanager
async def global_world(
    mode: str = "log", shape: str = "single", broker: MemoryBroker | None = None, **options: Any
) -> AsyncIterator[World]:
    """A cluster with one order for everybody."""
    broker = broker if broker is not None else MemoryBroker()
    times = {"retry_ms": 50.0, "lease_ms": 1_000.0, "patience_ms": 200.0, "order_ms": 5.0}
    tree_options = TreeOptions(mode=mode, order="global", **times | options)  # type: ignore[arg-type]
    # Topics are listed, so that their logs are watched, and in the order log, before anybody holds them.
    cluster = embedded_tree(broker, tree_options, TREES[shape])
    await cluster.start()
    try:
        yield World(broker, cluster)
    finally:
        await cluster.close()


def texts(count: int, first: int = 1) -> list[tuple[str, bytes]]:
    return [("abc"[number % 3], b"%d" % number) for number in range(first, first + count)]


async def ordered(w: World, count: int) -> None:
    """Wait until the order log has so many positions."""
    log = w.broker.order_log()
    assert log is not None
    assert await log.wait(count - 1, 30.0)


@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_late_subscriber_gets_what_an_early_one_got(mode: str, shape: str) -> None:
    async with (
        global_world(mode, shape, history_window=16) as w,
        w.bus() as bus,
        bus.subscribe("a", "b", "c") as early,
    ):
        for topic, text in texts(100):
            await bus.publish(topic, text)
        seen = await take(early, 100)
        async with bus.subscribe("a", "b", "c", start="first") as late:
            past = await take(late, 100)
            assert data(past) == data(seen)
            assert all(event.is_history for event in past)
            assert [event.position for event in past] == list(range(1, 101))
            await late.caught_up()
            assert late.progress().is_live
            assert late.progress().share == 1.0
            await bus.publish_many(texts(30, first=101))
            live = await take(late, 30)
            assert not any(event.is_history for event in live)
            assert data(live) == data(await take(early, 30))


async def test_joins_in_the_middle_of_traffic_miss_and_repeat_nothing() -> None:
    async with global_world(shape="star", history_window=8) as w, w.bus() as bus, bus.subscribe("a", "b", "c") as early:

        async def publish() -> None:
            for topic, text in texts(600):
                await bus.publish(topic, text)

        async def late(after: int) -> list[str]:
            await until("some are ordered", lambda: early.unread >= after)
            async with bus.subscribe("a", "b", "c", start="first") as events:
                return data(await take(events, 600))

        results = await asyncio.gather(publish(), late(0), late(50), late(300))
        expected = data(await take(early, 600))
        for result in results[1:]:
            assert result == expected


async def test_it_begins_at_a_position_a_number_or_a_time() -> None:
    async with global_world() as w, w.bus() as bus:
        for topic, text in texts(9):
            await bus.publish(topic, text)
        await ordered(w, 9)
        between = datetime.now(UTC)
        await until("the clock goes on", lambda: datetime.now(UTC) > between)
        for topic, text in texts(6, first=10):
            await bus.publish(topic, text)
        await ordered(w, 15)
        async with bus.subscribe("a", "b", "c", start=12) as events:
            assert data(await take(events, 4)) == ["12", "13", "14", "15"]
        async with bus.subscribe("a", "b", "c", start=between) as events:
            assert data(await take(events, 6)) == ["10", "11", "12", "13", "14", "15"]
        async with bus.subscribe("a", "b", start={"b": 4}) as events:
            assert data(await take(events, 2)) == ["10", "13"]
            await events.caught_up()
            await bus.publish("a", b"live")
            assert data(await take(events, 1)) == ["live"]


async def test_a_number_that_does_not_exist_yet_begins_with_the_next_event() -> None:
    async with global_world() as w, w.bus() as bus:
        await bus.publish("a", b"1")
        await ordered(w, 1)
        async with bus.subscribe("a", "b", start={"a": 17}) as events:
            await events.caught_up()
            await bus.publish("a", b"2")
            assert data(await take(events, 1)) == ["2"]


async def test_what_is_no_place_in_the_past_is_refused() -> None:
    async with global_world() as w, w.bus() as bus:
        await bus.publish("a", b"1")
        await ordered(w, 1)
        for bad, problem in {
            0: "there is no position 0",
            -1: "no position -1",
            1.5: "unknown value 1.5",
            "last": "unknown value 'last'",
            True: "unknown value True",
        }.items():
            with pytest.raises(InputError, match=problem):
                bus.subscribe("a", start=bad)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="has no time zone"):
            bus.subscribe("a", start=datetime(2026, 1, 1))
        with pytest.raises(InputError, match="b is not subscribed to"):
            bus.subscribe("a", start={"b": 1})
        with pytest.raises(InputError, match="a has no number 0"):
            bus.subscribe("a", start={"a": 0})
        with pytest.raises(InputError, match="no topic is named"):
            bus.subscribe("a", start={})
        with pytest.raises(InputError, match="events that are not ordered have no position"):
            bus.subscribe("a", start=1, ordered=False)


async def test_a_pairwise_cluster_has_no_past() -> None:
    async with world(order="pairwise") as w, w.bus() as bus:
        with pytest.raises(InputError, match="orders pairwise"):
            await bus.subscribe("a", start="first").__aenter__()
        async with bus.subscribe("a") as events:
            with pytest.raises(InputError, match="orders pairwise"):
                await events.seek("first")
            await events.caught_up()
            assert events.progress().is_live


async def test_an_application_that_does_not_read_bounds_what_is_fetched() -> None:
    async with global_world(history_window=32) as w, w.bus() as bus, w.bus(limits=Limits(unread_events=20)) as slow:
        for topic, text in texts(500):
            await bus.publish(topic, text)
        async with slow.subscribe("a", "b", "c", start="first") as events:
            await until("it is paused", lambda: feed_of(events).is_paused)
            paused_at = datetime.now(UTC)
            await until("several retries", lambda: datetime.now(UTC) > paused_at + timedelta(seconds=0.3))
            assert events.unread <= 20 + 32
            assert not events.progress().is_live
            assert any("reads history: position" in note for note in events.explain().sentences)
            assert events.metrics().history_left > 400
            assert data(await take(events, 500)) == [text.decode() for _, text in texts(500)]
            await events.caught_up()
            assert events.metrics().history_left == 0


async def test_topics_are_added_when_it_is_live() -> None:
    async with global_world() as w, w.bus() as bus:
        for topic, text in texts(30):
            await bus.publish(topic, text)
        async with bus.subscribe("a", "b", start="first") as events:
            if not events.progress().is_live:
                with pytest.raises(InputError, match="still reads the past"):
                    await events.add("c")
            await take(events, 20)
            await events.caught_up()
            await events.add("c")
            await bus.publish("c", b"x")
            assert data(await take(events, 1)) == ["x"]


async def test_closing_wakes_whoever_waits_for_the_end_of_the_past() -> None:
    async with global_world() as w, w.bus() as bus:
        await bus.publish("a", b"1")
        await ordered(w, 1)
        async with bus.subscribe("a", start="first") as events:
            waiting = asyncio.create_task(events.caught_up())
            await until("it has come", lambda: events.unread == 1)
        with pytest.raises(Closed):
            await waiting


# ── durable ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_durable_reader_that_is_killed_again_and_again_gets_everything_once(mode: str) -> None:
    store = Store()
    got: list[Event] = []
    async with global_world(mode, "star", history_window=4) as w, w.bus() as bus:
        async with bus.subscribe("a", "b", "c") as early:
            for topic, text in texts(60):
                await bus.publish(topic, text)
            expected = data(await take(early, 60))
        for _ in range(10):
            async with w.bus(journals=store.open_journal) as reader:
                subscribing = reader.subscribe("a", "b", "c", durable="d", start="first", acknowledge="manual")
                async with subscribing as events:
                    got += await take(events, 6)
                    await events.acknowledge()
                    assert not got[-1].replayed
                    await take(events, 1) if len(got) < 60 else None  # taken, and not acknowledged
                    await kill(events)
        assert data(got) == expected


async def test_a_snapshot_in_the_middle_of_the_past_goes_on_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SNAPSHOT_BYTES_MIN", 200)
    store = Store()
    got: list[Event] = []
    async with global_world(history_window=4) as w, w.bus() as bus:
        await bus.publish_many(texts(1))
        for topic, text in texts(99, first=2):
            await bus.publish(topic, text)
        for _ in range(10):
            async with (
                w.bus(journals=store.open_journal) as reader,
                reader.subscribe("a", "b", durable="d", start={"a": 3, "b": 2}) as events,
            ):
                got += await take(events, 3 if not got else 6)
                await events.acknowledge()
                await kill(events)
    numbers = {topic: [event.number for event in got if event.topic == topic] for topic in "ab"}
    assert numbers["a"] == list(range(3, 3 + len(numbers["a"])))
    assert numbers["b"] == list(range(2, 2 + len(numbers["b"])))
    assert len(got) == 57


async def test_seeking_begins_anew_and_survives_a_crash() -> None:
    store = Store()

    async def all_of(events: Subscription, count: int) -> list[Event]:
        return await take(events, count)

    async with global_world() as w, w.bus() as bus:
        for topic, text in texts(9):
            await bus.publish(topic, text)
        await ordered(w, 9)
        async with w.bus(journals=store.open_journal) as reader:
            async with reader.subscribe("a", "b", durable="d", start="first") as events:
                assert data(await all_of(events, 3)) == ["1", "3", "4"]
                await events.seek(7)
                assert data(await all_of(events, 1)) == ["7"]
                await events.seek("first")
                await kill(events)
            async with reader.subscribe("a", "b", durable="d", start=9) as events:
                assert data(await all_of(events, 6)) == ["1", "3", "4", "6", "7", "9"]
                await bus.publish("a", b"10")
                assert data(await all_of(events, 1)) == ["10"]
        async with bus.subscribe("a", ordered=False) as plain:
            with pytest.raises(InputError, match="not ordered"):
                await plain.seek("first")
        async with bus.subscribe("a") as live:
            with pytest.raises(InputError, match="cannot skip to now"):
                await live.seek("now")


async def test_what_retention_took_is_a_gap() -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus() as bus:
        for text in (b"1", b"2", b"3", b"4"):
            await bus.publish("a", text)
        broker.trim("a", 3)
        async with bus.subscribe("a", start="first", show_gaps=True) as events:
            items: list[Event | Gap] = []
            while len([item for item in items if isinstance(item, Event)]) < 2:
                items.append(await anext(events))
            lost = [number for item in items if isinstance(item, Gap) for number in range(item.first, item.last + 1)]
            assert lost == [1, 2]
            assert data([item for item in items if isinstance(item, Event)]) == ["3", "4"]


async def test_an_order_log_that_somebody_deletes_is_a_gap() -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus() as bus:
        for topic, text in texts(6):
            await bus.publish(topic, text)
        await ordered(w, 6)
        broker.keep_order(0, 0)
        async with bus.subscribe("a", "b", start="first", show_gaps=True) as events:
            await until("it is live", lambda: events.progress().is_live)
            gaps = [await anext(events) for _ in range(2)]
            assert [(gap.topic, gap.first, gap.last) for gap in gaps if isinstance(gap, Gap)] == [
                ("a", 1, 2),
                ("b", 1, 2),
            ]
            await bus.publish("a", b"7")
            event = await anext(events)
            assert isinstance(event, Event) and event.position == 7, "no position is given twice"
        with pytest.raises(InputError, match="position 3 is no longer in the order log"):
            await bus.subscribe("a", start=3).__aenter__()


async def test_a_past_that_was_left_unread_does_not_end_the_next_one() -> None:
    async with global_world(history_window=4) as w, w.bus() as bus:
        for topic, text in texts(9):
            await bus.publish(topic, text)
        await ordered(w, 9)
        async with bus.subscribe("a", "b", "c", start="first") as events:
            await until("the past is told", lambda: events.progress().is_live)
            assert events.unread == 9
            await events.seek("first")
            await take(events, 1)
            with pytest.raises(TimeoutError):  # eight events of the past are not taken
                await asyncio.wait_for(events.caught_up(), 0.1)
            await take(events, 8)
            await events.caught_up()


async def test_leaving_every_topic_ends_the_past() -> None:
    async with global_world(history_window=4) as w, w.bus(limits=Limits(unread_events=2)) as bus:
        for topic, text in texts(30):
            await bus.publish(topic, text)
        await ordered(w, 30)
        async with bus.subscribe("a", "b", "c", start="first") as events:
            assert not events.progress().is_live
            await events.remove("a", "b", "c")
            await asyncio.wait_for(events.caught_up(), 5.0)
            await events.add("a")
            await bus.publish("a", b"news")
            assert data(await take(events, 1)) == ["news"]
