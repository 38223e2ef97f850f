"""The state of a sequencer: plain data, so that a snapshot is one encoding of it and a copy is one decoding."""

from msgspec import Struct, field

from seriatim.model import Address, Entries, Node, Number, Topic
from seriatim.order import CouplingState, PassageState


class Range(Struct):
    """Numbers given out in one go, until every one of them is settled.

    Ticket mode: settled when the publisher says so, or when each slot was found taken or voided. Log mode: settled
    when the broker keeps the stamp.
    """

    first: Number
    last: Number
    publisher: Address = ""
    request: int = 0
    entries: Entries | None = None
    due: float = 0.0
    open_slots: set[Number] | None = None


class Desk(Struct):
    """What a home remembers of one publisher: its last request, so that a repeat gets the same answer.

    `forget_at`: the request is settled; later than this no repeat of it can be on its way.
    """

    request: int = 0
    first: Number = 0
    forget_at: float | None = None


class Home(Struct):
    """A topic whose numbers are given here."""

    issued: Number = 0
    top: Node = ""
    couple: set[Topic] = field(default_factory=set)
    uncouple: set[Topic] = field(default_factory=set)
    once: set[Topic] = field(default_factory=set)
    ranges: dict[Number, Range] = field(default_factory=dict)
    desks: dict[Address, Desk] = field(default_factory=dict)
    voids: dict[Number, Entries] = field(default_factory=dict)
    kept_from: Number = 1


class Join(Struct):
    """One topic being added by one subscriber. `start` is set once its cut is complete."""

    version: int
    topics: frozenset[Topic]
    left: frozenset[Topic]
    unannounced: set[Topic]
    start: Number | None = None
    floor: Entries = field(default_factory=dict)


class SequencerState(Struct):
    """Everything a node knows."""

    epoch: int = 1
    passages: PassageState = field(default_factory=PassageState)
    couplings: CouplingState = field(default_factory=CouplingState)
    homes: dict[Topic, Home] = field(default_factory=dict)
    joins: dict[Address, dict[Topic, Join]] = field(default_factory=dict)
    open_tickets: dict[Address, int] = field(default_factory=dict)
