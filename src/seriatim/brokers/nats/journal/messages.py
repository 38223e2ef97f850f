"""The messages of a journal in a stream, and how they are put together. Pure: stream.py reads and writes the stream.

A stream is one totally ordered list of messages, of which each names the sequence it expects to follow. A journal
uses it like this:

    Opened          a new writer begins; the previous writer is refused from now on
    Records         the records of one append, or part of them where they are too large for one message
    Chunk           a piece of a snapshot; appends may come between pieces
    Snapshot        the pieces are complete, and stand for everything up to and including sequence `until`
    Beat            nothing happened, but the writer lives; on a subject of its own, where only the last one is kept

Every message but a beat carries its writer's token and the writer's own count, from 1 without holes. So a reader
notices if something is missing, and a writer recognises its own message when an acknowledgement got lost.
"""

import zlib
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, JournalError
from seriatim.runtime.journal.interface import Recovered

FORMAT_VERSION = "1"
ENVELOPE_BYTES_MAX = 1024  # what a message adds to its body, and its headers


class Opened(Struct, frozen=True, tag=0, array_like=True):
    """A new writer. The stream refuses what other writers append after this."""

    writer: str
    number: int = 1


class Records(Struct, frozen=True, tag=1, array_like=True):
    """Part `part` of `parts` of one append. Without all of its parts an append never happened."""

    writer: str
    number: int
    part: int
    parts: int
    body: bytes


class Chunk(Struct, frozen=True, tag=2, array_like=True):
    """A piece of the snapshot that is named by the number of its first piece."""

    writer: str
    number: int
    snapshot: int
    body: bytes


class Snapshot(Struct, frozen=True, tag=3, array_like=True):
    """The snapshot is whole. `until_number` was the last number of the same writer at sequence `until`."""

    writer: str
    number: int
    snapshot: int
    chunks: int
    checksum: int
    until: int
    until_number: int


class Beat(Struct, frozen=True, tag=4, array_like=True):
    """A sign of life of the writer."""

    writer: str
    count: int


JournalMessage: TypeAlias = Opened | Records | Chunk | Snapshot | Beat

encode = msgspec.msgpack.Encoder().encode
_messages: msgspec.msgpack.Decoder[JournalMessage] = msgspec.msgpack.Decoder(JournalMessage)
_decode_records: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])


def decode(stream: str, sequence: int, data: bytes | None) -> JournalMessage:
    """Decode a message. JournalError: something else than a journal writes to this stream."""
    try:
        return _messages.decode(data or b"")
    except UNREADABLE as error:
        raise damage(stream, sequence, f"is not of a journal ({error})") from None


def pieces(data: bytes, piece_bytes_max: int) -> list[bytes]:
    """Cut the data into pieces of at most this length; at least one piece."""
    return [data[start : start + piece_bytes_max] for start in range(0, max(len(data), 1), piece_bytes_max)]


def split_records(writer: str, number: int, records: list[bytes], body_bytes_max: int) -> list[Records]:
    """One append as messages, numbered from `number` on."""
    bodies = pieces(encode(records), body_bytes_max)
    return [Records(writer, number + index, index + 1, len(bodies), body) for index, body in enumerate(bodies)]


def assemble(stream: str, messages: dict[int, JournalMessage]) -> Recovered:
    """What the journal holds, from all its messages by their sequence (or all after its newest snapshot's `until`)."""
    in_order = sorted(messages.items())
    base = next((message for _, message in reversed(in_order) if isinstance(message, Snapshot)), None)
    if base is None:
        return Recovered(None, _walk(stream, in_order, None))
    after = [(sequence, message) for sequence, message in in_order if sequence > base.until]
    return Recovered(_state(stream, base, after), _walk(stream, after, base))


def damage(stream: str, sequence: int, what: str) -> JournalError:
    """An error that names the damaged place and says what to do."""
    return JournalError(
        f"stream {stream}, message {sequence}: {what}; restore the stream from a backup, "
        "or start this node with another stream under a new cluster name"
    )


def _walk(stream: str, after: Iterable[tuple[int, JournalMessage]], base: Snapshot | None) -> list[bytes]:
    """The records of every whole append, having checked that no message is missing."""
    records: list[bytes] = []
    parts: list[bytes] = []
    writer, number = (base.writer, base.until_number) if base is not None else ("", 0)
    for sequence, message in after:
        if isinstance(message, Beat) or message == Opened(writer):  # a claim that was sent twice changes nothing
            continue
        is_next = message.writer == writer and message.number == number + 1
        if not is_next and not isinstance(message, Opened):
            before = f"number {number} of writer {writer}" if writer else "the beginning"
            raise damage(stream, sequence, f"is number {message.number} of writer {message.writer}, after {before}")
        writer, number = message.writer, message.number
        if not isinstance(message, Records):
            parts = []
            continue
        if message.part != len(parts) + 1:
            raise damage(stream, sequence, f"is part {message.part} of an append, after part {len(parts)}")
        parts.append(message.body)
        if message.part == message.parts:
            try:
                records += _decode_records.decode(b"".join(parts))
            except UNREADABLE as error:
                raise damage(stream, sequence, f"ends an append that is not a list of records ({error})") from None
            parts = []
    return records


def _state(stream: str, base: Snapshot, after: Iterable[tuple[int, JournalMessage]]) -> bytes:
    chunks = [
        message.body
        for _, message in after
        if isinstance(message, Chunk) and (message.writer, message.snapshot) == (base.writer, base.snapshot)
    ]
    state = b"".join(chunks)
    if len(chunks) != base.chunks or zlib.crc32(state) != base.checksum:
        raise damage(stream, base.until, f"a snapshot of {base.chunks} pieces begins after it, which are not all there")
    return state
