"""Stamps as bytes: varints, topics by opaque ids, ids as differences.

A stamp names other topics, and a subscriber need not know which topics exist: on the wire they are ids that the
operator hands out. Entries are sorted by id and each id is written as its distance from the previous one, so that in a
large group most ids take one byte. Numbers are absolute: a subscriber that has just joined can read every stamp.

    stamp := count, then per entry: distance to the previous id, number      (all unsigned varints, 7 bits a byte)

Equal stamps are equal bytes: a varint is accepted in its shortest form only.

Where nobody hands out ids, a topic's id is a hash of its name (`topic_id`): everybody finds the same one without a
table, and a subscriber that does not hold the topic can learn its name only by guessing. It can still read such a
stamp, with an *opaque* name in place of the topic's own. It does not hold the topic, so it never waits for it.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

from seriatim.model import Entries, InputError, RemoteError, Topic, UnknownTopic

ENTRIES_MAX = 100_000  # a stamp that claims more is not one of ours
VARINT_BYTES_MAX = 9
VALUE_MAX = 1 << 7 * VARINT_BYTES_MAX
ID_BYTES = 7  # of a hash: among a million topics the chance that any two collide is below one in 100,000
OPAQUE = "~"


@lru_cache(maxsize=1 << 16)
def topic_id(topic: Topic) -> int:
    """The id of a topic for which nobody has handed out one; of an opaque name, the id it stands for."""
    if topic.startswith(OPAQUE) and len(topic) == len(OPAQUE) + 2 * ID_BYTES:
        try:
            return int(topic.removeprefix(OPAQUE), 16)
        except ValueError:
            pass
    return int.from_bytes(blake2b(topic.encode(), digest_size=ID_BYTES).digest(), "big")


class TopicNames(dict[int, Topic]):
    """The topics that a reader of stamps may hold, by id. Every other id has an opaque name."""

    def know(self, topics: Iterable[Topic]) -> None:
        """Use the names of these topics from now on."""
        for topic in topics:
            self[topic_id(topic)] = topic

    def __missing__(self, id: int) -> Topic:
        return f"{OPAQUE}{id:0{2 * ID_BYTES}x}"


class TopicIds(dict[Topic, int]):
    """The ids of all topics, for writers of stamps."""

    def __missing__(self, topic: Topic) -> int:
        return topic_id(topic)


def encode_entries(entries: Entries, ids: Mapping[Topic, int]) -> bytes:
    """Entries as bytes. Every topic must have an id."""
    try:
        pairs = sorted((ids[topic], number) for topic, number in entries.items())
    except KeyError as error:
        raise UnknownTopic(error.args[0]) from None
    out = bytearray()
    _put(out, len(pairs))
    previous = 0
    for id_, number in pairs:
        _put(out, id_ - previous)
        _put(out, number)
        previous = id_
    return bytes(out)


def decode_entries(data: bytes, topics: Mapping[int, Topic]) -> Entries:
    """The reverse of encode_entries. Anything else than a whole stamp with known ids is refused."""
    count, at = _get(data, 0)
    if count > ENTRIES_MAX:
        raise RemoteError(f"a stamp of {count} entries; at most {ENTRIES_MAX} are allowed")
    entries: Entries = {}
    id_ = 0
    for _ in range(count):
        distance, at = _get(data, at)
        number, at = _get(data, at)
        id_ += distance
        try:
            topic = topics[id_]
        except KeyError:
            raise RemoteError(f"a stamp names the unknown topic id {id_}") from None
        if topic in entries:
            raise RemoteError(f"a stamp names topic id {id_} twice")
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
