"""The objects that applications receive: events, and receipts for the events they published."""

from msgspec import Struct

from seriatim.brokers.packs import BATCH_HEADER, read_pack
from seriatim.model import Entries, Notification, Number, Position, Topic


class Event(Struct, frozen=True, gc=False):
    """One event, as a subscription hands it out.

    `number` is the place of its broker message in the topic's order, `index` its place within that message. `stamp`
    says which events of other topics came before it. `out_of_order`: it arrived after the subscription had given up
    on it. `replayed`: it was handed out before a restart, but not acknowledged. `position`: the place of its message in
    the order of all events; None: not known here. `is_history`: it was read from the past, before the subscription was
    live. `early`: its stamp was not finished then. What this bus publishes waits until it is; a reaction by other means
    does not.
    """

    topic: Topic
    data: bytes
    headers: dict[str, str] | None
    id: str
    publisher: str
    stamp: Entries
    number: Number
    index: int = 0
    out_of_order: bool = False
    replayed: bool = False
    position: Position | None = None
    is_history: bool = False
    early: bool = False


class Published(Struct, frozen=True, gc=False):
    """A receipt: the broker has the event, with this number, at this index within its message."""

    topic: Topic
    number: Number
    index: int
    id: str


def unfold(notification: Notification) -> list[Event]:
    """Return the events of one broker message (brokers/packs.py). Raises Unreadable if it cannot read the pack."""
    message, number, stamp = notification.event, notification.number, notification.entries
    topic = message.topic if message.subject is None else message.subject
    publisher, late = message.publisher, notification.out_of_order
    place = False, notification.position, notification.is_history, notification.early
    if message.headers is None or BATCH_HEADER not in message.headers:
        return [Event(topic, message.payload, message.headers, message.id, publisher, stamp, number, 0, late, *place)]
    read = read_pack(message.headers[BATCH_HEADER], message.payload)
    first, headers, ids = read.first, read.headers, read.ids
    if not headers and not ids:
        return [
            Event(topic, data, None, f"{publisher}-{first + index}", publisher, stamp, number, index, late, *place)
            for index, data in enumerate(read.data)
        ]
    names = [ids.get(index) or f"{publisher}-{first + index}" for index in range(len(read.data))]
    return [
        Event(topic, data, headers.get(index), names[index], publisher, stamp, number, index, late, *place)
        for index, data in enumerate(read.data)
    ]
