"""Following a log: a violation is flagged by the batch that reads it; a stop loses and repeats nothing."""

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seriatim.audit import ColumnMapping, audit
from seriatim.model import Delivery, History, InputError, LogError
from seriatim.pipeline.follow import BatchDone, Follower, FollowOptions, WindowOptions, follow_deliveries
from seriatim.pipeline.spark import files

SUBSCRIBERS = ("s1", "s2", "s3")
EVENTS = 10  # of a file
FIRST_S = 1_700_000_000


def rows(batch: int, swapped: str | None = None) -> list[Delivery]:
    """Everybody is notified of the same events in the same order, but for one who sees the last two swapped."""
    deliveries = []
    for name in SUBSCRIBERS:
        events = [f"{'ab'[i % 2]}{batch}-{i}" for i in range(EVENTS)]
        if name == swapped:
            events[-2:] = reversed(events[-2:])
        deliveries += [Delivery(name, batch * EVENTS + i, event, event[0]) for i, event in enumerate(events)]
    return deliveries


def write(folder: Path, batch: int, deliveries: list[Delivery]) -> None:
    """A file appears whole: written elsewhere, then moved. Spark takes files by their time, so each has its own."""
    lines = [
        json.dumps({"host": row.subscriber, "position": row.position, "event_id": row.event_id, "topic": row.topic})
        for row in deliveries
    ]
    beside = folder.parent / f"{batch}.tmp"
    beside.write_text("\n".join(lines))
    os.utime(beside, (FIRST_S + batch, FIRST_S + batch))
    folder.mkdir(exist_ok=True)
    beside.rename(folder / f"{batch:03}.jsonl")


class Watched:
    """One run over what is there, one file at a time."""

    def __init__(self, spark: SparkSession, folder: Path, window: WindowOptions | None = None) -> None:
        self.done: list[BatchDone] = []
        options = FollowOptions(checkpoint=str(folder / "state"), is_once=True, window=window or WindowOptions())
        self.follower = Follower(spark, options, self.done.append)
        mapping = ColumnMapping.of({"subscriber": "host"})
        self._query = self.follower.start(follow_deliveries(spark, str(folder / "log"), mapping, files_max=1))

    def wait(self) -> "Watched":
        try:
            self.follower.wait(self._query)
        finally:
            self._query.stop()
        return self

    @property
    def batches(self) -> list[int]:
        return [each.batch for each in self.done if not each.is_repeat]


def findings(spark: SparkSession, folder: Path) -> list[tuple[int, str, int]]:
    found = spark.read.parquet(str(folder / "state" / "findings")).orderBy("batch", "name").collect()
    return [(row["batch"], row["name"], row["count"]) for row in found]


@pytest.mark.long
def test_flagged_by_the_batch_that_reads_it_and_never_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(4):
        write(tmp_path / "log", batch, rows(batch, "s2" if batch == 2 else None))
    keep = files.create

    def fail(session: SparkSession, uri: str, data: bytes) -> bool:
        if uri.endswith("state/batch=2"):
            raise InputError(uri, "the disk is full", "make room")
        return keep(session, uri, data)

    # Stopped in the middle of batch 2: findings are written, the state is not.
    monkeypatch.setattr(files, "create", fail)
    with pytest.raises(InputError, match="the disk is full"):
        Watched(spark, tmp_path).wait()
    monkeypatch.undo()

    again = Watched(spark, tmp_path).wait()
    assert again.batches == [2, 3]
    assert findings(spark, tmp_path) == [(2, "inversion", 1)]
    (found,) = [each for done in again.done if done.judged for each in done.judged.findings]
    assert found.anomaly.sentence == "s1 was notified of a2-8 before b2-9, s2 of b2-9 before a2-8"

    # Stopped after batch 3 was done, before Spark noted that.
    (tmp_path / "state" / "query" / "commits" / "3").unlink()
    (tmp_path / "state" / "query" / "commits" / ".3.crc").unlink()
    write(tmp_path / "log", 4, rows(4, "s3"))
    third = Watched(spark, tmp_path).wait()
    assert [(each.batch, each.is_repeat) for each in third.done] == [(3, True), (4, False)]
    assert findings(spark, tmp_path) == [(2, "inversion", 1), (4, "inversion", 1)]

    report = third.follower.report()
    whole = audit(History([row for b in range(5) for row in rows(b, {2: "s2", 4: "s3"}.get(b))]))
    assert report.counts == whole.counts
    assert (report.deliveries, report.events, report.shared) == (whole.deliveries, whole.events, whole.shared)
    assert report.verdicts["tno"] == whole.verdicts["tno"]
    assert report.verdicts["per-topic"].answer == "valid"
    assert report.verdicts["causal"].answer == "unknown"


@pytest.mark.long
def test_a_window_that_is_too_small_says_unknown(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "log", 0, [row for b in range(4) for row in rows(b) if row.subscriber == "s1"])
    write(tmp_path / "log", 1, [row for b in range(4) for row in rows(b) if row.subscriber == "s2"])
    window = WindowOptions(rows_max=20)
    watched = Watched(spark, tmp_path, window).wait()
    report = watched.follower.report()
    assert report.verdicts["tno"].answer == "unknown"
    assert report.verdicts["tno"].reason.startswith("20 rows came after their event")
    assert report.events == 40
    # Restored: it still knows what has left.
    write(tmp_path / "log", 2, [row for row in rows(0) if row.subscriber == "s3"])
    later = Watched(spark, tmp_path, window).wait()
    assert later.done[-1].totals.late == 30


@pytest.mark.long
def test_rows_that_do_not_fit_end_it(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "log", 0, rows(0))
    (tmp_path / "log" / "001.jsonl").write_text('{"host": "s1", "position": "ten", "event_id": "a", "topic": "A"}\n')
    with pytest.raises(LogError, match="1 of 1 new rows do not fit: column position: ten is not a whole number"):
        Watched(spark, tmp_path).wait()


def test_what_cannot_be_followed(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no order by a column"):
        follow_deliveries(spark, str(tmp_path), ColumnMapping(order_by="at"))
    with pytest.raises(LogError, match="start when the first file is there"):
        follow_deliveries(spark, str(tmp_path))
    with pytest.raises(InputError, match="checkpoint: missing"):
        FollowOptions(checkpoint="")


@pytest.mark.long
def test_text_that_is_not_utf8_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Both names would be one and the same, and the two hosts would seem to agree."""
    (tmp_path / "log").mkdir()
    text = "host,position,event_id,topic\nh1,0,café,A\nh1,1,cafè,A\nh2,0,cafè,A\nh2,1,café,A\n"
    (tmp_path / "log" / "1.csv").write_text(text, encoding="latin-1")
    with pytest.raises(LogError, match="4 of 4 new rows do not fit: column event_id: not UTF-8"):
        Watched(spark, tmp_path).wait()
