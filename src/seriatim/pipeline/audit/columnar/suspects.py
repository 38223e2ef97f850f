"""Subscribers that the pass of a certificate did not clear: all their rows, in arrays, to see which of them matter.

A row matters if it is late, if it is the highest before a late one, if it shares its place with a late one or its
position with another row, or if it tells another position. Queries give the same result for these rows as for all rows
of these subscribers: whether a row is late depends only on the highest row before it.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import SparkSession

from seriatim.pipeline.audit.columnar.certifying import READ, passed_rows
from seriatim.pipeline.audit.columnar.files import Chunk, FileLog, Split, chunks, narrowed, over_splits
from seriatim.pipeline.audit.columnar.hashing import Ids
from seriatim.pipeline.audit.columnar.order_index import ABSENT, OrderIndex
from seriatim.pipeline.audit.columnar.walking import ENDLESS, NONE, reach_before

SLIM = "s bigint, position bigint, event bigint, place bigint, mistold boolean"


class Judged(NamedTuple):
    """The rows that matter (s, position), and of subscribers the first position without a row, and the first tie."""

    s: Ids
    position: Ids
    holes: dict[int, int]
    ties: dict[int, int]
    is_late: bool
    is_mistold: bool


def judge_suspects(spark: SparkSession, log: FileLog, index: OrderIndex, suspects: Ids) -> Judged:
    """Read all rows of these subscribers, whose hashes are sorted, and see which of them matter."""
    held = spark.sparkContext.broadcast((index, suspects))
    try:
        rows = over_splits(spark, log, partial(_suspects, log, held), SLIM).toArrow()
    finally:
        held.destroy()
    s, position, event, place = (rows[name].to_numpy() for name in ("s", "position", "event", "place"))
    return judge_rows(s, position, event, place, rows["mistold"].to_numpy(zero_copy_only=False))


def _suspects(log: FileLog, held: Broadcast[tuple[OrderIndex, Ids]], split: Split) -> Iterator[pa.RecordBatch]:
    index, suspects = held.value

    def has(chunk: Chunk) -> NDArray[np.bool_]:
        return np.isin(chunk.hashes("subscriber"), suspects)

    for chunk in chunks(log, narrowed(log, split, has, "subscriber"), *READ):
        found = has(chunk)
        if found.any():
            rows = passed_rows(chunk.filter(found), log, index)
            judged = np.where(rows.is_tagged, ABSENT, rows.place)
            columns = (rows.s, rows.position, rows.events, judged, rows.is_mistold)
            yield pa.record_batch(list(map(pa.array, columns)), names=["s", "position", "event", "place", "mistold"])


def judge_rows(s: Ids, position: Ids, event: Ids, place: Ids, is_mistold: NDArray[np.bool_]) -> Judged:
    """Judge rows that were given as arrays. `place` is ABSENT where a row is tagged, or not in the order log."""
    order = np.lexsort((event, position, s))
    s, position, event, place = (each[order] for each in (s, position, event, place))
    is_mistold = is_mistold[order]
    if not len(s):
        return Judged(s, position, {}, {}, False, False)
    is_first = np.concatenate([[True], s[1:] != s[:-1]])
    group = np.cumsum(is_first) - 1
    is_again = np.concatenate([[False], (s[1:] == s[:-1]) & (position[1:] == position[:-1])])
    several = is_again | np.append(is_again[1:], False)
    spot = np.cumsum(~is_again) - 1  # rows of one position
    is_tied = np.isin(spot, spot[1:][is_again[1:] & (event[1:] != event[:-1])])
    # Of several rows of one event at one position one counts, but which is not known here: then all of them matter.
    matters = several | is_mistold
    unclear = group[several & ~is_tied & (place != ABSENT)]
    _, ranks = np.unique(place, return_inverse=True)
    rank = np.where((place == ABSENT) | is_tied, NONE, ranks)
    reach = reach_before(group, rank)
    late = (rank != NONE) & (rank <= reach)
    highest = np.maximum.accumulate(np.where((rank != NONE) & ~late, np.arange(len(s)), 0))
    matters[highest[late]] = True
    width = int(ranks.max(initial=0)) + 1
    matters |= late | ((rank != NONE) & np.isin(group * width + rank, (group * width + rank)[late]))
    matters |= np.isin(group, unclear)
    return Judged(
        s[matters],
        position[matters],
        _firsts(s, np.where(is_first, np.where(position > 0, 0, ENDLESS), _skipped(position, is_first))),
        _firsts(s, np.where(is_tied, position, ENDLESS)),
        bool(late.any()) or len(unclear) > 0,
        bool(is_mistold.any()),
    )


def _skipped(position: Ids, is_first: NDArray[np.bool_]) -> Ids:
    """The position before a row that has none, ENDLESS if there is none."""
    before = np.concatenate([[0], position[:-1]])
    return np.where(~is_first & (position > before + 1), before + 1, ENDLESS)


def _firsts(s: Ids, position: Ids) -> dict[int, int]:
    """The lowest position of each subscriber that has one."""
    has = position < ENDLESS
    order = np.lexsort((position[has], s[has]))
    names, first = np.unique(s[has][order], return_index=True)
    return dict(zip(names.tolist(), position[has][order][first].tolist(), strict=True))
