"""Walking along rows where they lie finds what a walk along all of them at once would find."""

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from seriatim.pipeline.audit.blocks import join_intervals
from seriatim.pipeline.audit.columnar.walking import ENDLESS, NONE, Stretches, join_stretches, walk_chunk

Ids = NDArray[np.int64]


def columns(rows: list[tuple[int, int, int]]) -> tuple[Ids, Ids, Ids]:
    s, position, rank = zip(*rows, strict=True)
    return np.array(s), np.array(position), np.array(rank)


def all_at_once(rows: list[tuple[int, int, int]]) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """The dumb way: the intervals that rows cover, joined, and the first hole of each subscriber (from its start)."""
    lows, highs = [], []
    holes: dict[int, int] = {}
    for subscriber in {s for s, _, _ in rows}:
        reach, last = NONE, None
        for position, rank in sorted((p, k) for s, p, k in rows if s == subscriber):
            if rank != NONE and rank <= reach:
                lows.append(rank)
                highs.append(reach)
            reach = max(reach, rank)
            if last is not None and position > last + 1:
                holes.setdefault(subscriber, last + 1)
            last = position
    low, high = join_intervals(np.array(lows, np.int64), np.array(highs, np.int64))
    return list(zip(low.tolist(), high.tolist(), strict=True)), holes


@pytest.mark.parametrize("seed", range(200))
def test_chunks_joined_are_the_whole(seed: int) -> None:
    random = Random(seed)
    rows = []
    for subscriber in range(random.randint(1, 4)):
        positions = sorted(random.sample(range(60), random.randint(1, 40)))
        drift = random.choice([0, 2, 10])
        for place, position in enumerate(positions):
            rank = NONE if random.random() < 0.1 else max(0, 2 * place + random.randint(-drift, drift))
            rows.append((subscriber, position, rank))
    # The order of the file: every subscriber's own, mixed with the others'.
    rows = sorted(rows, key=lambda row: (row[1] // 5, random.random() if random.random() < 0.5 else row[0]))
    parts, lows, highs, covered = [], [], [], 0
    size = random.randint(1, 20)
    mixed = [sorted(rows[start : start + size]) for start in range(0, len(rows), size)]
    for chunk in mixed:
        stretches, low, high, count = walk_chunk(*columns(chunk))
        parts.append(stretches)
        lows.append(low)
        highs.append(high)
        covered += count
    joined = join_stretches(Stretches(*(np.concatenate(column) for column in zip(*parts, strict=True))))
    torn = set(joined.torn.tolist())
    expected, holes = all_at_once(rows)
    found = join_intervals(np.concatenate([*lows, joined.lows]), np.concatenate([*highs, joined.highs]))
    if not torn:
        assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
    whole = joined.whole
    told = {s: hole for s, hole in zip(whole.s.tolist(), whole.hole.tolist(), strict=True) if hole != ENDLESS}
    assert told == {s: hole for s, hole in holes.items() if s not in torn}
    for subscriber in torn:  # only rows that lie in another order, or share a position, tear a subscriber
        own = [[row[1] for row in chunk if row[0] == subscriber] for chunk in mixed]
        there = [(part[0], part[-1]) for part in own if part]
        assert any(one[0] <= other[1] and other[0] <= one[1] for i, one in enumerate(there) for other in there[:i])


def test_no_row_is_its_own_hole_and_negative_positions_are_torn() -> None:
    stretches, _, _, _ = walk_chunk(*columns([(1, -1, 0), (1, 0, 1), (2, 0, NONE), (2, 0, NONE)]))
    joined = join_stretches(stretches)
    assert joined.torn.tolist() == [1]
    assert joined.whole.s.tolist() == [2] and joined.whole.hole.tolist() == [ENDLESS]
    assert (joined.whole.low.tolist(), joined.whole.high.tolist()) == ([ENDLESS], [NONE])
