"""Stamps as bytes: varints, topics by opaque ids, ids as differences.

A stamp names other topics, and a subscriber need not know which topics exist: on the wire they are ids that the
operator hands out. Entries are sorted by id and each id is written as its distance from the one before, so that in a
large group most ids take one byte. Numbers are absolute: a subscriber that has just joined can read every stamp.

    stamp := count, then per entry: distance to the previous id, number      (all unsigned varints, 7 bits a byte)

Equal stamps are equal bytes: a varint is accepted in its shortest form only.
"""

from collections.abc import Mapping

from seriatim.model import Entries, InputError, RemoteError, Topic, UnknownTopic

ENTRIES_MAX = 100_000  # a stamp that claims more is not one of ours
VARINT_BYTES_MAX = 9
VALUE_MAX = 1 << 7 * VARINT_BYTES_MAX


def encode_entries(entries: Entries, ids: Mapping[Topic, int]) -> bytes:
    """Entries as bytes. Every topic must have an id."""
    try:
        pairs = sorted((ids[topic], number) for topic, number in entries.items())
    except KeyError as error:
        raise UnknownTopic(error.args[0]) from None
    out = bytearray()
    _put(out, len(pairs))
    previous = 0
    for topic_id, number in pairs:
        _put(out, topic_id - previous)
        _put(out, number)
        previous = topic_id
    return bytes(out)


def decode_entries(data: bytes, topics: Mapping[int, Topic]) -> Entries:
    """The reverse of encode_entries. Anything else than a whole stamp with known ids is refused."""
    count, at = _get(data, 0)
    if count > ENTRIES_MAX:
        raise RemoteError(f"a stamp of {count} entries; at most {ENTRIES_MAX} are allowed")
    entries: Entries = {}
    topic_id = 0
    for _ in range(count):
        distance, at = _get(data, at)
        number, at = _get(data, at)
        topic_id += distance
        topic = topics.get(topic_id)
        if topic is None:
            raise RemoteError(f"a stamp names the unknown topic id {topic_id}")
        if topic in entries:
            raise RemoteError(f"a stamp names topic id {topic_id} twice")
        entries[topic] = number
    if at != len(data):
        raise RemoteError(f"{len(data) - at} bytes follow the stamp")
    return entries


def _put(out: bytearray, value: int) -> None:
    if not 0 <= value < VALUE_MAX:
        raise InputError("stamp", f"{value} cannot be written", f"give ids and numbers from 0 to {VALUE_MAX - 1}")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _get(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(VARINT_BYTES_MAX):
        if at + index >= len(data):
            raise RemoteError("the stamp ends in the middle of a number")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index > 0:
                raise RemoteError("a number in the stamp is not in its shortest form")
            return value, at + index + 1
    raise RemoteError("a number in the stamp is too long")
