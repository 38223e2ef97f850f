"""The state of a subscriber: plain data, like that of a sequencer (state.py), and what `explain` says of it."""

from msgspec import Struct, field

from seriatim.model import Entries, Gap, Node, Notification, Number, Topic
from seriatim.order import Lane
from seriatim.protocols.with_broker import Change, Delivered, Stamped


class Arrived(Struct, frozen=True):
    """Something that cannot be looked at yet, and since when it waits. `last`: of a stretch of voids, else 0."""

    delivered: Delivered
    since: float
    last: Number = 0


class Holding(Struct):
    """What a subscriber knows of one topic besides its lane in the hold-back queue."""

    acquaintance: int = 0  # with the topic's home, at the time of the start
    start: Number = 0
    floor: Entries = field(default_factory=dict)
    early: dict[Number, Arrived] = field(default_factory=dict)  # before the start of it, or of what it names, was known
    stamped_to: Number = 0  # log mode: the stamps of all numbers up to here have arrived
    stamps: dict[Number, Stamped] = field(default_factory=dict)  # log mode: ranges not yet used up, by first number
    unstamped: dict[Number, Arrived] = field(default_factory=dict)  # log mode: events whose stamp is missing
    skipped: list[tuple[Number, Number]] = field(default_factory=list)
    missing_since: float | None = None
    forged: Number = 0  # what came under this number, when it was the next one, had no right to
    begins_anew_after: Number | None = None  # it was held before: the application has seen, or was told of, so many


class Changing(Struct):
    """The change under way: what still has to be answered."""

    add: set[Topic]
    listen: set[Topic]
    join: set[Topic]
    update: set[Node]
    since: float
    interrupted: bool = False  # by a restart: what came before it must be asked for again


class SubscriberState(Struct):
    """Everything a subscriber knows."""

    version: int = 0
    holdings: dict[Topic, Holding] = field(default_factory=dict)
    lanes: dict[Topic, Lane] = field(default_factory=dict)
    left: set[Topic] = field(default_factory=set)
    changing: Changing | None = None
    unheard: dict[Topic, int] = field(default_factory=dict)  # the broker has not confirmed that it delivers these
    waiting: list[Change] = field(default_factory=list)
    retry_due: float | None = None
    patience_due: float | None = None
    confirmed: dict[Node, float] = field(default_factory=dict)
    refresh_due: float | None = None
    ready: list[Notification | Gap] = field(default_factory=list)
    epochs: dict[Node, int] = field(default_factory=dict)
    rejected: int = 0  # how often something was delivered that is not believed
    beyond: set[Topic] = field(default_factory=set)  # something too far ahead was dropped: ask whether it is real


class Waiting(Struct, frozen=True):
    """One held event: what it waits for, since when, and whose door to knock at."""

    topic: Topic
    number: Number
    event_id: str | None
    waits_for: tuple[Topic, Number]
    since: float
    home: Node
    why: str
