"""The deliveries of some subscribers or events, out of files, with their places in the order log.

For a closer look at what the pass of a certificate did not clear. Groups of rows that have none of them are not read,
but for the one column that tells.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.audit.columnar.certifying import READ
from seriatim.pipeline.audit.columnar.files import Chunk, FileLog, Split, chunks, narrowed, over_splits
from seriatim.pipeline.audit.columnar.hashing import P1, P2, Ids
from seriatim.pipeline.audit.columnar.order_index import ABSENT, OrderIndex
from seriatim.pipeline.audit.keep import kept

PLACED = (
    "run string, subscriber string, position long, event_id string, topic string, number long, index int, "
    "out_of_order boolean, order_position long, at long, "
    "by struct<position: long, topic: string, first: long, last: long>"
)


class Wanted(NamedTuple):
    """Rows of events, or with `is_placed` of subscribers at positions, by their hashes, which are sorted.

    A row that only has the hash of one that is wanted does no harm.
    """

    hashes: Ids
    is_placed: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return ("subscriber", "position") if self.is_placed else ("event_id",)

    @classmethod
    def at(cls, s: Ids, position: Ids) -> "Wanted":
        """Rows of subscribers at these positions."""
        return cls(np.unique(_mixed(s, position)), True)

    def has(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Which rows are wanted."""
        hashes = chunk.hashes(self.columns[0])
        hashes = _mixed(hashes, chunk.whole("position")) if self.is_placed else hashes
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        found: NDArray[np.bool_] = self.hashes[at] == hashes
        return found


def _mixed(s: Ids, position: Ids) -> Ids:
    with np.errstate(over="ignore"):
        mixed = (s.view(np.uint64) ^ (position.astype(np.uint64) * P1)) * P2
    return mixed.view(np.int64)


def rows_closer(spark: SparkSession, log: FileLog, index: OrderIndex, wanted: Wanted) -> DataFrame:
    """These deliveries, as `certificate.order.placed` gives them. Kept."""
    held = spark.sparkContext.broadcast((index, wanted))
    try:
        return kept(over_splits(spark, log, partial(_closer, log, held), PLACED))
    finally:
        held.destroy()


def _closer(log: FileLog, held: Broadcast[tuple[OrderIndex, Wanted]], split: Split) -> Iterator[pa.RecordBatch]:
    index, wanted = held.value
    for chunk in chunks(log, narrowed(log, split, wanted.has, *wanted.columns), *READ):
        found = wanted.has(chunk)
        if found.any():
            yield _placed(log, chunk.filter(found), index)


def _placed(log: FileLog, chunk: Chunk, index: OrderIndex) -> pa.RecordBatch:
    topics, numbers, is_numbered = index.codes_of(chunk.hashes("topic")), chunk.whole("number"), chunk.there("number")
    slots = index.slots_of(topics, numbers, is_numbered)
    lacks = slots == ABSENT
    position, first, last = index.rows_of(topics, slots, numbers)
    topic = chunk.texts("topic").cast(pa.string())
    by = pa.StructArray.from_arrays(
        [pa.array(position), topic, pa.array(first), pa.array(last)],
        names=["position", "topic", "first", "last"],
        mask=pa.array(lacks),
    )
    shown = {
        "run": chunk.texts("run").cast(pa.string()) if log.has_runs else pa.repeat("", chunk.rows),
        "subscriber": chunk.texts("subscriber").cast(pa.string()),
        "position": pa.array(chunk.whole("position")),
        "event_id": chunk.texts("event_id").cast(pa.string()),
        "topic": topic,
        "number": pa.array(numbers, mask=~is_numbered),
        "index": pa.array(chunk.whole("index").astype(np.int32)),
        "out_of_order": pa.array(chunk.flags("out_of_order")),
        "order_position": pa.array(chunk.whole("order_position"), mask=~chunk.there("order_position")),
        "at": pa.array(position + numbers - first, mask=lacks),
        "by": by,
    }
    return pa.record_batch(list(shown.values()), names=list(shown))
