"""Events and log rows: frozen, and the same after a journey through JSON."""

import msgspec
import pytest
from msgspec import Struct

from seriatim.model import Delivery, Event, Gap, History, Message, Notification, Publication, Subscription

VALUES: list[Struct] = [
    Event(id="e1", topic="orders", publisher="shop", payload=b"\x00\xff"),
    Notification(Event(id="e1", topic="orders", publisher="shop"), number=7, entries={"stock": 3}, out_of_order=True),
    Gap(topic="orders", first=4, last=6, reason="void"),
    Delivery(subscriber="anna", position=0, event_id="e1", topic="orders", number=7, stamp={"stock": 3}),
    Publication(event_id="e1", topic="orders", publisher="shop", published_at=12.5, sequence=0, seen=0, number=7),
    Subscription(subscriber="anna", topic="orders", since=0, until=5, start=0, end=4),
    Message(run="r", source="shop", target="n1", kind="Ticket", bytes=31, sent_at=1.0, received_at=11.0),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_survives_json(value: Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_cannot_be_changed(value: Struct) -> None:
    field = value.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(value, field, "other")


def test_a_row_without_stamp_needs_four_columns() -> None:
    """Logs of brokers that know nothing of us can be audited too."""
    row = b'{"subscriber":"anna","position":0,"event_id":"e1","topic":"orders"}'
    delivery = msgspec.json.decode(row, type=Delivery)
    assert delivery.number is None
    assert delivery.stamp is None
    assert msgspec.json.encode(delivery) == row


def test_histories_do_not_share_their_tables() -> None:
    one, other = History(), History()
    one.deliveries.append(Delivery(subscriber="anna", position=0, event_id="e1", topic="orders"))
    assert other.deliveries == []
