"""A sound order log as sorted arrays: where the numbers of topics are, asked for many rows at a time.

The numbers of all topics, one topic after another, are counted through: a row of the order log begins at one count and
covers the next ones. So one search among the beginnings finds the row of a number, whatever its topic. *Slots* count
the positions through, run after run: they rise as positions do, and no two runs share one.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seriatim.audit.order_log import Extent
from seriatim.pipeline.audit.columnar.files import FileLog
from seriatim.pipeline.audit.columnar.hashing import Ids, hash_texts, seed_of

ABSENT = -1


class OrderIndex(NamedTuple):
    """Of each topic, by its hash: its lowest number, how many, the count of the first, what to add to a slot.

    Of each row of the order log: the count at which it begins, and its slot.
    """

    topics: Ids
    lowest: Ids
    sizes: Ids
    counts: Ids
    shifts: Ids
    begins: Ids
    slots: Ids
    slot_count: int

    def slots_of(self, topics: Ids, numbers: Ids, is_numbered: NDArray[np.bool_]) -> Ids:
        """The slots of numbers of topics, ABSENT where the order log does not have them. `topics`: see `codes_of`."""
        found = np.full(len(numbers), ABSENT, np.int64)
        if not len(self.topics):
            return found
        offsets = numbers - self.lowest[topics]
        has = is_numbered & (topics >= 0) & (offsets >= 0) & (offsets < self.sizes[topics])
        counts = (self.counts[topics] + offsets)[has]
        rows = np.searchsorted(self.begins, counts, side="right") - 1
        found[has] = self.slots[rows] + counts - self.begins[rows]
        return found

    def rows_of(self, topics: Ids, slots: Ids, numbers: Ids) -> tuple[Ids, Ids, Ids]:
        """Position, first and last number of the row of the order log that has each of these; 0 for those ABSENT."""
        shown = np.zeros((3, len(slots)), np.int64)
        has = slots != ABSENT
        if has.any():
            topics, numbers = topics[has], numbers[has]
            counts = self.counts[topics] + numbers - self.lowest[topics]
            rows = np.searchsorted(self.begins, counts, side="right") - 1
            first = numbers - (counts - self.begins[rows])
            sizes = np.diff(self.begins, append=self.slot_count)[rows]
            shown[:, has] = self.slots[rows] + self.shifts[topics], first, first + sizes - 1
        return shown[0], shown[1], shown[2]

    def codes_of(self, hashes: Ids) -> Ids:
        """Which topic each hash stands for; ABSENT: none."""
        if not len(self.topics):
            return np.full(len(hashes), ABSENT, np.int64)
        at = np.minimum(np.searchsorted(self.topics, hashes), len(self.topics) - 1)
        return np.where(self.topics[at] == hashes, at, ABSENT)


def order_index(rows: pa.Table, log: FileLog) -> tuple[OrderIndex, dict[str, Extent]] | None:
    """Arrays of an order log (run, position, topic, first, last), and how far each run goes; None if it is not sound.

    Or if two topics have one hash.
    """
    rows = rows.combine_chunks()
    if not len(rows):
        nothing = np.empty(0, np.int64)
        return OrderIndex(nothing, nothing, nothing, nothing, nothing, nothing, nothing, 0), {}
    hashes = _hashes(rows, log)
    if hashes is None:
        return None
    position, first, last = (rows[name].to_numpy() for name in ("position", "first", "last"))
    if (position < 1).any() or (first < 1).any() or (last < first).any():
        return None
    runs = rows["run"].combine_chunks().dictionary_encode()
    run = runs.indices.to_numpy().astype(np.int64)
    by_position = np.lexsort((position, run))
    run, position, first, last, hashes = (each[by_position] for each in (run, position, first, last, hashes))
    sizes = last - first + 1
    is_begin = np.concatenate([[True], run[1:] != run[:-1]])
    if (position[1:] != position[:-1] + sizes[:-1])[~is_begin[1:]].any():
        return None
    slots = np.cumsum(sizes) - sizes
    topics, codes = np.unique(hashes, return_inverse=True)
    by_topic = np.argsort(codes, kind="stable")
    is_same = codes[by_topic][1:] == codes[by_topic][:-1]
    if (first[by_topic][1:] != last[by_topic][:-1] + 1)[is_same].any():
        return None
    counts = np.cumsum(sizes[by_topic]) - sizes[by_topic]
    firsts = np.concatenate([[0], np.flatnonzero(~is_same) + 1])
    index = OrderIndex(
        topics,
        first[by_topic][firsts],
        np.add.reduceat(sizes[by_topic], firsts),
        counts[firsts],
        (position - slots)[by_topic][firsts],
        counts,
        slots[by_topic],
        int(sizes.sum()),
    )
    starts = np.flatnonzero(is_begin)
    ends = np.concatenate([starts[1:], [len(run)]]) - 1
    names = runs.dictionary.to_pylist()
    extents = {
        names[run[one]]: Extent(int(position[one]), int(position[end] + sizes[end] - 1))
        for one, end in zip(starts.tolist(), ends.tolist(), strict=True)
    }
    return index, extents


def _hashes(rows: pa.Table, log: FileLog) -> Ids | None:
    """What stands for the topic of each row, as in `Chunk.hashes`; None if two topics have the same."""
    topics = rows["topic"].combine_chunks().dictionary_encode()
    if not log.has_runs:
        hashes = hash_texts(topics.dictionary, seed_of(log.salt, ""))
        found: Ids = hashes[topics.indices.to_numpy()]
        return found if len(np.unique(hashes)) == len(hashes) else None
    runs = rows["run"].combine_chunks().dictionary_encode()
    pairs = runs.indices.to_numpy().astype(np.int64) * len(topics.dictionary) + topics.indices.to_numpy()
    found = hash_texts(rows["topic"].combine_chunks(), hash_texts(rows["run"].combine_chunks(), seed_of(log.salt)))
    return found if len(np.unique(found)) == len(np.unique(pairs)) else None
