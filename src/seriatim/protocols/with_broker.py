"""The messages that machines of the tree and of atoms exchange with a broker and with their applications.

brokers/seam.py says what a broker does about each of its messages.

    application   Publish, EventStored, EventPlaced, Withdraw, NotTaken · Change, Changed, CaughtUp, Rejected, Ended
    a node's life Begin, Begun · Cede, Ceded
    log mode      Append, Appended · Watch, Grown · Stamped, Kept · Unwatch, Unwatched · Voids, Trimmed
                  Follow, StampedTo, Unfollow
    stages        Attend, Staged
    order log     Ordered, OrderKept · ReadOrder, OrderRead · Fetch
    ticket mode   Write, Written
    removal       Discard, Discarded
    both          Listen, Listening, Unlisten · Delivered

Messages are frozen and have no behaviour.
"""

from msgspec import Struct

from seriatim.model import Entries, Event, Node, Number, Position, Topic
from seriatim.order import OrderedRange as OrderedRange
from seriatim.protocols.proofs import Proof

# ── commands from the application, and what it is told ────────────────────────────────────────────────────────────


class Publish(Struct, frozen=True, tag=True):
    """To a publisher: publish these events in this order. Those of a topic may share a request for numbers.

    `behind`: they may react to these numbers, which somebody was notified of early. Wait until those are final.
    """

    events: tuple[Event, ...]
    behind: dict[Topic, Number] = {}


class EventStored(Struct, frozen=True, tag=True):
    """From a publisher: the event is on the broker under this number."""

    event: Event
    number: Number
    entries: Entries


class EventPlaced(Struct, frozen=True, tag=True):
    """From a publisher: this number of the topic, and all before it, have their place in the order.

    Whatever anybody publishes from now on comes after them, for everybody who sees both.
    """

    topic: Topic
    number: Number


class EventLost(Struct, frozen=True, tag=True):
    """From a publisher: this number was lost in a node that has lost its journal. Nobody is notified of it any more."""

    topic: Topic
    number: Number


class Withdraw(Struct, frozen=True, tag=True):
    """To a publisher: give up on this event. It may still be on the broker; it is not tried again."""

    topic: Topic
    event_id: str


class Start(Struct, frozen=True, omit_defaults=True):
    """Where a subscription begins in the past: behind position `after` of the order log.

    `numbers`: each of these topics begins with its number, and the others with events published from now on. None: all
    topics begin at the position. `is_place`: somebody has named this place, so what is missing right behind it counts
    as lost. If not, a topic begins with the first event that is kept.
    """

    after: Position = 0
    numbers: dict[Topic, Number] | None = None
    is_place: bool = False


class Change(Struct, frozen=True, tag=True):
    """To a subscriber: add these topics, and remove those.

    `start`: begin with the past. All topics that are held afterwards begin again there, so `add` names them all.
    """

    add: frozenset[Topic] = frozenset()
    remove: frozenset[Topic] = frozenset()
    start: Start | None = None


class Changed(Struct, frozen=True, tag=True):
    """From a subscriber: the change is complete; `start` says after which number each new topic begins.

    `in_past`: it begins with the past. Earlier notifications do not belong to it.
    """

    version: int
    topics: frozenset[Topic]
    start: dict[Topic, Number]
    in_past: bool = False


class CaughtUp(Struct, frozen=True, tag=True):
    """From a subscriber: the past is told, up to this position; what follows is live. Also a record of its journal.

    `done`: how many events of each topic are in the past.
    """

    position: Position
    done: dict[Topic, Number]


class Rejected(Struct, frozen=True, tag=True):
    """From a subscriber: what the broker delivered under this number is not believed. It counts as not received.

    `publisher` is the name it came under, for a log; whoever sent it may have lied about that too. No name: a void.
    """

    topic: Topic
    number: Number
    publisher: str | None
    reason: str


class NotTaken(Struct, frozen=True):
    """From a publisher on sequencing atoms: the cluster does not take this event."""

    event_id: str
    reason: str


class Ended(Struct, frozen=True):
    """From a subscriber on sequencing atoms: it cannot continue."""

    reason: str


# ── to and from the broker ────────────────────────────────────────────────────────────────────────────────────────


class Append(Struct, frozen=True, tag=True):
    """Log mode, publisher → broker: put the event at the end of its topic's log. The id tells a repeat."""

    event: Event


class Appended(Struct, frozen=True, tag=True):
    """Log mode, broker → publisher: the event has this position."""

    topic: Topic
    event_id: str
    number: Number


class Watch(Struct, frozen=True, tag=True):
    """Log mode, node → broker: tell me how long these logs are now (also if they are empty), and when they grow.

    `issued`: the last numbers of those that have moved. You may know their stamps of other nodes only.
    """

    topics: frozenset[Topic]
    issued: dict[Topic, Number] = {}


class Unwatch(Struct, frozen=True, tag=True):
    """Log mode, node → broker: tell me of this log no longer; move `move` has brought the topic to node `to`.

    `last`: the number up to which stamps were given before, and `era`: that of the latest. You keep all that I gave.
    Where nodes have channels of their own, say behind them where the stamps go on. Answered by `Unwatched`.
    """

    topic: Topic
    to: Node
    last: Number
    move: int
    era: int = 0


class Unwatched(Struct, frozen=True, tag=True):
    """Log mode, broker → node: whoever reads the stamps of this topic finds out that it has moved."""

    topic: Topic
    move: int


class Grown(Struct, frozen=True, tag=True):
    """Log mode, broker → home: the topic's log now ends at `last`."""

    topic: Topic
    last: Number


class Begin(Struct, frozen=True, tag=True):
    """Node → broker: another life of this node begins. Refuse from now on what earlier epochs stamp, and say what you
    keep of this node. `orders`: it is the root, so the same goes for the order log. `since`: the number of the change
    of shape by which it became the root; 0: it was from the beginning. `heals`: it has lost its journal, so say also
    what only the stamps can tell."""

    epoch: int
    orders: bool = False
    since: int = 0
    heals: bool = False


class Begun(Struct, frozen=True, tag=True):
    """Broker → node: earlier epochs than `latest` are refused from here on.

    `stamped`: how far the stamps of each topic go that this node has stamped. `ordered`: how many positions the order
    log has, if this node has written it. `since`: roots from before this change of shape are refused at the order log;
    told to whoever writes it. Also sent to a life whose stamp is refused.

    The rest is for a node that `heals`: see `JournalLost`, which calls `kept` what it has of stamps (`stamped`).
    """

    epoch: int
    latest: int
    stamped: dict[Topic, Number] = {}
    ordered: Position = 0
    since: int = 0
    kept: dict[Topic, Number] = {}
    named: dict[Topic, Number] = {}
    holes: dict[Topic, list[tuple[Number, Number]]] = {}
    placed: dict[Topic, Number] = {}
    lost: dict[Topic, list[tuple[Number, Number]]] = {}
    ahead: dict[Topic, Number | None] = {}


class Cede(Struct, frozen=True, tag=True):
    """Root → broker: there is another root since this change of shape. Refuse at the order log what earlier roots
    send, whatever their epoch. Repeated until it is answered with `Ceded`."""

    epoch: int
    since: int


class Ceded(Struct, frozen=True, tag=True):
    """Broker → root: roots from before this change of shape are refused from here on. `epoch` is that of the question:
    an answer to another life says nothing about this one."""

    since: int
    epoch: int


class Stamped(Struct, frozen=True, tag=True):
    """Log mode, home → broker → subscribers, on the topic's stamp channel: the stamp of a range of positions.

    The entries belong to `first`; the others of the range follow it and need none. `position`: of `first` in the order
    of all events; 0: not known. `moves`: the latest move that the home knew of when it issued the range.

    When a topic has moved, the home that follows stamps on behind the last number of the one before, which stamps no
    more: the broker had kept all of its stamps (`Kept`) before the topic was handed over.

    `era`: in which the range was issued. `is_lost`: it was lost in a healed node; nobody is notified of it any more.
    `ahead`: how far stages may be told once the broker keeps this; 0: it does not say.
    """

    topic: Topic
    first: Number
    last: Number
    entries: Entries
    epoch: int = 0
    position: Position = 0
    moves: int = 0
    era: int = 0
    is_lost: bool = False
    ahead: Number = 0


class Staged(Struct, frozen=True, tag=True):
    """Log mode, node → broker → whoever attends: the stamp of a range as far as it is collected at this node.

    A plain message: nobody keeps it, and it may get lost. `final`: the range climbs no higher, so this is all of it.
    `position`: then the place of `first` in the order of all events, if it is known. `moves`: where topics met when the
    range was issued; who believes that they meet elsewhere cannot use it, unless it is final.
    """

    topic: Topic
    first: Number
    last: Number
    entries: Entries
    node: Node
    epoch: int = 0
    final: bool = False
    position: Position = 0
    moves: int = 0
    era: int = 0


class Attend(Struct, frozen=True, tag=True):
    """Log mode, subscriber → broker: deliver to me the stages that this node publishes for the topic. No node: none of
    it.

    Replaces the earlier message about the topic. `Unlisten` ends it.
    """

    topic: Topic
    node: Node


class Kept(Struct, frozen=True, tag=True):
    """Log mode, broker → home: the stamp channel holds the stamp of this range."""

    topic: Topic
    first: Number


class Follow(Struct, frozen=True, tag=True):
    """Log mode, publisher → broker: tell me how far the stamps of this topic have come, now and when they go on."""

    topic: Topic


class StampedTo(Struct, frozen=True, tag=True):
    """Log mode, broker → publisher: the stamps of all numbers of the topic up to `last` are out.

    Also subscriber → application → publisher, of topics that the subscriber was notified of early.

    `era`: that of the last of these stamps.
    """

    topic: Topic
    last: Number
    era: int = 0


class Unfollow(Struct, frozen=True, tag=True):
    """Log mode, publisher → broker: tell me no longer.

    Also application → publisher: wait no longer for places in this topic. The broker cannot tell them.
    """

    topic: Topic


class Voids(Struct, frozen=True, tag=True):
    """Log mode, broker → subscribers: positions `first` … `last` of the topic hold no events, and never will.

    Transaction markers, aborted, compacted or deleted records. The positions are stamped like any others.
    """

    topic: Topic
    first: Number
    last: Number


class Trimmed(Struct, frozen=True, tag=True):
    """Broker → home and subscribers: the broker no longer keeps numbers below `first`, or not their stamps."""

    topic: Topic
    first: Number


class Discard(Struct, frozen=True, tag=True):
    """Home → broker: somebody removes this topic, whose numbers end at `last`. Drop its events, stamps and slots.

    If the log has grown beyond `last`, nothing is dropped, and the answer is `Grown`. Otherwise the topic is empty from
    then on, and later events continue after `last`. Repeated until it is answered with `Discarded`.
    """

    topic: Topic
    last: Number
    epoch: int = 0


class Discarded(Struct, frozen=True, tag=True):
    """Broker → home: nothing of these numbers is left, and the log is watched no longer."""

    topic: Topic
    last: Number


class Renew(Struct, frozen=True, tag=True, omit_defaults=True):
    """Home → broker: the log of this topic is another one than it was, and that is accepted. It continues at `first`.

    What it holds before that was never numbered. With `drop` it is dropped; otherwise a log that holds something there
    is left alone, and there is no answer. Repeated until it is answered with `Renewed`.
    """

    topic: Topic
    first: Number
    drop: bool = True


class Renewed(Struct, frozen=True, tag=True, omit_defaults=True):
    """Broker → home: the log continues at `first`; so many events were dropped."""

    topic: Topic
    first: Number
    dropped: int = 0


class Write(Struct, frozen=True, tag=True):
    """Ticket mode, publisher or home → broker: put this into the slot (topic, number), if it is empty.

    No event: a void. It carries the entries of the number it replaces, so that no difference gets lost. Where stamps
    are proven, `proof` is the home's proof of number and entries. `position`: in the order of all events, 0: not known.
    """

    topic: Topic
    number: Number
    entries: Entries
    event: Event | None = None
    proof: Proof | None = None
    position: Position = 0


class Written(Struct, frozen=True, tag=True):
    """Ticket mode, broker → writer: what the slot holds (the first write wins): event id and proof. No id: a void."""

    topic: Topic
    number: Number
    event_id: str | None = None
    proof: Proof | None = None


class Listen(Struct, frozen=True, tag=True):
    """Subscriber → broker: deliver this topic; after number `after` if the broker keeps what was, else from now on.

    `version` is the subscriber's; the answer repeats it, so that it is not taken for the answer to a later request.
    `tells_losses`: tell me if retention removes slots before I have read them. A subscriber on sequencing atoms sets
    it, since the numbers of its slots have no order.
    `is_kept`: the home says that the broker has had number `after + 1`, with its stamp. If it is not there, it is
    `Trimmed`: retention has passed it, or its stamp, which may be kept for a shorter time than the log.
    """

    topic: Topic
    after: Number | None = None
    version: int = 0
    tells_losses: bool = False
    is_kept: bool = False


class Listening(Struct, frozen=True, tag=True):
    """Broker → subscriber: events written to the topic from now on will be delivered."""

    topic: Topic
    version: int = 0


class Unlisten(Struct, frozen=True, tag=True):
    """Subscriber → broker: stop delivering this topic."""

    topic: Topic


class Delivered(Struct, frozen=True, tag=True):
    """Broker → subscriber: one event, or in ticket mode a void. No `entries` in log mode: `Stamped` has them."""

    topic: Topic
    number: Number
    entries: Entries | None
    event: Event | None
    proof: Proof | None = None
    position: Position = 0


# ── the order log ─────────────────────────────────────────────────────────────────────────────────────────────────


class Ordered(Struct, frozen=True, tag=True):
    """Root → broker: behind the first `after` positions of the order come these ranges. Kept once.

    Without ranges: so many positions were kept; how many are? A log that ends earlier has lost the positions between.
    The broker says where it ended, continues after `after`, and says that. `since`: as in `Begin`.
    """

    after: Position
    ranges: tuple[OrderedRange, ...]
    epoch: int = 0
    since: int = 0


class OrderKept(Struct, frozen=True, tag=True):
    """Broker → root: the order log ends with this position. Also unasked, if it ends earlier than it did."""

    position: Position


class ReadOrder(Struct, frozen=True, tag=True):
    """Subscriber → broker: what follows position `after` in the order log? Answered when something does."""

    after: Position
    version: int = 0


class OrderRead(Struct, frozen=True, tag=True):
    """Broker → subscriber: these ranges follow position `after`; a bounded number of them.

    If `after` is beyond what was asked for, retention has removed the positions between. `version` is the question's.
    """

    after: Position
    ranges: tuple[OrderedRange, ...]
    version: int = 0


class Fetch(Struct, frozen=True, tag=True):
    """Subscriber → broker: deliver these numbers of a topic once, in order: `Delivered`, `Voids`, or `Trimmed`."""

    topic: Topic
    first: Number
    last: Number
