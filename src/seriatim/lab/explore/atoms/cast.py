"""Worlds of sequencing atoms: ingresses, atom hosts, receivers and a coordinator that changes groups meanwhile.

The search explores the machines themselves, which are given the perfect links they assume; worlds with faults run them
as nodes, with links and journals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from seriatim.lab.explore.atoms.checks import AtomsChecks
from seriatim.lab.explore.engine.plan import Plan, instances_of, one_answer_except, role_with_links
from seriatim.lab.explore.engine.world import Role, World
from seriatim.model import Address, Event, Topic
from seriatim.protocols import atoms
from seriatim.protocols.atoms import COORDINATOR, AtomHost, AtomsOptions, Coordinator, Ingress, Receiver
from seriatim.protocols.atoms.messages import Accepted, Change, Changed, Forget, Publish, Refused

Command: TypeAlias = Publish | Change | Forget


@dataclass(frozen=True)
class Cast:
    """The classes that play the roles. Variants replace one of them by a broken one."""

    ingress: type[Ingress] = Ingress
    host: type[AtomHost] = AtomHost
    receiver: type[Receiver] = Receiver
    coordinator: type[Coordinator] = Coordinator


PROPER = Cast()


@dataclass(frozen=True, kw_only=True)
class AtomsWorld(Plan[Cast]):
    """One world of atoms. `readers`: for each ingress, the receiver of whoever publishes there."""

    plan: atoms.Plan
    receivers: Sequence[Address]
    options: AtomsOptions
    readers: Mapping[Address, Address] = field(default_factory=dict)
    with_links: bool = False

    def build(self, cast: Cast | None = None) -> World:
        cast = cast or PROPER
        roles = {COORDINATOR: self._role(cast.coordinator, COORDINATOR)}
        roles |= {name: self._role(cast.ingress, name) for name in self.plan.ingresses}
        roles |= {name: self._role(cast.host, name) for name in self.plan.hosts}
        roles |= {name: self._role(cast.receiver, name, journals=False) for name in self.receivers}
        commands = [command for script in self.scripts.values() for command in script]
        forgotten = frozenset(command.receiver for command in commands if isinstance(command, Forget))
        return self.world(
            roles,
            AtomsChecks(self.plan, self.options, self.readers, forgotten),
            answers=one_answer_except(Forget),
            is_answer=instances_of(Accepted, Changed, Refused),
        )

    def _role(self, machine_type: Any, name: Address, journals: bool = True) -> Role:
        create = partial(machine_type, self.plan, name, self.options)
        if not self.with_links:
            return Role(create, create)
        return role_with_links(create, self.options.retry_ms, journals)


def publish(ingress: Address, topic: Topic, *ids: str) -> list[Command]:
    """The commands to publish events with these ids, in this order."""
    return [Publish(Event(id, topic, ingress)) for id in ids]


def change(topic: Topic, members: str) -> Change:
    """The command to give a topic these members, separated by blanks."""
    return Change(topic, frozenset(members.split()))
