"""Metrics of a client: what it holds and for how long, as values and as Prometheus reads them."""

import json
import urllib.request
from asyncio import to_thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

import seriatim
from seriatim.client import GapPolicy
from seriatim.client.metrics import FAMILIES, ClientMetrics, SubscriptionMetrics, serve_metrics
from seriatim.model import BROKER, ConnectionFailed, InputError
from seriatim.model import Event as Message
from seriatim.protocols.with_broker import Delivered
from tests.client.test_publishing import Gate
from tests.client.world import feed_of, take, until, world


def read(text: str) -> dict[tuple[str, str], float]:
    """Every sample by name and subscriber, as another implementation understands it."""
    families = text_string_to_metric_families(text)
    return {(each.name, each.labels.get("subscriber", "")): each.value for one in families for each in one.samples}


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


async def test_what_is_held_and_since_when() -> None:
    async with world(mode="ticket") as w, w.bus(name="billing") as bus, bus.subscribe("a", "b") as events:
        now = read(bus.metrics().text)
        assert now["seriatim_client_held_events", events.name] == 0
        assert now["seriatim_client_oldest_held_seconds", events.name] == 0
        began_ms = feed_of(events)._clock.now_ms()
        deliver = feed_of(events)._driver.deliver
        for number in (1, 2):
            deliver(BROKER, Delivered("a", number, {"b": 1}, Message(f"x-{number}", "a", "x")))
        [one] = bus.metrics().subscriptions
        assert (one.subscriber, one.held, one.notified) == (events.name, 2, 0)
        await until("some time has passed", lambda: feed_of(events)._clock.now_ms() > began_ms + 20)
        deliver(BROKER, Delivered("a", 3, {"b": 1}, Message("x-3", "a", "x")))  # the oldest counts, not the last
        text = read(bus.metrics().text)
        assert text["seriatim_client_held_events", events.name] == 3
        oldest = max(each.seconds for each in events.explain().held)
        assert 0.02 <= text["seriatim_client_oldest_held_seconds", events.name] <= oldest + 60
        deliver(BROKER, Delivered("b", 1, {}, Message("y-1", "b", "y")))
        await take(events, 4)
        [one] = bus.metrics().subscriptions
        assert (one.held, one.oldest_held_seconds, one.notified, one.unread) == (0, 0.0, 4, 0)


async def test_an_event_without_a_stamp_is_held_too() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a") as events:
        feed_of(events)._driver.deliver(BROKER, Delivered("a", 1, None, Message("x-1", "a", "x")))
        [one] = bus.metrics().subscriptions
        assert one.held == 1 and one.oldest_held_seconds is not None and one.oldest_held_seconds >= 0


async def test_what_was_notified_left_out_and_not_taken() -> None:
    async with (
        world() as w,
        w.bus() as bus,
        bus.subscribe("a") as every,
        bus.subscribe("a", where="price > 100") as dear,
    ):
        for price in (99, 101, 102):
            await bus.publish("a", b"x", attributes={"price": price})
        await take(every, 3)
        await take(dear, 1)
        by_name = {each.subscriber: each for each in bus.metrics().subscriptions}
        one, other = by_name[every.name], by_name[dear.name]
        assert (one.notified, one.unread, one.left_out) == (3, 0, 0)
        await until("both are there", lambda: dear.metrics().notified == 2)
        other = dear.metrics()
        assert (other.notified, other.unread, other.left_out) == (2, 1, 1)
        await dear.close()
        assert [each.subscriber for each in bus.metrics().subscriptions] == [every.name]


async def test_gaps_and_what_comes_out_of_order() -> None:
    """A lossy broker: events that are missing for too long are skipped, and reported."""

    url, gaps = "memory://?loss=0.3&reordering=0.3&seed=7", GapPolicy.skip(after_s=0.05)
    async with seriatim.connect(url, gaps=gaps) as bus, bus.subscribe("a", "b") as events:
        for number in range(60):
            await bus.publish("ab"[number % 2], b"%d" % number)

        def missed() -> bool:
            return events.metrics().gaps > 0 and not events.metrics().held

        await until("something was passed over", missed)
        seen = await take(events, events.unread)
        one = events.metrics()
        assert one.gaps == len(events.gaps) and one.notified >= len(seen)
        assert read(bus.metrics().text)["seriatim_client_gaps_total", events.name] >= one.gaps


async def test_what_is_not_published_yet() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        broker.is_shut = True
        future = bus.publish_nowait("a", b"1")
        assert bus.metrics().unpublished == 1
        assert read(bus.metrics().text)["seriatim_client_unpublished_events", ""] == 1
        broker.is_shut = False
        await future
        assert bus.metrics().unpublished == 0


def test_out_of_order_and_what_is_not_known() -> None:
    known = SubscriptionMetrics(
        subscriber='a "b"\\/1',
        notified=5,
        unread=1,
        held=None,
        oldest_held_seconds=None,
        out_of_order=2,
        gaps=3,
        rejected=4,
        left_out=6,
    )
    samples = read(ClientMetrics([known], 7).text)
    assert samples["seriatim_client_out_of_order_total", known.subscriber] == 2
    assert not any("held" in name for name, _ in samples), "what is not known has no series"
    assert len(samples) == len(FAMILIES) - 2 + 1


async def test_atoms_know_how_many_and_not_since_when() -> None:
    async with seriatim.connect("memory://", order="atoms") as bus, bus.subscribe("a") as events:
        await bus.publish("a", b"1")
        await take(events, 1)
        [one] = bus.metrics().subscriptions
        assert (one.held, one.oldest_held_seconds, one.notified) == (0, None, 1)


async def test_over_http() -> None:
    async with (
        world() as w,
        w.bus() as bus,
        bus.subscribe("a") as events,
        serve_metrics(bus, "127.0.0.1:0") as server,
    ):
        await bus.publish("a", b"1")
        await take(events, 1)
        samples = read(await to_thread(fetch, f"{server.url}/metrics"))
        assert samples["seriatim_client_notified_total", events.name] == 1
        assert samples["process_start_time_seconds", ""] > 0
        status = json.loads(await to_thread(fetch, f"{server.url}/status"))
        assert (status["name"], status["subscriptions"][0]["notified"]) == (bus.name, 1)
        assert json.loads(await to_thread(fetch, f"{server.url}/explain")) == []
        assert await to_thread(fetch, f"{server.url}/health") == "ok\n"
        with pytest.raises(ConnectionFailed, match="another process uses it"):
            async with serve_metrics(bus, server.address):
                pass
        with pytest.raises(InputError, match="address: 'here' is not an address"):
            async with serve_metrics(bus, "here"):
                pass
