"""The deliveries of some subscribers or events, out of files, with their places in the order log.

For a closer look at what the pass of a certificate did not clear. Groups of rows that have none of them are not read,
but for the one column that tells.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.audit.columnar.files import NAMES, Chunk, FileLog, Split, over_splits
from seriatim.pipeline.audit.columnar.hashing import Ids
from seriatim.pipeline.audit.columnar.order_index import ABSENT, OrderIndex
from seriatim.pipeline.audit.keep import kept
from seriatim.pipeline.schemas import LOST
from seriatim.pipeline.spark.unreadable import damaged

PLACED = (
    "run string, subscriber string, position long, event_id string, topic string, number long, index int, "
    "out_of_order boolean, order_position long, at long, "
    "by struct<position: long, topic: string, first: long, last: long>"
)


class Wanted(NamedTuple):
    """Rows of subscribers, or of events (`column`), by their hashes, which are sorted; with `positions`: only these."""

    column: str
    hashes: Ids
    positions: Ids | None = None

    def has(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Which rows are wanted."""
        hashes = chunk.hashes(self.column)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        found: NDArray[np.bool_] = self.hashes[at] == hashes
        return found if self.positions is None else found & (self.positions[at] == chunk.whole("position"))


def rows_closer(spark: SparkSession, log: FileLog, index: OrderIndex, wanted: Wanted) -> DataFrame:
    """These deliveries, as `certificate.order.placed` gives them. Kept."""
    held = spark.sparkContext.broadcast((index, wanted))
    try:
        return kept(over_splits(spark, log, partial(_closer, log, held), PLACED))
    finally:
        held.destroy()


def _closer(log: FileLog, held: Broadcast[tuple[OrderIndex, Wanted]], split: Split) -> Iterator[pa.RecordBatch]:
    index, wanted = held.value
    try:
        with pq.ParquetFile(split.path, read_dictionary=NAMES) as file:
            for group in split.groups:
                yield from _of_group(log, file, group, index, wanted)
    except (OSError, pa.ArrowException):
        raise damaged(split.path) from None


def _of_group(
    log: FileLog, file: pq.ParquetFile, group: int, index: OrderIndex, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    there = file.schema_arrow.names
    first = [name for name in (wanted.column, "position", *(["run"] if log.has_runs else [])) if name in there]
    batches = file.iter_batches(log.chunk_rows, [group], first, use_threads=False)
    if not any(wanted.has(Chunk(log, batch)).any() for batch in batches):
        return
    names = [part.split()[0] for part in PLACED.split(", by")[0].split(", ")]
    columns = [name for name in (*names, LOST) if name in there and (name != "run" or log.has_runs)]
    for batch in file.iter_batches(log.chunk_rows, [group], columns, use_threads=False):
        if LOST in columns:
            batch = batch.filter(batch.column(LOST).is_null())
        chunk = Chunk(log, batch)
        found = batch.filter(pa.array(wanted.has(chunk))) if batch.num_rows else batch
        if found.num_rows:
            yield _placed(log, found, index)


def _placed(log: FileLog, rows: pa.RecordBatch, index: OrderIndex) -> pa.RecordBatch:
    chunk = Chunk(log, rows)
    topics, numbers, is_numbered = index.codes_of(chunk.hashes("topic")), chunk.whole("number"), chunk.there("number")
    slots = index.slots_of(topics, numbers, is_numbered)
    lacks = slots == ABSENT
    position, first, last = index.rows_of(topics, slots, numbers)
    topic = rows.column("topic").cast(pa.string())
    by = pa.StructArray.from_arrays(
        [pa.array(position), topic, pa.array(first), pa.array(last)],
        names=["position", "topic", "first", "last"],
        mask=pa.array(lacks),
    )
    shown = {
        "run": rows.column("run").cast(pa.string()) if log.has_runs else pa.repeat("", chunk.rows),
        "subscriber": rows.column("subscriber").cast(pa.string()),
        "position": rows.column("position"),
        "event_id": rows.column("event_id").cast(pa.string()),
        "topic": topic,
        "number": pa.array(numbers, mask=~is_numbered),
        "index": pa.array(chunk.whole("index").astype(np.int32)),
        "out_of_order": pa.array(chunk.flags("out_of_order")),
        "order_position": pa.array(chunk.whole("order_position"), mask=~chunk.there("order_position")),
        "at": pa.array(position + numbers - first, mask=lacks),
        "by": by,
    }
    return pa.record_batch(list(shown.values()), names=list(shown))
