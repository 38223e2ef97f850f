"""Messages of logs and slots as columns of events. A pack is unfolded without a step of Python per event."""

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seriatim.brokers.bulk import BulkReader, Messages, Stream, matches, patterns
from seriatim.brokers.packs import BATCH_HEADER, Unreadable, read_pack
from seriatim.model import RemoteError

Ids: TypeAlias = np.ndarray[Any, Any]

_HEADERS = pa.map_(pa.string(), pa.string())
_NO_PACK = -1
COUNTER_MAX = 1 << 62


def times_of(times: list[bytes]) -> pa.Array:
    """What the server wrote, as milliseconds since 1970."""
    parsed = pa.array(times, pa.binary()).cast(pa.string()).cast(pa.timestamp("ns", "UTC"))
    return pc.divide(parsed.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)


class EventColumns:
    """Gathers messages of one stream, then makes the columns of `schemas.EVENTS`. `topics`: names and patterns; events
    of other topics, which share a bucket with them, are left out."""

    def __init__(self, stream: Stream, reader: BulkReader, topics: str) -> None:
        self.problems: list[tuple[int, int, str]] = []
        self._log = stream.holds
        self._is_slots = stream.kind == "slots"
        self._reader = reader
        self._log_subject = reader.log_subject(self._log)
        self._wanted = patterns(topics)
        self._is_wanted: dict[str, bool] = {}
        # of each message: position, number, how many events, topic, id, publisher, counter of its first event, time
        self._messages: list[tuple[int, int, int, str, str, str, int, bytes]] = []
        # one of each per event
        self._data: list[bytes] = []
        self._headers: dict[int, dict[str, str]] = {}
        self._own_ids: dict[int, str] = {}

    def add(self, messages: Messages) -> None:
        add = self._add_slot if self._is_slots else self._add_event
        for position, subject, time, headers, body in zip(
            messages.positions, messages.subjects, messages.times, messages.headers, messages.bodies, strict=True
        ):
            try:
                add(position, subject, time, headers, body)
            except (Unreadable, RemoteError) as error:
                self.problems.append((position, position, str(error)))

    def _add_event(self, position: int, subject: bytes, time: bytes, headers: bytes, body: bytes) -> None:
        topic = subject.decode("utf-8", "replace")
        if topic == self._log_subject:
            topic = self._log
        event_id, publisher, version, others = self._reader.head(headers)
        self._put(position, position, topic, event_id, publisher, time, version, body, others)

    def _add_slot(self, position: int, subject: bytes, time: bytes, headers: bytes, body: bytes) -> None:
        slot = self._reader.slot(body, self._log)
        event = slot.event
        if event is None:
            return  # a void: its number is in the stamps
        others = dict(event.headers or {})
        version = others.pop(BATCH_HEADER, None)
        topic = event.subject if event.subject is not None else self._log
        self._put(position, slot.number, topic, event.id, event.publisher, time, version, event.payload, others)

    def _put(
        self,
        position: int,
        number: int,
        topic: str,
        event_id: str,
        publisher: str,
        time: bytes,
        version: str | None,
        body: bytes,
        headers: dict[str, str] | None,
    ) -> None:
        if self._wanted and not self._wants(topic):
            return
        at = len(self._data)
        if version is None:
            count, first = 1, _NO_PACK
            self._data.append(body)
            if headers:
                self._headers[at] = headers
        else:
            pack = read_pack(version, body)
            count, first = len(pack.data), pack.first
            if not 0 <= first < COUNTER_MAX or not all(0 <= at < count for at in (*pack.headers, *pack.ids)):
                raise Unreadable("a pack whose counter or indexes no client would write")
            self._data += pack.data
            self._headers |= {at + index: each for index, each in pack.headers.items()}
            self._own_ids |= {at + index: own for index, own in pack.ids.items()}
        own_id = event_id or f"{self._log}-{number}"
        self._messages.append((position, number, count, topic, own_id, publisher, first, time))

    def _wants(self, topic: str) -> bool:
        if topic not in self._is_wanted:
            self._is_wanted[topic] = matches(topic, self._wanted)
        return self._is_wanted[topic]

    def built(self) -> tuple[pa.RecordBatch, pa.Array]:
        """The columns, and the position of each event's message."""
        total = len(self._data)
        columns: list[Any] = list(zip(*self._messages, strict=True)) or [()] * 8
        places, numbers, sizes, topics, ids, names, firsts, times = columns
        counts = np.asarray(sizes, dtype=np.int64)
        message = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        index = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        take = pa.array(message)
        publishers = pa.array(names, pa.string())
        given, counters = pa.array(ids, pa.string()).take(take), np.asarray(firsts, dtype=np.int64)[message]
        table = {
            "log": pa.repeat(self._log, total),
            "number": pa.array(np.asarray(numbers, dtype=np.int64)[message]),
            "index": pa.array(index.astype(np.int32)),
            "topic": pa.array(topics, pa.string()).take(take),
            "event_id": self._event_ids(given, counters, index, publishers.take(take)),
            "publisher": pc.if_else(pc.equal(publishers, ""), pa.scalar(None, pa.string()), publishers).take(take),
            "received_at": times_of(list(times)).take(take),
            "headers": self._header_column(total),
            "data": pa.array(self._data, pa.binary()),
        }
        return pa.record_batch(table), pa.array(np.asarray(places, dtype=np.int64)[message])

    def _event_ids(self, ids: pa.Array, firsts: Ids, index: Ids, publishers: pa.Array) -> pa.Array:
        """Given ids; in a pack those of its publisher and counter, unless an event has its own."""
        packed = firsts != _NO_PACK
        if packed.any():
            counters = pa.array(firsts + index).cast(pa.string())
            derived = pc.binary_join_element_wise(publishers, counters, "-")
            ids = pc.if_else(pa.array(packed), derived, ids)
        if self._own_ids:
            listed = ids.to_pylist()
            for at, own in self._own_ids.items():
                listed[at] = own or listed[at]
            ids = pa.array(listed, pa.string())
        return ids

    def _header_column(self, total: int) -> pa.Array:
        if not self._headers:
            return pa.nulls(total, _HEADERS)
        listed: list[list[tuple[str, str]] | None] = [None] * total
        for at, headers in self._headers.items():
            listed[at] = list(headers.items()) or None
        return pa.array(listed, _HEADERS)
