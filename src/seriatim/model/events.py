"""Events as publishers make them and as subscribers are notified of them."""

from collections.abc import Mapping

from msgspec import Struct

from seriatim.model.names import Entries, Number, Position, Topic


class Event(Struct, frozen=True):
    """One published fact. The id is given by the publisher and never used again."""

    id: str
    topic: Topic
    publisher: str
    payload: bytes = b""
    headers: dict[str, str] | None = None
    subject: Topic | None = None  # what it was published as, where several names share one ordered topic (a bucket)


def event_bytes(payload: bytes, headers: Mapping[str, str] | None) -> int:
    """What counts against a limit where no broker sets one: payload and headers, as they travel."""
    return len(payload) + sum(len(name.encode()) + len(value.encode()) for name, value in (headers or {}).items())


class Notification(Struct, frozen=True, tag=True):
    """An event handed to the application, in order unless `out_of_order` says otherwise.

    `position`: its place in the order of all events; None: not known here. `is_history`: it was read from the order
    log, before the subscription was live. `early`: its place among the topics of this subscriber is certain; its stamp
    was not finished yet.
    """

    event: Event
    number: Number
    entries: Entries
    out_of_order: bool = False
    position: Position | None = None
    is_history: bool = False
    early: bool = False


class Gap(Struct, frozen=True, tag=True):
    """Numbers of a topic that this subscriber was not notified of, and why. Told in order with the events."""

    topic: Topic
    first: Number
    last: Number
    reason: str
