"""From one broker message to the events in it; the format is brokers/packs.py."""

from seriatim.brokers.packs import BATCH_HEADER, read_pack
from seriatim.client.events import Event
from seriatim.model import Notification


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
    names = [ids.get(index) or f"{publisher}-{first + index}" for index in range(len(read.data))]
    return [
        Event(topic, data, headers.get(index), names[index], publisher, stamp, number, index, late)
        for index, data in enumerate(read.data)
    ]
