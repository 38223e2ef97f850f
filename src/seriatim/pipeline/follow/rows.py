"""Rows of a window as arrays of codes: the vectorised half of `window.py`.

Sorted by subscriber and position. Text stays in Arrow, and a code stands for each distinct subscriber, event and topic.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from seriatim.model import Delivery

Array: TypeAlias = npt.NDArray[Any]

COLUMNS = ("subscriber", "position", "event_id", "topic", "out_of_order")
SCHEMA = pa.schema(
    [
        ("subscriber", pa.string()),
        ("position", pa.int64()),
        ("event_id", pa.string()),
        ("topic", pa.string()),
        ("out_of_order", pa.bool_()),
        ("batch", pa.int64()),
        ("rank", pa.int64()),  # of its event in the certificate, the same for all that disagree; -1: none yet
    ]
)


def with_state(rows: pa.Table, batch: int | None = None) -> pa.Table:
    """Rows that came with this batch (or that say with which), not ranked yet."""
    count = len(rows)
    came = rows["batch"] if batch is None else pa.array(np.full(count, batch, dtype=np.int64))
    rank = pa.array(np.full(count, -1, dtype=np.int64))
    return pa.table([*(rows[name] for name in COLUMNS), came, rank], names=SCHEMA.names).cast(SCHEMA)


def hashed(ids: pa.ChunkedArray | pa.Array) -> Array:
    """64 bits for each id, the same in every process."""
    found: Array = pd.util.hash_array(np.asarray(ids.to_numpy(zero_copy_only=False), dtype=object), categorize=False)
    return found


class Rows:
    """Rows of window and batch together. `is_new` are those of this batch."""

    def __init__(self, table: pa.Table, batch: int) -> None:
        names, ids, topics = (_coded(table[name]) for name in ("subscriber", "event_id", "topic"))
        self.names: list[str] = names.dictionary.to_pylist()
        self._ids = ids.dictionary
        by_name = np.empty(len(self.names), dtype=np.int64)
        by_name[np.argsort(np.array(self.names, dtype=object), kind="stable")] = np.arange(len(self.names))
        self.hashes = hashed(self._ids)  # of each event
        subscribers, events = names.indices.to_numpy(), ids.indices.to_numpy()
        positions, batches = table["position"].to_numpy(), table["batch"].to_numpy()
        # By hash where positions are equal: the same whatever the order in which the rows came.
        order = np.lexsort((batches, self.hashes[events], positions, by_name[subscribers]))
        self._batch = batch
        self.table = table.take(pa.array(order))  # with what the window keeps about each row
        self._set(subscribers[order], positions[order], events[order], topics.indices.to_numpy()[order])

    def _set(self, subscribers: Array, positions: Array, events: Array, topics: Array) -> None:
        table = self.table
        self.subscribers, self.positions, self.events, self.topics = subscribers, positions, events, topics
        self.batches: Array = table["batch"].to_numpy()
        self.is_new: Array = self.batches == self._batch
        self.is_tagged: Array = table["out_of_order"].to_numpy(zero_copy_only=False)
        pairs = subscribers.astype(np.int64) * max(len(self._ids), 1) + events
        self._pairs = pairs
        self.is_repeat: Array = pd.Series(pairs).duplicated().to_numpy()
        same = (subscribers[1:] == subscribers[:-1]) & (positions[1:] == positions[:-1])
        differs = same & (events[1:] != events[:-1])
        self.is_tied: Array = np.append(differs, False) | np.insert(differs, 0, False) if len(pairs) else differs
        topic_of = np.zeros(len(self._ids), dtype=topics.dtype)
        topic_of[events[::-1]] = topics[::-1]
        self.topic_of = topic_of
        self.is_reused: Array = np.isin(events, events[topic_of[events] != topics])

    def without(self, left_out: Array) -> "Rows":
        """The other rows, with the same codes."""
        if not left_out.any():
            return self
        kept, rest = ~left_out, copy(self)
        rest.table = self.table.filter(pa.array(kept))
        rest._set(self.subscribers[kept], self.positions[kept], self.events[kept], self.topics[kept])
        return rest

    # ── single rows ───────────────────────────────────────────────────────────────────────────────────────────────

    def first_of(self, row: int) -> int:
        """The first row of the same subscriber and event."""
        return int(np.argmax(self._pairs == self._pairs[row]))

    def delivery(self, row: int) -> Delivery:
        values = self.table.slice(int(row), 1).to_pylist()[0]
        return Delivery(values["subscriber"], values["position"], values["event_id"], values["topic"])

    def deliveries(self, places: Iterable[tuple[int, int]]) -> list[Delivery]:
        """The deliveries of these pairs of subscriber and event."""
        return [
            self.delivery(int(np.argmax((self.subscribers == name) & (self.events == event)))) for name, event in places
        ]

    # ── the certificate ───────────────────────────────────────────────────────────────────────────────────────────

    def rank_of_events(self) -> Array:
        """The rank of each event; -1 for new events."""
        rank = np.full(len(self._ids), -1, dtype=np.int64)
        old = ~self.is_new
        rank[self.events[old]] = self.table["rank"].to_numpy()[old]
        return rank

    def first_to_merge(self, rank: Array) -> int:
        """The lowest rank that new rows may change: of their events, and of what they came to lie in front of."""
        first_new = np.full(len(self.names), np.iinfo(np.int64).max)
        np.minimum.at(first_new, self.subscribers[self.is_new], self.positions[self.is_new])
        touched = self.is_new | (self.positions >= first_new[self.subscribers])
        ranks = rank[self.events[touched]]
        return int(ranks[ranks >= 0].min(initial=np.iinfo(np.int64).max))

    def sequences(self, wanted: Array) -> dict[int, list[int]]:
        """What each subscriber saw of these events, in its order, as far as the order is known."""
        used = ~(self.is_tied | self.is_tagged | self.is_reused) & wanted[self.events]
        names, events = self.subscribers[used], self.events[used]
        if not len(names):
            return {}
        starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        ends = np.append(starts[1:], len(names))
        return {int(names[start]): events[start:end].tolist() for start, end in zip(starts, ends, strict=True)}

    def keep_rank(self, rank: Array) -> None:
        """Write the ranks into the rows."""
        columns = [self.table[name] for name in SCHEMA.names[:-1]]
        self.table = pa.table([*columns, pa.array(rank[self.events])], names=SCHEMA.names)

    def old_part(self, knot: Mapping[int, list[int]]) -> dict[int, list[int]]:
        """The sequences without new rows."""
        new = set(self._pairs[self.is_new].tolist())
        size = max(len(self._ids), 1)
        inside = {name: [event for event in seen if name * size + event not in new] for name, seen in knot.items()}
        return {name: seen for name, seen in inside.items() if seen}

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def oldest_events(self, surplus: int) -> Array:
        """For each event, whether it is among the oldest events that together have at least this many rows."""
        gone = np.zeros(len(self._ids), dtype=bool)
        if surplus > 0:
            latest = np.iinfo(np.int64).max
            batch, position = np.full(len(gone), latest), np.full(len(gone), latest)
            np.minimum.at(batch, self.events, self.batches)
            np.minimum.at(position, self.events, self.positions)
            rows = np.bincount(self.events, minlength=len(gone))
            order = np.lexsort((self.hashes, position, batch))
            gone[order[: int(np.searchsorted(np.cumsum(rows[order]), surplus)) + 1]] = True
        return gone & (np.bincount(self.events, minlength=len(gone)) > 0)

    def holders(self) -> Array:
        """For each event, how many subscribers were notified of it."""
        return np.bincount(self.events[~self.is_repeat], minlength=len(self._ids))

    def last_positions(self, chosen: Array) -> dict[str, int]:
        """The last position of each subscriber among these rows."""
        last = np.full(len(self.names), -1)
        np.maximum.at(last, self.subscribers[chosen], self.positions[chosen])
        return {self.names[code]: int(last[code]) for code in np.flatnonzero(last >= 0)}


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
