"""Publishing: batches that form by themselves, back-pressure, and failures that say what is known."""

import asyncio
from typing import Any

import pytest

from seriatim.brokers import Deliver, OnError
from seriatim.brokers.memory.broker import MemoryBroker, MemoryPort
from seriatim.brokers.packs import BATCH_HEADER
from seriatim.client import Bus, Limits, Published
from seriatim.client.brokered.outbox import BrokerOutbox
from seriatim.model import (
    Address,
    Closed,
    InputError,
    Number,
    QueueFull,
    RequestRefused,
    SeriatimError,
    TimedOut,
    Topic,
    UnknownTopic,
)
from seriatim.model import Event as Message
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import Append, Write
from tests.client.world import data, hurry, take, until, world


class Gate(MemoryBroker):
    """A broker that writes down what publishers hand over, and can be told to ignore it or to refuse it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.messages: list[Message] = []
        self.ignored: list[Message] = []
        self.is_shut = False
        self.refused: set[Topic] = set()

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> MemoryPort:
        port = super().attach(address, deliver, on_error)
        send = port.send

        def watched(message: Payload) -> None:
            event = message.event if isinstance(message, Append | Write) else None
            if event is None or (event.topic not in self.refused and not self.is_shut):
                if event is not None and event not in self.messages:
                    self.messages.append(event)
                send(message)
            elif self.is_shut:
                self.ignored.append(event)
            else:
                port._refuse(message, RequestRefused("no permission"))

        port.send = watched  # type: ignore[method-assign]
        return port


async def test_a_lone_event_is_a_plain_message() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus(name="shop") as bus:
        published = await bus.publish("orders", b"order 1", headers={"customer": "7"})
        assert published == Published("orders", 1, 0, f"{bus.name}-1")
        [message] = broker.messages
        assert (message.payload, message.headers, message.publisher) == (b"order 1", {"customer": "7"}, bus.name)
        assert message.id == published.id


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_what_gathers_meanwhile_goes_out_together(mode: str) -> None:
    broker = Gate()
    async with world(broker, mode=mode) as w, w.bus() as bus, bus.subscribe("t") as events:
        first = bus.publish_nowait("t", b"0")
        await asyncio.sleep(0)  # one turn: it is under way
        rest = [bus.publish_nowait("t", b"%d" % i, headers={"i": str(i)}) for i in range(1, 100)]
        receipts = await asyncio.gather(first, *rest)
        assert [message.headers for message in broker.messages] == [None, {BATCH_HEADER: "1"}]
        assert [(r.number, r.index) for r in receipts] == [(1, 0), *[(2, i) for i in range(99)]]
        got = await take(events, 100)
        assert data(got) == [str(i) for i in range(100)]
        assert [event.id for event in got] == [receipt.id for receipt in receipts]
        assert [(event.number, event.index) for event in got] == [(r.number, r.index) for r in receipts]
        assert got[5].headers == {"i": "5"}


async def test_packs_are_bounded_in_events_and_bytes() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        await bus.publish_many("t", [b""] * 10_000)
        assert len(broker.messages) == 3
        broker.messages.clear()
        await bus.publish_many("t", [bytes(100_000)] * 6)
        assert [len(message.payload) // 100_000 for message in broker.messages] == [2, 2, 2]


async def test_ids_of_ones_own() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("t") as events:
        await bus.publish("t", b"a", id="mine")
        rest = [bus.publish_nowait("t", b"b", id="my second"), bus.publish_nowait("t", b"c")]
        receipts = await asyncio.gather(*rest)
        got = await take(events, 3)
        assert [event.id for event in got] == ["mine", "my second", receipts[1].id]
        assert receipts[0].id == "my second"


async def test_an_event_with_an_id_is_in_the_log_once_however_it_is_published_again() -> None:
    """After a TimedOut, say. It is never packed with others: brokers know a repeat by the id of the message."""

    async with world() as w, w.bus() as bus, bus.subscribe("t") as events:
        first = await bus.publish("t", b"a", id="mine")
        among = [bus.publish_nowait("t", each, id=id) for each, id in ((b"b", None), (b"a", "mine"), (b"c", None))]
        again = (await asyncio.gather(*among))[1]
        assert (again.number, again.index) == (first.number, first.index)
        packed = [bus.publish_nowait("t", each, id=id) for each, id in ((b"d", "other"), (b"e", None))]
        await asyncio.gather(*packed)
        await bus.publish("t", b"d", id="other")
        await bus.publish("t", b"end")
        assert data(await take(events, 6)) == ["a", "b", "c", "d", "e", "end"]


async def test_events_of_a_topic_keep_their_order_under_load() -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("t", "u") as events:
        wanted = {"t": list(range(500)), "u": list(range(500))}
        for i in range(500):
            bus.publish_nowait("t", b"%d" % i)
            bus.publish_nowait("u", b"%d" % i)
            if i % 50 == 0:
                await asyncio.sleep(0)
        got = await take(events, 1000)
        for topic, order in wanted.items():
            assert [int(event.data) for event in got if event.topic == topic] == order


async def test_own_order_is_the_publishers_order_across_topics() -> None:
    async with world(causal=True) as w, w.bus() as bus, bus.subscribe("t", "u") as events:
        topics = ["t", "t", "u", "t", "u", "u", "u", "t", "t", "t"] * 10
        await bus.publish_many([(topic, b"%d" % i) for i, topic in enumerate(topics)])
        got = await take(events, 100)
        assert data(got) == [str(i) for i in range(100)]


async def test_publish_many_returns_receipts_in_order_and_nothing_for_nothing() -> None:
    async with world() as w, w.bus() as bus:
        receipts = await bus.publish_many([("a", b"1"), ("b", b"2"), ("a", b"3")])
        assert [receipt.topic for receipt in receipts] == ["a", "b", "a"]
        assert await bus.publish_many("a", []) == []


async def test_a_full_queue_makes_publish_wait_and_publish_nowait_raise() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus(limits=Limits(queue_events=10)) as bus:
        broker.is_shut = True
        under_way = [bus.publish_nowait("t", b"x") for _ in range(10)]
        with pytest.raises(QueueFull, match=r"10 events .* wait to be published"):
            bus.publish_nowait("t", b"x")
        waiting = asyncio.ensure_future(bus.publish("t", b"last"))
        await until("it waits for room", lambda: bus._opened().room.waiters == 1)
        assert not waiting.done()
        broker.is_shut = False
        assert (await waiting).number >= 1
        assert all(future.done() for future in under_way)
        receipts = await bus.publish_many("t", [b"x"] * 100)
        assert len(receipts) == 100


async def test_flush_waits_for_everything_and_ready_for_room() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus(limits=Limits(queue_events=10)) as bus:
        await bus.flush()
        await bus.ready()
        futures = []
        for i in range(100):
            await bus.ready()
            futures.append(bus.publish_nowait("t", b"%d" % i))
        await bus.flush()
        assert all(future.done() for future in futures)
        broker.is_shut = True
        under_way = [bus.publish_nowait("t", b"x") for _ in range(10)]
        both = asyncio.gather(bus.ready(), bus.ready(), bus.flush())
        await until("two wait for room", lambda: bus._opened().room.waiters == 2)
        assert not both.done()
        broker.is_shut = False
        await both
        assert all(future.done() for future in under_way)


async def test_what_the_broker_refuses_fails_and_nothing_else() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        broker.refused = {"secret"}
        bad = bus.publish_nowait("secret", b"x")
        good = bus.publish_nowait("open", b"y")
        assert (await good).number == 1
        with pytest.raises(RequestRefused, match="does not take events of secret: no permission"):
            await bad
        broker.refused = set()
        assert (await bus.publish("secret", b"z")).number == 1


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_timeout_says_what_is_unknown_and_what_was_never_sent(mode: str) -> None:
    broker = Gate()
    async with world(broker, mode=mode) as w, w.bus() as bus, bus.subscribe("t") as events:
        broker.is_shut = True
        hurry(bus, timeout_s=0.3)
        under_way = bus.publish_nowait("t", b"1")
        await until("it is under way", lambda: len(broker.ignored) == 1)
        queued = bus.publish_nowait("t", b"2")
        with pytest.raises(TimedOut, match=r"waited 0.3 s for the broker to confirm .* the broker has it is unknown"):
            await under_way
        results = await asyncio.gather(queued, return_exceptions=True)
        assert isinstance(results[0], TimedOut)
        broker.is_shut = False
        hurry(bus, timeout_s=60.0)
        assert (await bus.publish("t", b"3")).topic == "t"
        assert data(await take(events, 1)) == ["3"]
        assert not bus.explain().unpublished


async def test_many_with_failures_raises_the_first_and_says_how_many() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        broker.refused = {"bad"}
        with pytest.raises(RequestRefused) as caught:
            await bus.publish_many([("good", b"1"), ("bad", b"2"), ("bad", b"3"), ("good", b"4")])
        assert caught.value.__notes__ == ["2 of 4 events failed, the first one at place 1"]


async def test_closing_publishes_what_is_queued() -> None:
    async with world() as w, w.bus() as reader, reader.subscribe("t") as events:
        async with w.bus() as bus:
            futures = [bus.publish_nowait("t", b"%d" % i) for i in range(2000)]
        numbers: list[Number] = [future.result().number for future in futures]
        assert numbers == sorted(numbers)
        assert len(await take(events, 2000)) == 2000


async def test_closing_fails_what_nobody_confirms() -> None:
    broker = Gate()
    async with world(broker) as w:
        async with w.bus() as bus:
            broker.is_shut = True
            hurry(bus, timeout_s=0.2)
            future = bus.publish_nowait("t", b"x")
        error = future.exception()
        assert isinstance(error, TimedOut | Closed) and "unknown" in str(error)
        with pytest.raises(Closed):
            bus.publish_nowait("t", b"x")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": 7}, "topic"),
        ({"data": "text"}, "data: expected bytes, got str"),
        ({"data": bytes(9 * 1024 * 1024)}, "data: .* bytes in one event; send at most"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": {"a": "b\r\nc"}}, "line break"),
        ({"headers": {"a": " b"}}, "space at an end"),
        ({"headers": {"Seriatim-Batch": "1"}}, "Seriatim-Batch is reserved"),
        ({"headers": {"nats-msg-id": "1"}}, "nats-msg-id is reserved"),
        ({"headers": {"a": 1}}, "not a string"),
        ({"headers": [1]}, r"headers: \[1\] is not a mapping"),
        ({"headers": [1], "attributes": {"price": 1}}, "not a mapping"),
        ({"id": ""}, "id: '' is not an id"),
        ({"id": "a\nb"}, "is not an id"),
    ],
)
async def test_bad_input_is_refused_before_anything_changes(arguments: dict[str, Any], named: str) -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(InputError, match=named):
            await bus.publish(**({"topic": "t", "data": b""} | arguments))
        assert (await bus.publish("t", b"x")).number == 1


@pytest.mark.parametrize("events", [[("t",)], [7], 7, [("t", b"a", b"b")]])
async def test_many_that_are_not_pairs_are_refused_before_anything_changes(events: Any) -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(InputError, match="expected pairs of topic and data"):
            await bus.publish_many(events)
        assert (await bus.publish("t", b"x")).number == 1


async def test_a_topic_without_a_home_is_refused() -> None:
    tree = SequencingTree({"n": None}, {"known": "n"})
    async with world(tree=tree) as w, w.bus() as bus:
        with pytest.raises(UnknownTopic):
            await bus.publish("unknown", b"x")
        with pytest.raises(UnknownTopic):
            bus.subscribe("unknown")
        assert (await bus.publish("known", b"x")).number == 1


async def test_an_id_that_is_under_way_is_refused() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        broker.is_shut = True
        first = bus.publish_nowait("t", b"x", id="same")
        await asyncio.sleep(0)
        second = bus.publish_nowait("u", b"y", id="same")
        with pytest.raises(InputError, match="'same' is used twice"):
            await second
        broker.is_shut = False
        assert (await first).id == "same"


async def test_a_lost_slot_gets_a_new_number() -> None:
    """Ticket mode: slower than its lease, the publisher finds its slot voided and asks again."""

    broker = Gate()
    async with world(broker, mode="ticket") as w, w.bus(timeout_s=60.0) as bus, bus.subscribe("t") as events:
        await bus.publish("t", b"0")
        broker.is_shut = True
        future = bus.publish_nowait("t", b"1")
        slots = broker._hub._machine.state.topics["t"].slots
        await until("its number is voided", lambda: [slot.event is None for slot in slots] == [False, True])
        broker.is_shut = False
        assert (await future).number == 3
        assert data(await take(events, 2)) == ["0", "1"]


async def _errors(bus: Bus, count: int) -> list[BaseException | Published]:
    return await asyncio.gather(*(bus.publish("t", b"x") for _ in range(count)), return_exceptions=True)


async def test_a_broken_driver_fails_everything_with_the_reason() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus() as bus:
        broker.is_shut = True
        future = bus.publish_nowait("t", b"x")
        await until("it is under way", lambda: len(broker.ignored) == 1)
        outbox = bus._opened()
        assert isinstance(outbox, BrokerOutbox)
        outbox._driver.end(SeriatimError("broken on purpose"))
        with pytest.raises(Closed, match="broken on purpose"):
            await future
        assert all(isinstance(each, Closed) for each in await _errors(bus, 2))


async def test_a_cancelled_turn_passes_to_the_next() -> None:
    broker = Gate()
    async with world(broker) as w, w.bus(limits=Limits(queue_events=1)) as bus:
        broker.is_shut = True
        first = bus.publish_nowait("t", b"0")
        waiting = [asyncio.ensure_future(bus.publish("t", b"%d" % i)) for i in (1, 2, 3)]
        await until("all wait for room", lambda: bus._opened().room.waiters == 3)
        broker.is_shut = False
        await first
        waiting[0].cancel()  # in the very turn in which there is room for it
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in results[1:]] == [Published, Published]
