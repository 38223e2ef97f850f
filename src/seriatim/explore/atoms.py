"""Worlds of sequencing atoms: ingresses, atom hosts, receivers and a coordinator that changes groups meanwhile.

The search explores the machines themselves, which are given the perfect links they assume; worlds with faults run them
as nodes, with links and journals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from seriatim.explore.atoms_checks import AtomsChecks
from seriatim.explore.run import ExplorerError
from seriatim.explore.world import Budget, Role, World
from seriatim.model import Address, Event, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomHost, AtomsOptions, Coordinator, Ingress, Node, Plan, Receiver
from seriatim.protocols.atoms.messages import Accepted, Change, Changed, Forget, Publish, Refused
from seriatim.protocols.machine import Payload

Command: TypeAlias = Publish | Change | Forget


@dataclass(frozen=True)
class AtomsCast:
    """The classes that play the roles. Variants replace one of them by a broken one."""

    ingress: type[Ingress] = Ingress
    host: type[AtomHost] = AtomHost
    receiver: type[Receiver] = Receiver
    coordinator: type[Coordinator] = Coordinator


PROPER_ATOMS = AtomsCast()


@dataclass(frozen=True)
class AtomsWorld:
    """What there is to say about one world of atoms; `build` makes a `World` of it."""

    name: str
    plan: Plan
    receivers: Sequence[Address]
    options: AtomsOptions
    scripts: Mapping[Address, Sequence[Command]]
    about: str = ""
    one_at_a_time: frozenset[Address] = frozenset()
    budgets: Mapping[Address, Budget] = field(default_factory=dict)
    readers: Mapping[Address, Address] = field(
        default_factory=dict
    )  # ingress → the receiver of whoever publishes there
    with_links: bool = False
    patience: int = 0

    def build(self, cast: AtomsCast = PROPER_ATOMS) -> World:
        """The world, played by this cast."""
        roles = {COORDINATOR: self._role(cast.coordinator, COORDINATOR)}
        roles |= {name: self._role(cast.ingress, name) for name in self.plan.ingresses}
        roles |= {name: self._role(cast.host, name) for name in self.plan.hosts}
        roles |= {name: self._role(cast.receiver, name, journals=False) for name in self.receivers}
        commands = [command for script in self.scripts.values() for command in script]
        forgotten = frozenset(command.receiver for command in commands if isinstance(command, Forget))
        return World(
            name=self.name,
            about=self.about,
            roles=roles,
            checks=AtomsChecks(self.plan, self.options, self.readers, forgotten),
            scripts=self.scripts,
            one_at_a_time=self.one_at_a_time,
            budgets=self.budgets,
            answers=answers,
            is_answer=is_answer,
            patience=self.patience,
        )

    def _role(self, machine_type: Any, name: Address, journals: bool = True) -> Role:
        create = partial(machine_type, self.plan, name, self.options)
        if not self.with_links:
            return Role(create, create)
        restore = partial(Node.take_over, create, self.options.retry_ms) if journals else None
        return Role(partial(_node, create, self.options.retry_ms, journals), _no_thaw, restore)


def _node(create: Any, retry_ms: float, journals: bool) -> Node:
    return Node(create(), retry_ms, journals)


def _no_thaw(state: Any) -> Any:
    raise ExplorerError("a world with links is walked, not searched: its links are part of no state that is kept")


def publish(ingress: Address, topic: Topic, *ids: str) -> list[Command]:
    """The commands to publish events with these ids, one after the other."""
    return [Publish(Event(id, topic, ingress)) for id in ids]


def change(topic: Topic, members: str) -> Change:
    """The command to give a topic these members, separated by blanks."""
    return Change(topic, frozenset(members.split()))


def answers(command: Payload) -> int:
    """One for each command, except for a receiver that is to be forgotten."""
    return 0 if isinstance(command, Forget) else 1


def is_answer(payload: Payload) -> bool:
    return isinstance(payload, Accepted | Changed | Refused)
