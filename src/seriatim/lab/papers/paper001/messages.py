"""The four messages of papers 001 and 002. README.md beside this file has the same list as a table.

The application's commands are those of protocols.vcube, so that both can play the same story.
"""

from typing import TypeAlias

from msgspec import Struct

from seriatim.model import Event, Topic
from seriatim.protocols.vcube.cube import Id

Counter: TypeAlias = int
Identifiers: TypeAlias = dict[Id, Counter]  # a set of ⟨s, c⟩ with one c for each s, as all of the paper's sets of them


class Operation(Struct, frozen=True, array_like=True):
    """⟨n, o, rc⟩: node n subscribed (or unsubscribed) when its counter was rc."""

    node: Id
    is_subscription: bool
    counter: Counter


class Sub(Struct, frozen=True, tag=True):
    """SUB, to all nodes."""

    source: Id
    topic: Topic
    counter: Counter


class Uns(Struct, frozen=True, tag=True):
    """UNS, to the subscribers of the topic."""

    source: Id
    topic: Topic
    counter: Counter


class Pub(Struct, frozen=True, tag=True):
    """PUB, to the subscribers of the topic, with its causal barrier."""

    source: Id
    topic: Topic
    counter: Counter
    barrier: Identifiers
    event: Event


class Ack(Struct, frozen=True, tag=True):
    """ACK of one of the above, with what the nodes below say of their membership."""

    source: Id
    topic: Topic
    counter: Counter
    members: tuple[Operation, ...]
