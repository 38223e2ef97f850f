"""Worlds of VCube-PS: peers without a broker, that join, leave, publish, crash and are wrongly suspected."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from seriatim.lab.explore.engine.plan import Plan, instances_of, one_answer_except
from seriatim.lab.explore.engine.world import Role, World, one_lane
from seriatim.lab.explore.vcube.checks import VCubeChecks
from seriatim.model import Address, Event, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube import messages as say
from seriatim.protocols.vcube.cube import id_at

Command: TypeAlias = say.Subscribe | say.Unsubscribe | say.Publish | say.Suspect

# What overtakes what between two peers. one: nothing. kind: almost everything. content: everything but what is about
# the same event.
Lanes: TypeAlias = Literal["one", "kind", "content"]


@dataclass(frozen=True, kw_only=True)
class VCubeWorld(Plan[type[Peer]]):
    """One world of peers. `accurate`: no living peer is suspected."""

    ids: Sequence[int]
    options: VCubeOptions
    lanes: Lanes = "one"
    accurate: bool = True

    def build(self, cast: type[Peer] | None = None) -> World:
        peer, cube = cast or Peer, Cube(self.ids)
        roles = {}
        for id in self.ids:
            machine = partial(peer, cube, id, self.options)
            roles[address_of(id)] = Role(machine, machine, partial(peer.restart, cube, id, self.options))
        return self.world(
            roles,
            VCubeChecks(self.accurate, founders_of(self.setup)),
            lane=LANES[self.lanes],
            lost_with=is_lost_with,
            suspicion=lambda address: say.Suspect(id_at(address) or 0),
            answers=one_answer_except(say.Suspect),
            is_answer=instances_of(say.Subscribed, say.Unsubscribed, say.EventReceived, say.Unsettled),
        )


def founders_of(setup: Sequence[tuple[Address, Payload]]) -> set[tuple[Address, Topic]]:
    """Which peer holds which topic before anything else happens."""
    return {(address, command.topic) for address, command in setup if isinstance(command, say.Subscribe)}


def kind_lane(source: Address, target: Address, message: Payload) -> str:
    """Everything overtakes everything, except within a few lanes: more of them make no other worlds."""
    body = message.body if isinstance(message, say.Packet) else message
    return f"{type(body).__name__} {body.hop % 4}" if isinstance(body, say.Cast) else type(body).__name__


def content_lane(source: Address, target: Address, message: Payload) -> str:
    """The id of the event that a message carries, or else its kind: each overtakes all others."""
    body = message.body if isinstance(message, say.Packet) else message
    content = body.content if isinstance(body, say.Cast) else getattr(body, "pub", body)
    return content.event.id if isinstance(content, say.Pub) else type(content).__name__


LANES: dict[Lanes, Callable[[Address, Address, Payload], str]] = {
    "one": one_lane,
    "kind": kind_lane,
    "content": content_lane,
}


def is_lost_with(sender: Any, message: Payload) -> bool:
    """What a peer sent arrives, unless that life is over."""
    return sender is None or (isinstance(message, say.Packet) and sender.life != message.sender)


def publish(id: int, topic: Topic, *ids: str) -> list[Command]:
    """The commands to publish events with these ids, after subscribing if need be."""
    return [say.Publish(Event(event_id, topic, address_of(id)), join=True) for event_id in ids]
