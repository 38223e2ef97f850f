"""Many events in one broker message, as the client sees them; the format is brokers/packs.py."""

from seriatim.brokers.packs import (
    BATCH_HEADER,
    BATCH_VERSION,
    EVENTS_MAX,
    OVERHEAD_BYTES,
    Unreadable,
    derived_id,
    pack,
    read_pack,
)
from seriatim.client.events import Event
from seriatim.model import Event as Message
from seriatim.model import Notification

__all__ = [
    "BATCH_HEADER",
    "BATCH_VERSION",
    "EVENTS_MAX",
    "OVERHEAD_BYTES",
    "Unreadable",
    "derived_id",
    "is_pack",
    "pack",
    "unfold",
]


def is_pack(message: Message) -> bool:
    """Whether a broker message holds several events."""
    return message.headers is not None and BATCH_HEADER in message.headers


def unfold(notification: Notification) -> list[Event]:
    """The events of one broker message. Unreadable: it is a pack that this client cannot read."""
    message, number, stamp = notification.event, notification.number, notification.entries
    topic = message.topic if message.subject is None else message.subject
    publisher, late = message.publisher, notification.out_of_order
    if message.headers is None or BATCH_HEADER not in message.headers:
        return [Event(topic, message.payload, message.headers, message.id, publisher, stamp, number, 0, late)]
    read = read_pack(message.headers[BATCH_HEADER], message.payload)
    first, headers, ids = read.first, read.headers, read.ids
    if not headers and not ids:
        return [
            Event(topic, data, None, f"{publisher}-{first + index}", publisher, stamp, number, index, late)
            for index, data in enumerate(read.data)
        ]
    return [
        Event(
            topic,
            data,
            headers.get(index),
            ids.get(index) or f"{publisher}-{first + index}",
            publisher,
            stamp,
            number,
            index,
            late,
        )
        for index, data in enumerate(read.data)
    ]
