"""The arrays of the certificate, without Spark: where numbers are in the order log, and pairs of place and event."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from seriatim.audit.order_log import Extent, OrderLog
from seriatim.model import Placement
from seriatim.pipeline.audit.columnar.certifying import Counts, distinct_pairs, join_places
from seriatim.pipeline.audit.columnar.files import FileLog
from seriatim.pipeline.audit.columnar.hashing import hash_texts, seed_of
from seriatim.pipeline.audit.columnar.order_index import ABSENT, order_index
from seriatim.pipeline.audit.columnar.suspects import judge_rows
from seriatim.pipeline.audit.columnar.walking import ENDLESS, NONE, Stretches
from tests.audit.order_worlds import ORDER_FAULTS, order_of
from tests.audit.worlds import sound_history

LOG = FileLog((), 1, False, 0, 100)


def table_of(rows: list[Placement], run: str = "") -> pa.Table:
    return pa.table(
        {
            "run": pa.array([run] * len(rows), pa.string()),
            "position": pa.array([row.position for row in rows], pa.int64()),
            "topic": pa.array([row.topic for row in rows], pa.string()),
            "first": pa.array([row.first for row in rows], pa.int64()),
            "last": pa.array([row.last for row in rows], pa.int64()),
        }
    )


def test_the_index_is_there_if_the_order_log_is_sound_and_finds_what_it_has() -> None:
    for seed in range(300):
        random = Random(seed)
        rows = order_of(sound_history(random).publications, random, random.choice([1, 70]))
        if seed % 3 == 0:
            random.choice(ORDER_FAULTS)(rows, random)
        log = OrderLog(rows)
        found = order_index(table_of(rows), LOG)
        assert (found is not None) == (not list(log.faults())), f"seed {seed}\n{rows}"
        if found is None:
            continue
        index, extents = found
        assert extents.get("", Extent()) == log.extent, f"seed {seed}"
        wanted = [(f"T{random.randrange(4)}", random.randint(0, 12)) for _ in range(50)]
        codes = index.codes_of(hash_texts(pa.array([topic for topic, _ in wanted]), seed_of(0, "")))
        slots = index.slots_of(codes, np.array([number for _, number in wanted]), np.arange(50) % 7 > 0)
        for i, (topic, number) in enumerate(wanted):
            row = log.row(topic, number) if i % 7 else None
            if row is None:
                assert slots[i] == ABSENT, f"seed {seed}: {topic} {number}"
            else:
                position = row.position + number - row.first
                assert slots[i] + index.shifts[codes[i]] == position, f"seed {seed}: {topic} {number}"


def test_runs_do_not_share_slots() -> None:
    rows = [Placement(5, "A", 1, 2), Placement(7, "B", 1, 1)]
    both = pa.concat_tables([table_of(rows, "one"), table_of(rows, "other")])
    found = order_index(both, LOG._replace(has_runs=True))
    assert found is not None
    index, extents = found
    assert extents == {"one": Extent(5, 7), "other": Extent(5, 7)}
    assert index.slot_count == 6 and sorted(index.slots.tolist()) == [0, 2, 3, 5]


@pytest.mark.parametrize("row", [Placement(0, "A", 1, 1), Placement(1, "A", 0, 0), Placement(1, "A", 2, 1)])
def test_what_is_no_range_is_no_index(row: Placement) -> None:
    assert order_index(table_of([row]), LOG) is None


def test_a_place_of_two_events_makes_all_of_them_doubtful() -> None:
    place, event, doubtful = distinct_pairs(np.array([3, 1, 3, 2, 3, 1]), np.array([30, 10, 31, 20, 30, 10]))
    assert place.tolist() == [1, 2, 3] and event[:2].tolist() == [10, 20]
    assert doubtful.tolist() == [30, 31]
    nothing = np.empty(0, np.int64)
    assert [len(each) for each in distinct_pairs(nothing, nothing)] == [0, 0, 0]


def test_stretches_between_places_are_joined_whatever_their_size() -> None:
    big = 1 << 60
    parts = Stretches(
        s=np.array([1, 1, 1, 2, 2]),
        first=np.array([0, 10, 20, 0, 5]),
        last=np.array([9, 19, 29, 4, 9]),
        hole=np.full(5, ENDLESS),
        low=np.array([5, ENDLESS, big, 7, 6]),
        high=np.array([9, NONE, big + 5, 8, 9]),
    )
    joined = join_places(parts)
    assert joined.met.tolist() == [2] and joined.torn.tolist() == []
    one = joined.whole.take(joined.whole.s == 1)
    assert (one.low.tolist(), one.high.tolist(), one.last.tolist()) == ([5], [big + 5], [29])


def test_counts_of_a_subscriber_are_added_up() -> None:
    column = np.array([1, 2, 3])
    counts = Counts(np.array([7, 8, 7]), column, column, column, column, np.array([ENDLESS, 4, 2])).of_each()
    assert counts.s.tolist() == [7, 8]
    assert counts.deliveries.tolist() == [4, 2] and counts.first_uncovered.tolist() == [2, 4]


def test_rows_that_matter_are_late_or_tell_what_a_late_one_is_about() -> None:
    position = np.arange(7)
    place = np.array([10, 40, 20, 50, 40, ABSENT, 60])  # 20 is late behind 40, and 40 again is late behind 50
    found = judge_rows(np.full(7, 3), position, position, place, np.zeros(7, np.bool_))
    assert found.position.tolist() == [1, 2, 3, 4]
    assert found.is_late and not found.is_mistold and not found.holes and not found.ties
    s = np.array([1, 1, 2, 2, 2])
    position = np.array([1, 3, 0, 0, 1])
    found = judge_rows(s, position, np.arange(5), np.arange(5), np.array([False, False, False, False, True]))
    assert found.holes == {1: 0} and found.ties == {2: 0}
    assert found.s.tolist() == [2, 2, 2] and found.is_mistold and not found.is_late
