"""What applications hold in their hands: events they are notified of, and receipts for what they published."""

from msgspec import Struct

from seriatim.model import Entries, Number, Topic


class Event(Struct, frozen=True, gc=False):
    """One event, as a subscription hands it out.

    `number` is the place of its broker message in the topic's order, `index` its place within that message. `stamp`
    says which events of other topics came before it. `out_of_order`: it arrived after the subscription had given up
    on it. `replayed`: it was handed out before a restart and never acknowledged.
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


class Published(Struct, frozen=True, gc=False):
    """The broker has the event, under this number, at this place within its message."""

    topic: Topic
    number: Number
    index: int
    id: str
