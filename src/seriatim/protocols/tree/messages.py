"""Every message of the sequencing tree. README.md beside this file has the same list as a table.

Frozen, and free of behaviour: a message is what was said, not what to do about it.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from seriatim.model import Address, Entries, Node, Number, Position, Topic
from seriatim.order import OrderedRange, Place, ShapeChange
from seriatim.protocols.proofs import Proof
from seriatim.protocols.tree.estate import KnownAs
from seriatim.protocols.tree.healing_messages import AskToHeal as AskToHeal
from seriatim.protocols.tree.healing_messages import Heal as Heal
from seriatim.protocols.tree.healing_messages import Healed as Healed
from seriatim.protocols.tree.healing_messages import JournalLost as JournalLost
from seriatim.protocols.tree.moving_messages import CancelMove as CancelMove
from seriatim.protocols.tree.moving_messages import GoOn as GoOn
from seriatim.protocols.tree.moving_messages import HandOver as HandOver
from seriatim.protocols.tree.moving_messages import Move as Move
from seriatim.protocols.tree.moving_messages import MoveEnded as MoveEnded
from seriatim.protocols.tree.moving_messages import MoveStep as MoveStep
from seriatim.protocols.tree.moving_messages import Quiesce as Quiesce
from seriatim.protocols.tree.moving_messages import Resume as Resume
from seriatim.protocols.tree.moving_messages import Switch as Switch
from seriatim.protocols.tree.moving_messages import Switched as Switched
from seriatim.protocols.tree.moving_messages import Vouch as Vouch
from seriatim.protocols.tree.shaping_messages import Abandon as Abandon
from seriatim.protocols.tree.shaping_messages import Arrived as Arrived
from seriatim.protocols.tree.shaping_messages import CancelReshape as CancelReshape
from seriatim.protocols.tree.shaping_messages import NodeExpected as NodeExpected
from seriatim.protocols.tree.shaping_messages import NodeLeft as NodeLeft
from seriatim.protocols.tree.shaping_messages import Prepare as Prepare
from seriatim.protocols.tree.shaping_messages import Prepared as Prepared
from seriatim.protocols.tree.shaping_messages import Reign as Reign
from seriatim.protocols.tree.shaping_messages import Reshape as Reshape
from seriatim.protocols.tree.shaping_messages import ReshapeEnded as ReshapeEnded
from seriatim.protocols.tree.shaping_messages import ReshapeStep as ReshapeStep
from seriatim.protocols.tree.shaping_messages import ShapeChanged as ShapeChanged
from seriatim.protocols.tree.shaping_messages import SwitchShape as SwitchShape
from seriatim.protocols.tree.shaping_messages import Welcome as Welcome
from seriatim.protocols.with_broker import (
    Ceded,
    Discarded,
    Grown,
    Kept,
    OrderKept,
    Renewed,
    Start,
    Trimmed,
    Unwatched,
    Written,
)

# ── publisher and home ────────────────────────────────────────────────────────────────────────────────────────────


class Ticket(Struct, frozen=True, tag=True, omit_defaults=True):
    """Publisher → home: `count` numbers of this topic, please. A repeat has the same request number.

    `settled`: and the range of this topic that begins there is settled, as if `Settled` had come just before; 0: none.
    A publisher with more to send says both at once: a message costs a node more than its content.
    """

    request: int
    topic: Topic
    count: int
    settled: Number = 0


class Granted(Struct, frozen=True, tag=True):
    """Home → publisher: the numbers `first` … `last`; the entries belong to `first`, the others need none.

    With full stamps every number of the range carries the entries. Where stamps are proven, `proof` is for the numbers
    that carry the entries, and `rest` for those that need none. `position`: of `first`, 0: not known.
    """

    request: int
    topic: Topic
    first: Number
    last: Number
    entries: Entries
    epoch: int = 0
    proof: Proof | None = None
    rest: Proof | None = None
    position: Position = 0


class Settled(Struct, frozen=True, tag=True):
    """Publisher → home: every slot of the range that begins with `first` is filled.

    `stolen`: these were found filled with an event that is not the publisher's, which had no right to be there.
    """

    topic: Topic
    first: Number
    stolen: tuple[Number, ...] = ()


class Refused(Struct, frozen=True, tag=True):
    """Home → publisher or subscriber: this request is not accepted, and why. Nothing was changed."""

    request: int
    topic: Topic
    reason: str


# ── subscriber and homes ──────────────────────────────────────────────────────────────────────────────────────────


class Subscribe(Struct, frozen=True, tag=True, omit_defaults=True):
    """Subscriber → home(topic): I add this topic; my whole subscription is then `topics`, and I once left `left`.

    `lasting`: I come back however long I am silent, so never forget me. `history`: I begin with the past, so tell me
    which position of the order covers the start.
    """

    version: int
    topic: Topic
    topics: frozenset[Topic]
    left: frozenset[Topic] = frozenset()
    lasting: bool = False
    history: bool = False


class Joined(Struct, frozen=True, tag=True):
    """Home → subscriber: the topic begins after `start`; hold its first event until `floor` is done.

    `position`: if it begins with the past, the first `start` events of the topic are among so many of the order log.
    `era`: that of the home, here and below (healing.py).
    """

    version: int
    topic: Topic
    start: Number
    floor: Entries
    epoch: int = 0
    acquaintance: int = 0
    position: Position = 0
    era: int = 0


class Update(Struct, frozen=True, tag=True, omit_defaults=True):
    """Subscriber → node: from this version on my subscription is `topics`; I only left topics.

    `about`: those that I hold or have left and believe to be homed on you. If one is not, say where it lives.
    """

    version: int
    topics: frozenset[Topic]
    lasting: bool = False
    about: frozenset[Topic] = frozenset()


class Updated(Struct, frozen=True, tag=True):
    """Node → subscriber: this version, or a later one, is in my table."""

    version: int
    node: Node
    epoch: int = 0


class Refresh(Struct, frozen=True, tag=True, omit_defaults=True):
    """Subscriber → node: I am alive at `at`; changes up to this version are complete, their joins may be forgotten.

    `about`: these topics have moved to you since I joined them, where I was known so. Do you know me without a break?
    """

    version: int
    at: float
    about: dict[Topic, KnownAs] = {}


class Refreshed(Struct, frozen=True, tag=True, omit_defaults=True):
    """Node → subscriber: I know you at this version. 0: I do not know you (any more). `at` is the question's.

    The acquaintance is that of `Joined` unless the node has forgotten the subscriber in between. `inherited`: of the
    topics that were asked about, those for which this acquaintance goes on with the one at their former home. `moves`:
    I know of the moves up to this one. Who knows of fewer may have asked the wrong node, and is not confirmed.
    """

    version: int
    node: Node
    at: float
    acquaintance: int = 0
    inherited: frozenset[Topic] = frozenset()
    moves: int = 0
    era: int = 0


class Inquire(Struct, frozen=True, tag=True, omit_defaults=True):
    """Subscriber → home: I have long been waiting for this number. What about it?

    `rejected`: something came under it whose stamp is not proven. `held`: so many events are here and wait for it; 0:
    somebody else asks, such as a publisher. `waits_for`: the number itself is here, and held back for this one of
    another home; told so that the home can say what its subscribers wait for. `is_mine`: whoever published it asks
    whether it was lost in a node that has lost its journal; then it is `void`.
    """

    topic: Topic
    number: Number
    rejected: bool = False
    held: int = 0
    waits_for: tuple[Topic, Number] | None = None
    is_mine: bool = False


class Answer(Struct, frozen=True, tag=True):
    """Home → subscriber: what is known about the number.

    - `coming`: issued, not settled yet: its event or a void will come.
    - `published`: it is on the broker; if you do not get it, the broker lost it for you.
    - `void`: nobody will ever publish it; take these entries in its place.
    - `lost`: the broker no longer keeps it; the gap policy decides.
    - `unissued`: never given out; a stamp that names it is forged or from another epoch.
    """

    topic: Topic
    number: Number
    state: Literal["coming", "published", "void", "lost", "unissued"]
    entries: Entries
    epoch: int = 0
    era: int = 0


# ── where topics live ─────────────────────────────────────────────────────────────────────────────────────────────


class Moved(Struct, frozen=True, tag=True, omit_defaults=True):
    """Node → client: this topic lives on another node. Ask there; nothing was changed here.

    `move`: the number of the move that brought it there. Who knows of a later one of this topic ignores this. `shape`:
    all changes of the tree's shape that I know of, since that node may be new.
    """

    topic: Topic
    home: Node
    move: int
    shape: tuple[ShapeChange, ...] = ()


class Locate(Struct, frozen=True, tag=True):
    """Client → any node: which topics were moved after this move?"""

    after: int


class Located(Struct, frozen=True, tag=True, omit_defaults=True):
    """Node → client: these were moved after move `after`, and these are all, up to move `number`.

    `shape`: the changes of the tree's shape among them. Also application → client, which may have read it elsewhere: a
    client that knows no node any more that is there cannot find out by itself.
    """

    after: int
    number: int
    places: dict[Topic, Place]
    shape: tuple[ShapeChange, ...] = ()


# ── between nodes, along the tree ─────────────────────────────────────────────────────────────────────────────────


class JoinId(Struct, frozen=True):
    """One topic being added by one subscriber."""

    subscriber: Address
    version: int
    topic: Topic


class Pass(Struct, frozen=True, tag=True, omit_defaults=True):
    """Child → parent: numbers `first` … `last` of a topic climb to `top`, collecting entries where topics meet.

    `couple` and `uncouple` change what this topic collects from now on; an uncoupled topic is collected one last
    time (the closing rule). `once` is collected this time only (left topics). At `stages` somebody waits for what is
    collected up to there.

    `order`: what passed the child since it last told its parent, without the numbers of this pass, which come behind
    it. None, here and below: the child does not keep the order.

    `moves`, here and in `Cut`: the latest move that the home knew of. Topics meet where they met then. `former`: these
    topics were collected where they met this topic when they lived there, and no longer are.
    """

    topic: Topic
    first: Number
    last: Number
    top: Node
    entries: Entries
    couple: frozenset[Topic] = frozenset()
    uncouple: frozenset[Topic] = frozenset()
    once: frozenset[Topic] = frozenset()
    stages: tuple[Node, ...] = ()
    order: tuple[OrderedRange, ...] | None = None
    moves: int = 0
    former: dict[Topic, Node] = {}


class Finished(Struct, frozen=True, tag=True, omit_defaults=True):
    """Top → home, routed down: the stamp of the range is complete. `position`: of `first`, 0: not known."""

    topic: Topic
    first: Number
    last: Number
    entries: Entries
    position: Position = 0


class Tell(Struct, frozen=True, tag=True):
    """Home of a joining topic → home of others: the subscriber's new set; announce `about` to the meeting points."""

    join: JoinId
    topics: frozenset[Topic]
    about: frozenset[Topic]
    lasting: bool = False


class Announce(Struct, frozen=True, tag=True, omit_defaults=True):
    """Child → parent: the first `number` events of `topic` were issued before this; climb to `to`, then report."""

    topic: Topic
    number: Number
    to: Node
    join: JoinId
    order: tuple[OrderedRange, ...] | None = None


class Announced(Struct, frozen=True, tag=True):
    """Meeting point → home of the joining topic: `topic` has been announced here."""

    join: JoinId
    topic: Topic


class Cut(Struct, frozen=True, tag=True, omit_defaults=True):
    """Child → parent: the joining topic starts after `start`; climb to `to`, collecting the floor.

    `history`: it climbs to the root, which adds its position.
    """

    join: JoinId
    start: Number
    to: Node
    floor: Entries
    members: frozenset[Topic]
    order: tuple[OrderedRange, ...] | None = None
    history: bool = False
    moves: int = 0


class Summary(Struct, frozen=True, tag=True):
    """Child → parent: this passed me since I last told you, and nothing else climbs that could tell it."""

    order: tuple[OrderedRange, ...] | None


class CutDone(Struct, frozen=True, tag=True, omit_defaults=True):
    """Top → home of the joining topic: start and floor are complete."""

    join: JoinId
    start: Number
    floor: Entries
    position: Position = 0


Body: TypeAlias = (
    Finished | Tell | Announced | CutDone | Quiesce | HandOver | GoOn | Resume | Prepare | Prepared | Abandon
)


class Routed(Struct, frozen=True, tag=True):
    """Node → neighbour: carry this to node `to` along the tree."""

    to: Node
    body: Body


# ── what machines keep in their journals ──────────────────────────────────────────────────────────────────────────


class Began(Struct, frozen=True, tag=True):
    """A subscriber began a change: what it removes is gone from now on. `start`: it begins with the past."""

    version: int
    add: frozenset[Topic]
    remove: frozenset[Topic]
    start: Start | None = None


class Done(Struct, frozen=True, tag=True, omit_defaults=True):
    """A subscriber is done with the first `number` events of a topic.

    `position`: of an event of the past, else 0. `early`: it was notified of the last one early.
    """

    topic: Topic
    number: Number
    position: Position = 0
    early: bool = False


class Forget(Struct, frozen=True, tag=True):
    """A node to itself: this subscriber was silent for too long; drop it."""

    subscriber: Address


class Summarise(Struct, frozen=True, tag=True):
    """A node to itself: tell the parent what passed here."""


class BeginOrder(Struct, frozen=True, tag=True):
    """A node to itself: keep the order from now on."""


class AcceptLog(Struct, frozen=True, tag=True, omit_defaults=True):
    """Host → home: the operator accepts that the log of this topic was deleted, and is another one from now on.

    `drop`: also that the events are dropped which the other one holds. It may be permitted later, by saying it again.
    """

    topic: Topic
    drop: bool = True


class OrderFound(Struct, frozen=True, tag=True):
    """Host → root: the order log holds so many positions, more than this node knows of, and these topics up to there.

    It has lost its journal, or was given an old one. What the log holds must not get a second place.
    """

    position: Position
    lasts: dict[Topic, Number]


class MovesFound(Struct, frozen=True, tag=True):
    """Host → node: these moves happened, and with them all up to `number` are known. It has lost its journal."""

    number: int
    places: dict[Topic, Place]


class Add(Struct, frozen=True, tag=True):
    """Operator → home: this topic is in use from now on; have its log watched, and made if there is none."""

    topic: Topic


class Remove(Struct, frozen=True, tag=True, omit_defaults=True):
    """Operator → home: give up this topic; `is_forced`: also if somebody holds it."""

    topic: Topic
    is_forced: bool = False


FromClients: TypeAlias = Ticket | Settled | Subscribe | Update | Refresh
FromOperator: TypeAlias = Move | CancelMove | Reshape | CancelReshape
FromBroker: TypeAlias = Ceded | Discarded | Grown | Kept | OrderKept | Renewed | Trimmed | Unwatched | Written
Climbing: TypeAlias = Pass | Announce | Cut | Summary | Vouch | Switched | Healed
BetweenNodes: TypeAlias = Climbing | Switch | SwitchShape | Reign | Routed | Heal | AskToHeal
BeforeLinks: TypeAlias = Welcome | Arrived
ToItself: TypeAlias = Forget | Summarise | BeginOrder | OrderFound | MovesFound | Add | Remove | AcceptLog | JournalLost
# What a node takes, and its journal keeps.
Input: TypeAlias = FromClients | FromOperator | FromBroker | BetweenNodes | BeforeLinks | ToItself
