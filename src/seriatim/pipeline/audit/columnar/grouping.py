"""One row per event, from all its deliveries: brought together by event in pieces of columns, then grouped by Arrow.

A task reads its split and divides each chunk into as many pieces as there are buckets; a piece travels as one value, so
that Spark moves thousands of pieces and not millions of rows. A bucket fits a task, and holds all deliveries of its
events.
"""

from collections.abc import Iterator
from functools import partial
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.audit.columnar.files import Chunk, FileLog, Split, chunks, over_splits
from seriatim.pipeline.audit.columnar.hashing import Ids
from seriatim.pipeline.audit.columns import CHECK

BUCKET_ROWS = 1_000_000  # about, some 60 bytes each
BATCH_ROWS = 100_000  # of events, handed on at a time
PIECE_ROWS = 10_000  # about; smaller pieces cost more to send than to hold
READ = ("subscriber", "event_id", "topic", "out_of_order", "notified_at", "number", "index")
PIECE = "bucket int, piece binary"
EACH = (
    "run string, e bigint, n bigint, untagged bigint, shared boolean, again boolean, t bigint, two_topics boolean, "
    "check int, collided boolean, levelled double, number bigint, number_high bigint, index int, index_high int"
)
AGGREGATES = (
    ("e", "count"),
    ("untagged", "sum"),
    ("levelled", "min"),
    ("s", "count_distinct"),
    *((name, way) for name in ("t", "check", "number", "index") for way in ("min", "max")),
)


def events_of_files(spark: SparkSession, log: FileLog, names: Ids, delays: NDArray[np.float64]) -> DataFrame:
    """Compute `events.events_of_rows` from files, with a column `again`: some subscriber was notified of the event more
    than once.

    `delays`: the usual delay of each subscriber of these (hashed) names, which are sorted.
    """
    count = max(spark.sparkContext.defaultParallelism, ceil(log.rows / BUCKET_ROWS))
    pieces = over_splits(spark, log, partial(_pieces, log, count, names, delays), PIECE)
    return pieces.repartitionById(count, "bucket").mapInArrow(partial(_events, log.has_runs), EACH)


def _schema(has_runs: bool) -> pa.Schema:
    columns = {
        "e": pa.int64(),
        "s": pa.int64(),
        "t": pa.int64(),
        "check": pa.int32(),
        "untagged": pa.bool_(),
        "levelled": pa.float64(),
        "number": pa.int64(),
        "index": pa.int32(),
    }
    return pa.schema([*columns.items(), *([("run", pa.string())] if has_runs else [])])


def _pieces(
    log: FileLog, count: int, names: Ids, delays: NDArray[np.float64], split: Split
) -> Iterator[pa.RecordBatch]:
    schema = _schema(log.has_runs)
    gathered: list[pa.RecordBatch] = []
    for chunk in chunks(log, split, *READ):
        gathered.append(_columns(chunk, schema, names, delays))
        if sum(rows.num_rows for rows in gathered) >= PIECE_ROWS * count:
            yield _divided(gathered, count)
            gathered = []
    if gathered:
        yield _divided(gathered, count)


def _columns(chunk: Chunk, schema: pa.Schema, names: Ids, delays: NDArray[np.float64]) -> pa.RecordBatch:
    subscribers, lacks_number = chunk.hashes("subscriber"), ~chunk.there("number")
    columns = {
        "e": chunk.hashes("event_id"),
        "s": subscribers,
        "t": chunk.hashes("topic"),
        "check": (chunk.hashes("event_id", CHECK) >> 32).astype(np.int32),
        "untagged": ~chunk.flags("out_of_order"),
        "levelled": pa.array(chunk.times("notified_at") - _delay(subscribers, names, delays), from_pandas=True),
        "number": pa.array(chunk.whole("number"), mask=lacks_number),
        "index": pa.array(chunk.whole("index").astype(np.int32), mask=lacks_number),  # without a number it says nothing
        "run": chunk.texts("run") if "run" in schema.names else None,
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _divided(gathered: list[pa.RecordBatch], count: int) -> pa.RecordBatch:
    """Divide rows by the bucket that their event belongs to: bucket, piece."""
    rows = pa.Table.from_batches(gathered).combine_chunks().to_batches()[0]
    bucket = (rows.column("e").to_numpy() % count).astype(np.uint16 if count <= 1 << 16 else np.int64)
    rows = rows.take(pa.array(np.argsort(bucket, kind="stable")))
    ends = np.cumsum(np.bincount(bucket, minlength=count))
    there = np.flatnonzero(np.diff(ends, prepend=0))
    starts = np.concatenate([[0], ends])[there]
    pieces = [rows.slice(start, end - start).serialize() for start, end in zip(starts, ends[there], strict=True)]
    return pa.record_batch(
        {"bucket": there.astype(np.int32), "piece": pa.array([piece.to_pybytes() for piece in pieces], pa.binary())}
    )


def _delay(subscribers: Ids, names: Ids, delays: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(names):
        return np.zeros(len(subscribers))
    at = np.minimum(np.searchsorted(names, subscribers), len(names) - 1)
    return np.where(names[at] == subscribers, delays[at], 0.0)


def _events(has_runs: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One bucket: all deliveries of its events."""
    schema = _schema(has_runs)
    pieces = [pa.ipc.read_record_batch(piece.as_buffer(), schema) for batch in batches for piece in batch.column(1)]
    if pieces:
        yield from _grouped(pa.Table.from_batches(pieces)).to_batches(BATCH_ROWS)


def _grouped(rows: pa.Table) -> pa.Table:
    has_runs = "run" in rows.column_names
    made = rows.group_by("e", use_threads=False).aggregate([*AGGREGATES, *([("run", "min")] if has_runs else [])])
    holders = made["s_count_distinct"]
    return pa.table(
        {
            "run": made["run_min"] if has_runs else pa.repeat("", len(made)),
            "e": made["e"],
            "n": made["e_count"],
            "untagged": made["untagged_sum"].cast(pa.int64()),
            "shared": pc.greater(holders, 1),
            "again": pc.greater(made["e_count"], holders),
            "t": made["t_min"],
            "two_topics": pc.not_equal(made["t_min"], made["t_max"]),
            "check": made["check_min"],
            "collided": pc.not_equal(made["check_min"], made["check_max"]),
            "levelled": made["levelled_min"],
            "number": made["number_min"],
            "number_high": made["number_max"],
            "index": made["index_min"],
            "index_high": made["index_max"],
        }
    )
