"""Messages of logs and slots as columns of events. A pack is unfolded without a step of Python per event."""

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seriatim.brokers.bulk import BulkReader, Messages, Stream, matches, patterns
from seriatim.brokers.packs import BATCH_HEADER, Unreadable, read_pack
from seriatim.model import RemoteError

_HEADERS = pa.map_(pa.string(), pa.string())
_NO_PACK = -1
COUNTER_MAX = 1 << 62


def times_of(times: list[bytes]) -> pa.Array:
    """What the server wrote, as milliseconds since 1970."""
    parsed = pa.array(times, pa.binary()).cast(pa.string()).cast(pa.timestamp("ns", "UTC"))
    return pc.divide(parsed.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)


class EventColumns:
    """Gathers messages of one stream, then makes the columns of `schemas.EVENTS`.

    `topics`: names and patterns; events of other topics, which share a bucket with them, are left out.
    """

    KINDS: ClassVar[dict[str, pa.DataType]] = {
        "log": pa.string(),
        "number": pa.int64(),
        "index": pa.int32(),
        "topic": pa.string(),
        "event_id": pa.string(),
        "publisher": pa.string(),
        "received_at": pa.float64(),
        "headers": _HEADERS,
        "data": pa.binary(),
    }

    def __init__(self, stream: Stream, reader: BulkReader, topics: str) -> None:
        self.problems: list[tuple[int, int, str]] = []
        self._log = stream.holds
        self._is_slots = stream.kind == "slots"
        self._reader = reader
        self._log_subject = reader.log_subject(self._log)
        self._wanted = patterns(topics)
        self._is_wanted: dict[str, bool] = {}
        # one of each per message
        self._positions: list[int] = []
        self._numbers: list[int] = []
        self._counts: list[int] = []
        self._topics: list[str] = []
        self._publishers: list[str | None] = []
        self._ids: list[str] = []
        self._firsts: list[int] = []  # of a pack, the counter of its first event
        self._times: list[bytes] = []
        # one of each per event
        self._data: list[bytes] = []
        self._headers: dict[int, dict[str, str]] = {}
        self._own_ids: dict[int, str] = {}

    def add(self, messages: Messages) -> None:
        """Take what some messages hold."""
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
            self._data.append(body)
            self._counts.append(1)
            self._firsts.append(_NO_PACK)
            if headers:
                self._headers[at] = headers
        else:
            pack = read_pack(version, body)
            count = len(pack.data)
            if not 0 <= pack.first < COUNTER_MAX or not all(0 <= at < count for at in (*pack.headers, *pack.ids)):
                raise Unreadable("a pack whose counter or indexes no client would write")
            self._data += pack.data
            self._counts.append(count)
            self._firsts.append(pack.first)
            for index, each in pack.headers.items():
                self._headers[at + index] = each
            for index, own in pack.ids.items():
                self._own_ids[at + index] = own
        self._positions.append(position)
        self._numbers.append(number)
        self._topics.append(topic)
        self._publishers.append(publisher)
        self._ids.append(event_id or f"{self._log}-{number}")
        self._times.append(time)

    def _wants(self, topic: str) -> bool:
        wanted = self._is_wanted.get(topic)
        if wanted is None:
            wanted = self._is_wanted[topic] = matches(topic, self._wanted)
        return wanted

    def built(self) -> tuple[pa.RecordBatch, pa.Array]:
        """The columns, and the position of each event's message."""
        total = len(self._data)
        counts = np.asarray(self._counts, dtype=np.int64)
        message = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        index = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        take = pa.array(message)
        publishers = pa.array(self._publishers, pa.string())
        columns: dict[str, Any] = {
            "log": pa.repeat(self._log, total),
            "number": pa.array(np.asarray(self._numbers, dtype=np.int64)[message]),
            "index": pa.array(index.astype(np.int32)),
            "topic": pa.array(self._topics, pa.string()).take(take),
            "event_id": self._event_ids(message, index, publishers, take),
            "publisher": pc.if_else(pc.equal(publishers, ""), pa.scalar(None, pa.string()), publishers).take(take),
            "received_at": times_of(self._times).take(take),
            "headers": self._header_column(total),
            "data": pa.array(self._data, pa.binary()),
        }
        positions = pa.array(np.asarray(self._positions, dtype=np.int64)[message])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), positions

    def _event_ids(
        self, message: np.ndarray[Any, Any], index: np.ndarray[Any, Any], publishers: pa.Array, take: pa.Array
    ) -> pa.Array:
        ids = pa.array(self._ids, pa.string()).take(take)
        firsts = np.asarray(self._firsts, dtype=np.int64)
        packed = (firsts != _NO_PACK)[message]
        if packed.any():
            counters = pa.array(firsts[message] + index).cast(pa.string())
            derived = pc.binary_join_element_wise(publishers.take(take), counters, "-")
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
