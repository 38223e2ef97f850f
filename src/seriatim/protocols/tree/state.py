"""The state of a sequencer: plain data, so that a snapshot is one encoding of it and a copy is one decoding.

A node may be home to a million topics of which few have anything under way. So what every topic has is small (`Home`,
and `Passage` in order/passage.py: four numbers, unknown to the garbage collector), and everything else is kept by
topic in tables that have a row only while there is something to say.

All of it is encoded as arrays: fields are added at the end, with a default, so that older snapshots can be read.
"""

from msgspec import Struct, field

from seriatim.model import Address, Entries, Node, Number, Topic
from seriatim.order import CouplingState, PassageState


class Home(Struct, array_like=True, omit_defaults=True, gc=False):
    """A topic whose numbers are given here.

    `top` is the highest node that its passes climb to; empty: they need not leave this one.
    """

    issued: Number = 0
    top: Node = ""
    kept_from: Number = 1
    measured: int = 0  # log mode: the latest epoch in which the broker told how long the log is


class Regrouping(Struct, array_like=True, omit_defaults=True):
    """What the next pass of a topic tells the nodes above about its group. Never empty."""

    couple: set[Topic] = field(default_factory=set)
    uncouple: set[Topic] = field(default_factory=set)
    once: set[Topic] = field(default_factory=set)

    def is_empty(self) -> bool:
        return not (self.couple or self.uncouple or self.once)


class Range(Struct, array_like=True, omit_defaults=True):
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


class Desk(Struct, array_like=True, omit_defaults=True, gc=False):
    """What a home remembers of one publisher: its last request, so that a repeat gets the same answer.

    `forget_at`: the request is settled; later than this no repeat of it can be on its way.
    """

    request: int = 0
    first: Number = 0
    forget_at: float | None = None


class Join(Struct, array_like=True, omit_defaults=True):
    """One topic being added by one subscriber. `start` is set once its cut is complete.

    `unannounced` are the topics whose announcement the cut waits for; the topic itself, if the length of its log is not
    known.
    """

    version: int
    topics: frozenset[Topic]
    left: frozenset[Topic]
    unannounced: set[Topic]
    start: Number | None = None
    floor: Entries = field(default_factory=dict)


class SequencerState(Struct, array_like=True):
    """Everything a node knows."""

    epoch: int = 1
    passages: PassageState = field(default_factory=PassageState)
    couplings: CouplingState = field(default_factory=CouplingState)
    homes: dict[Topic, Home] = field(default_factory=dict)
    regroupings: dict[Topic, Regrouping] = field(default_factory=dict)
    ranges: dict[Topic, dict[Number, Range]] = field(default_factory=dict)  # not settled, by first number
    desks: dict[Topic, dict[Address, Desk]] = field(default_factory=dict)
    voids: dict[Topic, dict[Number, Entries]] = field(default_factory=dict)
    disputed: dict[Topic, dict[Number, Entries]] = field(default_factory=dict)  # slots that hold what is not believed
    joins: dict[Address, dict[Topic, Join]] = field(default_factory=dict)
    open_tickets: dict[Address, int] = field(default_factory=dict)
