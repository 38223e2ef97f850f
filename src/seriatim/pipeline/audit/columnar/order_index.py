"""A sound order log as sorted arrays: where the numbers of topics are, asked for many rows at a time.

The numbers of all topics, one topic after another, are counted through: a row of the order log begins at one count and
covers the next ones. So one search among the beginnings finds the row of a number, whatever its topic. *Slots* count
the positions through, run after run: they rise as positions do, and no two runs share one.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from seriatim.audit.order_log import Extent
from seriatim.pipeline.audit.columnar.files import FileLog
from seriatim.pipeline.audit.columnar.hashing import Ids, hash_column, hash_texts, seed_of

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
        offsets = numbers - self.lowest[topics]
        has = is_numbered & (topics >= 0) & (offsets >= 0) & (offsets < self.sizes[topics])
        found = np.full(len(numbers), ABSENT, np.int64)
        counts = (self.counts[topics] + offsets)[has]
        rows = np.searchsorted(self.begins, counts, side="right") - 1
        found[has] = self.slots[rows] + counts - self.begins[rows]
        return found

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
    topics, begins, codes = np.unique(hashes, return_index=True, return_inverse=True)
    if not _is_one_name_each(rows.take(pa.array(by_position)), begins[codes]):
        return None
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


def _hashes(rows: pa.Table, log: FileLog) -> Ids:
    """As those of deliveries: see `Chunk.hashes`."""
    topics = rows["topic"].combine_chunks().dictionary_encode()
    if not log.has_runs:
        return hash_column(topics, seed_of(log.salt, ""))
    return hash_texts(rows["topic"].combine_chunks(), hash_texts(rows["run"].combine_chunks(), seed_of(log.salt)))


def _is_one_name_each(rows: pa.Table, first: Ids) -> bool:
    """Whether rows of one hash are of one topic of one run. `first`: of each row, the first one of its hash."""
    others = rows.take(pa.array(first))
    return all(pc.all(pc.equal(rows[name], others[name])).as_py() for name in ("run", "topic"))
