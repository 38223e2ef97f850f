"""Where a subscription with a past may begin: the order log lags, part of the past is gone, and the gap policies."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from seriatim import GapError, GapPolicy
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client import Bus, Event, Subscription
from seriatim.client.history import Start
from seriatim.client.options import Limits
from seriatim.client.tree.source import TreeSource
from seriatim.model import Address, Gap, InputError
from seriatim.protocols.broker import KeepOrder
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import Ordered
from tests.client.crashes import Store
from tests.client.tree.test_history import global_world, ordered, texts
from tests.client.world import data, feed_of, take, until

POLICIES = {"wait": GapPolicy.wait(), "skip": GapPolicy.skip(), "raise": GapPolicy.raise_()}
each_policy = pytest.mark.parametrize("policy", POLICIES)


class HeldBack:
    """The order log gets nothing while this is active: its writer is slow, or away."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._hub = broker._hub
        self._send = self._hub.send
        self.held: list[tuple[Address | None, Payload]] = []

    def _keep_back(self, source: Address | None, message: Payload) -> None:
        if isinstance(message, Ordered):
            self.held.append((source, message))
        else:
            self._send(source, message)

    @contextmanager
    def active(self) -> Iterator["HeldBack"]:
        self._hub.send = self._keep_back  # type: ignore[method-assign]
        try:
            yield self
        finally:
            self.release()

    def release(self) -> None:
        self._hub.send = self._send  # type: ignore[method-assign]
        for source, message in self.held:
            self._send(source, message)
        self.held.clear()


async def publish(bus: Bus, count: int, first: int = 1) -> None:
    for topic, text in texts(count, first):
        await bus.publish(topic, text)


async def trim(broker: MemoryBroker, topic: str, first: int) -> None:
    """Retention removes the numbers below `first`."""
    broker.trim(topic, first)
    await until("they are gone", lambda: broker._hub.kept(topic).first == first)


async def keep_order(broker: MemoryBroker, first: int, last: int) -> None:
    """Somebody leaves only these positions of the order log; the root goes on behind them."""
    broker.keep_order(first, last)
    await until("they are gone", lambda: KeepOrder not in {type(message) for _, message in broker._hub.requests})


async def refused(bus: Bus, *topics: str, match: str, **options: Any) -> None:
    with pytest.raises(InputError, match=match):
        await bus.subscribe(*topics, **options).__aenter__()


async def items(events: Subscription, count: int) -> list[str]:
    """The next events, and missing numbers in their places; `raised` if the gap came as an error."""
    found: list[str] = []
    async with asyncio.timeout(60.0):
        while len(found) < count:
            try:
                item: Event | Gap = await anext(events)
            except GapError as error:
                found += [f"raised {error.topic} {number}" for number in range(error.first, error.last + 1)]
                continue
            found += numbers_of(item) if isinstance(item, Gap) else [item.data.decode()]
    return found


def numbers_of(gap: Gap) -> list[str]:
    return [f"{gap.topic} {number}" for number in range(gap.first, gap.last + 1)]


# ── an order log that lags ────────────────────────────────────────────────────────────────────────────────────────


async def begin(bus: Bus, events: Subscription | None, start: Start, **options: Any) -> Subscription:
    """Begin there: a new subscription, or by `seek` one that there is."""
    if events is not None:
        await events.seek(start)
        return events
    return await bus.subscribe("a", "b", "c", start=start, **options).__aenter__()


@pytest.mark.parametrize("way", ["subscribe", "durable", "seek"])
async def test_a_position_that_the_order_log_does_not_have_yet_is_waited_for(way: str) -> None:
    broker, store = MemoryBroker(), Store()
    async with (
        global_world(broker=broker) as w,
        w.bus(journals=store.open_journal) as bus,
        bus.subscribe("a", "b", "c") as early,
    ):
        await publish(bus, 2)
        await ordered(w, 2)
        with HeldBack(broker).active() as held:
            await publish(bus, 3, first=3)
            assert [event.position for event in await take(early, 5)] == [1, 2, 3, 4, 5]
            live = await bus.subscribe("a", "b", "c").__aenter__() if way == "seek" else None
            options = {"durable": "d"} if way == "durable" else {}
            beginning = asyncio.create_task(begin(bus, live, 5, **options))
            wanted = "it waits for position 5 of the order log, which ends with 2: the root writes it"
            await until("it says what it waits for", lambda: wanted in str(bus.explain()))
            assert not beginning.done()
            held.release()
            events = await beginning
            assert "position 5" not in str(bus.explain())
        assert data(await take(events, 1)) == ["5"]
        await publish(bus, 1, first=6)
        assert data(await take(events, 1)) == ["6"]
        await events.close() if way != "seek" else None


async def test_the_position_behind_the_last_one_is_how_to_go_on() -> None:
    async with global_world() as w, w.bus() as bus:
        await publish(bus, 4)
        await ordered(w, 4)
        async with bus.subscribe("a", "b", "c", start=5) as events:
            await events.caught_up()
            await publish(bus, 2, first=5)
            assert data(await take(events, 2)) == ["5", "6"]


async def test_whoever_has_the_last_position_can_go_on_although_nobody_has_written_it_yet() -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus() as bus, bus.subscribe("a", "b", "c") as early:
        with HeldBack(broker).active() as held:
            await publish(bus, 4)
            (*_, last) = await take(early, 4)
            assert last.position == 4
            beginning = asyncio.create_task(bus.subscribe("a", "b", "c", start=last.position + 1).__aenter__())
            await until("it waits", lambda: "position 5 of the order log, which ends with 0" in str(bus.explain()))
            held.release()
            events = await beginning
        await events.caught_up()
        await publish(bus, 1, first=5)
        assert data(await take(events, 1)) == ["5"]


async def test_a_position_that_does_not_come_is_refused_when_the_time_is_over() -> None:
    async with global_world() as w, w.bus(timeout_s=0.3) as bus, bus.subscribe("a") as live:
        await refused(bus, "a", start=2, match="no position 2 yet: the order log ends with 0, and waited 0.3 s for it")
        await bus.publish("a", b"1")
        await ordered(w, 1)
        match = "there is no position 3 yet: the order log ends with 1, and waited 0.3 s for it; give at most 2"
        await refused(bus, "a", start=3, match=match)
        with pytest.raises(InputError, match=match):
            await live.seek(3)
        assert data(await take(live, 1)) == ["1"], "it goes on as if nothing had been asked for"
        assert "position 3" not in str(live.explain())


async def test_an_empty_order_log_begins_with_position_one() -> None:
    async with global_world() as w, w.bus() as bus, bus.subscribe("a", start=1) as events:
        await events.caught_up()
        await bus.publish("a", b"1")
        assert data(await take(events, 1)) == ["1"]


# ── times ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_time_before_the_first_event_begins_with_it() -> None:
    before = datetime.now(UTC) - timedelta(hours=1)
    async with global_world() as w, w.bus() as bus:
        await publish(bus, 4)
        await ordered(w, 4)
        async with bus.subscribe("a", "b", "c", start=before) as events:
            assert data(await take(events, 4)) == ["1", "2", "3", "4"]


async def test_a_time_behind_the_last_event_begins_with_the_next_one() -> None:
    """As after a restart in a quiet hour."""
    async with global_world() as w, w.bus() as bus, bus.subscribe("a", "b", "c", start=datetime.now(UTC)) as new:
        await publish(bus, 4)
        await ordered(w, 4)
        quiet = datetime.now(UTC)
        await until("the clock goes on", lambda: datetime.now(UTC) > quiet)
        async with bus.subscribe("a", "b", "c", start=quiet) as events:
            await events.caught_up()
            await events.seek(quiet)
            await events.caught_up()
            await publish(bus, 1, first=5)
            assert data(await take(events, 1)) == ["5"]
        assert data(await take(new, 5)) == ["1", "2", "3", "4", "5"]


async def test_what_lies_in_the_future_is_refused() -> None:
    async with global_world() as w, w.bus() as bus:
        later = datetime.now(UTC) + timedelta(hours=1)
        await refused(bus, "a", start=later, match="is in the future: it is .*; give a time that has passed")
        await publish(bus, 1)
        await ordered(w, 1)
        await refused(bus, "a", start=later, match="is in the future")


async def test_a_time_that_retention_took_is_refused() -> None:
    broker, before = MemoryBroker(), datetime.now(UTC)
    async with global_world(broker=broker) as w, w.bus() as bus:
        await publish(bus, 6)
        await ordered(w, 6)
        await keep_order(broker, 4, 6)
        problem = 'the order log no longer has what was published at .*; start="first" begins with position 4'
        await refused(bus, "a", "b", "c", start=before, match=problem)
        async with bus.subscribe("a", "b", "c", start=before, gaps=GapPolicy.skip(), show_gaps=True) as events:
            assert sorted(await items(events, 6)) == ["4", "5", "6", "a 1", "b 1", "c 1"]


# ── part of the past is gone ──────────────────────────────────────────────────────────────────────────────────────


@each_policy
async def test_the_first_is_what_is_kept(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus(gaps=POLICIES[policy]) as bus:
        for text in (b"1", b"2", b"3", b"4"):
            await bus.publish("a", text)
        await ordered(w, 4)
        await trim(broker, "a", 3)
        async with bus.subscribe("a", start="first") as events:
            gap = ["raised a 1", "raised a 2"] if policy == "raise" else []
            assert await items(events, 2 + len(gap)) == [*gap, "3", "4"]
            assert [word for each in events.gaps for word in numbers_of(each)] == ["a 1", "a 2"]
            assert events.metrics().gaps == len(events.gaps)
            await events.caught_up()
        lines = [record.getMessage() for record in caplog.records if "part of the past" in record.getMessage()]
        told = f"part of the past is missing: subscriber={events.name} topic=a first="
        assert [line.replace(told, "") for line in lines] == [
            f"{each.first} last={each.last} reason=the broker no longer keeps it" for each in events.gaps
        ]
        async with bus.subscribe("a", start="first", show_gaps=True) as events:
            assert await items(events, 4) == [*(gap or ["a 1", "a 2"]), "3", "4"]


@each_policy
@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ({"a": 1}, 'a 1 is no longer kept; it begins with 3; start="first" begins there'),
        ({"b": 1, "a": 2}, "a 2 is no longer kept; it begins with 3"),
        (1, "behind position 1, a 1 to 2 is no longer kept; position 5 is the first behind which all is kept"),
        (3, "behind position 3, a 2 is no longer kept; position 5 is the first behind which all is kept"),
        (datetime(2026, 1, 1, tzinfo=UTC), "behind what was published at 2026-01-01.*, a 1 to 2 is no longer kept"),
    ],
    ids=["number", "numbers", "first position", "position", "time"],
)
async def test_a_named_place_that_retention_took_is_refused_unless_gaps_are_skipped(
    policy: str, start: Start, problem: str
) -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus(gaps=POLICIES[policy]) as bus:
        for number in range(1, 5):  # positions 1, 3, 5, 7 are of a
            await bus.publish("a", b"a%d" % number)
            await bus.publish("b", b"b%d" % number)
        await ordered(w, 8)
        await trim(broker, "a", 3)
        if policy != "skip":
            await refused(bus, "a", "b", start=start, match=f"{problem}.*gaps=GapPolicy.skip")
            async with bus.subscribe("a", "b") as live:
                with pytest.raises(InputError, match=problem):
                    await live.seek(start)
            return
        async with bus.subscribe("a", "b", start=start, show_gaps=True) as events:
            await until("it is live", lambda: events.progress().is_live)
            got = [await anext(events) for _ in range(events.unread + len(events.gaps))]
            texts = [item.data.decode() for item in got if isinstance(item, Event)]
            assert [text for text in texts if text.startswith("a")] == ["a3", "a4"]
            assert [(gap.topic, gap.last) for gap in got if isinstance(gap, Gap)][-1] == ("a", 2)


async def test_a_number_that_is_kept_begins_where_others_are_gone() -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus() as bus:
        await publish(bus, 12)
        await ordered(w, 12)
        await trim(broker, "b", 3)
        async with bus.subscribe("a", "b", start={"a": 2}) as events:
            assert data(await take(events, 3)) == data(await take_of(bus, "a", 2, 3))


async def take_of(bus: Bus, topic: str, number: int, count: int) -> list[Event]:
    async with bus.subscribe(topic, start={topic: number}) as events:
        return await take(events, count)


@each_policy
async def test_a_number_that_the_order_log_has_lost_is_refused_unless_gaps_are_skipped(policy: str) -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus(timeout_s=0.5, gaps=POLICIES[policy]) as bus:
        for text in (b"1", b"2", b"3", b"4"):
            await bus.publish("a", text)
        await ordered(w, 4)
        await keep_order(broker, 0, 0)
        if policy == "skip":
            async with bus.subscribe("a", start={"a": 3}, show_gaps=True) as events:
                assert await items(events, 2) == ["a 3", "a 4"]
                await bus.publish("a", b"5")
                assert await items(events, 1) == ["5"]
            return
        problem = "the order log does not have a 3, and waited 0.5 s for it: the event is from before the order log"
        await refused(bus, "a", start={"a": 3}, match=problem)
        async with w.bus() as patient:
            await patient.publish("a", b"5")
            await ordered(w, 5)
            problem = 'the order log has a only from number 5 on: .*; start="first" begins there'
            await refused(bus, "a", start={"a": 3}, match=problem)
            async with patient.subscribe("a", start={"a": 5}) as events:
                assert data(await take(events, 1)) == ["5"]


async def test_a_number_whose_place_is_not_written_yet_is_waited_for() -> None:
    broker = MemoryBroker()
    async with global_world(broker=broker) as w, w.bus() as bus, bus.subscribe("a"):
        with HeldBack(broker).active() as held:
            await bus.publish("a", b"1")
            beginning = asyncio.create_task(bus.subscribe("a", start={"a": 1}).__aenter__())
            await until("it waits", lambda: "a 1 in the order log, which ends with 0" in str(bus.explain()))
            held.release()
            events = await beginning
        assert data(await take(events, 1)) == ["1"]


@each_policy
@pytest.mark.parametrize("lost", ["events", "order"])
async def test_retention_that_runs_over_a_reader_is_treated_as_live(
    policy: str, lost: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = TreeSource._options
    monkeypatch.setattr(TreeSource, "_options", lambda self: structs.replace(usual(self), history_window=4))
    broker = MemoryBroker()
    async with (
        global_world(broker=broker) as w,
        w.bus() as bus,
        w.bus(limits=Limits(unread_events=4), gaps=POLICIES[policy]) as slow,
    ):
        await publish(bus, 3_300 if lost == "order" else 300)  # a whole part of the order log is read at once
        total = 3_300 if lost == "order" else 300
        await ordered(w, total)
        async with slow.subscribe("a", "b", "c", start="first") as events:
            await until("it is paused", lambda: feed_of(events).is_paused)
            assert not events.progress().is_live
            if lost == "events":
                for topic in "abc":
                    await trim(broker, topic, 90)
                after = 269  # from this number on, everything is kept
            else:
                await keep_order(broker, total - 20, total)
                after = total - 20
            if policy == "skip":
                got = [int(event.data) for event in await take(events, 1)]
                while got[-1] != total:
                    got += [int(event.data) for event in await take(events, 1)]
                assert got == sorted(got) and got[-20:] == list(range(total - 19, total + 1))
                assert len(got) < total and len(events.gaps) >= 3
                assert "part of the past is missing" in caplog.text
                await events.caught_up()
                return
            if policy == "raise":
                words = [""]
                while words[-1] != str(total):
                    words += await items(events, 1)
                raised = [place for place, word in enumerate(words) if word.startswith("raised")]
                assert words[1 : raised[0]] == [str(number) for number in range(1, raised[0])], "nothing before the gap"
                later = [word for word in words[raised[0] :] if word.isdigit()]
                assert later[-20:] == [str(number) for number in range(total - 19, total + 1)], "it goes on behind it"
                return
            caplog.set_level(logging.WARNING)
            got = [int((await events.next()).data)]
            while True:
                try:
                    got.append(int((await events.next(timeout_s=1.0)).data))
                except TimeoutError:
                    break
            assert got == list(range(1, got[-1] + 1)) and got[-1] < after
            await until("it says so", lambda: "stops at a gap" in str(events.explain()))
            assert "this wait does not end by itself" in str(events.explain())
            assert "event will not come" in caplog.text
            assert not events.progress().is_live
            assert not events.gaps
            await events.seek("first")
            assert int((await events.next()).data) >= after - 2, "a decision: begin with what is kept"
            assert "does not end by itself" not in str(events.explain())
