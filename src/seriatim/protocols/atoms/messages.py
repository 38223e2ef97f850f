"""The messages between the roles. All of it travels on links that neither lose, repeat nor reorder (node.py)."""

from typing import TypeAlias

from msgspec import Struct, field

from seriatim.model import Address, Event, Node, Number, Topic
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, Pair
from seriatim.protocols.link import Frame as Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Forgetting

Token: TypeAlias = str

# ── commands of applications, and what they are told ──────────────────────────────────────────────────────────────


class Publish(Struct, frozen=True, tag=True):
    """To an ingress: number this event in its topic's group and send it on its way.

    A sender whose answers may be lost numbers its requests from 1, and repeats one until it is answered. A repeat
    gets the same answer and no second number.
    """

    event: Event
    request: int = 0


class Accepted(Struct, frozen=True, tag=True):
    """From an ingress: the event has this number in this group."""

    event_id: str
    group: Group
    number: Number


class Change(Struct, frozen=True, tag=True):
    """To the coordinator: from now on these are the members of the topic. Nobody: the topic ends."""

    topic: Topic
    members: Members


class Changed(Struct, frozen=True, tag=True):
    """From the coordinator: events published from now on go to the members of this group, in order."""

    topic: Topic
    group: Group
    members: Members


class Forget(Forgetting, frozen=True, tag=True):
    """To the coordinator, and from it to all: this receiver is gone for good. Nothing waits for it any more."""

    receiver: Address

    @property
    def whom(self) -> Address:
        return self.receiver


class Refused(Struct, frozen=True, tag=True):
    """To a client: its command was refused; nothing was changed."""

    topic: Topic
    reason: str


class Stray(Struct, frozen=True, tag=True):
    """From a host: something came for an atom that is not here. It is kept; everything else continues."""

    atom: AtomId
    source: str
    message: Payload


# ── messages on their way through the atoms ───────────────────────────────────────────────────────────────────────


class Notice(Struct, frozen=True, tag=True):
    """A message of a group about the group itself, numbered like any other.

    - `opens`: the first message. `closes`: the last one, as a FIN, or a mark behind it.
    - `mark`: a path has become longer or shorter; from here on the group leaves at `end`, which tells the coordinator.
    - `way`: all atoms that this message passes; `members`: who gets it.
    - `overlaps`: atoms that count from here on, and for whom. Before the first message of a group they number other
      messages too, which need not be waited for.
    """

    opens: bool = False
    closes: bool = False
    mark: Token = ""
    way: tuple[AtomId, ...] = ()
    members: Members = frozenset()
    overlaps: dict[AtomId, Members] = field(default_factory=dict)

    @property
    def end(self) -> AtomId | None:
        return self.way[-1] if self.way else None


class Item(Struct, tag=True):
    """One message of a group: an event or a notice, its number in the group, and one number per own atom passed.

    `place`: how many events its topic has had so far, over all incarnations, this one counted. Only where groups come
    and go under the eyes of applications (station.py); it decides nothing.
    """

    group: Group
    number: Number
    stamp: dict[AtomId, Number]
    event: Event | None = None
    notice: Notice | None = None
    place: Number = 0


class Begin(Struct, frozen=True, tag=True):
    """The first message on a new way: keep back what follows until the `Drain` has come."""

    token: Token
    rejoin: AtomId


class Drain(Struct, frozen=True, tag=True):
    """The last message on an old way. It ends where both ways meet again, or at the root."""

    token: Token
    rejoin: AtomId | None


Passing: TypeAlias = Item | Begin | Drain


class Carry(Struct, frozen=True, tag=True):
    """To the host of an atom: this comes from another atom, or (its group's name) from an ingress."""

    atom: AtomId
    source: str
    passing: Passing


# ── from the coordinator ──────────────────────────────────────────────────────────────────────────────────────────


class Install(Struct, frozen=True, tag=True):
    """To a host: here is a new atom, and there its next one lives."""

    token: Token
    atom: AtomId
    pair: Pair
    next: AtomId | None
    next_host: Node


class Reroute(Struct, frozen=True, tag=True):
    """To a host: this atom leads elsewhere from now on; see `changing.Turn`."""

    token: Token
    atom: AtomId
    next: AtomId | None
    next_host: Node
    rejoin: AtomId | None


class Idle(Struct, frozen=True, tag=True):
    """To a host: this atom numbers nothing any more."""

    token: Token
    atom: AtomId


class Uninstall(Struct, frozen=True, tag=True):
    """To a host: nothing comes to this atom any more."""

    token: Token
    atom: AtomId


class Open(Struct, frozen=True, tag=True):
    """To an ingress: close the topic's group, if it has one, and open this one."""

    token: Token
    topic: Topic
    group: Group
    notice: Notice
    entry_host: Node


class Close(Struct, frozen=True, tag=True):
    """To an ingress: the topic ends here."""

    token: Token
    topic: Topic


class Mark(Struct, frozen=True, tag=True):
    """To an ingress: the group's path has changed; tell so in its sequence. A closed group can be marked too."""

    group: Group
    notice: Notice
    entry_host: Node


class Enter(Struct, frozen=True, tag=True):
    """To an ingress: the group enters further on (or nowhere): the entry so far is drained."""

    token: Token
    group: Group
    entry: AtomId | None
    entry_host: Node


class Gone(Struct, frozen=True, tag=True):
    """To ingress, hosts and receivers: nothing is left of this group, and these atoms number nothing any more."""

    group: Group
    atoms: frozenset[AtomId] = frozenset()


# ── to the coordinator ────────────────────────────────────────────────────────────────────────────────────────────


class Done(Struct, frozen=True, tag=True):
    """The request with this token is done."""

    token: Token


class Drained(Struct, frozen=True, tag=True):
    """The old way is empty, and where the new one meets it the new one is in use."""

    token: Token


class Started(Struct, frozen=True, tag=True):
    """From a receiver: it was notified of the first message of this group."""

    group: Group


class Finished(Struct, frozen=True, tag=True):
    """From a receiver: it was notified of everything in this group, up to the FIN, or to this mark behind it."""

    group: Group
    mark: Token = ""
