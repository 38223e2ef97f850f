"""The data source as Spark calls it, on a real NATS server but without Spark: what a task reads is Arrow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import seriatim
from seriatim.brokers.naming import Names, bucket_of
from seriatim.brokers.nats.order import encode_order
from seriatim.brokers.packs import BATCH_HEADER, pack
from seriatim.model import GapError, InputError
from seriatim.order import OrderedRange
from seriatim.pipeline.schemas import EVENTS, PLACED, STAMPS
from seriatim.pipeline.source.reading import SeriatimSource, TableReader, TableStreamReader
from seriatim.protocols.with_broker import Ordered
from tests.client.test_nats import sequencer
from tests.client.world import take
from tests.pipeline.streams import Row, Streams, order_log_has, run, streams


@pytest.fixture(scope="module")
def world() -> Iterator[Streams]:
    with streams() as found:
        yield found


def rows_of(reader: TableReader | TableStreamReader, partitions: Any) -> list[dict[str, Any]]:
    return [
        row for each in partitions for batch in reader.read(each) for row in batch.to_pylist(maps_as_pydicts="strict")
    ]


def read(world: Streams, **options: str) -> list[dict[str, Any]]:
    """A batch read, as Spark would do it."""
    source = SeriatimSource({"url": world.url, "cluster": world.cluster, **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, TableReader)
    return rows_of(reader, reader.partitions())


def events(rows: list[dict[str, Any]]) -> list[Row]:
    return sorted(Row(**{name: row[name] for name in Row.__struct_fields__}) for row in rows)


def test_what_was_published_in_the_columns_of_the_table(world: Streams) -> None:
    mine = Streams(world.server)
    mine.publish(mine.make("one"), 20)
    mine.publish(mine.make("many"), 20, 9)
    found = read(mine)
    assert events(found) == sorted(mine.expected)
    assert list(found[0]) == EVENTS.names
    assert {row["publisher"] for row in found} == {f"p~{mine.topic('one')}", f"p~{mine.topic('many')}"}
    assert events(read(mine, topics="*.many")) == sorted(row for row in mine.expected if row.topic.endswith("many"))
    with pytest.raises(InputError, match="no stream of cluster"):
        read(mine, topics="nowhere")


@pytest.mark.parametrize(("mode", "buckets"), [("log", 2), ("ticket", 0)])
def test_events_and_stamps_of_a_live_cluster(world: Streams, tmp_path: Path, mode: str, buckets: int) -> None:
    cluster = f"live-{mode}"
    mine = Streams(world.server, cluster)
    topics = [mine.topic(each) for each in "abc"]

    async def live() -> list[str]:
        async with (
            sequencer(world.server, cluster, tmp_path, mode=mode, streams={"buckets": buckets}),
            seriatim.connect(world.url, cluster=cluster) as bus,
            bus.subscribe(*topics) as one,
            bus.subscribe(*topics) as two,
        ):
            for place in range(10):
                await bus.publish_many(topics[place % 3], [b"x"] * (1 + place % 4))
                await bus.publish(topics[0], b"y", headers={"Colour": "red"}, id=f"own-{place}")
            await take(two, 33)
            await order_log_has(world.url, cluster, 20)
            return [event.id for event in await take(one, 33)]

    seen = run(live())
    found = read(mine)
    assert sorted(row["event_id"] for row in found) == sorted(seen)
    assert [row["headers"] for row in found if row["event_id"] == "own-3"] == [{"Colour": "red"}]
    logs = {bucket_of(topic, buckets) if buckets else topic for topic in topics}
    assert {row["log"] for row in found} == logs and {row["topic"] for row in found} == set(topics)
    assert {row["topic"] for row in read(mine, topics=topics[1])} == {topics[1]}, "a bucket holds others too"
    stamps = read(mine, table="stamps")
    assert list(stamps[0]) == STAMPS.names
    for log in logs:  # every number has its stamp, once
        numbers = sorted({row["number"] for row in found if row["log"] == log})
        stamped = [at for row in stamps if row["log"] == log for at in range(row["first"], row["last"] + 1)]
        assert sorted(stamped) == numbers
    assert {topic for row in stamps for topic in row["entries"]} <= logs, "topics by their names"
    order = sorted(read(mine, table="order"), key=lambda row: row["position"])
    placed = [(row["log"], at) for row in order for at in range(row["first"], row["last"] + 1)]
    assert [row["position"] for row in order] == [
        1 + sum(each["last"] - each["first"] + 1 for each in order[:at]) for at in range(len(order))
    ]
    seen_at = {row["event_id"]: (row["log"], row["number"]) for row in found}
    assert list(dict.fromkeys(seen_at[each] for each in seen)) == placed, "the order log has every number, as seen"


def test_what_others_write_into_the_order_log(world: Streams) -> None:
    mine = Streams(world.server)
    names = Names(mine.cluster)
    assert read(mine, table="order") == [], "a cluster without an order log"

    async def write(client: Client) -> None:
        jetstream = client.jetstream(timeout=30)
        await jetstream.add_stream(name=names.order_stream, subjects=[names.order_subject])
        good = Ordered(0, (OrderedRange("a", 1, 3), OrderedRange("b", 5, 5)), 2)
        huge = Ordered(4, (OrderedRange("a", 4, 1 << 40),), 2)
        beyond = Ordered((1 << 63) - 1, (OrderedRange("a", 4, 4),), 2)
        later = Ordered(9, (OrderedRange("a", 7, 7),), 3)
        for body in (b"rubbish", encode_order(good), encode_order(huge), encode_order(beyond), encode_order(later)):
            await jetstream.publish(names.order_subject, body)

    mine.client(write)
    with pytest.raises(
        GapError, match=r"1…1 will never come: the order log holds a message that is not a list of ranges"
    ):
        read(mine, table="order")
    found = read(mine, table="order", gaps="rows")
    ranges = [row for row in found if row["lost_to"] is None]
    assert list(ranges[0])[: len(PLACED.names)] == PLACED.names
    assert [tuple(row[name] for name in PLACED.names[:-1]) for row in ranges] == [
        (1, "a", 1, 3, 2),
        (4, "b", 5, 5, 2),
        (10, "a", 7, 7, 3),
    ]
    assert [(row["stream_position"], row["line"]) for row in ranges] == [(2, 0), (2, 1), (5, 0)]
    lost = [(row["stream_position"], row["problem"].split(":")[0]) for row in found if row["lost_to"] is not None]
    assert [at for at, _ in lost] == [1, 3, 4]
    assert {text for at, text in lost if at > 1} == {"the order log holds numbers that no root would write"}


def test_what_others_write_into_a_log(world: Streams) -> None:
    """A stream of somebody else, without direct reads; messages that no client of ours would write."""
    mine = Streams(world.server)
    topic = mine.topic("foreign")

    async def write(client: Client) -> None:
        jetstream = client.jetstream(timeout=30)
        await jetstream.add_stream(name=f"Z{mine.cluster}", subjects=[topic])
        await jetstream.publish(topic, b"plain")
        own = pack(5, [b"a", b"b"], {1: {"Colour": "red"}}, {0: "mine"})
        await jetstream.publish(topic, own, headers={BATCH_HEADER: "1", "Seriatim-Publisher": "p"})
        await jetstream.publish(topic, b"rubbish", headers={BATCH_HEADER: "1"})
        await jetstream.publish(topic, pack(-5, [b"x"]), headers={BATCH_HEADER: "1"})
        await jetstream.publish(topic, b"", headers={"Colour": "blue"})

    mine.client(write)
    with pytest.raises(GapError, match=r"3…3 will never come: a pack that cannot be read"):
        read(mine, topics=topic)
    found = read(mine, topics=topic, gaps="rows")
    good = [row for row in found if row["lost_to"] is None]
    assert [(row["number"], row["index"], row["event_id"], row["headers"], row["data"]) for row in good] == [
        (1, 0, f"{topic}-1", None, b"plain"),
        (2, 0, "mine", None, b"a"),
        (2, 1, "p-6", {"Colour": "red"}, b"b"),
        (5, 0, f"{topic}-5", {"Colour": "blue"}, b""),
    ]
    bad = [(row["stream_position"], row["lost_to"], row["problem"]) for row in found if row["lost_to"] is not None]
    assert [each[:2] for each in bad] == [(3, 3), (4, 4)] and "a pack" in bad[0][2]


def test_a_stream_of_batches_reaches_the_end_and_sees_each_row_once(world: Streams) -> None:
    mine = Streams(world.server)
    mine.publish(mine.make("a"), 40, 3)
    mine.publish(mine.make("b"), 7)
    source = SeriatimSource({"url": mine.url, "cluster": mine.cluster, "max_messages": "15"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, TableStreamReader)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(15)
    reader.prepareForTriggerAvailableNow()
    expected = sorted(mine.expected)
    mine.publish(mine.make("late"), 3)  # came after the run had begun
    found: list[dict[str, Any]] = []
    offset = reader.initialOffset()
    for _ in range(20):
        end = reader.latestOffset(offset, limit)
        batch = rows_of(reader, reader.partitions(offset, end))
        assert batch == rows_of(reader, reader.partitions(offset, end)), "a repeated batch is the same batch"
        found += batch
        if end == offset:
            break
        offset = end
    assert events(found) == expected
    other = source.streamReader(source.schema())
    assert isinstance(other, TableStreamReader)
    assert rows_of(other, other.partitions(offset, other.latestOffset(offset, ReadAllAvailable())))[0]["topic"] == (
        mine.topic("late")
    )


def test_rows_of_logs_and_what_was_withdrawn(world: Streams) -> None:
    mine = Streams(world.server)
    names = Names(mine.cluster)

    async def write(client: Client) -> None:
        jetstream = client.jetstream(timeout=30)
        await jetstream.add_stream(
            name=names.logs_stream("publications"), subjects=[names.logs_subject("publications")]
        )
        subject = names.logs_subject("publications", "p")
        for place in range(2):
            row = b'{"event_id":"e%d","topic":"t","publisher":"p","sequence":%d}' % (place, place)
            await jetstream.publish(subject, row + b"\n")
        await jetstream.publish(subject, b'{"event_id":"e0","topic":"t","publisher":"p","number":7}\n-' + row + b"\n")
        await jetstream.publish(subject, b"no row")

    mine.client(write)
    found = read(mine, table="publications", gaps="rows")
    said = [(row["event_id"], row["number"], row["stream_position"], row["line"], row["problem"]) for row in found]
    assert said[:4] == [
        ("e0", None, 1, 0, None),
        ("e1", None, 2, 0, None),
        ("e0", 7, 3, 0, None),
        ("e1", None, 3, 1, "withdrawn"),
    ]
    assert said[4][2] == 4 and "not rows of a log" in said[4][4]


def test_asking_for_what_is_not_there() -> None:
    with pytest.raises(InputError, match="leave"):
        SeriatimSource({"url": "nats://127.0.0.1:1"}).reader(STAMPS)
