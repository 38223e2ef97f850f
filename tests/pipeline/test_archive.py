"""The archive on a real NATS server: each row exactly once, whatever is killed, and readers that never see half."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seriatim
from seriatim.audit import audit
from seriatim.brokers.nats.order import encode_order
from seriatim.model import Delivery, History, InputError, Publication, Subscription
from seriatim.order import OrderedRange
from seriatim.pipeline.archive import (
    ArchiveOptions,
    Record,
    archive,
    compact,
    describe,
    read_archive,
    read_gaps,
    records_of,
)
from seriatim.pipeline.archive.records import records_uri, table_uri
from seriatim.pipeline.archive.writing import ArchiveFailed
from seriatim.pipeline.live import ordered_events
from seriatim.pipeline.replay import in_sequence, would_have_seen
from seriatim.pipeline.source.options import TABLES
from seriatim.protocols.with_broker import Ordered
from tests.client.test_nats import sequencer
from tests.client.world import take
from tests.pipeline.streams import Row, Streams, order_log_has, run, streams
from tests.waiting import wait

RECORD_S = 500.0  # for a subprocess to start Spark and write something, on a busy machine


@pytest.fixture(scope="module")
def world() -> Iterator[Streams]:
    with streams() as found:
        yield found


@pytest.fixture
def filled(world: Streams) -> Streams:
    """A cluster of its own, with two topics: messages with one event and with several."""
    mine = Streams(world.server)
    for name, events in (("orders", 1), ("prices", 7)):
        mine.publish(mine.make(name), 30, events)
    return mine


def options(world: Streams, folder: Path, **more: Any) -> ArchiveOptions:
    places = {"out": str(folder / "archive"), "checkpoint": str(folder / "checkpoint")}
    chosen: dict[str, Any] = {"tables": ("events",), "max_messages": 1_000, **places, **more}
    return ArchiveOptions(url=world.url, cluster=world.cluster, **chosen)


def found(spark: SparkSession, folder: Path) -> list[Row]:
    rows = read_archive(spark, str(folder / "archive"), "events").select(*Row.__struct_fields__).collect()
    return sorted(Row(**{**row.asDict(), "data": bytes(row.data)}) for row in rows)


@pytest.mark.long
def test_everything_once_through_new_topics_and_compactions(
    spark: SparkSession, filled: Streams, tmp_path: Path
) -> None:
    archive(spark, options(filled, tmp_path, max_messages=25))
    assert found(spark, tmp_path) == sorted(filled.expected)
    uri = str(tmp_path / "archive")
    small = records_of(spark, uri, "events")
    assert [(each.first, each.last) for each in small] == [(0, 0), (1, 1), (2, 2)], "60 messages, 25 in a batch"

    def killed(record: Record) -> None:
        (Path(records_uri(uri, "events")) / record.name).unlink()  # killed before its record was there
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(spark, uri, ("events",), on_record=killed)
    assert records_of(spark, uri, "events") == small
    reader = read_archive(spark, uri, "events")  # planned before the compaction, read after it
    (done,) = compact(spark, uri, ("events",))
    assert (done.replaced, done.written, done.removed) == (3, 1, 0)
    assert reader.count() == len(filled.expected)
    (large,) = records_of(spark, uri, "events")
    assert (large.first, large.last, large.rows) == (0, 2, len(filled.expected))

    assert read_archive(spark, uri, "events", until=date(2020, 1, 1)).isEmpty()

    filled.publish(filled.topic("orders"), 5)
    filled.publish(filled.make("new"), 5, 2)  # a topic that was not there before
    archive(spark, options(filled, tmp_path))
    (swept,) = compact(spark, uri, ("events",), grace_s=0.0)
    assert (swept.replaced, swept.written) == (2, 1)
    assert found(spark, tmp_path) == sorted(filled.expected)
    folders = {each.name for each in Path(table_uri(uri, "events")).glob("batch=*")}
    assert folders >= {each.folder for each in records_of(spark, uri, "events")}
    assert not folders & {each.folder for each in small}


@pytest.mark.long
def test_a_batch_that_is_repeated_and_places_that_do_not_belong_together(
    spark: SparkSession, filled: Streams, tmp_path: Path
) -> None:
    archive(spark, options(filled, tmp_path))
    before = records_of(spark, str(tmp_path / "archive"), "events")
    for done in (tmp_path / "checkpoint" / "events" / "commits").glob("*"):
        done.unlink()  # as if killed between our record and Spark's own
    archive(spark, options(filled, tmp_path))
    assert records_of(spark, str(tmp_path / "archive"), "events") == before
    assert found(spark, tmp_path) == sorted(filled.expected)

    with pytest.raises(InputError, match="another checkpoint"):
        archive(spark, options(filled, tmp_path, checkpoint=str(tmp_path / "other")))
    with pytest.raises(InputError, match="belongs to another archive"):
        archive(spark, options(filled, tmp_path, out=str(tmp_path / "elsewhere")))

    async def delete(client: Any) -> None:
        await client.jsm().delete_stream(filled.names.log_stream(filled.topic("orders")))

    filled.client(delete)
    with pytest.raises(ArchiveFailed, match="is no longer on the server"):
        archive(spark, options(filled, tmp_path))
    filled.make("orders")  # its positions begin again
    with pytest.raises(ArchiveFailed, match="deleted and created again"):
        archive(spark, options(filled, tmp_path))


@pytest.mark.long
def test_what_the_broker_dropped_is_written_down(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    topic = filled.topic("orders")
    stream = filled.names.log_stream(topic)

    async def drop(client: Any) -> None:
        manager = client.jsm()
        await manager.purge_stream(stream, seq=11)  # what retention does
        await manager.delete_msg(stream, 20)

    filled.client(drop)
    with pytest.raises(ArchiveFailed, match="1 positions were gone"):
        archive(spark, options(filled, tmp_path / "strict", gaps="fail"))
    archive(spark, options(filled, tmp_path))
    gaps = read_gaps(spark, str(tmp_path / "archive"), "events").collect()
    assert sorted((row.stream, row.first, row.last) for row in gaps) == [(stream, 1, 10), (stream, 20, 20)]
    kept = [row for row in filled.expected if row.log != topic or (row.number > 10 and row.number != 20)]
    assert found(spark, tmp_path) == sorted(kept)


class OrderStream:
    """The order log of a cluster, written by hand: message k has three ranges of topics a and b."""

    def __init__(self, world: Streams) -> None:
        self._world = world
        self._lasts = {"a": 0, "b": 0}
        self.expected: list[tuple[int, str, int, int, int]] = []

        async def make(client: Any) -> None:
            names = world.names
            await client.jetstream().add_stream(
                name=names.order_stream, subjects=[names.order_subject], allow_direct=True
            )

        world.client(make)

    def write(self, messages: int) -> None:
        bodies = []
        for _ in range(messages):
            after = sum(self._lasts.values())
            ranges = []
            for topic, count in (("a", 2), ("b", 1), ("a", 3)):
                first = self._lasts[topic] + 1
                self._lasts[topic] += count
                ranges.append(OrderedRange(topic, first, first + count - 1))
                position = sum(self._lasts.values()) - count + 1
                self.expected.append((position, topic, first, first + count - 1, 1))
            bodies.append(encode_order(Ordered(after, tuple(ranges), 1)))

        async def send(client: Any) -> None:
            jetstream = client.jetstream(timeout=30)
            for body in bodies:
                await jetstream.publish(self._world.names.order_subject, body)

        self._world.client(send)

    def archived(self, spark: SparkSession, folder: Path) -> list[tuple[int, str, int, int, int]]:
        rows = read_archive(spark, str(folder / "archive"), "order")
        return sorted(tuple(row) for row in rows.select("position", "log", "first", "last", "epoch").collect())


def test_the_order_log_is_archived(spark: SparkSession, world: Streams, tmp_path: Path) -> None:
    mine = Streams(world.server)
    order = OrderStream(mine)
    order.write(12)
    archive(spark, options(mine, tmp_path, tables=("order",), max_messages=5))
    assert order.archived(spark, tmp_path) == order.expected
    uri = str(tmp_path / "archive")
    assert len(records_of(spark, uri, "order")) == 3, "12 messages, 5 in a batch"
    assert {row["table"]: row["rows"] for row in describe(spark, uri)} == {"order": 36}


@pytest.mark.long
def test_the_order_log_is_archived_once(spark: SparkSession, world: Streams, tmp_path: Path) -> None:
    """Through a batch that is repeated, a compaction, retention, and a message that no root has written."""
    mine = Streams(world.server)
    order = OrderStream(mine)
    order.write(12)
    wishes = options(mine, tmp_path, tables=("events", "order"), max_messages=5)
    archive(spark, wishes)
    assert order.archived(spark, tmp_path) == order.expected
    uri = str(tmp_path / "archive")
    assert len(records_of(spark, uri, "order")) == 3, "12 messages, 5 in a batch"
    assert {row["table"]: row["rows"] for row in describe(spark, uri)} == {"events": 0, "order": 36}
    for done in (tmp_path / "checkpoint" / "order" / "commits").glob("*"):
        done.unlink()  # as if killed between our record and Spark's own
    order.write(4)

    async def spoil(client: Any) -> None:
        await client.jsm().delete_msg(mine.names.order_stream, 14)
        await client.jetstream().publish(mine.names.order_subject, b"something else")

    mine.client(spoil)
    archive(spark, wishes)
    compact(spark, uri, ("order",))
    assert order.archived(spark, tmp_path) == [*order.expected[:39], *order.expected[42:]]
    gaps = sorted((row.first, row.last, row.problem) for row in read_gaps(spark, uri, "order").collect())
    assert [gap[:2] for gap in gaps] == [(14, 14), (17, 17)]
    assert "a message that is not a list of ranges" in gaps[1][2]
    with pytest.raises(ArchiveFailed, match="positions were gone"):
        archive(spark, options(mine, tmp_path / "strict", tables=("order",), gaps="fail"))


@pytest.mark.long
def test_all_tables_of_a_live_cluster_and_an_audit_of_them(spark: SparkSession, world: Streams, tmp_path: Path) -> None:
    cluster, topics = "live", [f"live.{each}" for each in "abc"]
    seen = run(run_cluster(world, cluster, topics, tmp_path))

    wishes = options(Streams(world.server, cluster), tmp_path, tables=TABLES)
    archive(spark, wishes)
    uri = str(tmp_path / "archive")
    history = History(
        [Delivery(**row.asDict()) for row in read_archive(spark, uri, "deliveries").collect()],
        [Publication(**row.asDict()) for row in read_archive(spark, uri, "publications").collect()],
        [Subscription(**row.asDict()) for row in read_archive(spark, uri, "subscriptions").collect()],
    )
    assert all(row.until is not None for row in history.subscriptions), "the last row of each key holds"
    assert all(row.number is not None for row in history.publications)
    report = audit(history)
    for name in ("fifo", "tno", "integrity", "completeness"):
        assert report.verdicts[name].answer == "valid", report.verdicts[name].reason

    live = [row.event_id for row in ordered_events(spark, world.url, "live.*", cluster=cluster).collect()]
    assert live == seen, "the order log is the order that subscribers saw"
    stamps, events, order = (read_archive(spark, uri, table) for table in ("stamps", "events", "order"))
    by_stamps = would_have_seen(events, topics, stamps=stamps)
    by_positions = would_have_seen(events, topics, order=order)
    for replay in (by_positions, by_stamps):
        assert [row.event_id for row in in_sequence(replay.events).collect()] == seen


async def run_cluster(world: Streams, cluster: str, topics: list[str], folder: Path) -> list[str]:
    """Two publishers, two subscribers of everything, logs on the broker; the ids that both saw, in order."""
    async with (
        sequencer(world.server, cluster, folder, streams={"buckets": 2}),
        seriatim.connect(world.url, cluster=cluster, publication_log="broker:") as one,
        seriatim.connect(world.url, cluster=cluster, publication_log="broker:") as two,
        one.subscribe(*topics, log="broker:") as first,
        two.subscribe(*topics, log="broker:") as second,
    ):
        for place in range(40):
            await asyncio.gather(
                one.publish_many(topics[place % 3], [b"x"] * (1 + place % 4)), two.publish(topics[place % 2], b"y")
            )
        saw = [[event.id for event in await take(each, 140)] for each in (first, second)]
        assert saw[0] == saw[1]
        await order_log_has(world.url, cluster, 80)
        return saw[0]


@pytest.mark.long
@pytest.mark.timeout(1_500)  # it starts Spark three times
def test_killed_again_and_again(spark: SparkSession, world: Streams, tmp_path: Path) -> None:
    """The process and its JVM are killed in the middle of the work; the last run is left alone."""
    mine = Streams(world.server)
    for name, events in (("a", 1), ("b", 3), ("c", 40)):
        mine.publish(mine.make(name), 100, events)
    order = OrderStream(mine)
    order.write(40)
    for table in ("order", "events"):
        _run_and_kill(mine, tmp_path, Path(records_uri(str(tmp_path / "archive"), table)))
    archive(spark, options(mine, tmp_path, tables=("events", "order")))
    assert found(spark, tmp_path) == sorted(mine.expected)
    assert order.archived(spark, tmp_path) == order.expected


def _run_and_kill(world: Streams, folder: Path, records: Path) -> None:
    """Start the job with small batches, and kill it when there are some more records of a table."""
    command = [sys.executable, "-m", "seriatim.cli", "archive", "--url", world.url, "--cluster", world.cluster]
    command += [
        "--out",
        str(folder / "archive"),
        "--checkpoint",
        str(folder / "checkpoint"),
        "--tables",
        "events,order",
    ]
    command += ["--max-rows", "10", "--master", "local[1]", "--memory", "1g"]

    def count() -> int:
        return len(list(records.glob("batch-*.json")))

    before = count()
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait(lambda: process.poll() is not None or count() >= before + 2, "two batches are written", RECORD_S)
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=RECORD_S)
