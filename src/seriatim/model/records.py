"""Rows of the logs: what simulator, runtime and foreign brokers all write, and what the auditors read.

A *history* is four tables. Only `deliveries` is needed for a verdict; the others sharpen it.
"""

from msgspec import Struct, field

from seriatim.model.names import Entries, Number, Position, Topic


class Delivery(Struct, frozen=True, omit_defaults=True):
    """Subscriber was notified of an event: `position` counts its notifications from 0, without holes.

    Where one message of the broker carries several events of a topic they share its number; `index` counts them from 0.
    `filtered`: its turn came, but the subscription's filter does not match it, so the application was not told.
    `order_position`: the position in the order of all events that the subscriber was given.
    """

    subscriber: str
    position: int
    event_id: str
    topic: Topic
    number: Number | None = None
    stamp: Entries | None = None
    received_at: float | None = None
    notified_at: float | None = None
    out_of_order: bool = False
    index: int = 0
    filtered: bool = False
    order_position: Position | None = None


class Publication(Struct, frozen=True, omit_defaults=True):
    """An event was published. `sequence` is the publisher's own order over all its topics.

    `seen` links a publisher to the subscriber of the same name: how many notifications it had been given when it
    published this. Without it, causes cannot be known and the causal verdict is `unknown`.
    """

    event_id: str
    topic: Topic
    publisher: str
    published_at: float | None = None
    sequence: int | None = None
    seen: int | None = None
    number: Number | None = None
    index: int = 0


class Subscription(Struct, frozen=True, omit_defaults=True):
    """Subscriber held a topic: from its notification `since` (a position) up to, not including, `until`.

    `start` is the topic's number at the cut: the first event that the subscriber must get is `start + 1`. `end` is the
    last number of which something was notified before it left, if it left. `where` is its filter, if it has one.
    """

    subscriber: str
    topic: Topic
    since: int
    until: int | None = None
    start: Number | None = None
    end: Number | None = None
    where: str | None = None


class Message(Struct, frozen=True, omit_defaults=True):
    """One message between two roles of a run, for cost figures."""

    run: str
    source: str
    target: str
    kind: str
    bytes: int
    sent_at: float | None = None
    received_at: float | None = None


class Placement(Struct, frozen=True):
    """A row of the order log: numbers `first` … `last` of the topic are at `position` and the positions after it.

    All rows together are one order of all events. Numbers that never became events count like the others.
    """

    position: Position
    topic: Topic
    first: Number
    last: Number


class History(Struct):
    """Everything known about one run.

    `lost`: messages of a log that are known to be gone, by table ("deliveries"). A message holds one or more rows.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
