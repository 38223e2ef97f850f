"""Every message of the sequencing tree. README.md beside this file has the same list as a table.

Frozen, and free of behaviour: a message is what was said, not what to do about it.
"""

from typing import Literal

from msgspec import Struct

from seriatim.model import Address, Entries, Event, Node, Number, Topic
from seriatim.protocols.tree.proofs import Proof

# ── commands from the application, and what it is told ────────────────────────────────────────────────────────────


class Publish(Struct, frozen=True, tag=True):
    """To a publisher: publish these events, all on their own topics, in this order."""

    events: tuple[Event, ...]


class Published(Struct, frozen=True, tag=True):
    """From a publisher: the event is on the broker under this number."""

    event: Event
    number: Number
    entries: Entries


class Withdraw(Struct, frozen=True, tag=True):
    """To a publisher: give up on this event. It may be on the broker all the same; it is not tried again."""

    topic: Topic
    event_id: str


class Change(Struct, frozen=True, tag=True):
    """To a subscriber: hold these topics too, and those no longer."""

    add: frozenset[Topic] = frozenset()
    remove: frozenset[Topic] = frozenset()


class Changed(Struct, frozen=True, tag=True):
    """From a subscriber: the change is complete; `start` says after which number each new topic begins."""

    version: int
    topics: frozenset[Topic]
    start: dict[Topic, Number]


class Rejected(Struct, frozen=True, tag=True):
    """From a subscriber: what the broker delivered under this number is not believed, and why. It counts as not come.

    `publisher` is the name it came under, for a log; whoever sent it may have lied about that too. No name: a void.
    """

    topic: Topic
    number: Number
    publisher: str | None
    reason: str


# ── with the broker ───────────────────────────────────────────────────────────────────────────────────────────────


class Append(Struct, frozen=True, tag=True):
    """Log mode, publisher → broker: put the event at the end of its topic's log. Repeats are known by the id."""

    event: Event


class Appended(Struct, frozen=True, tag=True):
    """Log mode, broker → publisher: the event has this position."""

    topic: Topic
    event_id: str
    number: Number


class Watch(Struct, frozen=True, tag=True):
    """Log mode, node → broker: tell me how long these logs are now (also if they are empty), and when they grow."""

    topics: frozenset[Topic]


class Grown(Struct, frozen=True, tag=True):
    """Log mode, broker → home: the topic's log now ends at `last`."""

    topic: Topic
    last: Number


class Stamped(Struct, frozen=True, tag=True):
    """Log mode, home → broker → subscribers, on the topic's stamp channel: the stamp of a range of positions.

    The entries belong to `first`; the others of the range follow it and need none.
    """

    topic: Topic
    first: Number
    last: Number
    entries: Entries
    epoch: int = 0


class Kept(Struct, frozen=True, tag=True):
    """Log mode, broker → home: the stamp channel holds the stamp of this range."""

    topic: Topic
    first: Number


class Trimmed(Struct, frozen=True, tag=True):
    """Broker → home and subscribers: the broker no longer keeps numbers below `first`, or not their stamps."""

    topic: Topic
    first: Number


class Write(Struct, frozen=True, tag=True):
    """Ticket mode, publisher or home → broker: put this into the slot (topic, number), if it is empty.

    No event: a void. It carries the very entries of the number it replaces, so that no difference gets lost. The proof
    is the home's word for number and entries, where stamps are proven.
    """

    topic: Topic
    number: Number
    entries: Entries
    event: Event | None = None
    proof: Proof | None = None


class Written(Struct, frozen=True, tag=True):
    """Ticket mode, broker → writer: what the slot holds, whoever was first: event id and proof. No id: a void."""

    topic: Topic
    number: Number
    event_id: str | None = None
    proof: Proof | None = None


class Listen(Struct, frozen=True, tag=True):
    """Subscriber → broker: deliver this topic; after number `after` if the broker keeps what was, else from now on.

    `version` is the subscriber's; the answer repeats it, so that it is not taken for the answer to a later request.
    `tells_losses`: slots have no order of their own, so who cannot tell by the numbers that retention was faster than
    its reading asks to be told.
    `is_kept`: the home says that the broker has had number `after + 1`, with its stamp. If it is not there, it is
    `Trimmed`: retention has passed it, or its stamp, which may be kept for a shorter time than the log.
    """

    topic: Topic
    after: Number | None = None
    version: int = 0
    tells_losses: bool = False
    is_kept: bool = False


class Listening(Struct, frozen=True, tag=True):
    """Broker → subscriber: what is written to the topic from now on will be delivered."""

    topic: Topic
    version: int = 0


class Unlisten(Struct, frozen=True, tag=True):
    """Subscriber → broker: stop delivering this topic."""

    topic: Topic


class Delivered(Struct, frozen=True, tag=True):
    """Broker → subscriber: one event (or a void). In log mode the stamp comes apart, so `entries` is None."""

    topic: Topic
    number: Number
    entries: Entries | None
    event: Event | None
    proof: Proof | None = None


# ── publisher and home ────────────────────────────────────────────────────────────────────────────────────────────


class Ticket(Struct, frozen=True, tag=True, omit_defaults=True):
    """Publisher → home: `count` numbers of this topic, please. A repeat has the same request number.

    `settled`: and the range of this topic that begins there is settled, as if `Settled` had come just before; 0: none.
    Whoever publishes one after the other says both at once, and a message costs a node more than what it says.
    """

    request: int
    topic: Topic
    count: int
    settled: Number = 0


class Granted(Struct, frozen=True, tag=True):
    """Home → publisher: the numbers `first` … `last`; the entries belong to `first`, the others need none.

    With full stamps every number of the range carries the entries. Where stamps are proven, `proof` is for the numbers
    that carry the entries, and `rest` for those that need none.
    """

    request: int
    topic: Topic
    first: Number
    last: Number
    entries: Entries
    epoch: int = 0
    proof: Proof | None = None
    rest: Proof | None = None


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


class Subscribe(Struct, frozen=True, tag=True):
    """Subscriber → home(topic): I add this topic; my whole subscription is then `topics`, and I once left `left`.

    `lasting`: I come back however long I am silent, so never forget me.
    """

    version: int
    topic: Topic
    topics: frozenset[Topic]
    left: frozenset[Topic] = frozenset()
    lasting: bool = False


class Joined(Struct, frozen=True, tag=True):
    """Home → subscriber: the topic begins after `start`; hold its first event until `floor` is done."""

    version: int
    topic: Topic
    start: Number
    floor: Entries
    epoch: int = 0
    acquaintance: int = 0


class Update(Struct, frozen=True, tag=True):
    """Subscriber → node: from this version on my subscription is `topics`; I only left topics."""

    version: int
    topics: frozenset[Topic]
    lasting: bool = False


class Updated(Struct, frozen=True, tag=True):
    """Node → subscriber: this version, or a later one, is in my table."""

    version: int
    node: Node
    epoch: int = 0


class Refresh(Struct, frozen=True, tag=True):
    """Subscriber → node: I am alive at `at`; changes up to this version are complete, their joins may be forgotten."""

    version: int
    at: float


class Refreshed(Struct, frozen=True, tag=True):
    """Node → subscriber: I know you at this version. 0: I do not know you (any more). `at` is the question's.

    The acquaintance is that of `Joined` unless the node has forgotten the subscriber in between.
    """

    version: int
    node: Node
    at: float
    acquaintance: int = 0


class Inquire(Struct, frozen=True, tag=True):
    """Subscriber → home: I have long been waiting for this number. What about it?

    `rejected`: something came under it whose stamp is not proven.
    """

    topic: Topic
    number: Number
    rejected: bool = False


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


# ── between nodes, along the tree ─────────────────────────────────────────────────────────────────────────────────


class JoinId(Struct, frozen=True):
    """One topic being added by one subscriber."""

    subscriber: Address
    version: int
    topic: Topic


class Pass(Struct, frozen=True, tag=True):
    """Child → parent: numbers `first` … `last` of a topic climb to `top`, collecting entries where topics meet.

    `couple` and `uncouple` change what this topic collects from now on; an uncoupled topic is collected one last
    time (the closing rule). `once` is collected this time only (left topics).
    """

    topic: Topic
    first: Number
    last: Number
    top: Node
    entries: Entries
    couple: frozenset[Topic] = frozenset()
    uncouple: frozenset[Topic] = frozenset()
    once: frozenset[Topic] = frozenset()


class Finished(Struct, frozen=True, tag=True):
    """Top → home, routed down: the stamp of the range is complete."""

    topic: Topic
    first: Number
    last: Number
    entries: Entries


class Tell(Struct, frozen=True, tag=True):
    """Home of a joining topic → home of others: the subscriber's new set; announce `about` to the meeting points."""

    join: JoinId
    topics: frozenset[Topic]
    about: frozenset[Topic]
    lasting: bool = False


class Announce(Struct, frozen=True, tag=True):
    """Child → parent: the first `number` events of `topic` were issued before this; climb to `to`, then report."""

    topic: Topic
    number: Number
    to: Node
    join: JoinId


class Announced(Struct, frozen=True, tag=True):
    """Meeting point → home of the joining topic: `topic` has been announced here."""

    join: JoinId
    topic: Topic


class Cut(Struct, frozen=True, tag=True):
    """Child → parent: the joining topic starts after `start`; climb to `to`, collecting the floor."""

    join: JoinId
    start: Number
    to: Node
    floor: Entries
    members: frozenset[Topic]


class CutDone(Struct, frozen=True, tag=True):
    """Top → home of the joining topic: start and floor are complete."""

    join: JoinId
    start: Number
    floor: Entries


class Routed(Struct, frozen=True, tag=True):
    """Node → neighbour: carry this to node `to` along the tree."""

    to: Node
    body: "Finished | Tell | Announced | CutDone"


# ── what machines keep in their journals ──────────────────────────────────────────────────────────────────────────


class TookOver(Struct, frozen=True, tag=True):
    """A process took over a node: what follows in the journal is of this epoch."""

    epoch: int


class Began(Struct, frozen=True, tag=True):
    """A subscriber began a change: what it removes is gone from now on."""

    version: int
    add: frozenset[Topic]
    remove: frozenset[Topic]


class Done(Struct, frozen=True, tag=True):
    """A subscriber is done with the first `number` events of a topic."""

    topic: Topic
    number: Number


class Forget(Struct, frozen=True, tag=True):
    """A node to itself: this subscriber was silent for too long; drop it."""

    subscriber: Address


class Stepped(Struct, frozen=True, tag=True):
    """A node was given this input. Stepping through all of them in order rebuilds the node."""

    source: Address
    message: (
        Ticket
        | Settled
        | Grown
        | Kept
        | Trimmed
        | Written
        | Subscribe
        | Update
        | Refresh
        | Pass
        | Announce
        | Cut
        | Routed
        | Forget
    )
    now: float
