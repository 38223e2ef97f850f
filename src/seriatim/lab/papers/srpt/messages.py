"""The messages of SRPT. README.md beside this file has them as a table. Commands and answers are those of VCube-PS."""

from msgspec import Struct

from seriatim.model import Event, Number, Topic

# ── towards the root ──────────────────────────────────────────────────────────────────────────────────────────────


class Join(Struct, frozen=True, tag=True):
    """To the parent in the topic's tree, or from a client to its broker: send me what comes down.

    `attempt` tells the answers to two joins apart, if there was a leave between them.
    """

    topic: Topic
    attempt: int


class Leave(Struct, frozen=True, tag=True):
    """To the parent, or to the broker: send me nothing more."""

    topic: Topic


class Request(Struct, frozen=True, tag=True):
    """To the topic's root (from a client: to its broker, which passes it on): publish this."""

    event: Event


# ── away from the root ────────────────────────────────────────────────────────────────────────────────────────────


class Joined(Struct, frozen=True, tag=True):
    """To a child: the tree reaches you; the next publication you get is the one after `number`."""

    topic: Topic
    attempt: int
    number: Number


class Pub(Struct, frozen=True, tag=True):
    """To a child: publication `number` of the topic, as the root counts them."""

    number: Number
    event: Event
