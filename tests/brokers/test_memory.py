"""The broker in this process: the suite every broker passes, and the faults only this one can be asked for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import seriatim
from seriatim.brokers import Broker
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.model import Closed, InputError, Topic
from seriatim.protocols.with_broker import Append, Appended, Delivered, Listen, Listening
from tests.brokers.conformance import Conformance, Probe, World, event
from tests.brokers.nats.slots import SlotConformance


class MemoryWorld(World):
    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.serial = 0

    async def connect(self) -> Broker:
        twin = self.broker.twin()
        await twin.open()
        return twin

    async def trim(self, topic: Topic, first: int) -> None:
        self.broker.trim(topic, first)

    async def erase(self, topic: Topic, first: int, last: int) -> None:
        self.broker.erase(topic, first, last)

    async def publish_plainly(self, subject: Topic, payload: bytes) -> None:
        pytest.skip("there is no other client of a memory broker than ours")


@asynccontextmanager
async def memory_world(**options: float) -> AsyncIterator[World]:
    broker = MemoryBroker(**options)  # type: ignore[arg-type]
    yield MemoryWorld(broker)
    await broker.close()


class TestMemory(Conformance):
    has_order_log = has_lives = True

    def world(self):  # type: ignore[no-untyped-def]
        return memory_world()


class TestMemoryInBuckets(Conformance):
    has_order_log = has_lives = True

    def world(self):  # type: ignore[no-untyped-def]
        return memory_world(buckets=16)


class TestMemorySlots(SlotConformance):
    has_order_log = has_lives = True

    def world(self):  # type: ignore[no-untyped-def]
        return memory_world()


class TestMemoryWithoutLog(SlotConformance):
    has_lives = True
    keeps_log = False
    replays = False

    def world(self):  # type: ignore[no-untyped-def]
        return memory_world(keeps_log=False)


async def deliveries(broker: MemoryBroker, count: int) -> list[int]:
    """The numbers that reach a subscriber, in their order of arrival, when nothing more is on its way."""
    publisher, subscriber = Probe(broker, "p"), Probe(broker, "s")
    await subscriber.ask(Listen("a", 0, 1), Listening)
    publisher.send(*[Append(event("a", f"e{index}")) for index in range(count)])
    await publisher.until(lambda: len(publisher.of(Appended)) == count, "all answers")
    await subscriber.until(lambda: not broker.under_way, "nothing under way")
    numbers = subscriber.numbers("a")
    await broker.close()
    return numbers


async def arrived(count: int = 300, **options: float) -> list[int]:
    return await deliveries(MemoryBroker(**options), count)  # type: ignore[arg-type]


async def test_loss_loses_and_nothing_else() -> None:
    numbers = await arrived(loss=0.3)
    assert numbers == sorted(set(numbers))
    assert 150 < len(numbers) < 270


async def test_duplication_repeats() -> None:
    numbers = await arrived(duplication=0.3)
    assert set(numbers) == set(range(1, 301))
    assert 330 < len(numbers) < 450


async def test_reordering_lets_others_overtake() -> None:
    numbers = await arrived(reordering=0.3)
    assert sorted(numbers) == list(range(1, 301))
    assert numbers != sorted(numbers)


async def test_delay_keeps_the_order() -> None:
    assert await arrived(delay_ms=2.0) == list(range(1, 301))


async def test_the_same_seed_loses_the_same() -> None:
    assert await arrived(loss=0.5, seed=7) == await arrived(loss=0.5, seed=7) != await arrived(loss=0.5, seed=8)


async def test_requests_are_reliable_whatever_the_faults() -> None:
    broker = MemoryBroker(loss=1.0)
    probe = Probe(broker, "p")
    assert broker.lossy
    assert await probe.append("a", "a1", "a2") == [1, 2]
    await probe.ask(Listen("a", 0, 1), Listening)
    assert not probe.of(Delivered)
    await broker.close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"loss": 1.5}, "loss"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"buckets": -1}, "buckets"),
        ({"buckets": 9999}, "buckets"),
        ({"markers": -1}, "markers"),
    ],
)
def test_bad_options_are_named(options: dict[str, float], field: str) -> None:
    with pytest.raises(InputError, match=field):
        MemoryBroker(**options)  # type: ignore[arg-type]


async def test_markers_between_events_change_no_order() -> None:
    """Two subscribers, one of them durable, on a broker whose positions mostly hold no events."""
    published = [(topic, f"{topic} {number}".encode()) for number in range(20) for topic in ("orders", "prices")]
    async with (
        seriatim.connect("memory://?markers=7") as bus,
        bus.subscribe("orders", "prices") as one,
        bus.subscribe("orders", "prices", durable="two") as two,
    ):
        for topic, data in published:
            await bus.publish(topic, data)
        seen = [[(await anext(events)) for _ in published] for events in (one, two)]
    assert [each.data for each in seen[0]] == [each.data for each in seen[1]]
    assert [each.data for each in seen[0] if each.topic == "orders"] == [data for topic, data in published[::2]]


async def test_a_closed_connection_is_not_used() -> None:
    broker = MemoryBroker()
    await broker.close()
    with pytest.raises(Closed):
        broker.attach("p", lambda message: None)


async def test_pausing_right_after_resuming_holds() -> None:
    broker = MemoryBroker()
    publisher, subscriber = Probe(broker, "p"), Probe(broker, "s")
    await subscriber.ask(Listen("a", 0, 1), Listening)
    subscriber.port.pause()
    await publisher.append("a", "a1", "a2")
    subscriber.port.resume()
    subscriber.port.pause()
    await publisher.append("a", "a3")
    assert not subscriber.of(Delivered)
    subscriber.port.resume()
    await subscriber.until(lambda: subscriber.numbers("a") == [1, 2, 3], "all three")
    await broker.close()
