"""Every message of VCube-PS. README.md beside this file has the same list as a table.

Peers talk in `Packet`s, which say from which life of a peer to which life of another they go: a packet for an earlier
life is dropped.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from seriatim.model import Event, Topic
from seriatim.protocols.vcube.cube import Id, Life

Counts: TypeAlias = dict[Life, int]  # "the first `count` publications of this source"
Statuses: TypeAlias = dict[Id, int]  # twice the births of a peer, and one more if that life is over
Stage: TypeAlias = Literal["joining", "ready", "left"]

# ── commands from the application, and what it is told ────────────────────────────────────────────────────────────


class Subscribe(Struct, frozen=True, tag=True):
    """To a peer: hold this topic."""

    topic: Topic


class Unsubscribe(Struct, frozen=True, tag=True):
    """To a peer: hold this topic no longer."""

    topic: Topic


class Publish(Struct, frozen=True, tag=True):
    """To a peer: publish this. Only a member of a topic can publish on it; `join`: subscribe first if needed."""

    event: Event
    join: bool = False


class Suspect(Struct, frozen=True, tag=True):
    """To a peer: the driver says that this peer is gone. All are told; if it lives, it begins a new life."""

    peer: Id


class Subscribed(Struct, frozen=True, tag=True):
    """From a peer: everything published on the topic from here on is notified."""

    topic: Topic


class Unsubscribed(Struct, frozen=True, tag=True):
    """From a peer: it has left the topic, and all holders of the topic know."""

    topic: Topic


class EventReceived(Struct, frozen=True, tag=True):
    """From a peer: everybody who holds the topic has received this."""

    event_id: str


class Unsettled(Struct, frozen=True, tag=True):
    """From a peer: it was declared dead before all had received this. The others have it all, or none of them."""

    event_id: str


class Born(Struct, frozen=True, tag=True):
    """From a peer, its only journal record: a new life begins. `rejoining` it held; what came meanwhile is missed."""

    births: int
    rejoining: tuple[Topic, ...] = ()
    forgot: bool = False  # the process died, so it may be notified of the same events again


class Rejoined(Struct, frozen=True, tag=True):
    """From a peer that was born again: the topic is held again."""

    topic: Topic


class Replaced(Struct, frozen=True, tag=True):
    """From a peer: another process runs under its id, in a later life. It does nothing more.

    `may_go_on`: it holds nothing, so that process may be its own past, of which its journal does not know. When that
    life is over, it begins the next one.
    """

    births: int
    may_go_on: bool = False


# ── what travels down trees, and what comes back up ───────────────────────────────────────────────────────────────


class Entry(Struct, frozen=True, array_like=True):
    """The last message of a peer about its own membership. A later birth or a higher version wins."""

    life: Life
    version: int
    stage: Stage


class Sub(Struct, frozen=True, tag=True):
    """To all peers: I am joining this topic; send me its publications; who else holds it?"""

    topic: Topic
    entry: Entry
    statuses: Statuses


class Census(Struct, frozen=True, tag=True):
    """To all peers: my view is complete; these are dead; how far are you, and what do you have of theirs?

    `have`: how far the asker is with the dead. What it lacks is sent to it.
    """

    topic: Topic
    entry: Entry
    statuses: Statuses
    have: Counts


class Ready(Struct, frozen=True, tag=True):
    """To members of the topic: I know where I begin, and relay from here on. Nobody waits for this."""

    topic: Topic
    entry: Entry


class Uns(Struct, frozen=True, tag=True):
    """To all holders of the topic: I leave it."""

    topic: Topic
    entry: Entry


class Pub(Struct, frozen=True, tag=True):
    """To all holders of the topic: publication `number` of its source, after all that its barrier names.

    `stable`: everybody except the `dead` has received the source's publications up to this one.
    """

    topic: Topic
    source: Life
    number: int
    barrier: Counts
    stable: int
    event: Event
    dead: Statuses = {}


Content: TypeAlias = Sub | Census | Ready | Uns | Pub


class Answer(Struct, array_like=True):
    """What a subtree answers: who holds the topic; how far they are; which publications of dead sources they have;
    whom they did not ask."""

    entries: list[Entry] = field(default_factory=list)
    frontier: Counts = field(default_factory=dict)
    held: dict[Life, list[int]] = field(default_factory=dict)
    skipped: list[Id] = field(default_factory=list)  # were presumed dead, so nobody asked them
    dead: Statuses = field(default_factory=dict)  # peers that the answering ones presume dead, so they may lack it;
    # to a census also: were born again

    def add(self, other: "Answer") -> None:
        self.entries.extend(other.entries)
        for source, count in other.frontier.items():
            if count > self.frontier.get(source, 0):
                self.frontier[source] = count
        for source, numbers in other.held.items():
            self.held[source] = sorted({*self.held.get(source, ()), *numbers})
        if other.skipped:
            self.skipped = sorted({*self.skipped, *other.skipped})


class Cast(Struct, frozen=True, tag=True):
    """One hop of a tree: take this, hand it on in your clusters 1 … `height`, and acknowledge when all have it."""

    hop: int
    height: int
    content: Content


class Ack(Struct, frozen=True, tag=True):
    """Back up: all below me have it. Answers a `Cast` or an `Orphan`."""

    hop: int
    answer: Answer | None = None


class Past(Struct, frozen=True, tag=True):
    """Back up: I hand nothing on (I am new here, or have left): reach past me. I took it myself if I am joining."""

    hop: int
    entry: Entry | None


# ── about the dead ────────────────────────────────────────────────────────────────────────────────────────────────


class News(Struct, frozen=True, tag=True):
    """The statuses of peers: which were born again, and which are dead."""

    statuses: Statuses


class Alive(Struct, frozen=True, tag=True):
    """A sign of life."""


class Orphan(Struct, frozen=True, tag=True):
    """To one member: the source of this is dead; make sure that everybody gets it."""

    hop: int
    pub: Pub


class Spare(Struct, frozen=True, tag=True):
    """To the peer that took a census: you lack this publication of a dead source."""

    pub: Pub


class Greet(Struct, frozen=True, tag=True):
    """To a peer that we presumed dead when we joined: I am a member. If you are one too, do you know me?"""

    topic: Topic
    entry: Entry


class Stranger(Struct, frozen=True, tag=True):
    """Back: I am a member, and did not know you."""

    topic: Topic


Body: TypeAlias = Cast | Ack | Past | News | Alive | Orphan | Spare | Greet | Stranger


class Packet(Struct, frozen=True, tag=True):
    """A message between two peers."""

    sender: Life
    receiver: Life
    body: Body
