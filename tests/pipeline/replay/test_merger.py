"""The merger against an oracle, and against the subscriber that it stands for."""

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from seriatim.model import InputError
from seriatim.order import HoldBack, Lane
from seriatim.pipeline.replay.merger import Merger, Placed
from tests.pipeline.replay.stamp_worlds import Stamp, random_stamps

SEEDS = range(40)


def merge(logs: Iterable[str], stamps: Iterable[Stamp], forget: bool = False) -> list[Placed]:
    merger = Merger(logs)
    placed = []
    for stamp in stamps:
        if stamp.log in logs:
            merger.feed(*stamp)
            placed += merger.take()
        if forget:
            merger.forget()
    assert not merger.held()
    return placed


def by_key(placed: Iterable[Placed]) -> list[Placed]:
    return sorted(placed, key=lambda each: (each.ordinal, each.log, each.first))


def interleaved(stamps: list[Stamp], chance: random.Random) -> list[Stamp]:
    """Another order of reading: each log's stamps in order, the logs mixed at will."""
    queues = {stamp.log: [each for each in stamps if each.log == stamp.log] for stamp in stamps}
    mixed = []
    while queues:
        log = chance.choice(sorted(queues))
        mixed.append(queues[log].pop(0))
        if not queues[log]:
            del queues[log]
    return mixed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_subscriber_takes_the_sequence_as_it_is(seed: int) -> None:
    """Fed to the real hold-back queue in the order of keys, no event ever waits."""
    chance = random.Random(seed)
    stamps = random_stamps(chance)
    logs = sorted({stamp.log for stamp in stamps})
    subset = chance.sample(logs, chance.randint(1, len(logs)))
    entries = {(stamp.log, stamp.first): stamp.entries for stamp in stamps}
    queue = HoldBack({log: Lane(open=True) for log in subset})
    for each in by_key(merge(subset, interleaved(stamps, chance))):
        for number in range(each.first, each.last + 1):
            held = entries[each.log, each.first] if number == each.first else {}
            released = queue.admit(each.log, number, held, None, 0.0)
            assert [(one.topic, one.number) for one in released] == [(each.log, number)], f"seed {seed}"
    assert {log: lane.done for log, lane in queue.lanes.items()} == {
        log: max(stamp.last for stamp in stamps if stamp.log == log) for log in subset
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_do_not_depend_on_the_way_of_reading(seed: int) -> None:
    """Any order of reading, with or without forgetting, and taken out in pieces: the same ordinals."""
    chance = random.Random(seed)
    stamps = random_stamps(chance)
    logs = {stamp.log for stamp in stamps}
    expected = by_key(merge(logs, stamps))
    assert by_key(merge(logs, interleaved(stamps, chance), forget=True)) == expected
    merger, placed = Merger(logs), []
    for stamp in interleaved(stamps, chance):
        merger.feed(*stamp)
        if chance.random() < 0.2:
            placed += merger.take()
            merger.forget()
    assert by_key(placed + merger.take()) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_later_stamps_change_no_key_and_the_frontier_is_kept(seed: int) -> None:
    chance = random.Random(seed)
    stamps = random_stamps(chance)
    merger = Merger({stamp.log for stamp in stamps})
    known: dict[tuple[str, int], int] = {}
    for stamp in interleaved(stamps, chance):
        frontier = merger.frontier
        merger.feed(*stamp)
        for each in merger.take():
            assert each.ordinal >= frontier
            assert known.setdefault((each.log, each.first), each.ordinal) == each.ordinal
    assert known == {(each.log, each.first): each.ordinal for each in merge({s.log for s in stamps}, stamps)}


def test_what_names_a_number_without_a_stamp_is_held_with_all_that_follows() -> None:
    merger = Merger(["A", "B"])
    merger.feed("A", 1, 3, {}, 10)
    merger.feed("B", 1, 1, {"A": 4}, 11)
    merger.feed("B", 2, 2, {}, 12)
    assert merger.take() == [Placed("A", 1, 3, 10)]
    assert [str(each) for each in merger.held()] == ["B 1…1 comes after A 4"]
    assert merger.knot() == []
    merger.feed("A", 4, 6, {}, 13)
    assert merger.take() == [Placed("A", 4, 6, 13), Placed("B", 1, 1, 14), Placed("B", 2, 2, 15)]
    assert merger.held() == []


def test_a_log_of_the_set_without_any_stamp_holds_up_what_names_it() -> None:
    merger = Merger(["A", "B"])
    merger.feed("B", 1, 1, {"A": 1}, 5)
    assert merger.take() == []
    merger.feed("A", 8, 9, {}, 6)  # its first stamps are gone: what was before counts as done
    assert by_key(merger.take()) == [Placed("B", 1, 1, 5), Placed("A", 8, 9, 6)]


def test_entries_of_other_logs_are_ignored() -> None:
    assert merge(["A"], [Stamp("A", 1, 1, {"Z": 99}, 3)]) == [Placed("A", 1, 1, 3)]


def test_a_number_inside_a_range_puts_the_whole_range_first() -> None:
    placed = merge(
        ["A", "B"], [Stamp("B", 1, 9, {}, 7), Stamp("A", 1, 1, {"B": 4}, 3), Stamp("B", 10, 10, {"A": 1}, 2)]
    )
    assert by_key(placed) == [Placed("B", 1, 9, 7), Placed("A", 1, 1, 8), Placed("B", 10, 10, 9)]


def test_a_circle_is_shown() -> None:
    merger = Merger("ABC")
    for log, other in pairwise("ABCA"):
        merger.feed(log, 1, 1, {other: 1}, 1)
    assert [str(each) for each in merger.knot()] == [
        "A 1…1 comes after B 1",
        "B 1…1 comes after C 1",
        "C 1…1 comes after A 1",
    ]
    for pair in ("AB", "BC", "CA"):  # any two of them have an order
        merge(pair, [Stamp(log, 1, 1, {other: 1}, 1) for log, other in pairwise("ABCA")])


def test_missing_stamps_hold_a_log_until_they_come() -> None:
    merger = Merger(["A"])
    merger.feed("A", 1, 2, {}, 1)
    merger.feed("A", 5, 6, {}, 5)
    assert merger.take() == [Placed("A", 1, 2, 1)]
    assert [str(each) for each in merger.held()] == ["the stamps of A up to 4 are missing"]
    assert merger.knot() == []
    merger.feed("A", 3, 4, {}, 3)
    assert merger.take() == [Placed("A", 3, 4, 3), Placed("A", 5, 6, 5)]


def test_missing_stamps_can_be_skipped() -> None:
    merger = Merger(["A", "B"], skip_gaps=True)
    merger.feed("A", 1, 2, {}, 1)
    merger.feed("B", 1, 1, {"A": 3}, 2)
    merger.feed("A", 5, 6, {"B": 1}, 5)
    assert by_key(merger.take()) == [Placed("A", 1, 2, 1), Placed("B", 1, 1, 3), Placed("A", 5, 6, 5)]


def test_repeats_change_nothing_and_overlaps_are_refused() -> None:
    merger = Merger(["A", "B"])
    merger.feed("A", 1, 2, {}, 1)
    merger.feed("A", 1, 2, {}, 1)
    merger.feed("A", 3, 3, {"B": 1}, 1)
    merger.feed("A", 3, 3, {"B": 1}, 1)
    merger.feed("B", 1, 1, {}, 1)
    assert len(merger.take()) == 3
    with pytest.raises(InputError, match=r"stamp of A 2…4: part of this range has another stamp"):
        merger.feed("A", 2, 4, {}, 1)
    with pytest.raises(InputError, match="not in the set"):
        merger.feed("C", 1, 1, {}, 1)
    with pytest.raises(InputError, match="no such range"):
        merger.feed("A", 5, 4, {}, 1)


def test_little_is_remembered_when_stamps_come_by_time() -> None:
    """A log that is quiet does not make the others be remembered, if it is known that nothing old will come."""
    merger = Merger(["A", "B", "quiet"])
    merger.feed("quiet", 1, 1, {}, 0)
    for time in range(1, 2_000):
        merger.feed("A", time, time, {"B": time - 1}, 10 * time)
        merger.feed("B", time, time, {"A": time}, 10 * time + 5)
        merger.promise(10 * time)
        merger.forget()
        merger.take()
        assert sum(len(lane.ordinals) for lane in merger.lanes.values()) <= 3


def test_a_promise_says_nothing_of_what_is_held() -> None:
    """It was stored before, and may get a place before."""
    merger = Merger(["A", "B"])
    merger.feed("B", 1, 1, {"A": 1}, 5)
    merger.promise(100)
    frontier = merger.frontier
    merger.feed("A", 2, 2, {}, 100)
    placed = by_key(merger.take())
    assert placed == [Placed("B", 1, 1, 5), Placed("A", 2, 2, 100)]
    assert frontier <= placed[0].ordinal
