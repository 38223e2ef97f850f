"""From intervals to blocks: sets of events that every subscriber passed one after another.

A key value is a *clean cut* if no interval covers it: everybody was notified of all events below it before any above.
Between two neighbouring cuts is a block. A block of one event cannot be in disorder and is never looked at again.

Where nearly every row is covered (clocks that jitter by more than the distance between events) there are no clean cuts
among the keys. Then a few hundred cuts are chosen, and the events near each settle on one side of it: an event that
comes after an event above a cut belongs above it too. Events that have not settled after some rounds join two blocks.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from seriatim.pipeline.audit.columns import before
from seriatim.pipeline.audit.keep import in_python, kept
from seriatim.pipeline.audit.walk import NOTIFIED, Array, Keys

SCHEMA = pa.schema([("e", pa.int64()), ("block", pa.int64())])
DIRTY = from_arrow_schema(SCHEMA)


def join_intervals(low: Array, high: Array) -> tuple[Array, Array]:
    """The union of closed intervals, as disjoint ones in order."""
    if not len(low):
        return low, high
    order = np.argsort(low, kind="stable")
    low, reached = low[order], np.maximum.accumulate(high[order])
    is_new = np.ones(len(low), dtype=bool)
    is_new[1:] = low[1:] > reached[:-1]
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(low)) - 1
    return low[starts], reached[ends]


def dirty_events(all_events: DataFrame, low: Array, high: Array, is_undivided: bool) -> DataFrame:
    """The events that are in a block with others: e, block. The intervals are those of `join_intervals`."""
    known = all_events.filter(F.col("k").isNotNull()).select("e", "k")
    return in_python(known, partial(assign, low=low, high=high), SCHEMA, is_undivided)


def assign(batches: Iterator[pa.RecordBatch], low: Array, high: Array) -> Iterator[pa.RecordBatch]:
    """The interval that each key is in, batch by batch."""
    for batch in batches:
        columns = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("e", "k"))
        yield from assign_keys(Keys(*columns), low, high).to_batches()


def assign_keys(keys: Keys, low: Array, high: Array) -> pa.Table:
    """The interval that each key is in; keys outside all intervals are left out."""
    block = np.searchsorted(low, keys.k, side="right") - 1
    inside = (block >= 0) & (keys.k <= high[np.maximum(block, 0)])
    return pa.table([keys.e[inside], block[inside].astype(np.int64)], schema=SCHEMA)


def thresholds(events: DataFrame, blocks: int) -> list[float]:
    """Keys that cut the events into about this many blocks of about the same size."""
    shares = [i / blocks for i in range(1, blocks)]
    found: list[float] = events.approxQuantile("k", shares, 1 / (4 * blocks)) if shares else []
    return sorted(set(found))


def coarse_blocks(
    sequence_rows: DataFrame, chain_rows: DataFrame | None, events: DataFrame, blocks: int, rounds: int
) -> DataFrame:
    """Cut events (e, k) into about this many blocks that every sequence passes in order: e, block.

    `sequence_rows` (s, p, kind, e, o) and `chain_rows` (e, chain, rank) are those of the events, repeats left out.
    """
    cuts = thresholds(events, blocks)
    place = partial(assign, low=np.array([-np.inf, *cuts]), high=np.array([np.inf] * (len(cuts) + 1)))
    settled = kept(events.select("e", "k").mapInArrow(place, DIRTY))
    for _ in range(rounds):
        risen = kept(late(sequence_rows, chain_rows, settled))
        if risen.isEmpty():
            return settled
        higher = risen.groupBy("e").agg(F.max("reach").alias("reach"))
        raised = F.greatest("block", F.coalesce("reach", "block")).alias("block")
        settled = kept(settled.join(higher, "e", "left").select("e", raised))
    left = late(sequence_rows, chain_rows, settled).groupBy("block").agg(F.max("reach").alias("reach")).collect()
    low, high = join_intervals(np.array([row[0] for row in left]), np.array([row[1] for row in left]))
    return settled.mapInArrow(partial(join_blocks, low=low, high=high), DIRTY)


def join_blocks(batches: Iterator[pa.RecordBatch], low: Array, high: Array) -> Iterator[pa.RecordBatch]:
    """Blocks within one interval become its lowest."""
    for batch in batches:
        block = batch.column("block").to_numpy(zero_copy_only=False)
        if len(low):
            of = np.searchsorted(low, block, side="right") - 1
            inside = (of >= 0) & (block <= high[np.maximum(of, 0)])
            block = np.where(inside, low[np.maximum(of, 0)], block)
        yield pa.record_batch({"e": batch.column("e"), "block": block.astype(np.int64)})


def late(sequence_rows: DataFrame, chain_rows: DataFrame | None, settled: DataFrame) -> DataFrame:
    """Rows whose block is below that of an earlier row of their sequence: e, block, reach."""
    rows = sequence_rows.select("s", "p", "kind", "e", "o").join(settled, "e")
    earlier = before("s", "p", "kind", "e")
    is_row = F.col("kind") == NOTIFIED
    ordered = F.max(F.when(is_row & ~F.col("o"), F.col("block"))).over(earlier)
    seen = F.max(F.when(is_row, F.col("block"))).over(earlier)
    reach = F.when(is_row & ~F.col("o"), ordered).when(~is_row, seen)
    found = rows.withColumn("reach", reach).filter(F.col("block") < F.col("reach")).select("e", "block", "reach")
    if chain_rows is None:
        return found
    published = chain_rows.select("e", "chain", "rank").join(settled, "e")
    behind = published.withColumn("reach", F.max("block").over(before("chain", "rank"))).filter(
        F.col("block") < F.col("reach")
    )
    return found.unionByName(behind.select("e", "block", "reach"))
