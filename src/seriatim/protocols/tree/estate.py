"""What a home knows of a topic, and what it hands over when the topic moves.

A node may be home to a million topics of which few have anything under way. So what every topic has is small (`Home`,
and `Passage` in order/passage.py: four numbers, unknown to the garbage collector), and everything else is kept by
topic in tables that have a row only while there is something to say.

Part of a sequencer's state (state.py), and encoded like it.
"""

from msgspec import Struct, field

from seriatim.model import Address, Entries, Node, Number, Position, Topic
from seriatim.order import Holder


class Home(Struct, array_like=True, omit_defaults=True, gc=False):
    """A topic whose numbers are given here.

    `top` is the highest node that its passes climb to; empty: they need not leave this one.
    """

    issued: Number = 0
    top: Node = ""
    kept_from: Number = 1
    measured: int = 0  # log mode: the latest epoch in which the broker told how long the log is
    era: int = 0  # of its latest stamp
    ahead: Number = 0  # what a stamp that the broker keeps says of stages: they are not told of later numbers


class Regrouping(Struct, array_like=True, omit_defaults=True):
    """What the next pass of a topic tells the nodes above about its group. Never empty.

    `former`: topics that have moved since the nodes above were told of them, and where they lived then.
    """

    couple: set[Topic] = field(default_factory=set)
    uncouple: set[Topic] = field(default_factory=set)
    once: set[Topic] = field(default_factory=set)
    former: dict[Topic, Node] = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.couple or self.uncouple or self.once or self.former)


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
    position: Position = 0  # of the first number in the order of all events; 0: not known here
    is_told: bool = False  # in stages: somebody may have been notified before it is finished
    is_lost: bool = False  # in a node that has lost its journal: nobody is notified of it any more
    ahead: Number = 0  # its stamp says so far stages may be told; 0: it does not say


class Desk(Struct, array_like=True, omit_defaults=True, gc=False):
    """What a home remembers of one publisher: its last request, so that a repeat gets the same answer.

    `forget_at`: the request is settled; later than this no repeat of it can be on its way.
    """

    request: int = 0
    first: Number = 0
    forget_at: float | None = None


class KnownAs(Struct, array_like=True, frozen=True):
    """A subscriber was known at this node without a break, under this number of their acquaintance."""

    node: Node
    acquaintance: int


class Estate(Struct, array_like=True, omit_defaults=True):
    """All that a home knows of a topic and hands over to the next one.

    Clocks of nodes differ, so times are left out: at the new home leases begin again.
    """

    issued: Number = 0
    kept_from: Number = 1
    holders: dict[Address, Holder] = field(default_factory=dict)  # everybody known who holds the topic
    regrouping: Regrouping = field(default_factory=Regrouping)
    ranges: list[Range] = field(default_factory=list)  # finished, and not settled
    desks: dict[Address, Desk] = field(default_factory=dict)
    voids: dict[Number, Entries] = field(default_factory=dict)
    disputed: dict[Number, Entries] = field(default_factory=dict)
    known_as: dict[Address, list[KnownAs]] = field(default_factory=dict)  # the holders: here, and at earlier homes
    is_removed: bool = False  # nobody has used it since it was removed
    lost: list[tuple[Number, Number]] = field(default_factory=list)  # in nodes that have lost their journals
