"""Durable subscriptions: nothing is lost, and only what was handed out and not acknowledged comes again."""

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client import Bus, Event, Subscription
from seriatim.client.brokered import feed
from seriatim.client.tree.durable import DurableSubscriber, Mark, Past
from seriatim.model import APPLICATION, BROKER, Fenced, Gap, InputError, JournalError, TimedOut
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Began, Joined
from seriatim.protocols.with_broker import Trimmed
from tests.client.crashes import Store, kill
from tests.client.world import data, take, until, world


def marked(events: list[Event]) -> list[str]:
    """What the events say, replayed ones with a star."""
    return [event.data.decode() + "*" * event.replayed for event in events]


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_restart_goes_on_without_loss_or_repetition(mode: str) -> None:
    store = Store()
    async with world(mode=mode) as w, w.bus() as bus:
        async with w.bus(journals=store.open_journal) as reader, reader.subscribe("a", "b", durable="d") as events:
            await bus.publish_many([("a", b"1"), ("b", b"2")])
            assert len(await take(events, 2)) == 2
            await bus.publish("a", b"3")
        await bus.publish_many([("a", b"4"), ("b", b"5")])
        async with w.bus(journals=store.open_journal) as reader, reader.subscribe("a", "b", durable="d") as events:
            # The last one taken was never acknowledged: closing is not asking for the next one.
            assert sorted(marked(await take(events, 4))) == ["2*", "3", "4", "5"]


async def test_acknowledging_by_hand() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:

        def subscribe() -> Subscription:
            return reader.subscribe("a", durable="d", acknowledge="manual")

        async with subscribe() as events:
            for text in (b"1", b"2", b"3", b"4"):
                await bus.publish("a", text)
            assert data(await take(events, 2)) == ["1", "2"]
            await events.acknowledge()
            assert data(await take(events, 1)) == ["3"]
            await kill(events)
        async with subscribe() as events:
            assert marked(await take(events, 2)) == ["3*", "4"]
            await events.acknowledge()
        async with subscribe() as events:
            with pytest.raises(TimedOut):
                await events.next(0.05)
        async with reader.subscribe("a") as plain:
            with pytest.raises(InputError, match="the subscription is not durable"):
                await plain.acknowledge()


async def test_a_pack_half_taken_goes_on_in_its_middle() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            receipts = await bus.publish_many("a", [b"%d" % i for i in range(10)])
            assert {receipt.number for receipt in receipts} == {1}
            assert data(await take(events, 4)) == ["0", "1", "2", "3"]
            await kill(events)
        async with reader.subscribe("a", durable="d") as events:
            assert marked(await take(events, 3)) == ["3*", "4", "5"]
            await kill(events)
        async with reader.subscribe("a", durable="d") as events:
            assert marked(await take(events, 5)) == ["5*", "6", "7", "8", "9"]
            with pytest.raises(TimedOut):  # asking for the next one acknowledges the last
                await events.next(0.3)
        async with reader.subscribe("a", durable="d") as events:
            with pytest.raises(TimedOut):
                await events.next(0.3)


async def test_batches_are_acknowledged_as_a_whole() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await bus.publish_many("a", [b"%d" % i for i in range(10)])
            await until("all are ready", lambda: events.unread == 10)
            batches = events.batches(4)
            assert data(await anext(batches)) == ["0", "1", "2", "3"]
            assert data(await anext(batches)) == ["4", "5", "6", "7"]
            await kill(events)
        async with reader.subscribe("a", durable="d") as events:
            assert marked(await take(events, 6)) == ["4*", "5*", "6*", "7*", "8", "9"]


async def test_what_was_ready_but_never_handed_out_is_not_replayed() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await bus.publish_many("a", [b"1", b"2"])
            await until("both are ready", lambda: events.unread == 2)
            await kill(events)
        async with reader.subscribe("a", durable="d") as events:
            assert marked(await take(events, 2)) == ["1", "2"]


async def test_an_event_is_not_acknowledged_because_its_reader_was_cancelled() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await bus.publish("a", b"1")
            await until("it is ready", lambda: events.unread == 1)
            reading = asyncio.ensure_future(events.next())
            for _ in range(100):  # turn by turn, until it is being written down as taken
                await asyncio.sleep(0)
                if events.unread == 0:
                    break
            reading.cancel()
            assert isinstance((await asyncio.gather(reading, return_exceptions=True))[0], asyncio.CancelledError)
            assert marked(await take(events, 1)) == ["1"]
            await kill(events)
        async with reader.subscribe("a", durable="d") as events:
            assert marked(await take(events, 1)) == ["1*"]


async def test_a_second_process_is_refused() -> None:
    async with world() as w, w.bus() as bus, w.bus() as other, bus.subscribe("a", durable="d"):
        with pytest.raises(JournalError, match="durable subscription 'd' is in use; close the other one first"):
            async with other.subscribe("a", durable="d"):
                pass


async def test_a_fenced_subscription_says_so() -> None:
    store = Store()

    async def fenced(records: object) -> None:
        raise Fenced("another process has taken over d")

    async with (
        world() as w,
        w.bus() as bus,
        w.bus(journals=store.open_journal) as reader,
        reader.subscribe("a", durable="d") as events,
    ):
        waiting = asyncio.ensure_future(events.next())
        await asyncio.sleep(0)  # one turn: it waits
        store.journals[-1].append = fenced  # type: ignore[method-assign]
        await bus.publish("a", b"1")
        with pytest.raises(Fenced, match="another process has taken over d"):
            await waiting


async def test_other_topics_than_before_are_a_change() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", "b", durable="d") as events:
            await bus.publish("a", b"a1")
            assert data(await take(events, 1)) == ["a1"]
            with pytest.raises(TimedOut):
                await events.next(0.3)
        await bus.publish_many([("a", b"a2"), ("b", b"b1"), ("c", b"c1")])
        async with reader.subscribe("b", "c", durable="d") as events:
            assert events.topics == {"b", "c"}
            await bus.publish_many([("a", b"a3"), ("c", b"c2")])
            assert sorted(data(await take(events, 2))) == ["b1", "c2"]


async def test_unsubscribing_forgets_for_good() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
            await events.unsubscribe()
        await bus.publish("a", b"2")
        async with reader.subscribe("a", durable="d") as events:
            await bus.publish("a", b"3")
            assert marked(await take(events, 1)) == ["3"]


async def test_a_change_that_a_restart_interrupts_is_completed() -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            [host] = w.cluster.hosts
            w.cluster._switchboard.unplug("root")
            adding = asyncio.ensure_future(events.add("b"))
            await until("the change is durable", lambda: len(store.records) >= 3)
            await kill(events)
            await asyncio.gather(adding, return_exceptions=True)
            w.cluster._switchboard.attach("root", host.driver.deliver)
        async with reader.subscribe("a", "b", durable="d") as events:
            await bus.publish_many([("a", b"1"), ("b", b"2")])
            assert sorted(data(await take(events, 2))) == ["1", "2"]


async def test_a_journal_of_something_else_is_an_error() -> None:
    store = Store()
    store.records = [b"\x81\xa4type\xa7Stepped"]
    async with world() as w, w.bus(journals=store.open_journal) as reader:
        with pytest.raises(JournalError, match="is not the journal of a subscription"):
            async with reader.subscribe("a", durable="d"):
                pass


async def test_a_folder_of_journals(tmp_path: Path) -> None:
    async with world() as w, w.bus() as bus, w.bus(journals=tmp_path) as reader, w.bus(journals=tmp_path) as other:
        async with reader.subscribe("a", durable="billing") as events:
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
            with pytest.raises(JournalError):
                async with other.subscribe("a", durable="billing"):
                    pass
            await bus.publish("a", b"2")
            assert data(await take(events, 1)) == ["2"]
        async with other.subscribe("a", durable="billing") as events:
            await bus.publish("a", b"3")
            assert marked(await take(events, 2)) == ["2*", "3"]


# ── killed at random moments ──────────────────────────────────────────────────────────────────────────────────────


class Reader:
    """An application: writes down what it was given, and what it knows to be acknowledged."""

    def __init__(self, dice: random.Random) -> None:
        self.given: list[Event] = []
        self.acknowledged: set[str] = set()
        self.asked_for: set[str] = set()
        self._dice = dice

    async def read(self, events: Subscription) -> None:
        """Until it is killed."""
        batches = events.batches(self._dice.choice([1, 3, 50]))
        last: list[Event] = []
        while True:
            batch = await anext(batches)
            self.acknowledged |= {event.id for event in last}
            self.given += batch
            last = batch
            if self._dice.random() < 0.3:
                await asyncio.sleep(0)

    def check(self, life: list[Event], before: list[Event], acknowledged: set[str]) -> None:
        """One life, given what earlier ones were given."""
        seen = {event.id for event in before}
        for event in life:
            assert event.id not in acknowledged, f"{event.id} was acknowledged and came again"
            assert not (event.id in seen and not event.replayed), f"{event.id} came again and is not marked"
        ids = [event.id for event in life]
        assert len(ids) == len(set(ids)), "twice within one life"


async def lives(seed: int) -> None:
    """Six lives of one durable subscription, each killed at a random moment, beside a witness that lives on."""
    dice = random.Random(seed)
    mode = dice.choice(["log", "ticket"])
    broker = MemoryBroker(seed=seed, reordering=0.3, delay_ms=0.2)
    tree = SequencingTree.star({"a": 1, "b": 2, "c": 2}, 2)
    store, reader = Store(), Reader(dice)
    published: list[str] = []
    async with (
        world(broker, mode=mode, tree=tree) as w,
        w.bus() as bus,
        w.bus() as witness,
        witness.subscribe("a", "b") as seen_by_witness,
    ):
        for life in range(6):
            before, acknowledged = list(reader.given), set(reader.acknowledged)
            async with w.bus(journals=store.open_journal) as owner:
                published += await _live(owner, bus, reader, dice, set(published) if life == 5 else None)
            reader.check(reader.given[len(before) :], before, acknowledged)
        order = [event.id for event in await take(seen_by_witness, len(published))]
    assert {event.id for event in reader.given} == set(published), "lost"
    firsts = list(dict.fromkeys(event.id for event in reader.given if not event.replayed))
    assert firsts == [id for id in order if id in set(firsts)], "another order than the witness's"


async def _live(owner: Bus, bus: Bus, reader: Reader, dice: random.Random, published: set[str] | None) -> list[str]:
    """One life. `published`: it is the last one, and must read everything."""
    new: list[str] = []
    async with owner.subscribe("a", "b", *dice.choice(["", "c"]), durable="d") as events:
        reading = asyncio.ensure_future(reader.read(events))
        for _ in range(dice.randrange(4)):
            pairs = [(dice.choice("ab"), b"x") for _ in range(dice.randrange(1, 20))]
            new += [receipt.id for receipt in await bus.publish_many(pairs)]
            if dice.random() < 0.3:
                await (events.remove("c") if "c" in events.topics else events.add("c"))
        if published is not None:
            everything = published | set(new)
            await until("all is read", lambda: {event.id for event in reader.given} == everything)
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        await kill(events)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return new


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([1, 300, 10**9]))
async def test_killed_at_any_moment_nothing_is_lost_and_nothing_acknowledged_comes_again(
    seed: int, shorten: int
) -> None:
    """`shorten`: after so many bytes the journal is replaced by a snapshot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "SNAPSHOT_BYTES_MIN", shorten)
        await lives(seed)


async def test_a_journal_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SNAPSHOT_BYTES_MIN", 1_000)
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            for i in range(300):
                await bus.publish("a", b"%d" % i)
                assert data(await take(events, 1)) == [str(i)]
            await kill(events)
        assert sum(map(len, store.records)) < 3_000
        assert store.snapshot is not None and len(store.snapshot) < 500
        async with reader.subscribe("a", durable="d") as events:
            assert marked(await take(events, 1)) == ["299*"]


def test_a_gap_that_was_not_acknowledged_keeps_the_journal_from_being_shortened() -> None:
    """A shortened journal would know the new beginning only, and the gap would never be told."""
    past = Past(records=[Began(1, frozenset("a"), frozenset()), Joined(1, "a", 5, {})])
    options = TreeOptions(durable=True, on_lost="skip")
    machine = DurableSubscriber(SequencingTree.single("a"), "durable/d", options, past)
    machine.tick(0.0)
    assert machine.encode() is not None
    machine.step(BROKER, Trimmed("a", 10), 1.0)
    assert machine.encode() is None, "a change is under way"
    effects = machine.step("root", Joined(2, "a", 12, {}), 2.0)
    assert [notice for notice in effects.notify if isinstance(notice, Gap)] == [Gap("a", 6, 12, "the topic began anew")]
    assert machine.encode() is None, "the gap is not acknowledged"
    machine.step(APPLICATION, Mark((1, 0), (1, 0)), 3.0)
    assert machine.encode() is not None
