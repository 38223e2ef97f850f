"""One row per event, from all its deliveries: brought together by event in pieces of columns, then sorted as arrays.

A task reads its split and divides each chunk into as many pieces as there are buckets; a piece travels as one value, so
that Spark moves thousands of pieces and not millions of rows. A bucket holds all deliveries of its events, fits a task,
and is put together by one sort.
"""

from collections.abc import Iterator
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
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
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Array = NDArray[Any]


def events_of_files(spark: SparkSession, log: FileLog, names: Ids, delays: NDArray[np.float64]) -> DataFrame:
    """As `events.events_of_rows`, and `again`: some subscriber was notified of it more than once.

    `delays`: the usual one of each subscriber of these (hashed) names, which are sorted.
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
        "o": pa.bool_(),
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
            yield _divided(_one(gathered, schema), count)
            gathered = []
    if gathered:
        yield _divided(_one(gathered, schema), count)


def _columns(chunk: Chunk, schema: pa.Schema, names: Ids, delays: NDArray[np.float64]) -> pa.RecordBatch:
    subscribers = chunk.hashes("subscriber")
    columns = {
        "e": chunk.hashes("event_id"),
        "s": subscribers,
        "t": chunk.hashes("topic"),
        "check": (chunk.hashes("event_id", CHECK) >> 32).astype(np.int32),
        "o": chunk.flags("out_of_order"),
        "levelled": chunk.times("notified_at") - _delay(subscribers, names, delays),
        "number": pa.array(chunk.whole("number"), mask=~chunk.there("number")),
        "index": chunk.whole("index").astype(np.int32),
        "run": chunk.texts("run") if "run" in schema.names else None,
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _divided(rows: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """By the bucket that each event belongs to: bucket, piece."""
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
    if not pieces:
        return
    whole = _one(pieces, schema)
    del pieces
    made = _grouped(whole)
    for start in range(0, made.num_rows, BATCH_ROWS):
        yield made.slice(start, BATCH_ROWS)


def _one(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One table of all rows of these pieces."""
    if len(parts) == 1:
        return parts[0]
    return pa.record_batch([pa.concat_arrays([part.column(name) for part in parts]) for name in schema.names], schema)


def _grouped(rows: pa.RecordBatch) -> pa.RecordBatch:
    events = rows.column("e").to_numpy()
    order = np.argsort(events)
    events = events[order]
    starts = np.flatnonzero(np.concatenate([[True], events[1:] != events[:-1]]))
    sizes = np.diff(np.append(starts, len(events)))

    def column(name: str) -> Array:
        values: Array = rows.column(name).to_numpy(zero_copy_only=False)[order]
        return values

    subscribers, topics, checks = column("s"), column("t"), column("check")
    topic, check = np.minimum.reduceat(topics, starts), np.minimum.reduceat(checks, starts)
    is_numbered = rows.column("number").is_valid().to_numpy(zero_copy_only=False)[order]
    number = rows.column("number").fill_null(0).to_numpy(zero_copy_only=False)[order]
    index = column("index").astype(np.int64)  # in fewer bits, LEAST and MOST would be other numbers
    lacks = ~np.logical_or.reduceat(is_numbered, starts)
    run = (
        rows.column("run").take(pa.array(order[starts])) if "run" in rows.schema.names else pa.array([""] * len(starts))
    )
    return pa.record_batch(
        {
            "run": run,
            "e": events[starts],
            "n": sizes,
            "untagged": np.add.reduceat((~column("o")).astype(np.int64), starts),
            "shared": np.minimum.reduceat(subscribers, starts) != np.maximum.reduceat(subscribers, starts),
            "again": _again(events, subscribers, starts, sizes),
            "t": topic,
            "two_topics": topic != np.maximum.reduceat(topics, starts),
            "check": check,
            "collided": check != np.maximum.reduceat(checks, starts),
            "levelled": np.fmin.reduceat(column("levelled"), starts),
            "number": pa.array(np.minimum.reduceat(np.where(is_numbered, number, MOST), starts), mask=lacks),
            "number_high": pa.array(np.maximum.reduceat(np.where(is_numbered, number, LEAST), starts), mask=lacks),
            "index": _narrow(np.minimum.reduceat(np.where(is_numbered, index, MOST), starts), lacks),
            "index_high": _narrow(np.maximum.reduceat(np.where(is_numbered, index, LEAST), starts), lacks),
        }
    )


def _narrow(values: Ids, lacks: NDArray[np.bool_]) -> pa.Array:
    return pa.array(np.where(lacks, 0, values).astype(np.int32), mask=lacks)


def _again(events: Ids, subscribers: Ids, starts: Ids, sizes: Ids) -> NDArray[np.bool_]:
    """Which events have two rows of one subscriber."""
    again = np.zeros(len(starts), np.bool_)
    with np.errstate(over="ignore"):
        both = events * np.int64(0x1E3779B97F4A7C15) + subscribers
    ordered = np.sort(both)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):  # perhaps only by chance
        rows = np.flatnonzero(np.isin(both, twice))
        rows = rows[np.lexsort((subscribers[rows], events[rows]))]
        same = (events[rows][1:] == events[rows][:-1]) & (subscribers[rows][1:] == subscribers[rows][:-1])
        again[np.repeat(np.arange(len(starts)), sizes)[rows[1:][same]]] = True
    return again
