"""The messages of stations (station.py) and their clients, in addition to those between roles, and the types of all of
them.

Clients travel on the same links as machines do; what a link carries is never lost, repeated or reordered.
"""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, Node, Number, RemoteError, Topic
from seriatim.protocols.atoms import messages as say
from seriatim.protocols.atoms.overlaps import Group, incarnation_of

SLOT_BITS = 36  # of the number of a slot: the item's number in its group; the rest is the group's incarnation


# ── receivers and the coordinator ─────────────────────────────────────────────────────────────────────────────────


class Join(Struct, frozen=True, tag=True):
    """From a receiver: make me a member of this topic. It already listens to the topic at the broker."""

    topic: Topic


class Joined(Struct, frozen=True, tag=True):
    """To a receiver: you are a member from this group on."""

    topic: Topic
    group: Group


class Leave(Struct, frozen=True, tag=True):
    """From a receiver: I leave this topic. It still gets the end of its last group."""

    topic: Topic


class Place(Struct, frozen=True, tag=True):
    """To the coordinator, from its operator: atoms of these pairs of topics belong to these hosts, from now on."""

    placement: dict[str, Node]


class Left(Struct, frozen=True, tag=True):
    """To a receiver: events published from now on are not for you."""

    topic: Topic


# ── publishers and their ingress ──────────────────────────────────────────────────────────────────────────────────


class Numbered(Struct, frozen=True, tag=True):
    """To a publisher: the event has this place among its topic's. In causal order: and it has left the graph."""

    event_id: str
    place: Number


class Declined(Struct, frozen=True, tag=True):
    """To a publisher: the event was not taken, and nothing was changed."""

    event_id: str
    topic: Topic
    reason: str


class Withdrawn(Struct, frozen=True, tag=True):
    """From a publisher, in the place of an event that it has given up: a link cannot leave a number out."""


class Out(Struct, frozen=True, tag=True):
    """Causal order, last host → ingress: this item has left the graph, so whatever is sent now comes after it."""

    group: Group
    number: Number


# ── without links ─────────────────────────────────────────────────────────────────────────────────────────────────


class Alive(Struct, frozen=True, tag=True):
    """From a client, from time to time: I am here, and you have acknowledged this many of my messages."""

    acknowledged: int


class Forgotten(Struct, frozen=True, tag=True):
    """To a client: I have heard less of you than you say. You were silent for too long, and I have forgotten you."""


class Full(Struct, frozen=True, tag=True):
    """To an ingress: no more events of these topics, until I say otherwise; no topic: as many as you like.

    To a publisher: what you sent is not taken. Send it again, later or when there is room.
    """

    topics: frozenset[Topic]
    why: str


class Room(Struct, frozen=True, tag=True):
    """To a publisher: try again to send events that were not accepted."""


# ── what travels where ────────────────────────────────────────────────────────────────────────────────────────────

ToStation: TypeAlias = say.Publish | Withdrawn | Join | Leave | say.Started | say.Finished | say.Forget
ToClient: TypeAlias = Numbered | Declined | Joined | Left | say.Gone
FromCoordinator: TypeAlias = (
    say.Install | say.Reroute | say.Idle | say.Uninstall | say.Open | say.Close | say.Mark | say.Enter | say.Gone
)
ToCoordinator: TypeAlias = say.Done | say.Drained | say.Started | say.Finished
BetweenStations: TypeAlias = say.Carry | FromCoordinator | say.Forget | ToCoordinator | Out
Input: TypeAlias = Place | ToStation | BetweenStations
Sent: TypeAlias = ToClient | BetweenStations | say.Item


# ── items on the broker ───────────────────────────────────────────────────────────────────────────────────────────

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(say.Item).decode


def slot_of(item: say.Item) -> Number:
    """Where on the broker an item belongs, within its topic: it can be written there again without any harm."""
    return (incarnation_of(item.group) << SLOT_BITS) + item.number


def encode_item(item: say.Item) -> bytes:
    """An item as the broker keeps it."""
    return _encode(item)


def decode_item(data: bytes) -> say.Item:
    """RemoteError: no station has written this."""
    try:
        item = _decode(data)
        incarnation_of(item.group)
        return item
    except (*UNREADABLE, ValueError) as error:
        raise RemoteError(f"what the broker keeps is not an item: {error}") from None
