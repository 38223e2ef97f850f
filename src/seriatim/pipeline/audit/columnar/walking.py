"""One walk along every subscriber's positions, in place; `walk.py` says what it looks for.

Logs are written as things happen, so the rows of a subscriber are mostly in the order of its positions, in one file or
in one file after another. Then nothing needs to be moved: each chunk is walked by itself and leaves, for each of its
subscribers, a *stretch*: from which position to which, and between which keys. Stretches of a subscriber that do not
overlap are joined in order. If one has a key as low as the highest before it, its lowest row is preceded by that
highest one, so [lowest, highest] is the very interval that walking through both would have covered.

A subscriber whose stretches overlap is *torn*: its rows have to be brought together and sorted, which Spark does.

Keys are ranks here, so that the highest so far of each subscriber is a running maximum over the whole chunk.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seriatim.pipeline.audit.blocks import join_intervals
from seriatim.pipeline.audit.columnar.files import Chunk, FileLog, Split, chunks, over_splits
from seriatim.pipeline.audit.columnar.hashing import Ids
from seriatim.pipeline.audit.keep import kept
from seriatim.pipeline.audit.walk import Keys, Marks

# Kinds of what a task finds: a stretch; a subscriber that is torn (s); an interval (low, high); two rows at one
# position (s, first); how many rows are covered (first).
STRETCH, TORN, INTERVAL, TIE, COVERED = range(5)
FOUND = "kind int, s bigint, first bigint, last bigint, hole bigint, low double, high double"
NONE, ENDLESS = -1, np.iinfo(np.int64).max

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Stretches(NamedTuple):
    """A stretch of each subscriber: positions `first` to `last`, the first position without a row, and keys `low` to
    `high`.

    ENDLESS: no such position, no lowest key. NONE: no highest key.
    """

    s: Ids
    first: Ids
    last: Ids
    hole: Ids
    low: Ids
    high: Ids

    def take(self, rows: Ids | Flags) -> "Stretches":
        return Stretches(*(column[rows] for column in self))

    def joined(self, starts: Ids) -> "Stretches":
        """One stretch from each of these rows to the next."""
        return Stretches(
            self.s[starts],
            self.first[starts],
            np.maximum.reduceat(self.last, starts),
            np.minimum.reduceat(self.hole, starts),
            np.minimum.reduceat(self.low, starts),
            np.maximum.reduceat(self.high, starts),
        )


class Joined(NamedTuple):
    """One stretch for each subscriber that is not torn, the intervals that show between stretches, and who is torn.

    `met`: whose intervals they are.
    """

    whole: Stretches
    lows: Ids
    highs: Ids
    torn: Ids
    met: Ids


def walk_files(
    spark: SparkSession, log: FileLog, keys: Keys, stretches_max: int
) -> tuple[Marks, DataFrame | None] | None:
    """Go along the rows of all files, by these keys of all events: what is irregular, and who is torn (s), if anybody.

    Repeats are not looked for. None: there are more stretches than that.
    """
    order = np.argsort(keys.e)
    is_judged = ~np.isnan(keys.k[order])
    values, judged = np.unique(keys.k[order][is_judged], return_inverse=True)
    ranks = np.full(len(order), NONE, np.int32)
    ranks[is_judged] = judged
    held = spark.sparkContext.broadcast((keys.e[order], ranks, values))
    try:
        made = kept(over_splits(spark, log, partial(_walk, log, held), FOUND))
    finally:
        held.destroy()
    # Of others, `first` is a position: the sum of all may be too large.
    covered = F.sum(F.when(F.col("kind") == COVERED, F.col("first")))
    told = made.groupBy("kind").agg(F.count(F.lit(1)).alias("count"), covered.alias("covered")).collect()
    counted = {row["kind"]: row["count"] for row in told}
    covered_rows = sum(row["covered"] or 0 for row in told)
    if counted.get(STRETCH, 0) + counted.get(TORN, 0) > stretches_max:
        return None
    parts = made.filter(F.col("kind").isin(STRETCH, TORN)).toArrow()
    kind = parts.column("kind").to_numpy()
    lows, highs = (_ranked(parts.column(name).to_numpy(), values) for name in ("low", "high"))
    lows[lows == NONE] = ENDLESS
    s, first, last, hole = (parts.column(name).to_numpy() for name in ("s", "first", "last", "hole"))
    joined = join_stretches(Stretches(s, first, last, hole, lows, highs).take(kind == STRETCH))
    torn = np.union1d(joined.torn, s[kind == TORN])
    between = pa.table({"k": values[joined.lows], "reach": values[joined.highs]})
    intervals = made.filter(F.col("kind") == INTERVAL).select(F.col("low").alias("k"), F.col("high").alias("reach"))
    if between.num_rows:
        intervals = intervals.unionByName(spark.createDataFrame(between, "k double, reach double"))
    whole = joined.whole.take(~np.isin(joined.whole.s, torn))
    position = np.where(whole.first > 0, 0, whole.hole)
    missing = pa.table({"s": whole.s, "position": position}).filter(pa.array(position < ENDLESS))
    interval_count = counted.get(INTERVAL, 0) + between.num_rows
    found = Marks(
        twice=made.filter(F.col("kind") == TIE).select("s", F.col("first").alias("p")) if counted.get(TIE) else None,
        holes=spark.createDataFrame(missing, "s long, position long") if missing.num_rows else None,
        intervals=intervals if interval_count else None,
        interval_count=interval_count,
        covered_rows=covered_rows,
        keys=keys,
    )
    return found, spark.createDataFrame(pa.table({"s": torn}), "s long") if len(torn) else None


def _ranked(keys: Floats, values: Floats) -> Ids:
    return np.where(np.isnan(keys), NONE, np.searchsorted(values, keys))


def _walk(
    log: FileLog, held: Broadcast[tuple[Ids, NDArray[np.int32], Floats]], split: Split
) -> Iterator[pa.RecordBatch]:
    events, ranks, values = held.value
    covered_rows = 0
    parts: list[Stretches] = []
    lows, highs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for chunk in chunks(log, split, "subscriber", "position", "event_id", "out_of_order"):
        rows = _sorted(chunk)
        rank = _looked_up(rows.events, events, ranks)
        rank[rows.is_tagged] = NONE
        stretches, low, high, covered = walk_chunk(rows.s, rows.position, rank)
        covered_rows += covered
        parts.append(stretches)
        lows.append(low)
        highs.append(high)
        tied = np.flatnonzero((rows.s[1:] == rows.s[:-1]) & (rows.position[1:] == rows.position[:-1]))
        yield from _told(TIE, s=rows.s[tied], first=rows.position[tied])
    if not parts:
        return
    joined = join_stretches(Stretches(*(np.concatenate(column) for column in zip(*parts, strict=True))))
    whole = joined.whole
    yield from _told(
        STRETCH,
        s=whole.s,
        first=whole.first,
        last=whole.last,
        hole=whole.hole,
        low=_valued(np.where(whole.low == ENDLESS, NONE, whole.low), values),
        high=_valued(whole.high, values),
    )
    yield from _told(TORN, s=joined.torn)
    yield from _told(COVERED, first=np.array([covered_rows]))
    low, high = join_intervals(np.concatenate([*lows, joined.lows]), np.concatenate([*highs, joined.highs]))
    yield from _told(INTERVAL, low=values[low], high=values[high])


def _valued(ranks: Ids, values: Floats) -> Floats:
    if not len(values):
        return np.full(len(ranks), np.nan)
    return np.where(ranks == NONE, np.nan, values[np.maximum(ranks, 0)])


def _told(kind: int, **columns: Ids | Floats) -> Iterator[pa.RecordBatch]:
    """What was found, in the columns of FOUND; those that say nothing are 0 or NaN."""
    size = len(next(iter(columns.values())))
    if not size:
        return
    whole = {name: columns.get(name, np.zeros(size, np.int64)) for name in ("s", "first", "last", "hole")}
    keys = {name: columns.get(name, np.full(size, np.nan)) for name in ("low", "high")}
    yield pa.record_batch({"kind": np.full(size, kind, np.int32), **whole, **keys})


class _Rows(NamedTuple):
    s: Ids
    position: Ids
    events: Ids
    is_tagged: Flags


def _sorted(chunk: Chunk) -> _Rows:
    """The rows of a chunk, sorted by subscriber and position. Rows that are sorted already are not copied."""
    rows = _Rows(
        chunk.hashes("subscriber"), chunk.whole("position"), chunk.hashes("event_id"), chunk.flags("out_of_order")
    )
    order = sorting(rows.s, rows.position)
    if order is None:
        return rows
    return _Rows(rows.s[order], rows.position[order], rows.events[order], rows.is_tagged[order])


def sorting(s: Ids, position: Ids) -> Ids | None:
    """What sorts rows by subscriber and position; None if they are sorted, in which order of subscribers ever."""
    changes = np.flatnonzero(s[1:] != s[:-1]) + 1
    is_grouped = len(np.unique(s[np.concatenate([[0], changes])])) == len(changes) + 1
    if is_grouped and ((position[1:] >= position[:-1]) | (s[1:] != s[:-1])).all():
        return None
    return np.lexsort((position, s))


def _looked_up(wanted: Ids, events: Ids, ranks: NDArray[np.int32]) -> Ids:
    """The rank of each event. Asked in order, neighbours are found near each other."""
    found = np.empty(len(wanted), np.int64)
    order = np.argsort(wanted)
    found[order] = ranks[np.searchsorted(events, wanted[order])]
    return found


def walk_chunk(s: Ids, position: Ids, rank: Ids) -> tuple[Stretches, Ids, Ids, int]:
    """Rows by subscriber and position: its stretches, the intervals that its rows cover, and how many rows do."""
    is_first = np.concatenate([[True], s[1:] != s[:-1]])
    reach = reach_before(np.cumsum(is_first) - 1, rank)
    covered = (rank >= 0) & (rank <= reach)
    low, high = join_intervals(rank[covered], reach[covered])
    return stretches_of(s, position, rank), low, high, int(covered.sum())


def stretches_of(s: Ids, position: Ids, rank: Ids) -> Stretches:
    """Rows by subscriber and position, as one stretch for each subscriber."""
    is_first = np.concatenate([[True], s[1:] != s[:-1]])
    skipped = np.full(len(s), ENDLESS)
    skips = ~is_first[1:] & (position[1:] > position[:-1] + 1)
    skipped[1:][skips] = position[:-1][skips] + 1
    rows = Stretches(s, position, position, skipped, np.where(rank == NONE, ENDLESS, rank), rank)
    return rows.joined(np.flatnonzero(is_first))


def join_stretches(parts: Stretches) -> Joined:
    """Put the stretches of each subscriber one after another."""
    if not len(parts.s):
        nothing = np.empty(0, np.int64)
        return Joined(parts, nothing, nothing, nothing, nothing)
    rows = parts.take(np.lexsort((parts.first, parts.s)))
    is_first = np.concatenate([[True], rows.s[1:] != rows.s[:-1]])
    before = np.concatenate([[NONE], rows.last[:-1]])
    is_torn = (~is_first & (rows.first <= before)) | (rows.first < 0)
    reach = reach_before(np.cumsum(is_first) - 1, rows.high)
    meets = (reach != NONE) & (rows.low <= reach)
    skipped = np.where(~is_first & (rows.first > before + 1), before + 1, ENDLESS)
    whole = rows._replace(hole=np.minimum(rows.hole, skipped)).joined(np.flatnonzero(is_first))
    torn = np.unique(rows.s[is_torn])
    return Joined(whole.take(~np.isin(whole.s, torn)), rows.low[meets], reach[meets], torn, rows.s[meets])


def reach_before(group: Ids, rank: Ids) -> Ids:
    """Of each row, the highest rank of the rows of its group before it, or NONE. Groups are 0, 1, 2 … in order."""
    width = int(rank.max(initial=0)) + 2
    highest = np.maximum.accumulate(group * width + rank + 1)
    reach = np.full(len(rank), NONE)
    reach[1:] = np.maximum(highest[:-1] - group[1:] * width - 1, NONE)
    return reach
