"""One row per subscriber and topic, and a sample of deliveries: what is known before events are put together."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columnar.files import Chunk, FileLog, Split, chunks, over_splits
from seriatim.pipeline.audit.columnar.hashing import Ids
from seriatim.pipeline.audit.columns import with_hashes
from seriatim.pipeline.audit.places import INDEX_BITS

OWN = ("run", "subscriber", "topic")
SUMS, LEAST, MOST = ("n", "tagged", "numbered", "packed"), ("first", "lowest"), ("final", "highest")
TOTALS = ", ".join([*(f"{name} string" for name in OWN), *(f"{name} bigint" for name in (*SUMS, *LEAST, *MOST))])
UNPACKED = 1 << 62  # above every place that is packed
SAMPLE = "s bigint, e bigint, notified_at double"

Columns = dict[str, Ids]


def totals_of_files(spark: SparkSession, log: FileLog) -> DataFrame:
    """The same table as `events.totals`."""
    parts = over_splits(spark, log, partial(_totals, log), TOTALS)
    whole = parts.groupBy(*OWN).agg(
        *(F.sum(name).alias(name) for name in SUMS),
        *(F.min(name).alias(name) for name in LEAST),
        *(F.max(name).alias(name) for name in MOST),
    )
    packed = {name: F.when(F.col(name).between(0, UNPACKED - 1), F.col(name)) for name in ("lowest", "highest")}
    return with_hashes(whole.withColumns(packed), log.salt, s="subscriber", t="topic")


def _totals(log: FileLog, split: Split) -> Iterator[pa.RecordBatch]:
    read = ("subscriber", "topic", "position", "out_of_order", "number", "index")
    parts = [_summed(_names(chunk), _counted(chunk)) for chunk in chunks(log, split, *read)]
    if not parts:
        return
    names = [pa.concat_arrays([own[at] for own, _ in parts]) for at in range(len(OWN))]
    counts = {name: np.concatenate([counted[name] for _, counted in parts]) for name in parts[0][1]}
    names, counts = _summed(names, counts)
    yield pa.record_batch({**dict(zip(OWN, names, strict=True)), **counts})


def _names(chunk: Chunk) -> list[pa.Array]:
    run = chunk.texts("run") if chunk.has("run") else pa.DictionaryArray.from_arrays(np.zeros(chunk.rows, int), [""])
    return [run, chunk.texts("subscriber"), chunk.texts("topic")]


def _counted(chunk: Chunk) -> Columns:
    """Every row as a total of its own."""
    position, number, index = chunk.whole("position"), chunk.whole("number", -1), chunk.whole("index")
    is_numbered = chunk.there("number")
    fits = is_numbered & (number >= 0) & (number < 1 << (62 - INDEX_BITS)) & (index >= 0) & (index < 1 << INDEX_BITS)
    packed = number << INDEX_BITS | index
    return {
        "n": np.ones(chunk.rows, np.int64),
        "tagged": chunk.flags("out_of_order").astype(np.int64),
        "numbered": is_numbered.astype(np.int64),
        "packed": fits.astype(np.int64),
        "first": position,
        "lowest": np.where(fits, packed, UNPACKED),
        "final": position,
        "highest": np.where(fits, packed, -1),
    }


def _summed(names: list[pa.Array], counts: Columns) -> tuple[list[pa.Array], Columns]:
    """Rows of the same names as one. Names that are numbers in the file are compared as numbers."""
    encoded = [name if isinstance(name, pa.DictionaryArray) else name.dictionary_encode() for name in names]
    own = np.zeros(len(encoded[0]), np.int64)
    for name in encoded:
        own = own * len(name.dictionary) + name.indices.to_numpy()
    is_narrow = int(own.max()) < 1 << 16
    order = np.argsort(own.astype(np.uint16), kind="stable") if is_narrow else np.argsort(own)
    own = own[order]
    starts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    ways = {**dict.fromkeys(SUMS, np.add), **dict.fromkeys(LEAST, np.minimum), **dict.fromkeys(MOST, np.maximum)}
    first = pa.array(order[starts])
    return (
        [name.take(first).dictionary_decode().cast(pa.string()) for name in encoded],
        {name: way.reduceat(counts[name][order], starts) for name, way in ways.items()},
    )


def sample_of_files(spark: SparkSession, log: FileLog, every: int) -> DataFrame:
    """Every Nth event, with the times of all its deliveries that are not tagged: s, e, notified_at."""
    return over_splits(spark, log, partial(_sample, log, every), SAMPLE)


def _sample(log: FileLog, every: int, split: Split) -> Iterator[pa.RecordBatch]:
    for chunk in chunks(log, split, "subscriber", "event_id", "notified_at", "out_of_order"):
        events = chunk.hashes("event_id")
        times = chunk.times("notified_at")
        rows = np.flatnonzero((events % every == 0) & ~np.isnan(times) & ~chunk.flags("out_of_order"))
        if len(rows):
            yield pa.record_batch(
                {"s": chunk.hashes("subscriber")[rows], "e": events[rows], "notified_at": times[rows]}
            )
