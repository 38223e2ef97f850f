"""Worlds of the content-based overlay: brokers in a tree, clients that advertise, publish and subscribe by filters.

The search explores the machines themselves, which are given the perfect links they assume; worlds with faults run them
as nodes, with links and journals.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from seriatim.filters import Value, headers_of
from seriatim.lab.explore.engine.plan import Plan, instances_of, one_answer_except, role_with_links
from seriatim.lab.explore.engine.world import Role, World
from seriatim.lab.explore.overlay.checks import OverlayChecks
from seriatim.model import Address, Event
from seriatim.protocols.overlay import Broker, Client, Overlay, OverlayOptions
from seriatim.protocols.overlay import messages as say

Command: TypeAlias = (
    say.Subscribe | say.Unsubscribe | say.Advertise | say.Unadvertise | say.Publish | say.Suspect | say.Forget
)


@dataclass(frozen=True, kw_only=True)
class OverlayWorld(Plan[type[Broker]]):
    """One world of brokers. `clients`: the broker of each."""

    overlay: Overlay
    clients: Mapping[Address, Address]
    options: OverlayOptions
    with_links: bool = False

    def build(self, cast: type[Broker] | None = None) -> World:
        broker = cast or Broker
        roles = {name: self._role(partial(broker, place, self.options)) for name, place in self.overlay.places.items()}
        roles |= {name: self._role(partial(Client, name, at), journals=False) for name, at in self.clients.items()}
        return self.world(
            roles,
            OverlayChecks(self.options, self.clients, self.setup, self.scripts),
            answers=one_answer_except(say.Suspect, say.Forget),
            is_answer=instances_of(
                say.Subscribed, say.Unsubscribed, say.Advertised, say.Unadvertised, say.EventTaken, say.Refused
            ),
        )

    def _role(self, create: Any, journals: bool = True) -> Role:
        if not self.with_links:
            return Role(create, lambda state: create(state=state))
        return role_with_links(create, self.options.retry_ms, journals)


def publish(client: Address, id: str, **attributes: Value) -> say.Publish:
    """The command to publish an event with these attributes."""
    return say.Publish(Event(id, "", client, headers=headers_of(attributes)))
