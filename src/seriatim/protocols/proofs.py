"""Proofs: how a subscriber knows that a stamp was given out by a sequencer (ticket mode).

In ticket mode the publisher writes the stamp, so a client could write any: one that names the billionth event of
another topic would stop everybody who holds both. So the home proves what it grants, with a key that nodes and
subscribers have and publishers do not. A proof covers numbers `first` … `last` of a topic that carry the same
entries, and whose they are: it is worth nothing on another number, topic or stamp, or under another publisher's name.
A void belongs to nobody; only a home can prove one.

The payload is not covered (docs/decisions/0007): the home never sees it.

    proof := first 16 bytes of HMAC-SHA-256(key, msgpack([label, epoch, topic, first, last, publisher or nil, entries]))

with msgpack in its shortest form and entries as a list of [id of the topic, number] sorted by id: equal stamps, equal
bytes, also for a reader who knows the topic by its id only (order/stamp.py).
"""

import hmac

import msgspec
from msgspec import Struct

from seriatim.model import Address, Entries, Number, Topic
from seriatim.order import topic_id

LABEL = "seriatim stamp 1"  # the same key used for something else must not make a proof
MAC_BYTES = 16
KEY_BYTES_MIN = 16

_encode = msgspec.msgpack.Encoder().encode


class Proof(Struct, frozen=True, array_like=True):
    """A home vouches for numbers `first` … `last` of a topic, in this epoch."""

    epoch: int
    first: Number
    last: Number
    mac: bytes


def prove(
    key: bytes, epoch: int, topic: Topic, first: Number, last: Number, publisher: Address | None, entries: Entries
) -> Proof:
    """The proof that a home gives with the numbers it grants. No publisher: of a void."""
    return Proof(epoch, first, last, _mac(key, epoch, topic, first, last, publisher, entries))


def is_proven(
    key: bytes, proof: Proof, topic: Topic, number: Number, publisher: Address | None, entries: Entries
) -> bool:
    """Whether a home gave this number, with these entries, to this publisher (None: made it a void)."""
    if not proof.first <= number <= proof.last:
        return False
    try:
        expected = _mac(key, proof.epoch, topic, proof.first, proof.last, publisher, entries)
    except OverflowError:  # a number that does not fit is not ours
        return False
    return hmac.compare_digest(proof.mac, expected)


def _mac(
    key: bytes, epoch: int, topic: Topic, first: Number, last: Number, publisher: Address | None, entries: Entries
) -> bytes:
    sorted_entries = sorted((topic_id(each), number) for each, number in entries.items())
    message = _encode((LABEL, epoch, topic, first, last, publisher, sorted_entries))
    return hmac.digest(key, message, "sha256")[:MAC_BYTES]
