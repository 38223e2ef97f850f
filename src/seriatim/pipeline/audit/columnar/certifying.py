"""The pass of a certificate over files: it reads every delivery once, in place, and compares it with the order log in
arrays.

A task reads its split in chunks. Along each subscriber's positions the slots of the order log must rise: within a chunk
it compares neighbours, and leaves a stretch for each subscriber, as the walk of an audit does (`walking.py`). And each
event must have one place: a split's pairs of place and event, each once, are sent to the task that has this part of the
order log. It sends clear rows on by event, to check that no event has two places.

So a clear log costs one pass and pairs of 16 bytes. Subscribers and events that are not clear are only named here:
`certificate/certifier.py` looks closer at them.
"""

from collections.abc import Iterator
from functools import partial
from math import ceil
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import Broadcast
from pyspark.sql import SparkSession

from seriatim.pipeline.audit.columnar.files import Chunk, FileLog, Split, chunks, over_splits
from seriatim.pipeline.audit.columnar.hashing import Ids, hash_texts, seed_of
from seriatim.pipeline.audit.columnar.order_index import ABSENT, OrderIndex
from seriatim.pipeline.audit.columnar.walking import (
    ENDLESS,
    NONE,
    Joined,
    Stretches,
    join_stretches,
    sorting,
    stretches_of,
)

READ = ("subscriber", "position", "event_id", "topic", "number", "index", "out_of_order", "order_position")
INDEX_BITS = 20  # of a place; the others are the slot's
BUCKET_PAIRS = 1_000_000  # about, that one task compares

# What travels. Pairs: place, event. Events: each of one place. Doubtful: events. Stretches and counts: of subscribers.
PAIRS, EVENTS, DOUBTFUL, STRETCHES, COUNTS, SUSPECTS, WIDE = range(7)
SENT = "bucket int, kind int, piece binary"


class Counts(NamedTuple):
    """Counts for each subscriber: rows, tagged rows, rows without a number, rows that the order log lacks, and the
    position of the first of these."""

    s: Ids
    deliveries: Ids
    out_of_order: Ids
    unnumbered: Ids
    uncovered: Ids
    first_uncovered: Ids

    def take(self, rows: NDArray[np.bool_]) -> "Counts":
        return Counts(*(column[rows] for column in self))

    def of_each(self) -> "Counts":
        """One row for each subscriber."""
        if not len(self.s):
            return self
        order = np.argsort(self.s, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], np.diff(self.s[order]) != 0]))
        return Counts(
            self.s[order][starts],
            np.add.reduceat(self.deliveries[order], starts),
            np.add.reduceat(self.out_of_order[order], starts),
            np.add.reduceat(self.unnumbered[order], starts),
            np.add.reduceat(self.uncovered[order], starts),
            np.minimum.reduceat(self.first_uncovered[order], starts),
        )


class Passed(NamedTuple):
    """The findings of the pass. `whole`: stretches of those who are clear. `suspects`: the others. `doubtful`:
    events."""

    counts: Counts
    whole: Stretches
    suspects: Ids
    doubtful: Ids


def pass_files(spark: SparkSession, log: FileLog, index: OrderIndex, stretches_max: int) -> Passed | None:
    """One pass over all deliveries. None: there are too many stretches for the driver, or indices too large for us."""
    buckets = max(spark.sparkContext.defaultParallelism, ceil(min(log.rows, index.slot_count) / BUCKET_PAIRS))
    held = spark.sparkContext.broadcast(index)
    try:
        sent = over_splits(spark, log, partial(_split, log, held, buckets), SENT)
        compared = sent.repartitionById(buckets, "bucket").mapInArrow(partial(_one_event_each, buckets), SENT)
        found = compared.repartitionById(buckets, "bucket").mapInArrow(_one_place_each, SENT).toArrow()
    finally:
        held.destroy()
    pieces: dict[int, list[Ids]] = {}
    for kind, piece in zip(found["kind"].to_pylist(), found["piece"], strict=True):
        pieces.setdefault(kind, []).append(_taken(piece))
    parts = Stretches(*_columns(pieces.get(STRETCHES, []), len(Stretches._fields)))
    if WIDE in pieces or len(parts.s) > stretches_max:
        return None
    joined = join_places(parts)
    suspects = np.unique(np.concatenate([joined.torn, joined.met, *pieces.get(SUSPECTS, [])]))
    return Passed(
        Counts(*_columns(pieces.get(COUNTS, []), len(Counts._fields))).of_each(),
        joined.whole.take(~np.isin(joined.whole.s, suspects)),
        suspects,
        np.unique(np.concatenate([np.empty(0, np.int64), *pieces.get(DOUBTFUL, [])])),
    )


def join_places(parts: Stretches) -> Joined:
    """`join_stretches` of stretches between places: these are ranked first, since there they must be small."""
    values = np.unique(np.concatenate([parts.low[parts.low != ENDLESS], parts.high[parts.high != NONE]]))
    low = np.where(parts.low == ENDLESS, ENDLESS, np.searchsorted(values, parts.low))
    high = np.where(parts.high == NONE, NONE, np.searchsorted(values, parts.high))
    joined = join_stretches(parts._replace(low=low, high=high))
    whole, values = joined.whole, np.append(values, ENDLESS)
    there = whole.high != NONE
    return joined._replace(
        whole=whole._replace(
            low=np.where(there, values[np.where(there, whole.low, 0)], ENDLESS),
            high=np.where(there, values[np.where(there, whole.high, 0)], NONE),
        )
    )


# ── a split ───────────────────────────────────────────────────────────────────────────────────────────────────────


class PassedRows(NamedTuple):
    """Rows sorted by subscriber and position. `place`: slot and index, ABSENT where the order log does not have the
    row."""

    s: Ids
    position: Ids
    events: Ids
    place: Ids
    is_tagged: NDArray[np.bool_]
    is_numbered: NDArray[np.bool_]
    is_mistold: NDArray[np.bool_]

    def take(self, order: Ids) -> "PassedRows":
        return PassedRows(
            self.s[order],
            self.position[order],
            self.events[order],
            self.place[order],
            self.is_tagged[order],
            self.is_numbered[order],
            self.is_mistold[order],
        )


def _split(log: FileLog, held: Broadcast[OrderIndex], buckets: int, split: Split) -> Iterator[pa.RecordBatch]:
    index = held.value
    stretches, counts, suspects, places, events = [], [], [], [], []
    for chunk in chunks(log, split, *READ):
        if chunk.whole("index").max(initial=0) >> INDEX_BITS:
            yield _sent(0, WIDE)
            return
        rows = passed_rows(chunk, log, index)
        judged = np.where(rows.is_tagged, ABSENT, rows.place)
        stretches.append(stretches_of(rows.s, rows.position, judged))
        counts.append(_counted(rows))
        suspects.append(_suspects(rows, judged))
        has = rows.place != ABSENT
        places.append(rows.place[has])
        events.append(rows.events[has])
    if not stretches:
        return
    joined = join_places(Stretches(*map(np.concatenate, zip(*stretches, strict=True))))
    yield _sent(0, STRETCHES, *joined.whole)
    yield _sent(0, SUSPECTS, np.unique(np.concatenate([*suspects, joined.torn, joined.met])))
    yield _sent(0, COUNTS, *Counts(*map(np.concatenate, zip(*counts, strict=True))).of_each())
    place, event, doubtful = distinct_pairs(np.concatenate(places), np.concatenate(events))
    yield _sent(0, DOUBTFUL, doubtful)
    width = max(1, ceil(index.slot_count / buckets))
    ends = np.searchsorted(place, (np.arange(buckets) + 1) * width << INDEX_BITS)
    for bucket, (start, end) in enumerate(zip(np.append(0, ends[:-1]), ends, strict=True)):
        if end > start:
            yield _sent(bucket, PAIRS, place[start:end], event[start:end])


def passed_rows(chunk: Chunk, log: FileLog, index: OrderIndex) -> PassedRows:
    """The rows of a chunk with their places, by subscriber and position."""
    numbers, is_numbered = chunk.whole("number"), chunk.there("number")
    topics = _topics(chunk, log, index)
    slots = index.slots_of(topics, numbers, is_numbered)
    has = slots != ABSENT
    told = chunk.there("order_position") & has
    position = slots + index.shifts[topics] if told.any() else slots
    rows = PassedRows(
        chunk.hashes("subscriber"),
        chunk.whole("position"),
        chunk.hashes("event_id"),
        np.where(has, slots << INDEX_BITS | chunk.whole("index"), ABSENT),
        chunk.flags("out_of_order"),
        is_numbered,
        told & (chunk.whole("order_position") != position),
    )
    order = sorting(rows.s, rows.position)
    return rows if order is None else rows.take(order)


def _topics(chunk: Chunk, log: FileLog, index: OrderIndex) -> Ids:
    texts = chunk.texts("topic")
    if log.has_runs or not isinstance(texts, pa.DictionaryArray):
        return index.codes_of(chunk.hashes("topic"))
    codes: Ids = index.codes_of(hash_texts(texts.dictionary, seed_of(log.salt, "")))[texts.indices.to_numpy()]
    return codes


def _suspects(rows: PassedRows, judged: Ids) -> Ids:
    """Whoever has a row that is not above the one before it, two rows at a position, or was told another one."""
    is_tied = (rows.s[1:] == rows.s[:-1]) & (rows.position[1:] == rows.position[:-1])
    there = np.flatnonzero(judged != ABSENT)
    s, place = rows.s[there], judged[there]
    is_late = (s[1:] == s[:-1]) & (place[1:] <= place[:-1])
    return np.concatenate([rows.s[1:][is_tied], s[1:][is_late], rows.s[rows.is_mistold]])


def _counted(rows: PassedRows) -> Counts:
    starts = np.flatnonzero(np.concatenate([[True], rows.s[1:] != rows.s[:-1]]))
    is_uncovered = rows.is_numbered & (rows.place == ABSENT)

    def counted(which: NDArray[np.bool_]) -> Ids:
        return np.add.reduceat(which.astype(np.int64), starts)

    return Counts(
        rows.s[starts],
        np.diff(np.append(starts, len(rows.s))),
        counted(rows.is_tagged),
        counted(~rows.is_numbered),
        counted(is_uncovered),
        np.minimum.reduceat(np.where(is_uncovered, rows.position, ENDLESS), starts),
    )


# ── places and events ─────────────────────────────────────────────────────────────────────────────────────────────


def distinct_pairs(place: Ids, event: Ids) -> tuple[Ids, Ids, Ids]:
    """One (place, event) pair for each place, and all events of the places that have several."""
    order = np.argsort(place, kind="stable")
    place, event = place[order], event[order]
    is_same = place[1:] == place[:-1]
    first = np.concatenate([np.ones(min(1, len(place)), np.bool_), ~is_same])
    differs = is_same & (event[1:] != event[:-1])
    doubtful = np.empty(0, np.int64)
    if differs.any():
        doubtful = np.unique(event[np.isin(place, place[1:][differs])])
    return place[first], event[first], doubtful


def _one_event_each(buckets: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pairs of one part of the order log: no place may have two events. Then, by event, one for each place."""
    pairs: list[Ids] = []
    for kind, piece in _received(batches):
        if kind == PAIRS:
            pairs.append(piece)
        else:
            yield _sent(0, kind, piece)
    if not pairs:
        return
    _, event, doubtful = distinct_pairs(*_columns(pairs, 2))
    yield _sent(0, DOUBTFUL, doubtful)
    bucket = event % buckets
    event = event[np.argsort(bucket, kind="stable")]
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    for number, (start, end) in enumerate(zip(np.append(0, ends[:-1]), ends, strict=True)):
        if end > start:
            yield _sent(number, EVENTS, event[start:end])


def _one_place_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Some events, each as often as it has places: those with more than one are doubtful."""
    events: list[Ids] = []
    for kind, piece in _received(batches):
        if kind == EVENTS:
            events.append(piece)
        else:
            yield _sent(0, kind, piece)
    if events:
        event = np.sort(np.concatenate(events))
        yield _sent(0, DOUBTFUL, np.unique(event[1:][event[1:] == event[:-1]]))


def _sent(bucket: int, kind: int, *columns: Ids) -> pa.RecordBatch:
    """Columns of one length, one after the other, as one value. Empty ones are sent too: they do no harm."""
    piece = np.concatenate([np.empty(0, np.int64), *columns]).tobytes()
    return pa.record_batch(
        [pa.array([bucket], pa.int32()), pa.array([kind], pa.int32()), pa.array([piece], pa.binary())],
        names=["bucket", "kind", "piece"],
    )


def _received(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Ids]]:
    for batch in batches:
        for kind, piece in zip(batch.column("kind").to_pylist(), batch.column("piece"), strict=True):
            yield kind, _taken(piece)


def _taken(piece: pa.BinaryScalar) -> Ids:
    return np.frombuffer(piece.as_buffer(), np.int64)


def _columns(pieces: list[Ids], count: int) -> list[Ids]:
    """What `_sent` has put one after the other, of all pieces."""
    parts = [piece.reshape(count, -1) for piece in pieces]
    return list(np.concatenate([np.empty((count, 0), np.int64), *parts], axis=1))
