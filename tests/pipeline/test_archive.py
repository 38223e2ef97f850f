"""The archive on a real NATS server: each row exactly once, whatever is killed, and readers that never see half."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.streams import Row, Streams, streams

from seriatim.model import InputError
from seriatim.pipeline.archive import ArchiveOptions, archive, compact, read_archive, read_gaps, records_of
from seriatim.pipeline.archive.records import records_uri, table_uri
from seriatim.pipeline.archive.writing import ArchiveFailed

RECORD_S = 240.0  # for a subprocess to start Spark and write something, on a busy machine


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
    rows = read_archive(spark, str(folder / "archive"), "events").select(*Row._fields).collect()
    return sorted(Row(*row[:5], bytes(row[5])) for row in rows)


def test_everything_once_and_again_nothing(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    archive(spark, options(filled, tmp_path, max_messages=25))
    assert found(spark, tmp_path) == sorted(filled.expected)
    before = records_of(spark, str(tmp_path / "archive"), "events")
    assert len(before) == 3, "60 messages, at most 25 in a batch"
    archive(spark, options(filled, tmp_path))
    assert records_of(spark, str(tmp_path / "archive"), "events") == before
    filled.publish(filled.topic("orders"), 5)
    filled.publish(filled.make("new"), 5, 2)  # a topic that was not there before
    archive(spark, options(filled, tmp_path))
    assert found(spark, tmp_path) == sorted(filled.expected)


def test_a_batch_that_is_repeated_after_its_record_changes_nothing(
    spark: SparkSession, filled: Streams, tmp_path: Path
) -> None:
    archive(spark, options(filled, tmp_path))
    for done in (tmp_path / "checkpoint" / "events" / "commits").glob("*"):
        done.unlink()  # as if killed between our record and Spark's own
    archive(spark, options(filled, tmp_path))
    assert found(spark, tmp_path) == sorted(filled.expected)
    assert len(records_of(spark, str(tmp_path / "archive"), "events")) == 1


def test_compaction_keeps_every_row_and_every_reader(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    archive(spark, options(filled, tmp_path, max_messages=20))
    uri = str(tmp_path / "archive")
    reader = read_archive(spark, uri, "events")  # planned before, read after
    (done,) = compact(spark, uri, ("events",))
    assert (done.replaced, done.written, done.removed) == (3, 1, 0)
    assert reader.count() == len(filled.expected)
    (record,) = records_of(spark, uri, "events")
    assert (record.first, record.last) == (0, 2)
    filled.publish(filled.topic("orders"), 4)
    archive(spark, options(filled, tmp_path))
    (swept,) = compact(spark, uri, ("events",), grace_s=0.0)
    assert swept.removed == 5, "three small folders, the first compaction, and the batch after it"
    assert found(spark, tmp_path) == sorted(filled.expected)
    assert [each.name for each in Path(table_uri(uri, "events")).glob("batch=*")] == [
        each.folder for each in records_of(spark, uri, "events")
    ]


def test_a_killed_compaction_leaves_nothing_to_see(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    archive(spark, options(filled, tmp_path, max_messages=20))
    uri = str(tmp_path / "archive")

    def killed(record: Any) -> None:
        (Path(records_uri(uri, "events")) / record.name).unlink()  # it was killed before its record was there
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(spark, uri, ("events",), on_record=killed)
    assert found(spark, tmp_path) == sorted(filled.expected)
    compact(spark, uri, ("events",), grace_s=0.0)
    assert found(spark, tmp_path) == sorted(filled.expected)


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


def test_a_stream_that_was_made_anew_is_refused(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    archive(spark, options(filled, tmp_path))
    stream = filled.names.log_stream(filled.topic("orders"))

    async def delete(client: Any) -> None:
        await client.jsm().delete_stream(stream)

    filled.client(delete)
    with pytest.raises(ArchiveFailed, match="is not on the server any more"):
        archive(spark, options(filled, tmp_path))
    filled.make("orders")
    filled.publish(filled.topic("orders"), 40)
    with pytest.raises(ArchiveFailed, match="deleted and made anew"):
        archive(spark, options(filled, tmp_path))


def test_an_archive_goes_with_one_checkpoint(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    archive(spark, options(filled, tmp_path))
    with pytest.raises(InputError, match="another checkpoint"):
        archive(spark, options(filled, tmp_path, checkpoint=str(tmp_path / "other")))
    with pytest.raises(InputError, match="belongs to another archive"):
        archive(spark, options(filled, tmp_path, out=str(tmp_path / "elsewhere")))


def test_killed_again_and_again(spark: SparkSession, world: Streams, tmp_path: Path) -> None:
    """The process and its JVM are killed in the middle of the work; the last run is left alone."""
    mine = Streams(world.server)
    for name, events in (("a", 1), ("b", 3), ("c", 40)):
        mine.publish(mine.make(name), 100, events)
    records = Path(records_uri(str(tmp_path / "archive"), "events"))
    written = 0
    for _ in range(2):
        written = _run_and_kill(mine, tmp_path, records, written)
    archive(spark, options(mine, tmp_path))
    assert found(spark, tmp_path) == sorted(mine.expected)


def _run_and_kill(world: Streams, folder: Path, records: Path, before: int) -> int:
    """Start the job with small batches, and kill it when there are some more of them."""
    command = [sys.executable, "-m", "seriatim.cli", "archive", "--url", world.url, "--cluster", world.cluster]
    command += ["--out", str(folder / "archive"), "--checkpoint", str(folder / "checkpoint"), "--tables", "events"]
    command += ["--max-rows", "10", "--master", "local[1]", "--memory", "1g"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + RECORD_S
    try:
        while (written := len(list(records.glob("batch-*.json")))) < before + 2:
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
            assert time.monotonic() < deadline, "no batch was written"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=RECORD_S)
    return written
