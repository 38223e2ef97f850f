"""Filters of subscriptions: what does not match is left out, the rest keeps its order, and the log shows all of it."""

import asyncio
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client import Bus
from seriatim.client.tree.durable import read_past
from seriatim.filters import FilterError, attribute, attributes_of, headers_of, parse
from seriatim.model import Delivery, Gap, History, InputError, TimedOut
from tests.client.crashes import Store, kill
from tests.client.test_logs import ALL_VALID, verdicts
from tests.client.world import data, feed_of, take, until, world


async def publish(bus: Bus, topic: str, *prices: float | str | None) -> None:
    for price in prices:
        headers = headers_of({"price": price}) if price is not None else None
        await bus.publish(topic, str(price).encode(), headers=headers)


@pytest.mark.parametrize("ordered", [True, False])
async def test_only_what_matches_in_the_order_of_everybody(ordered: bool) -> None:
    async with (
        world() as w,
        w.bus() as bus,
        bus.subscribe("a", ordered=ordered, where="price > 100") as dear,
        bus.subscribe("a", where=attribute("price") <= 100) as cheap,
        bus.subscribe("a") as all_of_them,
    ):
        await publish(bus, "a", 120, 80, "120", None, 101, 100.5, 3)
        await bus.publish("a", b"odd", headers={"Attribute-price": "much"})
        assert data(await take(dear, 3)) == ["120", "101", "100.5"]
        assert data(await take(cheap, 2)) == ["80", "3"]
        assert len(await take(all_of_them, 8)) == 8
        assert str(dear.filter) == "price > 100"
        await until("all were looked at", lambda: dear.left_out == 5)
        with pytest.raises(TimedOut):
            await dear.next(0.05)


async def test_a_filter_that_cannot_be_is_refused_with_the_place() -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(FilterError, match="character 8: == is not an operator"):
            bus.subscribe("a", where="price  == 100")
        with pytest.raises(InputError, match="no number has"):
            bus.subscribe("a", where="price > 100 and price < 5")


async def test_packs_are_filtered_event_by_event_and_logged_in_their_places(tmp_path: Path) -> None:
    """Two logged subscribers of the same topics, one with a filter: both auditable, nothing missing, same order."""

    broker = MemoryBroker(seed=5, reordering=0.4, delay_ms=0.5)
    source = random.Random(5)
    async with (
        world(broker) as w,
        w.bus(publication_log=tmp_path) as one,
        w.bus(publication_log=tmp_path) as two,
        one.subscribe("a", "b", log=tmp_path, where="price > 50") as dear,
        two.subscribe("a", "b", log=tmp_path) as everything,
    ):
        wanted = sent = 0
        for _ in range(30):
            prices = [source.randrange(100) for _ in range(source.randint(1, 6))]
            wanted += sum(price > 50 for price in prices)
            bus, topic = source.choice([one, two]), source.choice("ab")
            receipts = [
                bus.publish_nowait(topic, b"%d" % price, headers=headers_of({"price": price})) for price in prices
            ]
            await asyncio.gather(*receipts)
            await take(dear, min(dear.unread, 2))
            sent += len(prices)
        await until("all were looked at", lambda: dear.left_out + wanted == sent)
        got = await take(dear, dear.unread)
        assert all(attributes_of(event.headers)["price"] > 50 for event in got)  # type: ignore[operator]
        await take(everything, everything.unread)
    assert verdicts(tmp_path) == ALL_VALID
    history = read_history(tmp_path)
    mine = [row for row in history.deliveries if row.subscriber == dear.name]
    assert sum(not row.filtered for row in mine) == wanted
    assert any(row.filtered for row in mine)
    assert {row.where for row in history.subscriptions if row.subscriber == dear.name} == {"price > 50"}
    assert {row.where for row in history.subscriptions if row.subscriber == everything.name} == {None}
    # a filtered log with a row taken away has a gap, whether the row was handed out or left out
    for filtered in (True, False):
        rows = [row for row in mine[:-1] if row.filtered == filtered]
        assert _gap_without(history, rows[len(rows) // 2])


def _gap_without(history: History, lost: Delivery) -> bool:
    """Whether an audit sees that this row is not there; positions are as if it never was."""
    rows = [
        replace(row, position=row.position - 1)
        if row.subscriber == lost.subscriber and row.position > lost.position
        else row
        for row in history.deliveries
        if row != lost
    ]
    subscriptions = [
        replace(row, until=row.until - 1) if row.subscriber == lost.subscriber and row.until else row
        for row in history.subscriptions
    ]
    changed = History(rows, history.publications, subscriptions, history.messages)
    return any(anomaly.name == "gap" for anomaly in audit(changed).anomalies)


async def test_gaps_are_shown_whatever_the_filter(tmp_path: Path) -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a", where="price > 100", show_gaps=True) as dear:
        await publish(bus, "a", 1, 2)
        await bus.publish("a", b"\xff", headers=None)
        gap = Gap("a", 4, 4, "for the test")
        await until("all were looked at", lambda: dear.left_out == 3)
        feed_of(dear)._notified([gap])
        await publish(bus, "a", 200)
        [shown] = await take(dear, 1)
        assert str(shown) == str(gap)
        assert data(await take(dear, 1)) == ["200"]


async def test_a_durable_subscription_remembers_its_filter(tmp_path: Path) -> None:
    store = Store()
    async with world() as w, w.bus(publication_log=tmp_path) as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d", where="price > 100", log=tmp_path) as events:
            await publish(bus, "a", 120, 1, 130, 2, 140)
            assert data(await take(events, 2)) == ["120", "130"]
            await kill(events)
        await publish(bus, "a", 3, 150)
        async with reader.subscribe("a", durable="d", log=tmp_path) as events:
            assert events.filter == parse("price > 100")
            assert data(await take(events, 3)) == ["130", "140", "150"]
            await events.acknowledge()
        async with reader.subscribe("a", durable="d", where="price > 100.0", log=tmp_path) as events:
            await publish(bus, "a", 4, 160)
            assert data(await take(events, 1)) == ["160"]
            await events.acknowledge()
        with pytest.raises(InputError, match="cannot have 'price > 5': it continues with 'price > 100'"):
            await reader.subscribe("a", durable="d", where="price > 5").__aenter__()
        async with w.bus(journals=Store().open_journal) as other:
            async with other.subscribe("a", durable="plain"):
                pass
            with pytest.raises(InputError, match="it was made without a filter"):
                await other.subscribe("a", durable="plain", where="price > 5").__aenter__()
    assert verdicts(tmp_path) == ALL_VALID
    rows = [row for row in read_history(tmp_path).deliveries if not row.filtered]
    assert len(rows) == 5
    assert read_past("d", await store.open_journal("d").open()).where == "price > 100"


async def test_a_shortened_journal_knows_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.client.brokered.feed.SNAPSHOT_BYTES_MIN", 1)
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d", where="price > 100") as events:
            for _ in range(50):
                await publish(bus, "a", 120, 1)
                await take(events, 1)
            await events.acknowledge()
        recovered = await store.open_journal("d").open()
        assert recovered.snapshot is not None
        assert read_past("d", recovered).where == "price > 100"
