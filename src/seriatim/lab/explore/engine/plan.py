"""The description of a protocol for the explorer: small worlds by name, random worlds, and variants that break a rule.

`explore/registry.py` has one `Explorable` for each protocol. The command line, the swarm and the
tests ask the registry and know no protocol by name.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from seriatim.lab.explore.engine.checks import Checks, Violation
from seriatim.lab.explore.engine.run import ExplorerError, Run
from seriatim.lab.explore.engine.walk import Walk, random_of
from seriatim.lab.explore.engine.world import Budget, Role, Transition, World
from seriatim.model import Address, InputError
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import JournaledNode

CastT = TypeVar("CastT")  # the classes that play the machines; a variant replaces one of them
Known = TypeVar("Known")
MachineT = TypeVar("MachineT")


def pick(what: str, name: str, known: Mapping[str, Known]) -> Known:
    """The value of this name; otherwise an error that lists the names."""
    if name not in known:
        raise InputError(what, f"unknown {what} {name!r}", f"use one of {', '.join(known)}")
    return known[name]


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[CastT]):
    """The description of one world. A protocol adds its own fields, and `build` makes a `World` of them."""

    name: str
    scripts: Mapping[Address, Sequence[Payload]]
    setup: Sequence[tuple[Address, Payload]] = ()
    about: str = ""
    one_at_a_time: frozenset[Address] = frozenset()
    budgets: Mapping[Address, Budget] = field(default_factory=dict)
    patience: int = 0

    def build(self, cast: CastT | None = None) -> World:
        """The world, played by this cast; without one, by the proper machines."""
        raise NotImplementedError

    def world(self, roles: Mapping[Address, Role], checks: Checks, **more: Any) -> World:
        """A world with the fields that all plans share."""
        return World(
            name=self.name,
            about=self.about,
            roles=roles,
            checks=checks,
            setup=self.setup,
            scripts=self.scripts,
            one_at_a_time=self.one_at_a_time,
            budgets=self.budgets,
            patience=self.patience,
            **more,
        )


class Journey(NamedTuple):
    """A random world, and how to walk through it."""

    plan: Plan[Any]
    walk: Callable[[Run, Random], Walk] = Walk


@dataclass(frozen=True)
class Walked:
    """One world after its walk: the trace of its safety phase, and the violations in the end."""

    plan: Plan[Any]
    world: World
    way: list[Transition]
    violations: list[Violation]
    notifications: int


@dataclass(frozen=True)
class Explorable(Generic[CastT]):
    """One protocol, as the explorer sees it.

    - `worlds`: the small worlds that are searched, by name.
    - `variants`: machines that break one rule: what they do, and the cast. `proper` is the cast that breaks none.
    - `draw(random, index, name, variant)`: the random world of this index, and how to walk through it.
    """

    name: str
    machines: str
    proper: CastT
    worlds: Mapping[str, Plan[CastT]]
    variants: Mapping[str, tuple[str, CastT]]
    draw: Callable[[Random, int, str, str | None], Journey]
    example: str = ""  # a small world, for the help text

    def world(self, name: str) -> Plan[CastT]:
        """The small world of this name."""
        return pick("world", name, self.worlds)

    def cast(self, variant: str | None) -> CastT:
        """The cast of this variant; without a name, the proper one."""
        return self.proper if variant is None else pick("variant", variant, self.variants)[1]

    def walk(self, seed: int, index: int, variant: str | None = None) -> Walked:
        """Walk through one random world. The same arguments give the same walk."""
        random = random_of(seed, index)
        return walk_plan(self.draw(random, index, f"world {index} of seed {seed}", variant), random, self.cast(variant))


def walk_plan(journey: Journey, random: Random, cast: Any = None) -> Walked:
    """Walk once through a given world."""
    world = journey.plan.build(cast)
    run = Run(world)
    walk = journey.walk(run, random)
    walk.go()
    violations = run.finish()
    notifications = sum(len(process.log) for process in run.processes.values())
    return Walked(journey.plan, world, walk.way, violations, notifications)


def broken(machine: type[MachineT], **methods: Callable[..., Any]) -> type[MachineT]:
    """The machine with these methods in place of its own."""
    for name in methods:
        getattr(machine, name)  # a rule that has moved is not broken by replacing nothing
    return type(f"Broken{machine.__name__}", (machine,), methods)


def cast_with(proper: CastT, role: str, **methods: Callable[..., Any]) -> CastT:
    """The cast whose machine of this role has these methods in place of its own."""
    return replace(proper, **{role: broken(getattr(proper, role), **methods)})  # type: ignore[type-var]


def gives(result: Any) -> Callable[..., Any]:
    """A method that does nothing but give this."""
    return lambda *_: copy(result)


def by_name(plans: Sequence[Plan[CastT]]) -> dict[str, Plan[CastT]]:
    return {plan.name: plan for plan in plans}


def role_with_links(create: Callable[[], Any], retry_ms: float, journals: bool) -> Role:
    """A machine inside a node, which gives it links, and a journal if it keeps one."""

    def make() -> JournaledNode:
        return JournaledNode(create(), retry_ms, journals)

    return Role(make, _no_thaw, partial(JournaledNode.take_over, create, retry_ms) if journals else None)


def _no_thaw(state: object) -> NoReturn:
    raise ExplorerError("a world with links can be walked, not searched: the state of its links is not kept")


def one_answer_except(*unanswered: type) -> Callable[[Payload], int]:
    """How many answers a command is owed: one, except for commands of these types."""
    return lambda command: 0 if isinstance(command, unanswered) else 1


def instances_of(*types: type) -> Callable[[Payload], bool]:
    """Whether a payload is of one of these types."""
    return lambda payload: isinstance(payload, types)
