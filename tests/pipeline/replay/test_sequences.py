"""Replays on Spark: what is in them, in which order, and what they say is missing."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from seriatim.model import Delivery, History, InputError, Subscription
from seriatim.pipeline.logs import tables_of
from seriatim.pipeline.replay import Bound, Replay, as_text, in_sequence, never_ordered, saw, sentence, would_have_seen
from seriatim.pipeline.schemas import REPLAY
from tests.pipeline.replay.stamp_worlds import Stamp
from tests.pipeline.replay.worlds import events_table, stamps_table

# A1 A2 | B1 after A1 | A3…A5 after B1, of which A4 is gone | B2 after A6, which has no stamp
STAMPS = [
    Stamp("A", 1, 2, {}, 5_000),
    Stamp("B", 1, 1, {"A": 1}, 4_000),
    Stamp("A", 3, 5, {"B": 1}, 3_000),
    Stamp("B", 2, 2, {"A": 6}, 9_000),
    Stamp("C", 1, 1, {}, 1_000),
]
EVENTS = {
    ("A", 1, 0): "a1",
    ("A", 1, 1): "a1b",
    ("A", 2, 0): "a2",
    ("B", 1, 0): "b1",
    ("A", 3, 0): "a3",
    ("A", 5, 0): "a5",
    ("A", 6, 0): "a6",
    ("B", 2, 0): "b2",
    ("C", 1, 0): "c1",
}
NO_EVENT = "ordered, but the archive has no event: deleted or expired before it was archived, or a void"


@pytest.fixture(scope="module")
def archive(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return events_table(spark, EVENTS).persist(), stamps_table(spark, STAMPS).persist()


def ids(replay: Replay) -> list[str]:
    return [row["event_id"] for row in in_sequence(replay.events).select("event_id").collect()]


def missing(replay: Replay) -> list[str]:
    return sorted(sentence(*row) for row in replay.missing.collect())


def test_what_a_subscriber_would_have_seen(archive: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    events, stamps = archive
    replay = would_have_seen(events, ["A", "B"], stamps=stamps)
    assert [(field.name, field.dataType) for field in replay.events.schema] == [
        (field.name, field.dataType) for field in REPLAY
    ]
    out = (tmp_path / "out").as_uri()
    in_sequence(replay.events).write.parquet(out)
    rows = in_sequence(events.sparkSession.read.parquet(out)).collect()
    assert [row["event_id"] for row in rows] == ["a1", "a1b", "a2", "b1", "a3", "a5"]
    assert [row["data"] for row in rows][:2] == [bytearray(b"a1"), bytearray(b"a1b")]
    assert all(row["replayed"] and not row["missing"] and row["headers"] == {"kind": "test"} for row in rows)
    assert missing(replay) == [f"A, number 4: {NO_EVENT}"]
    assert replay.places is not None
    assert [tuple(row) for row in replay.places.where("ordinal is null").select("log", "waits_for").collect()] == [
        ("B", "A")
    ]
    in_sequence(as_text(replay.events)).write.csv((tmp_path / "csv").as_uri(), header=True)
    parts = sorted((tmp_path / "csv").glob("part-*.csv"))
    lines = [
        line for part in parts for line in part.read_text(encoding="utf-8").splitlines() if ",event_id," not in line
    ]
    assert [line.split(",")[6] for line in lines] == ["a1", "a1b", "a2", "b1", "a3", "a5"]
    replay.places.unpersist()


def test_bounds_of_a_replay(archive: tuple[DataFrame, DataFrame]) -> None:
    events, stamps = archive
    late = would_have_seen(events, ["A", "B"], stamps=stamps, since=Bound(time_ms=2.0), until=Bound(time_ms=5.0))
    assert (ids(late), missing(late)) == (["a2", "a3"], [f"A, number 4: {NO_EVENT}"])
    cut = Bound(numbers={"A": 3, "B": 0})
    short = would_have_seen(events, ["A", "B"], stamps=stamps, since=Bound(numbers={"A": 2}), until=cut)
    assert ids(short) == ["a2", "a3"]
    assert missing(short) == ["B, number 1: beyond the cut, but A 3, which is within it, comes after"]


def test_mistakes_and_what_was_never_ordered(archive: tuple[DataFrame, DataFrame]) -> None:
    events, stamps = archive
    assert never_ordered(stamps, ["A", "B", "C"]) == [("A", "C"), ("B", "C")]
    with pytest.raises(InputError, match="topics: the archive has no event of D; check the names"):
        would_have_seen(events, ["A", "D"], stamps=stamps)
    with pytest.raises(InputError, match="no topic is named"):
        would_have_seen(events, [], stamps=stamps)
    with pytest.raises(InputError, match="B is not replayed"):
        would_have_seen(events, ["A"], stamps=stamps, until=Bound(numbers={"B": 1}))


def test_what_a_subscriber_saw(spark: SparkSession, archive: tuple[DataFrame, DataFrame]) -> None:
    history = History(
        [
            Delivery("s", 0, "b1", "B", 1, None, 1.0, 10.0),
            Delivery("s", 1, "a1", "A", 1, None, 1.0, 11.0),
            Delivery("s", 2, "gone", "A", 9, None, 1.0, 12.0),
            Delivery("s", 4, "a1b", "A", 1, None, 1.0, 13.0, out_of_order=True, index=1),
            Delivery("t", 0, "a1", "A", 1),
            Delivery("filtering", 0, "b1", "B", 1, filtered=True),
            Delivery("filtering", 1, "a1", "A", 1),
        ],
        subscriptions=[Subscription("s", "B", 0, None, 0), Subscription("s", "A", 1, 5, 0, 9)],
    )
    tables = tables_of(spark, history)
    replay = saw(archive[0], tables.deliveries, "s", tables.subscriptions)
    assert replay.events.schema.names == REPLAY.names
    rows = in_sequence(replay.events).collect()
    assert [(row["event_id"], row["position"], row["data"], row["out_of_order"]) for row in rows] == [
        ("b1", 0, bytearray(b"b1"), False),
        ("a1", 1, bytearray(b"a1"), False),
        ("gone", 2, None, False),
        ("a1b", 4, bytearray(b"a1b"), True),
    ]
    assert [row["order_key"] for row in rows] == [0, 1, 2, 4]
    assert missing(replay) == [
        "A, event 9: delivered, but the archive has no such event",
        "s, position 3: missing in the delivery log",
    ]
    assert replay.changes is not None
    assert [tuple(row) for row in replay.changes.collect()] == [
        (0, "joined", "B", 0),
        (1, "joined", "A", 0),
        (5, "left", "A", 9),
    ]
    filtered = saw(archive[0], tables.deliveries, "filtering")
    assert ids(filtered) == ["a1"], "what a filter leaves out nobody is notified of"
    assert missing(filtered) == [], "but it is no hole"
    assert ids(saw(archive[0], tables.deliveries, "s", since=Bound(time_ms=11.0), until=Bound(time_ms=13.0))) == [
        "a1",
        "gone",
    ]
