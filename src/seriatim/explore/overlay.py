"""Worlds of the content-based overlay: brokers in a tree, clients that advertise, publish and subscribe by filters.

The search explores the machines themselves, which are given the perfect links they assume; worlds with faults run them
as nodes, with links and journals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from seriatim.explore.overlay_checks import OverlayChecks
from seriatim.explore.run import ExplorerError
from seriatim.explore.world import Budget, Role, World
from seriatim.filters import Value, headers_of
from seriatim.model import Address, Event
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay import Broker, Client, Node, Overlay, OverlayOptions
from seriatim.protocols.overlay.messages import (
    Advertise,
    Advertised,
    Forget,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Suspect,
    Unadvertise,
    Unadvertised,
    Unsubscribe,
    Unsubscribed,
)

Command: TypeAlias = Subscribe | Unsubscribe | Advertise | Unadvertise | Publish | Suspect | Forget

ANSWERS = (Subscribed, Unsubscribed, Advertised, Unadvertised, Published, Refused)


@dataclass(frozen=True)
class OverlayCast:
    """The class that plays the brokers. Variants replace it by a broken one."""

    broker: type[Broker] = Broker


PROPER_OVERLAY = OverlayCast()


@dataclass(frozen=True)
class OverlayWorld:
    """What there is to say about one world of brokers; `build` makes a `World` of it. `clients`: where each lives."""

    name: str
    overlay: Overlay
    clients: Mapping[Address, Address]
    options: OverlayOptions
    scripts: Mapping[Address, Sequence[Command]]
    setup: Sequence[tuple[Address, Command]] = ()
    about: str = ""
    one_at_a_time: frozenset[Address] = frozenset()
    budgets: Mapping[Address, Budget] = field(default_factory=dict)
    with_links: bool = False
    patience: int = 0

    def build(self, cast: OverlayCast = PROPER_OVERLAY) -> World:
        """The world, played by this cast."""
        roles = {
            name: self._role(partial(cast.broker, place, self.options)) for name, place in self.overlay.places.items()
        }
        roles |= {name: self._role(partial(Client, name, at), journals=False) for name, at in self.clients.items()}
        return World(
            name=self.name,
            about=self.about,
            roles=roles,
            checks=OverlayChecks(self.options, self.clients, self.setup, self.scripts),
            setup=self.setup,
            scripts=self.scripts,
            one_at_a_time=self.one_at_a_time,
            budgets=self.budgets,
            answers=answers,
            is_answer=is_answer,
            patience=self.patience,
        )

    def _role(self, create: Any, journals: bool = True) -> Role:
        if not self.with_links:
            return Role(create, lambda state: create(state=state))
        restore = partial(Node.take_over, create, self.options.retry_ms) if journals else None
        return Role(partial(_node, create, self.options.retry_ms, journals), _no_thaw, restore)


def _node(create: Any, retry_ms: float, journals: bool) -> Node:
    return Node(create(), retry_ms, journals)


def _no_thaw(state: Any) -> Any:
    raise ExplorerError("a world with links is walked, not searched: its links are part of no state that is kept")


def publish(client: Address, id: str, **attributes: Value) -> Publish:
    """The command to publish an event with these attributes."""
    return Publish(Event(id, "", client, headers=headers_of(attributes)))


def answers(command: Payload) -> int:
    """One for each command of a client."""
    return 0 if isinstance(command, Suspect | Forget) else 1


def is_answer(payload: Payload) -> bool:
    return isinstance(payload, ANSWERS)
