"""Many events in one broker message: the format. client/brokered/outbox.py writes it; readers of logs read it.

A lone event is a plain message: its payload is the event's data, so any client of the broker can read it. Several
events of one topic are packed: the message has the header `Seriatim-Batch: 1` and its payload is the msgpack array

    [first, [data, data, …], {index: {name: value}}, {index: id}]

The ids of a pack are derived: the event at `index` is `<publisher>-<first + index>`, unless its publisher gave it an id
(last map). So an event in a pack costs its data and two or three bytes. Messages of other clients are not trusted: a
pack that cannot be read, or holds too many events, is `Unreadable`, and the reader reports it as a gap.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, SeriatimError

BATCH_HEADER = "Seriatim-Batch"
BATCH_VERSION = "1"
EVENTS_MAX = 4_096
OVERHEAD_BYTES = 5  # of one event's data in a pack, at most

_NO_HEADERS: dict[int, dict[str, str]] = {}
_NO_IDS: dict[int, str] = {}


class Unreadable(SeriatimError):
    """A message that claims to be a pack, and is not."""


class Pack(Struct, array_like=True, frozen=True):
    """The contents of a packed message."""

    first: int
    data: list[bytes]
    headers: dict[int, dict[str, str]] = _NO_HEADERS
    ids: dict[int, str] = _NO_IDS


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Pack)


def derived_id(publisher: str, counter: int) -> str:
    """The id of an event whose publisher did not give it one."""
    return f"{publisher}-{counter}"


def pack(
    first: int,
    data: Sequence[bytes],
    headers: dict[int, dict[str, str]] | None = None,
    ids: dict[int, str] | None = None,
) -> bytes:
    """The payload of a message that holds all of these."""
    if ids:
        return _encoder.encode((first, data, headers or {}, ids))
    if headers:
        return _encoder.encode((first, data, headers))
    return _encoder.encode((first, data))


def read_pack(version: str, payload: bytes) -> Pack:
    """What a packed message holds; `version` is what its header says. Unreadable: nothing that a client would write."""
    if version != BATCH_VERSION:
        raise Unreadable(f"a pack of version {version!r}; this client reads {BATCH_VERSION}")
    try:
        read = _decoder.decode(payload)
    except UNREADABLE as error:
        raise Unreadable(f"a pack that cannot be read: {error}") from None
    if not 1 <= len(read.data) <= EVENTS_MAX:
        raise Unreadable(f"a pack of {len(read.data)} events; it must have 1 to {EVENTS_MAX}")
    return read
