"""The order log on JetStream: written once whatever happens on the way, read by halving."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec import structs

from seriatim.brokers.capabilities import OrderBounds
from seriatim.brokers.nats.order import READ_TOGETHER, decode_order, encode_order
from seriatim.brokers.nats.streams import StreamOptions
from seriatim.model import InputError, RemoteError
from seriatim.order import OrderedRange
from seriatim.protocols.with_broker import Begin, Begun, Cede, Ceded, Ordered, OrderKept, OrderRead, ReadOrder
from tests.brokers.conformance import Probe
from tests.brokers.nats.world import jetstream_world

MANY = 3 * READ_TOGETHER + 5


def test_a_message_can_be_read_by_anybody() -> None:
    ordered = Ordered(12, (OrderedRange("a.b", 5, 9), OrderedRange("c", 1, 1), OrderedRange("a.b", 10, 10)), 3)
    assert msgspec.msgpack.decode(encode_order(ordered)) == [1, 3, 12, ["a.b", "c"], [0, 5, 5, 1, 1, 1, 0, 10, 1], 0]
    assert decode_order(encode_order(ordered)) == ordered
    before = msgspec.msgpack.encode([1, 3, 12, ["c"], [0, 5, 1]])
    assert decode_order(before) == Ordered(12, (OrderedRange("c", 5, 5),), 3), "written by an earlier version"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"x", "a message that is not a list of ranges"),
        (msgspec.msgpack.encode([2, 1, 0, ["a"], [0, 1, 1]]), "version 2 of its format"),
        (msgspec.msgpack.encode([1, 1, 0, ["a"], [0, 1]]), "cut off"),
        (msgspec.msgpack.encode([1, 1, 0, ["a"], [1, 1, 1]]), "cut off"),
        (msgspec.msgpack.encode([1, 1, -1, ["a"], []]), "positions that do not exist"),
        (msgspec.msgpack.encode([1, 1, 0, ["a"], [0, 1, 0]]), "with empty ranges"),
    ],
)
def test_what_is_not_an_order_log(body: bytes, said: str) -> None:
    with pytest.raises(RemoteError, match=said):
        decode_order(body)


def number(n: int) -> Ordered:
    """The message of two numbers that ends with position 2n."""
    return Ordered(2 * n - 2, (OrderedRange("a", 2 * n - 1, 2 * n),), 1)


async def test_many_messages_are_read_from_any_position() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        root, log = Probe(broker, "root"), broker.order_log()
        for n in range(1, MANY + 1):
            assert await root.ask(number(n), OrderKept) == OrderKept(2 * n)
        for after in (0, 1, 2, 31, 32, 33, 2 * MANY - 1):
            read = await log.read(after)
            assert read.after == after
            assert [each.first for each in read.ranges][:1] == [after + 1]
            assert read.ranges[-1].last == 2 * MANY
        position, pieces = 0, 0
        while position < 2 * MANY:
            read = await log.read(position, 3)
            position, pieces = read.ranges[-1].last, pieces + 1
            assert 1 <= len(read.ranges) <= 3
        assert pieces == -(-MANY // 3)


async def test_a_new_process_finds_the_end_and_an_old_one_is_refused() -> None:
    async with jetstream_world() as world:
        old, new = Probe(await world.connect(), "root"), Probe(await world.connect(), "root")
        assert await old.ask(number(1), OrderKept) == OrderKept(2)
        assert await new.ask(number(2), OrderKept) == OrderKept(4)
        late = Ordered(2, (OrderedRange("b", 1, 1),), 1)
        assert await old.ask(late, OrderKept) == OrderKept(4), "its write was refused, and it looked again"
        assert await new.ask(number(3), OrderKept) == OrderKept(6)
        assert (await old.broker.order_log().read(0)).ranges[0] == OrderedRange("a", 1, 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("written", [0, 1])
async def test_roots_of_before_are_refused_once_another_one_is_announced(written: int) -> None:
    async with jetstream_world() as world:
        root, top = Probe(await world.connect(), "root"), Probe(await world.connect(), "top")
        for n in range(1, written + 1):
            await root.ask(number(n), OrderKept)
        for _ in range(2):  # also a repeat
            assert await root.ask(Cede(1, 7), Ceded) == Ceded(7, 1)
        refused = await root.ask(number(written + 1), Begun)
        assert (refused.epoch, refused.latest, refused.since) == (1, 1, 7)
        later = structs.replace(number(written + 1), since=7)
        assert await top.ask(later, OrderKept) == OrderKept(2 * written + 2)
        again = Probe(await world.connect(), "root")
        begun = await again.ask(Begin(9, orders=True), Begun)
        assert (begun.latest, begun.since, begun.ordered) == (9, 7, 0), "a later life of the old root does not write"
        begun = await Probe(await world.connect(), "top").ask(Begin(2, orders=True, since=7), Begun)
        assert (begun.latest, begun.since, begun.ordered) == (2, 7, 2 * written + 2)
        refused = await top.ask(structs.replace(number(written + 2), since=7), Begun)
        assert refused.latest == 2, "another life of the new root has begun"


async def test_retention_and_deletion() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        root, log = Probe(broker, "root"), broker.order_log()
        for n in (1, 2, 3):
            await root.ask(number(n), OrderKept)
        await broker.api.purge_stream(broker.names.order_stream, 3)
        assert await log.bounds() == OrderBounds(5, 6)
        assert await log.read(1) == OrderRead(4, (OrderedRange("a", 5, 6),))
        assert await log.position_at(datetime.now(UTC) - timedelta(days=1)) == 4
        await broker.api.purge_stream(broker.names.order_stream, 4)
        assert await log.bounds() is None
        plain = await world.plain_client()
        await plain.jetstream().delete_stream(broker.names.order_stream)
        await plain.close()
        with pytest.raises(InputError, match="order log: it is empty, or was deleted"):
            await log.read(0)
        root.clear()
        root.send(number(4))
        await root.until(lambda: root.of(OrderKept) == [OrderKept(0), OrderKept(8)], "made again, and begins there")
        assert await log.bounds() == OrderBounds(7, 8)


async def test_an_older_copy_goes_on_and_tells_what_is_lost() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        root, log = Probe(broker, "root"), broker.order_log()
        for n in (1, 2):
            await root.ask(number(n), OrderKept)
        again = Probe(await world.connect(), "root")
        again.send(Ordered(8, (), 1))
        await again.until(lambda: again.of(OrderKept) == [OrderKept(4), OrderKept(8)], "where it ended, and ends")
        assert await log.bounds() == OrderBounds(1, 8)
        assert await log.read(3) == OrderRead(3, (OrderedRange("a", 4, 4),)), "up to what is lost"
        assert await log.read(4) == OrderRead(8, ())
        assert await root.ask(number(5), OrderKept) == OrderKept(10)
        assert await log.read(0) == OrderRead(0, (OrderedRange("a", 1, 2), OrderedRange("a", 3, 4)))
        assert await log.read(5) == OrderRead(8, (OrderedRange("a", 9, 10),))


async def test_a_root_is_told_that_its_log_was_deleted_and_a_waiting_reader_what_is_gone() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        root, reader = Probe(broker, "root"), Probe(broker, "reader")
        for n in (1, 2):
            await root.ask(number(n), OrderKept)
        plain = await world.plain_client()
        await plain.jetstream().delete_stream(broker.names.order_stream)
        await plain.close()
        reader.send(ReadOrder(0))
        await root.until(lambda: OrderKept(0) in root.of(OrderKept), "it is told unasked")
        root.send(Ordered(4, (), 1))
        assert await reader.first(OrderRead) == OrderRead(4, ())


async def test_its_own_retention() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        broker.streams.options = StreamOptions(max_age_s=5.0, order_max_age_s=60.0)
        await Probe(broker, "root").ask(number(1), OrderKept)
        plain = await world.plain_client()
        found = await plain.jetstream().stream_info(broker.names.order_stream)
        await plain.close()
        assert (found.config.max_age, found.config.num_replicas) == (60.0, 1)
    with pytest.raises(InputError, match=r"order_max_age_s: 0\.5 is not from 1 to 1e\+09"):
        StreamOptions(order_max_age_s=0.5)


async def test_somebody_elses_stream_is_named() -> None:
    async with jetstream_world() as world:
        broker = await world.connect()
        plain = await world.plain_client()
        await plain.jetstream().add_stream(name=broker.names.order_stream, subjects=["other"])
        await plain.close()
        root = Probe(broker, "root")
        root.send(number(1))
        await root.until(lambda: root.errors, "an error")
        assert "it was made by somebody else and captures other" in str(root.errors[0][1])
