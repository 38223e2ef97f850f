"""How events, stamps and slots travel in NATS messages. This is a format: others may read and write it.

*Event in a log*: a plain message. Payload is the body, headers are headers; `Nats-Msg-Id` is the event's id and
`Seriatim-Publisher` its publisher. A message of any other client has neither: its id is then topic and position.

*Stamps*: msgpack, an array of stamps, each `[first, last, epoch, entries, position, moves]`, in the order of their
numbers. Entries are bytes as in order/stamp.py, topics by the hash of their names. The position is that of `first` in
the order of all events; 0 or missing: not known. Moves: how many moves of topics the home knew of; 0 or missing: none.

The header `Seriatim-Log` is the creation time of the log that these stamps belong to.

*Stage*: msgpack, `[first, last, epoch, entries, final, position]`: the stamp of a range as far as it is at one node.

*Slot*: msgpack, `[number, entries, event, proof, position]`, event being nil for a void or
`[id, publisher, payload, headers, subject]`, proof nil where stamps are not proven, position as above.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from nats.aio.msg import Msg

from seriatim.model import UNREADABLE, Event, InputError, Node, Number, Position, RemoteError, Topic
from seriatim.order import TopicIds, TopicNames, decode_entries, encode_entries
from seriatim.protocols.proofs import Proof
from seriatim.protocols.with_broker import Delivered, Staged, Stamped, Write, Written

MESSAGE_ID = "Nats-Msg-Id"
PUBLISHER = "Seriatim-Publisher"

_KEY = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_BREAK = re.compile(r"[\r\n]")


# ── events in a log ───────────────────────────────────────────────────────────────────────────────────────────────


def event_headers(event: Event) -> dict[str, str]:
    """The headers of the message. InputError: a header cannot hold a name or a value."""
    headers = {MESSAGE_ID: event.id}
    if event.publisher:
        headers[PUBLISHER] = event.publisher
    if event.headers:
        for key, value in event.headers.items():
            if _KEY.fullmatch(key) is None:
                raise InputError(f"header {key!r}", "it is not a name", "use letters, digits and -")
            if key.lower().startswith("nats-") or key.lower() == PUBLISHER.lower():
                raise InputError(f"header {key}", "the broker uses this name itself", "use another one")
            headers[key] = value
    for key, value in headers.items():
        if value != value.strip() or _LINE_BREAK.search(value):
            raise InputError(
                f"header {key}",
                f"{value!r} would not arrive unchanged",
                "use no line breaks, and no blanks at either end; put other text into the payload",
            )
    if not event.id:
        raise InputError("event.id", "it is empty", "give every event an id of its own")
    return headers


def stored_headers(block: bytes) -> dict[str, str]:
    """The headers of a message as the stream keeps it."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {key: value.strip() for key, _, value in pairs}


def event_of(message: Msg, topic: Topic, subject_of_topic: str, number: Number) -> Event:
    subject = message.subject if message.subject != subject_of_topic else None
    headers = message.headers
    if not headers:
        return Event(f"{topic}-{number}", topic, "", message.data, None, subject)
    event_id = headers.pop(MESSAGE_ID, None) or f"{topic}-{number}"
    publisher = headers.pop(PUBLISHER, "")
    return Event(event_id, topic, publisher, message.data, headers or None, subject)


# ── stamps ────────────────────────────────────────────────────────────────────────────────────────────────────────


# Numbers begin at 1, and whatever reads them keeps them in 64 bits with a sign.
_Kept = Annotated[Number, Meta(ge=1, le=(1 << 63) - 1)]
_Position = Annotated[Position, Meta(ge=0, le=(1 << 63) - 1)]
_Epoch = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class StampRow(Struct, array_like=True, frozen=True, omit_defaults=True):
    """One stamp without its topic, which is the subject."""

    first: _Kept
    last: _Kept
    epoch: _Epoch
    entries: bytes
    position: _Position = 0
    moves: _Epoch = 0
    era: _Epoch = 0
    is_lost: bool = False
    ahead: _Position = 0


class StampRange(Struct, array_like=True, frozen=True):
    """A `StampRow` of which only the numbers and the era are looked at."""

    first: _Kept
    last: _Kept
    epoch: msgspec.Raw = msgspec.Raw()
    entries: msgspec.Raw = msgspec.Raw()
    position: msgspec.Raw = msgspec.Raw()
    moves: msgspec.Raw = msgspec.Raw()
    era: _Epoch = 0


_ids = TopicIds()
_encode = msgspec.msgpack.Encoder().encode
_stamps = msgspec.msgpack.Decoder(list[StampRow])
_ranges = msgspec.msgpack.Decoder(list[StampRange])


def encode_stamps(stamps: Sequence[Stamped]) -> bytes:
    """The body of one message on a stamp channel."""
    return _encode(
        [
            StampRow(
                each.first,
                each.last,
                each.epoch,
                encode_entries(each.entries, _ids),
                each.position,
                each.moves,
                each.era,
                each.is_lost,
                each.ahead,
            )
            for each in stamps
        ]
    )


def decode_stamps(data: bytes, topic: Topic, names: TopicNames | None = None) -> list[Stamped]:
    """Decode the stamps. `names`: of the topics that the reader may hold. RemoteError: no sequencer wrote this."""
    names = names if names is not None else TopicNames()
    try:
        rows = _stamps.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the stamp channel of {topic} holds a message that is not a stamp: {error}") from None
    if not rows:
        raise RemoteError(f"the stamp channel of {topic} holds a message without stamps")
    return [
        Stamped(
            topic,
            row.first,
            row.last,
            decode_entries(row.entries, names),
            row.epoch,
            row.position,
            row.moves,
            row.era,
            row.is_lost,
            row.ahead,
        )
        for row in rows
    ]


def last_stamped(data: bytes, subject: str) -> tuple[Number, int]:
    """The last number that a message of stamps is about, and its era. RemoteError: no sequencer wrote this."""
    try:
        ranges = _ranges.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"{subject} holds a message that is not a stamp: {error}") from None
    if not ranges:
        raise RemoteError(f"{subject} holds a message without stamps")
    return ranges[-1].last, ranges[-1].era


class StageRow(Struct, array_like=True, frozen=True, omit_defaults=True):
    """A stamp as far as it is at one node. Node and topic are the subject."""

    first: _Kept
    last: _Kept
    epoch: _Epoch
    entries: bytes
    final: bool
    position: _Position = 0
    moves: _Epoch = 0
    era: _Epoch = 0


_stage = msgspec.msgpack.Decoder(StageRow)


def encode_stage(staged: Staged) -> bytes:
    """The body of the message in which a node tells a stamp as far as it is."""
    entries = encode_entries(staged.entries, _ids)
    row = StageRow(
        staged.first, staged.last, staged.epoch, entries, staged.final, staged.position, staged.moves, staged.era
    )
    return _encode(row)


def decode_stage(data: bytes, topic: Topic, node: Node, names: TopicNames) -> Staged:
    """Decode it. `names`: of the topics that the reader may hold. RemoteError: no sequencer wrote this."""
    try:
        row = _stage.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the message from {node} about {topic} is not a stamp: {error}") from None
    entries = decode_entries(row.entries, names)
    return Staged(topic, row.first, row.last, entries, node, row.epoch, row.final, row.position, row.moves, row.era)


# ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SlotEvent(Struct, array_like=True, frozen=True):
    """An event without its topic, which is the subject."""

    id: str
    publisher: str
    payload: bytes
    headers: dict[str, str] | None
    subject: Topic | None


class SlotRow(Struct, array_like=True, frozen=True):
    """What a slot holds."""

    number: _Kept
    entries: bytes
    event: SlotEvent | None
    proof: Proof | None
    position: _Position = 0


_slots = msgspec.msgpack.Decoder(SlotRow)


def encode_slot(write: Write) -> bytes:
    """The body of the message that fills a slot."""
    event = write.event
    row: SlotEvent | None = None
    if event is not None:
        row = SlotEvent(event.id, event.publisher, event.payload, event.headers, event.subject)
    return _encode(SlotRow(write.number, encode_entries(write.entries, _ids), row, write.proof, write.position))


def decode_slot(data: bytes, topic: Topic, number: Number | None = None, names: TopicNames | None = None) -> Delivered:
    """What a slot holds. `number`: the expected number; `names`: of the topics that the reader may hold.

    RemoteError: no publisher or home wrote this.
    """
    try:
        slot = _slots.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"slot {number or ''} of {topic} cannot be read: {error}") from None
    if slot.number != number and number is not None:
        raise RemoteError(f"slot {number} of {topic} says that it is number {slot.number}")
    event = None
    if (row := slot.event) is not None:
        event = Event(row.id, topic, row.publisher, row.payload, row.headers, row.subject)
    known = names if names is not None else TopicNames()
    return Delivered(topic, slot.number, decode_entries(slot.entries, known), event, slot.proof, slot.position)


def written(slot: Write | Delivered) -> Written:
    """The answer about a slot with this content."""
    return Written(slot.topic, slot.number, slot.event.id if slot.event is not None else None, slot.proof)
