"""Which topics are held together, and by how many: the overlaps of all subscriptions, on Spark.

*Not quadratic in subscribers.* Rows are brought together by subscriber, and each subscription of k topics adds its
k(k-1)/2 pairs: nobody is compared with anybody else, and a topic that everybody holds adds one pair to each of a
subscriber's topics, no more. Equal subscriptions of a partition are counted once, with their number as weight, and
pairs are summed before they are sent on.

*Wide subscriptions.* A subscription that holds thousands of topics would add millions of pairs. The few widest (for
example, a monitor that holds everything) are kept as sets of topics: a bit in a mask per topic. Two topics are held
together by as many of them as their masks have bits in common (`coupled_pairs`, and graph.py).
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from seriatim.model import InputError
from seriatim.pipeline.plan.graph import Ids
from seriatim.pipeline.plan.inputs import Topics
from seriatim.pipeline.workload.draws import GOLDEN, mix

WIDE_MIN = 1_000  # topics from which on a subscription may be kept as a set
WIDE_MAX = 62  # of them: one bit each
PAIRS_MADE_MAX = 2_000_000_000  # by all other subscriptions together
ROWS_PER_PARTITION = 500_000
PAIRS_PER_CHUNK = 4_000_000
DENSE_TOPICS_MAX = 2_048  # with so few topics all pairs fit into an array


class Wide(NamedTuple):
    """The widest subscriptions, and for each topic's id which of them hold it."""

    subscribers: list[str]
    masks: Ids

    def without(self, held: DataFrame) -> DataFrame:
        """All other subscriptions."""
        return held.where(~F.col("subscriber").isin(self.subscribers)) if self.subscribers else held


def by_id(held: DataFrame, topics: Topics) -> DataFrame:
    """`subscriber`, `id` instead of names. Rows may repeat."""
    return held.join(topics.table(held.sparkSession), "topic").select("subscriber", "id")


def wide_of(held: DataFrame, topic_count: int) -> Wide:
    """The subscriptions that are kept as sets; raises InputError if the others would make too many pairs. `held`:
    `subscriber`, `id`. Sizes are counted before repeated rows are dropped, so they are upper bounds."""
    sizes = held.groupBy("subscriber").agg(F.count("*").alias("size"))
    spread = {row["size"]: row["count"] for row in sizes.groupBy("size").count().orderBy(F.desc("size")).collect()}
    chosen, least = 0, topic_count + 1
    for size, count in spread.items():
        if size < WIDE_MIN or chosen + count > WIDE_MAX:
            break
        chosen, least = chosen + count, size
    pairs = sum(count * size * (size - 1) // 2 for size, count in spread.items() if size < least)
    if pairs > PAIRS_MADE_MAX:
        largest = max(size for size in spread if size < least)
        problem = f"subscriptions of up to {largest:,} topics make {pairs:,} pairs, more than {PAIRS_MADE_MAX:,}"
        raise InputError("subscriptions", problem, "plan over buckets, for example --buckets 1024")
    masks = np.zeros(topic_count, np.int64)
    names: list[str] = []
    if chosen:
        widest = sizes.where(F.col("size") >= least).select("subscriber")
        rows = held.join(F.broadcast(widest), "subscriber").groupBy("subscriber").agg(F.collect_set("id").alias("ids"))
        for bit, row in enumerate(rows.orderBy("subscriber").collect()):
            names.append(row["subscriber"])
            masks[np.asarray(row["ids"], np.int64)] |= 1 << bit
    return Wide(names, masks)


def pairs_of(held: DataFrame, topic_count: int, rows: int) -> DataFrame:
    """`pair` (the smaller id times the number of topics, plus the larger one), `subscribers`: how many hold both.
    `held`: `subscriber`, `id`, without the wide ones. `rows`: about how many there are."""
    partitions = max(held.sparkSession.sparkContext.defaultParallelism, rows // ROWS_PER_PARTITION + 1)
    clustered = held.repartition(partitions, "subscriber")
    made = clustered.mapInArrow(partial(_pairs_made, topic_count), "pair long, subscribers long")
    return made.groupBy("pair").agg(F.sum("subscribers").alias("subscribers"))


def coupled_pairs(pairs: DataFrame, wide: Wide, topic_count: int, threshold: int) -> DataFrame:
    """`a`, `b` (ids, a < b), `subscribers`: coupled pairs, but for those that the wide ones alone couple."""
    split = pairs.select(*both_of("pair", topic_count), "subscribers")
    if not wide.subscribers:
        return split.where(F.col("subscribers") >= threshold)
    masks = F.broadcast(pairs.sparkSession.createDataFrame(list(enumerate(wide.masks.tolist())), "id int, mask long"))
    joined = split.join(masks.toDF("a", "mask_a"), "a").join(masks.toDF("b", "mask_b"), "b")
    by_wide = F.bit_count(F.col("mask_a").bitwiseAND(F.col("mask_b"))).cast("long")
    counted = joined.select("a", "b", (F.col("subscribers") + by_wide).alias("subscribers"), by_wide.alias("wide"))
    return counted.where((F.col("subscribers") >= threshold) & (F.col("wide") < threshold)).drop("wide")


def both_of(pair: str, topic_count: int, *names: str) -> list[Column]:
    """The two ids of a pair, `a` and `b` unless other names are given."""
    parts = (f"cast({pair} div {topic_count} as int)", f"cast({pair} % {topic_count} as int)")
    return [F.expr(part).alias(name) for part, name in zip(parts, names or ("a", "b"), strict=True)]


# ── in a Python worker ────────────────────────────────────────────────────────────────────────────────────────────


def _pairs_made(topic_count: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pairs of one partition, which holds whole subscriptions."""
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    table = pa.Table.from_batches(parts).combine_chunks()
    subscriber = table.column(0).chunk(0).dictionary_encode()
    codes: Ids = subscriber.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    starts, sizes, ids = _sets(codes, table.column(1).to_numpy().astype(np.int64), topic_count)
    starts, sizes, weights = _different(starts, sizes, ids)
    sums = _Sums(topic_count)
    for size in np.unique(sizes[sizes > 1]).tolist():
        of_size = np.flatnonzero(sizes == size)
        left, right = np.triu_indices(size, 1)
        step = max(1, PAIRS_PER_CHUNK // len(left))
        for place in range(0, len(of_size), step):
            some = of_size[place : place + step]
            rows = ids[starts[some][:, None] + np.arange(size)]
            pairs = rows[:, left] * topic_count + rows[:, right]
            yield from sums.add(pairs.ravel(), np.repeat(weights[some], len(left)))
    yield from sums.flush()


def _sets(codes: Ids, ids: Ids, topic_count: int) -> tuple[Ids, Ids, Ids]:
    """Each subscriber's different ids, ascending: where they start, how many, and all of them in one array."""
    rows = np.unique(codes * topic_count + ids)
    codes, ids = np.divmod(rows, topic_count)
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(codes)]]))
    return starts, sizes, ids


def _different(starts: Ids, sizes: Ids, ids: Ids) -> tuple[Ids, Ids, Ids]:
    """Equal sets once, with how often. Equal by two hashes is not enough: the ids are compared."""
    hashes = [np.add.reduceat(_hashed(ids, salt), starts) for salt in (1, 2)]
    order = np.lexsort((*hashes, sizes))
    changes = np.zeros(len(order), np.bool_)
    changes[0] = True
    for column in (*hashes, sizes):
        changes[1:] |= column[order][1:] != column[order][:-1]
    leader = order[np.maximum.accumulate(np.where(changes, np.arange(len(order)), 0))]
    offsets = np.arange(len(ids)) - np.repeat(starts, sizes)
    leaders = np.empty(len(order), np.int64)
    leaders[order] = leader
    differs = ids != ids[np.repeat(starts[leaders], sizes) + offsets]
    alone = np.logical_or.reduceat(differs, starts)
    leaders[alone] = np.flatnonzero(alone)
    kept, weights = np.unique(leaders, return_counts=True)
    return starts[kept], sizes[kept], weights.astype(np.int64)


def _hashed(ids: Ids, salt: int) -> NDArray[np.uint64]:
    return mix((ids.astype(np.uint64) + np.uint64(salt)) * GOLDEN + np.uint64(salt << 40))


class _Sums:
    """Sums per pair, as far as memory allows: what does not fit is handed on, and summed by Spark."""

    def __init__(self, topic_count: int) -> None:
        is_dense = topic_count <= DENSE_TOPICS_MAX
        self._dense = np.zeros(topic_count * topic_count, np.int64) if is_dense else None
        self._pairs: list[Ids] = []
        self._weights: list[Ids] = []
        self._waiting = 0

    def add(self, pairs: Ids, weights: Ids) -> Iterator[pa.RecordBatch]:
        """Add some pairs; they may repeat."""
        if self._dense is not None:
            self._dense += np.bincount(pairs, weights, len(self._dense)).astype(np.int64)
            return
        self._pairs.append(pairs)
        self._weights.append(weights)
        self._waiting += len(pairs)
        if self._waiting >= 2 * PAIRS_PER_CHUNK:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Hand on the sums since the last flush."""
        if self._dense is not None:
            pairs = np.flatnonzero(self._dense)
            yield pa.record_batch({"pair": pairs, "subscribers": self._dense[pairs]})
        elif self._pairs:
            pairs, place = np.unique(np.concatenate(self._pairs), return_inverse=True)
            sums = np.bincount(place, np.concatenate(self._weights)).astype(np.int64)
            self._pairs, self._weights, self._waiting = [], [], 0
            yield pa.record_batch({"pair": pairs, "subscribers": sums})
