"""The order of stamps on Spark: that of the merger, for components side by side, over chunks and partitions."""

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from seriatim.pipeline.replay import positions
from seriatim.pipeline.replay.merger import Merger
from seriatim.pipeline.replay.ordering import BEFORE, DECLARES, describe_held, held, merge, placed, places, ranges_of
from seriatim.pipeline.replay.positions import with_keys
from seriatim.pipeline.replay.sequences import in_sequence
from tests.pipeline.replay.stamp_worlds import Stamp, random_stamps
from tests.pipeline.replay.worlds import events_table, stamps_table


@pytest.mark.long
def test_spark_gives_the_keys_of_the_merger(spark: SparkSession) -> None:
    """Three worlds that do not know each other, and a chunk so small that ranges and logs cross many."""
    chance = random.Random(7)
    worlds = [
        [Stamp(f"{n}-{each[0]}", *each[1:3], {f"{n}-{u}": k for u, k in each[3].items()}, each[4]) for each in world]
        for n in range(3)
        for world in [random_stamps(chance)]
    ]
    expected: dict[tuple[str, int, int], int] = {}
    for world in worlds:
        merger = Merger({each.log for each in world})
        for each in world:
            merger.feed(*each)
        expected |= {(each.log, each.first, each.last): each.ordinal for each in merger.take()}
    stamps = [each for world in worlds for each in world]
    chance.shuffle(stamps)
    found = places(stamps_table(spark, stamps).repartition(3)).persist()
    assert {(row["log"], row["first"], row["last"]): row["ordinal"] for row in placed(found).collect()} == expected
    assert held(found).count() == 0
    joined = {row["log"]: row["component"] for row in found.select("log", "component").distinct().collect()}
    for each in stamps:
        assert joined[each.log][0] == each.log[0]
        assert all(joined[other] == joined[each.log] for other in each.entries)

    numbers = [
        (log, number, index)
        for log, first, last in expected
        for number in range(first, last + 1)
        for index in range(number % 2 + 1)
    ]
    unstamped = [(log, max(last for known, _, last in expected if known == log) + 1, 0) for log, _, _ in expected]
    chance.shuffle(numbers)
    ordinal_of = {
        (log, number): ordinal for (log, first, last), ordinal in expected.items() for number in range(first, last + 1)
    }
    sequence = sorted(numbers, key=lambda event: (ordinal_of[event[:2]], *event))
    bits, positions.CHUNK_BITS = positions.CHUNK_BITS, 1
    try:
        keyed = with_keys(events_table(spark, dict.fromkeys(numbers + unstamped, "e")), ranges_of(found))
        rows = in_sequence(keyed).select("log", "number", "index", "order_key", "order_position").collect()
    finally:
        positions.CHUNK_BITS = bits
    assert [(row["log"], row["number"], row["index"]) for row in rows] == sequence
    assert [row["order_key"] for row in rows] == [ordinal_of[each[:2]] - BEFORE for each in sequence]
    assert all(row["order_key"] < 0 and row["order_position"] is None for row in rows)
    found.unpersist()


def test_what_cannot_be_placed_is_told(spark: SparkSession) -> None:
    circle = [Stamp(log, 1, 1, {other: 1}, 1) for log, other in pairwise("ABCA")]
    stamps = stamps_table(
        spark,
        [
            *circle,
            Stamp("D", 1, 2, {"E": 3}, 1),
            Stamp("E", 1, 2, {}, 1),
            Stamp("F", 1, 1, {}, 1),
            Stamp("F", 3, 3, {}, 2),
        ],
    )
    rows = (
        held(places(stamps)).orderBy("log").select("log", "first", "last", "waits_for", "needed", "in_knot").collect()
    )
    said = describe_held(tuple(row) for row in rows)
    assert said[0].startswith("A 1…1 comes after B 1, and that in turn after A 1: each pair of these logs has an order")
    assert said[3:] == [
        "D ends before 1: it comes after E 3, which has no stamp yet",
        "F ends before 3: the stamps up to 2 are missing",
    ]
    two = places(stamps, ["A", "B", "G"])  # two of the circle have an order; G has no stamps, and nobody names it
    assert sorted((row["log"], row["ordinal"]) for row in two.collect()) == [("A", 2), ("B", 1)]


def test_missing_stamps_can_be_skipped() -> None:
    rows: list[tuple[object, ...]] = [("F", DECLARES, "F", 1, 1, {}), ("F", 5, "F", 1, 1, {}), ("F", 9, "F", 3, 4, {})]
    names = ("component", "received_us", "log", "first", "last")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    entries = pa.array([row[5] for row in rows], pa.map_(pa.string(), pa.int64()))
    batch = pa.record_batch({**columns, "entries": entries})
    for skip_gaps, expected in ((True, [(1, 5), (3, 9)]), (False, [(1, 5), (3, None)])):
        merged = [row for batch in merge(iter([batch]), skip_gaps=skip_gaps) for row in batch.to_pylist()]
        assert [(row["first"], row["ordinal"]) for row in merged] == expected
