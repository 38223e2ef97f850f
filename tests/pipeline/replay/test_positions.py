"""Replays in the order of the order log: whole, with gaps, with numbers from before it, and beside real subscribers."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from seriatim.audit import audit
from seriatim.lab.sim import Options
from seriatim.model import Delivery, History, InputError, Placement
from seriatim.pipeline.logs import tables_of
from seriatim.pipeline.replay import (
    Bound,
    Replay,
    in_sequence,
    positions,
    saw,
    sentence,
    with_positions,
    would_have_seen,
)
from tests.pipeline.replay.stamp_worlds import Stamp
from tests.pipeline.replay.worlds import archived, events_table, order_table, stamps_table

SEEDS = range(6)
GLOBAL = Options(order="global", broker="fifo")

# A1 A2 A3 | B1 | A4 | B2 B3 | A5, of which A2 is gone; A1 is a pack of two
ORDER = [
    Placement(1, "A", 1, 3),
    Placement(4, "B", 1, 1),
    Placement(5, "A", 4, 4),
    Placement(6, "B", 2, 3),
    Placement(8, "A", 5, 5),
]
EVENTS = {
    ("A", 1, 0): "a1",
    ("A", 1, 1): "a1b",
    ("A", 3, 0): "a3",
    ("A", 4, 0): "a4",
    ("A", 5, 0): "a5",
    ("B", 1, 0): "b1",
    ("B", 2, 0): "b2",
    ("B", 3, 0): "b3",
}
STAMPS = [
    Stamp("A", 1, 3, {}, 9_000),
    Stamp("B", 1, 1, {"A": 3}, 8_000),
    Stamp("A", 4, 4, {"B": 1}, 7_000),
    Stamp("B", 2, 3, {"A": 4}, 6_000),
    Stamp("A", 5, 5, {"B": 3}, 5_000),
]
WHOLE = ["a1", "a1b", "a3", "b1", "a4", "b2", "b3", "a5"]
A2_GONE = "A, number 2: ordered, but the archive has no event: deleted or expired before it was archived, or a void"


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return events_table(spark, EVENTS).persist()


@pytest.fixture(scope="module")
def stamps(spark: SparkSession) -> DataFrame:
    return stamps_table(spark, STAMPS).persist()


def ids(replay: Replay) -> list[str]:
    return [row["event_id"] for row in in_sequence(replay.events).select("event_id").collect()]


def missing(replay: Replay) -> list[str]:
    return sorted(sentence(*row) for row in replay.missing.collect())


def test_the_order_log_is_the_order(spark: SparkSession, events: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "CHUNK_BITS", 1)  # ranges and logs cross many chunks
    replay = would_have_seen(events, ["A", "B"], order=order_table(spark, ORDER).repartition(3))
    rows = in_sequence(replay.events).collect()
    assert [row["event_id"] for row in rows] == WHOLE
    assert [(row["order_key"], row["index"]) for row in rows][:4] == [(1, 0), (1, 1), (3, 0), (4, 0)]
    assert all(row["order_position"] == row["order_key"] for row in rows)
    assert (replay.by, replay.notes, replay.ends, replay.places) == ("positions", (), (), None)
    assert missing(replay) == [A2_GONE]
    alone = would_have_seen(events, ["B"], order=order_table(spark, ORDER))
    assert (ids(alone), missing(alone)) == (["b1", "b2", "b3"], [])


def test_positions_beside_events(spark: SparkSession, events: DataFrame) -> None:
    """Where the order log has the number, and null where it does not."""
    found = with_positions(events, order_table(spark, ORDER[2:]))
    assert found.columns == [*events.columns, "position"]
    assert {row["event_id"]: row["position"] for row in found.collect()} == {
        "a1": None, "a1b": None, "a3": None, "b1": None, "a4": 5, "b2": 6, "b3": 7, "a5": 8
    }  # fmt: skip


@pytest.mark.long
def test_bounds(spark: SparkSession, events: DataFrame, stamps: DataFrame) -> None:
    order = order_table(spark, ORDER)
    some = would_have_seen(events, ["A", "B"], order=order, since=Bound(position=3), until=Bound(position=6))
    assert (ids(some), missing(some)) == (["a3", "b1", "a4", "b2"], [])
    late = would_have_seen(events, ["A", "B"], order=order, since=Bound(position=9))
    assert (ids(late), missing(late)) == ([], [])
    early = would_have_seen(events, ["A", "B"], order=order, until=Bound(position=2))
    assert (ids(early), missing(early)) == (["a1", "a1b"], [A2_GONE])
    cut = would_have_seen(events, ["A", "B"], order=order, until=Bound(numbers={"A": 4, "B": 0}))
    assert ids(cut) == ["a1", "a1b", "a3", "a4"]
    assert missing(cut) == [A2_GONE, "B, number 1: beyond the cut, but A 4, which is within it, comes after"]
    fine = would_have_seen(events, ["A", "B"], order=order, until=Bound(numbers={"A": 3, "B": 0}))
    assert (ids(fine), missing(fine)) == (["a1", "a1b", "a3"], [A2_GONE])
    for since, until in ((Bound(position=1), Bound()), (Bound(), Bound(position=1))):
        with pytest.raises(InputError, match="without an order log there are no positions; give a time"):
            would_have_seen(events, ["A"], stamps=stamps, since=since, until=until)
    with pytest.raises(InputError, match="neither an order log nor stamps are there; archive one of them"):
        would_have_seen(events, ["A"])
    empty = would_have_seen(events, ["A", "B"], order=order_table(spark, []), stamps=stamps)
    assert (empty.by, ids(empty)) == ("stamps", WHOLE)


@pytest.mark.long
def test_an_order_log_that_ends_early(spark: SparkSession, events: DataFrame, stamps: DataFrame) -> None:
    replay = would_have_seen(events, ["A", "B"], order=order_table(spark, ORDER[:3]), stamps=stamps)
    assert ids(replay) == ["a1", "a1b", "a3", "b1", "a4"]
    assert replay.ends == (
        "A ends before 5: the order log has not come this far",
        "B ends before 2: the order log has not come this far",
    )
    # Events are stored at the time of their number, after the order log begins: B has not been reached.
    unreached = would_have_seen(events, ["A", "B"], order=order_table(spark, ORDER[:1]), stamps=stamps)
    assert (ids(unreached), unreached.notes) == (["a1", "a1b", "a3"], ())
    assert "B ends before 1: the order log has not come this far" in unreached.ends


@pytest.mark.long
def test_numbers_from_before_the_order_log_come_first(
    spark: SparkSession, events: DataFrame, stamps: DataFrame
) -> None:
    """Retention has removed the beginning, in the middle of a stamped range, and everything of B."""
    order = [Placement(3, "A", 3, 3), Placement(5, "A", 4, 4), Placement(8, "A", 5, 5)]
    replay = would_have_seen(events, ["A", "B"], order=order_table(spark, order, stored_at=3.5), stamps=stamps)
    rows = in_sequence(replay.events).collect()
    assert [row["event_id"] for row in rows] == ["a1", "a1b", "b1", "b2", "b3", "a3", "a4", "a5"]
    assert [row["order_key"] > 0 for row in rows] == [False] * 5 + [True] * 3
    assert [row["order_position"] for row in rows] == [None] * 5 + [3, 5, 8]
    assert replay.by == "positions" and replay.ends == ()
    assert replay.notes == (
        "A before 3 lies before the order log: it comes first, in the order of stamps",
        "B before 4 lies before the order log: it comes first, in the order of stamps",
    )
    assert replay.places is not None and replay.places.where("ordinal is null").count() == 0
    within = would_have_seen(
        events, ["A"], order=order_table(spark, order, 3.5), stamps=stamps, since=Bound(numbers={"A": 3})
    )
    assert (ids(within), within.notes) == (["a3", "a4", "a5"], ()), "nothing from before is asked for"
    without = would_have_seen(events, ["A"], order=order_table(spark, order, stored_at=3.5))
    assert ids(without) == ["a3", "a4", "a5"]
    assert without.ends == ("A before 3 lies before the order log, and there are no stamps",)


@pytest.mark.long
def test_a_gap_in_the_order_log(spark: SparkSession, events: DataFrame, stamps: DataFrame) -> None:
    """Positions 4 and 5 are lost: all of B that was before, and a number of A."""
    order = order_table(spark, [ORDER[0], *ORDER[3:]])
    replay = would_have_seen(events, ["A", "B"], order=order, stamps=stamps)
    assert ids(replay) == ["a1", "a1b", "a3"]
    assert replay.ends == (
        "the replay ends before position 4: the order log has no position for A 4, B 1; --skip-gaps continues after it",
    )
    on = would_have_seen(events, ["A", "B"], order=order, stamps=stamps, skip_gaps=True)
    rows = in_sequence(on.events).collect()
    assert [(row["event_id"], row["order_key"], row["order_position"]) for row in rows][3:] == [
        ("b1", 5, None),
        ("b2", 6, 6),
        ("a4", 7, None),
        ("b3", 7, 7),
        ("a5", 8, 8),
    ], "each log in its own order; a4 was before b2, and nobody knows"
    assert on.notes == (
        "the order log has no position for A 4: its order across topics is not proven",
        "the order log has no position for B 1: its order across topics is not proven",
    )
    assert on.ends == ()
    behind = would_have_seen(events, ["A", "B"], order=order, since=Bound(position=6))
    assert (ids(behind), behind.ends) == (["b2", "b3", "a5"], ()), "the gap is not within the bounds"
    other = would_have_seen(events, ["A"], order=order_table(spark, [*ORDER[:3], *ORDER[4:]]))
    assert (ids(other), other.ends) == (["a1", "a1b", "a3", "a4", "a5"], ()), "nothing of A is in the gap"


def test_an_order_log_that_contradicts_itself_is_refused(spark: SparkSession, events: DataFrame) -> None:
    for wrong, problem in (
        (Placement(8, "C", 1, 1), "position 8 occurs twice"),
        (Placement(9, "A", 4, 4), "number 4 of A occurs twice"),
    ):
        with pytest.raises(InputError, match=rf"order log: {problem}; .* --by stamps"):
            would_have_seen(events, ["A", "B"], order=order_table(spark, [*ORDER, wrong]))


def test_what_a_subscriber_saw_has_positions(spark: SparkSession, events: DataFrame) -> None:
    told = ["a1", "a1b", "b1", "a4", "b3", "a5"]
    place = {event_id: key for key, event_id in EVENTS.items()}
    rows = [Delivery("s", at, each, *place[each][:2], index=place[each][2]) for at, each in enumerate(told)]
    deliveries = tables_of(spark, History(rows)).deliveries
    order = order_table(spark, ORDER)
    found = in_sequence(saw(events, deliveries, "s", order=order).events).collect()
    assert [(row["event_id"], row["position"], row["order_key"], row["order_position"]) for row in found] == [
        (each, at, at, position) for at, (each, position) in enumerate(zip(told, [1, 1, 4, 5, 7, 8], strict=True))
    ]
    some = saw(events, deliveries, "s", since=Bound(position=3), until=Bound(position=7), order=order)
    assert (ids(some), missing(some)) == (["b1", "a4", "b3"], [])
    with pytest.raises(InputError, match="no position of these events is known; give times, or archive the order log"):
        saw(events, deliveries, "s", since=Bound(position=3))


def test_simulated_clusters(spark: SparkSession) -> None:
    """Under churn, crashes and voids. Worlds that do not know each other lie in one archive, one behind the other."""
    worlds = {seed: archived(seed, GLOBAL) for seed in SEEDS}
    order: list[Placement] = []
    events: dict[tuple[str, int, int], str] = {}
    for seed, world in worlds.items():
        end = order[-1].position + order[-1].last - order[-1].first if order else 0
        order += [Placement(end + row.position, f"{seed}.{row.topic}", row.first, row.last) for row in world.order]
        events |= {(f"{seed}.{log}", number, 0): f"{seed} {id}" for (log, number), id in world.events.items()}
    topics = sorted({log for log, _, _ in events})
    replay = would_have_seen(events_table(spark, events), topics, order=order_table(spark, order))
    found = ids(replay)
    placed = [(row.topic, number, 0) for row in order for number in range(row.first, row.last + 1)]
    assert found == [events[place] for place in placed if place in events], "it is the order log"
    assert (sorted(found), replay.ends) == (sorted(events.values()), ())
    where = {id: (log, number) for (log, number, _), id in events.items()}
    for seed, world in worlds.items():
        own = [id for id in found if id.startswith(f"{seed} ")]
        rows = [
            Delivery("replay", at, id.partition(" ")[2], where[id][0].partition(".")[2], where[id][1])
            for at, id in enumerate(own)
        ]
        report = audit(History([*world.history.deliveries, *rows]))
        assert report.anomalies_against(["tno"]) == (), f"seed {seed}"
        at = {row.event_id: row.position for row in rows}
        for name in {row.subscriber for row in world.history.deliveries}:
            told = [row for row in world.history.deliveries if row.subscriber == name and not row.out_of_order]
            seen = [at[row.event_id] for row in sorted(told, key=lambda row: row.position)]
            assert seen == sorted(seen), f"seed {seed}: {name} saw another order"
