"""Worlds of VCube-PS: peers without a broker, that join, leave, publish, crash and are wrongly suspected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from seriatim.explore.vcube_checks import VCubeChecks
from seriatim.explore.world import Budget, Role, World
from seriatim.model import Address, Event, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.cube import id_at
from seriatim.protocols.vcube.messages import (
    Cast,
    Packet,
    Pub,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Suspect,
    Unsettled,
    Unsubscribe,
    Unsubscribed,
)

Command: TypeAlias = Subscribe | Unsubscribe | Publish | Suspect

# What overtakes what between two peers. one: nothing. kind: almost everything. content: everything but what is about
# the same event.
Lanes: TypeAlias = Literal["one", "kind", "content"]


@dataclass(frozen=True)
class VCubeWorld:
    """What there is to say about one world of peers; `build` makes a `World` of it."""

    name: str
    ids: Sequence[int]
    options: VCubeOptions
    scripts: Mapping[Address, Sequence[Command]]
    setup: Sequence[tuple[Address, Command]] = ()
    about: str = ""
    one_at_a_time: frozenset[Address] = frozenset()
    budgets: Mapping[Address, Budget] = field(default_factory=dict)
    lanes: Lanes = "one"
    accurate: bool = True  # nobody is suspected who lives
    patience: int = 0

    def build(self, peer: type[Peer] = Peer) -> World:
        """The world, played by peers of this type."""
        cube = Cube(self.ids)
        roles = {}
        for id in self.ids:
            machine = partial(peer, cube, id, self.options)
            roles[address_of(id)] = Role(machine, machine, partial(peer.restart, cube, id, self.options))
        return World(
            name=self.name,
            about=self.about,
            roles=roles,
            checks=VCubeChecks(self.accurate, founders_of(self.setup)),
            setup=self.setup,
            scripts=self.scripts,
            one_at_a_time=self.one_at_a_time,
            budgets=self.budgets,
            lane=LANES[self.lanes],
            lost_with=is_lost_with,
            suspicion=lambda address: Suspect(id_at(address) or 0),
            answers=answers,
            is_answer=is_answer,
            patience=self.patience,
        )


def founders_of(setup: Sequence[tuple[Address, Command]]) -> set[tuple[Address, Topic]]:
    """Who holds which topic before anything else happens."""
    return {(address, command.topic) for address, command in setup if isinstance(command, Subscribe)}


def one_lane(source: Address, target: Address, message: Payload) -> str:
    """Between two peers, first in first out."""
    return ""


def kind_lane(source: Address, target: Address, message: Payload) -> str:
    """Everything overtakes everything, except within a few lanes: more of them make no other worlds."""
    body = message.body if isinstance(message, Packet) else message
    return f"{type(body).__name__} {body.hop % 4}" if isinstance(body, Cast) else type(body).__name__


def content_lane(source: Address, target: Address, message: Payload) -> str:
    """The id of the event that a message carries, or else its kind: each overtakes all others."""
    body = message.body if isinstance(message, Packet) else message
    content = body.content if isinstance(body, Cast) else getattr(body, "pub", body)
    return content.event.id if isinstance(content, Pub) else type(content).__name__


LANES: dict[Lanes, Callable[[Address, Address, Payload], str]] = {
    "one": one_lane,
    "kind": kind_lane,
    "content": content_lane,
}


def is_lost_with(sender: Any, message: Payload) -> bool:
    """What a peer sent arrives, unless that life is over."""
    return sender is None or (isinstance(message, Packet) and sender.life != message.sender)


def publish(id: int, topic: Topic, *ids: str) -> list[Command]:
    """The commands to publish events with these ids, after subscribing if need be."""
    return [Publish(Event(event_id, topic, address_of(id)), join=True) for event_id in ids]


def answers(command: Payload) -> int:
    """One for each command, except for a suspicion."""
    return 0 if isinstance(command, Suspect) else 1


def is_answer(payload: Payload) -> bool:
    return isinstance(payload, Subscribed | Unsubscribed | Published | Unsettled)
