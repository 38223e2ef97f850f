"""The states of sequencers and subscribers: plain data, so that a snapshot is one encoding and a copy is one decoding.

What a home knows of a single topic is in estate.py. That of a sequencer is encoded as arrays: fields are added at the
end, with a default, so older snapshots can be read.
"""

from msgspec import Struct, field

from seriatim.model import Address, Entries, Gap, Node, Notification, Number, Position, Topic
from seriatim.order import CouplingState, Lane, Moves, OrderState, PassageState, SequencingTree, ShapeChange
from seriatim.protocols.tree.estate import Desk, Estate, Home, KnownAs, Range, Regrouping
from seriatim.protocols.tree.healing_messages import Healed, JournalLost
from seriatim.protocols.tree.messages import Subscribe, Tell, Ticket, Update
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.shaping_messages import Reshape
from seriatim.protocols.with_broker import Change, Delivered, Stamped, Start, Unwatch


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
    history: bool = False  # the subscriber begins with the past: its cut climbs to the root
    position: Position = 0  # then: how long the order was when the cut came there


class MoveUnderWay(Struct, array_like=True, omit_defaults=True):
    """The root: the move that it has granted.

    `related` is what the former home vouched for. `is_switching`: all nodes are told; it can no longer be cancelled.
    `change`: it is a change of shape, and about no topic.
    """

    number: int
    topic: Topic
    home: Node
    to: Node
    related: frozenset[Topic] = frozenset()
    is_switching: bool = False
    change: ShapeChange | None = None


class Wish(Struct, array_like=True):
    """The root: a change of shape that waits for its turn, behind so many of the moves that wait."""

    behind: int
    reshape: Reshape


class Welcoming(Struct, array_like=True, omit_defaults=True):
    """A node that shall come into the tree just above or below this one is told so until it has arrived."""

    change: ShapeChange
    has_arrived: bool = False


class Founding(Struct, array_like=True):
    """The tree as it began, as it was told to a node that came later."""

    parents: dict[Node, Node | None]
    homes: dict[Topic, Node]
    default_home: Node | None

    @property
    def tree(self) -> SequencingTree:
        return SequencingTree(self.parents, self.homes, self.default_home)


class Question(Struct, array_like=True, frozen=True):
    """What somebody said about a topic that is being moved: it waits until it is known who has to answer."""

    source: Address
    message: Ticket | Subscribe | Update | Tell


class Leaving(Struct, array_like=True, omit_defaults=True):
    """A topic that is on its way from here to node `to`: nothing is given out."""

    move: int
    to: Node
    is_handed_over: bool = False
    waiting: dict[str, Question] = field(default_factory=dict)  # by whose it is and what it is about: no repeats


class Arriving(Struct, array_like=True, omit_defaults=True):
    """A topic that is on its way to this node: what was handed over, until the switch; then only who waits."""

    move: int
    estate: Estate | None
    waiting: dict[str, Question] = field(default_factory=dict)  # by whose it is and what it is about: no repeats


class Switching(Struct, array_like=True, omit_defaults=True):
    """A node that tells those below where a topic lives: those that have not reported, and what the others said.

    `crowned`: it was the root until this change, and tells its operator when it is done.
    """

    move: int
    children: set[Node]
    counts: dict[Topic, Number] = field(default_factory=dict)
    crowned: ShapeChange | None = None


class MovingState(Struct, array_like=True, omit_defaults=True):
    """What a node knows of moves that are under way."""

    granted: int = 0  # the root: the number of the latest move
    wanted: list[tuple[Topic, Node]] = field(default_factory=list)  # the root: moves that wait for their turn
    move: MoveUnderWay | None = None  # the root
    leaving: dict[Topic, Leaving] = field(default_factory=dict)
    arriving: dict[Topic, Arriving] = field(default_factory=dict)
    switching: Switching | None = None
    cancelled: int = 0  # no move up to this one, if it has not switched, goes on
    # of topics that have moved here: how each holder is known here, and how it was known where they lived before
    inherited: dict[Topic, dict[Address, tuple[int, list[KnownAs]]]] = field(default_factory=dict)
    left: dict[Topic, Unwatch] = field(default_factory=dict)  # log mode: what the broker has not answered
    wishes: list[Wish] = field(default_factory=list)  # the root: changes of shape that wait for their turn
    welcoming: Welcoming | None = None
    since: int = 0  # the root: the change by which it became that; 0: it was from the beginning
    founding: Founding | None = None  # it came later
    awaits_welcome: bool = False  # it is not part of the tree yet
    gone_since: int = 0  # the change by which it has left the tree; 0: it has not


class HealingState(Struct, array_like=True, omit_defaults=True):
    """What a node knows of eras (healing.py). All but the first five are of a round that is under way."""

    era: int = 0
    base: dict[Topic, Number] = field(default_factory=dict)  # how far each topic was before this era
    learned: int = 0  # this node had lost its journal before this era, and was told who holds its topics
    numbers_lost: dict[Topic, list[tuple[Number, Number]]] = field(default_factory=dict)
    hole: Position = 0  # the root: where the order went on in this era
    is_blank: bool = False  # this node has lost its journal, and is not healed yet
    life: int = 0  # the epoch in which that was noticed
    round: int = 0
    phase: int = 0  # 0: no round is under way
    is_drained: bool = False  # nothing is issued, and nobody is answered, before an era begins
    lost: dict[Node, int] = field(default_factory=dict)
    waits: set[Node] = field(default_factory=set)  # those below that have not answered
    report: Healed = Healed(0, 0)  # what the others said, and what is known here
    asking: dict[Node, int] = field(default_factory=dict)  # the root: who has asked to be healed, in which epoch
    found: JournalLost | None = None  # a blank node: what the broker keeps of it
    lengths: dict[Topic, Number] = field(default_factory=dict)  # a blank node: of the logs of its topics
    unmeasured: set[Topic] = field(default_factory=set)  # a blank node: topics whose lengths it must report

    @property
    def is_frozen(self) -> bool:
        """Whether nothing is issued and nobody is answered."""
        return self.is_blank or self.is_drained


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
    order: OrderState = field(default_factory=OrderState)
    moves: Moves = field(default_factory=Moves)  # where topics live that do not live where they began
    moving: MovingState = field(default_factory=MovingState)
    removed: dict[Topic, bool] = field(default_factory=dict)  # False: it is under way
    renewing: dict[Topic, Number] = field(default_factory=dict)  # another log goes on here; the broker has yet to know
    undroppable: set[Topic] = field(default_factory=set)  # of these: what the other log holds must not be dropped
    healing: HealingState = field(default_factory=HealingState)
    named: dict[Topic, Number] = field(default_factory=dict)  # how far the stamps and floors given out here go
    names_all: bool = False  # since the node began; an earlier version did not remember it


def new_state(options: TreeOptions) -> SequencerState:
    """A node that has done nothing yet. If there is an order log, it is in it from the first number on."""
    return SequencerState(order=OrderState(begun=options.keeps_order_log), names_all=True)


def state_of_newcomer(options: TreeOptions) -> SequencerState:
    """A node that waits until it is welcomed into a tree that runs."""
    state = new_state(options)
    state.moving.awaits_welcome = True
    return state


# ── a subscriber ──────────────────────────────────────────────────────────────────────────────────────────────────


class Arrived(Struct, frozen=True):
    """Something that cannot be looked at yet, and since when it waits. `last`: of a stretch of voids, else 0."""

    delivered: Delivered
    since: float
    last: Number = 0


class Holding(Struct):
    """What a subscriber knows of one topic besides its lane in the hold-back queue."""

    acquaintance: int = 0  # with the topic's home, at the time of the start
    home: Node = ""  # which that was; empty, in a state of an earlier version: the topic has not moved since
    moved_at: float = 0.0  # when we heard that it moved
    start: Number = 0
    floor: Entries = field(default_factory=dict)
    early: dict[Number, Arrived] = field(default_factory=dict)  # before the start of it, or of what it names, was known
    stamped_to: Number = 0  # log mode: the stamps of all numbers up to here have arrived
    final_to: Number = 0  # log mode: up to here they are finished, so that nothing can still come before them
    stamps: dict[Number, Stamped] = field(default_factory=dict)  # log mode: ranges not yet used up, by first number
    unstamped: dict[Number, Arrived] = field(default_factory=dict)  # log mode: events whose stamp is missing
    skipped: list[tuple[Number, Number]] = field(default_factory=list)
    missing_since: float | None = None
    forged: Number = 0  # what came under this number, when it was the next one, had no right to
    begins_anew_after: Number | None = None  # it was held before: the application has seen, or was told of, so many
    placed: list[Stamped] = field(default_factory=list)  # log mode: the latest stamps that tell positions
    era: int = 0  # in which the home is known to know us without a break
    lost: list[tuple[Number, Number]] = field(default_factory=list)  # stamped as lost, and not told yet


class Changing(Struct):
    """The change under way: what still has to be answered."""

    add: set[Topic]
    listen: set[Topic]
    join: set[Topic]
    update: set[Node]
    since: float
    interrupted: bool = False  # by a restart: what came before it must be asked for again
    in_past: bool = False  # it begins with the past
    touched: frozenset[Topic] = frozenset()  # what was held, and what is held then


class Run(Struct):
    """Numbers `first` … `last` of a topic, the first of them at this position of the order log.

    `is_gone`: the order log no longer has them; they are a gap.
    """

    position: Position
    topic: Topic
    first: Number
    last: Number
    is_gone: bool = False


class Reading(Struct):
    """How far a subscriber has come in reading the past (history.py)."""

    start: Start
    told: Position  # everything up to here was told, or is not ours
    read: Position  # the order log is read up to here
    end: Position = 0  # the past ends here, or a little later
    is_begun: bool = False  # the topics are joined
    is_asked: bool = False  # what follows in the order log was asked for
    is_moving: bool = False  # something came since the last retry
    is_trimmed: bool = False  # the order log no longer has all of it
    wanted: dict[Topic, Number] = field(default_factory=dict)  # the number that each topic begins with
    read_to: dict[Topic, Number] = field(default_factory=dict)  # the last number of each topic that was read
    first_told: dict[Topic, Number] = field(default_factory=dict)  # the first number of each topic that is not skipped
    runs: list[Run] = field(default_factory=list)  # read and not told, in order
    fetched: int = 0  # so many of these runs are fetched
    fetched_to: dict[Topic, Number] = field(default_factory=dict)
    told_to: dict[Topic, Number] = field(default_factory=dict)
    size: int = 0  # numbers that are fetched and not told
    arrived: dict[Topic, dict[Number, Delivered | None]] = field(default_factory=dict)  # None: a void
    gone: dict[Topic, Number] = field(default_factory=dict)  # lower numbers are no longer kept
    begun: set[Topic] = field(default_factory=set)  # something of these was here: what is missing later is lost
    stopped: Gap | None = None  # it does not go on behind this gap: the application must decide
    joined_at: dict[Topic, Position] = field(default_factory=dict)  # where the order log was when each topic was joined
    is_anew_due: bool = False  # the order log has a hole behind the joins: join again


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
    attending: dict[Topic, Node] = field(default_factory=dict)  # whose stages the broker was asked for
    early: dict[Topic, Number] = field(default_factory=dict)  # notified early, and not known to be final
    reading: Reading | None = None  # the past; no topic is open meanwhile
    had_past: bool = False
    moves: Moves = field(default_factory=Moves)
    doubts: dict[Topic, int] = field(default_factory=dict)  # era of a stamp, whose home may not know us
    locating: int = 0  # somebody knew of this move, and was asked where topics live; 0: nobody was
    sought: int = 0  # how often other nodes were asked because a home did not answer


class Waiting(Struct, frozen=True):
    """One held event: what it waits for, since when, and which node to ask about it."""

    topic: Topic
    number: Number
    event_id: str | None
    waits_for: tuple[Topic, Number]
    since: float
    home: Node
    why: str
