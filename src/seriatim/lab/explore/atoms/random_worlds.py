"""Random worlds of sequencing atoms: any memberships, topics that come, change and go, hosts that crash."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from seriatim.lab.explore.atoms.cast import AtomsWorld, Command, publish
from seriatim.lab.explore.engine.walk import PATIENCE, client_budget, server_budget
from seriatim.lab.explore.engine.world import Budget
from seriatim.model import Address, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, Plan, plan_of
from seriatim.protocols.atoms.messages import Change, Forget
from seriatim.protocols.atoms.overlaps import Members

TOPICS = "ABCDEFGH"


def random_atoms(random: Random, name: str) -> AtomsWorld:
    """A plan, changes of its groups, publications meanwhile, and budgets for faults.

    Most worlds have few receivers and many topics: then most groups overlap.
    """
    receivers = [f"r{i}" for i in range(1, random.choice([2, 3, 3, 4, 4, 5]) + 1)]
    topics = list(TOPICS[: random.choice([2, 3, 4, 4, 5, 6])])
    hosts = [f"h{i}" for i in range(1, random.choice([1, 2, 3, 4, 5, 6]) + 1)]
    ingresses = [f"i{i}" for i in range(1, random.choice([1, 2, 3]) + 1)]
    options = AtomsOptions(causal=random.random() < 0.25, spread=random.random() < 0.7)
    share = random.choice([0.4, 0.6, 0.8])
    memberships = {topic: _members(random, receivers, share) for topic in topics if random.random() < 0.7}
    plan = plan_of(memberships, hosts, ingresses, options.threshold)
    faulty = random.random() < 0.4
    script = _changes(random, topics, receivers, set(memberships), share, random.choice([0, 1, 2, 3, 4, 6]))
    busy = random.choice([4, 8, 16, 32, 48])
    scripts = _scripts(random, plan, topics, script, lambda: random.randint(1, busy))
    world = AtomsWorld(name=name, plan=plan, receivers=receivers, options=options, scripts=scripts)
    return _troubled(random, world, script, faulty, 0.5)


def random_retirement(random: Random, name: str) -> AtomsWorld:
    """A world about atoms that are put in and taken out while many messages pass.

    Everybody belongs to nearly everything. Hosts are many, so that the old way and the new one are not the same link.
    """
    receivers = ["r1", "r2", "r3"]
    topics = list(TOPICS[: random.choice([3, 3, 4, 5])])
    hosts = [f"h{i}" for i in range(1, random.choice([4, 6, 8]) + 1)]
    ingresses = ["i1", "i2"]
    options = AtomsOptions(spread=True)
    memberships = {topic: _members(random, receivers, 0.9) for topic in topics}
    plan = plan_of(memberships, hosts, ingresses, options.threshold)
    script = _changes(random, topics, receivers, set(topics), 0.9, random.choice([1, 2, 3]))
    scripts = _scripts(random, plan, topics, script, lambda: random.randint(10, 40))
    return AtomsWorld(name=name, plan=plan, receivers=receivers, options=options, scripts=scripts)


def random_forest(random: Random, name: str) -> AtomsWorld:
    """A world of many trees, which are joined and come apart: each group overlaps with few others.

    Receivers sit in a ring, and a group is some who sit side by side. Now and then all who belong to something are
    forgotten, dead or alive, at any moment.
    """
    receivers = [f"r{i}" for i in range(1, random.choice([5, 6, 8, 9]) + 1)]
    topics = list(TOPICS[: random.choice([5, 6, 7, 8])])
    hosts = [f"h{i}" for i in range(1, random.choice([2, 4, 6, 8]) + 1)]
    ingresses = [f"i{i}" for i in range(1, random.choice([2, 3]) + 1)]
    options = AtomsOptions(causal=random.random() < 0.2, spread=random.random() < 0.8)
    memberships = {topic: _side_by_side(random, receivers) for topic in topics if random.random() < 0.8}
    plan = plan_of(memberships, hosts, ingresses, options.threshold)
    held = set(memberships)
    script: list[Command] = []
    for _ in range(random.choice([2, 4, 6, 8])):
        topic = random.choice(topics)
        ends = topic in held and random.random() < 0.4
        script.append(Change(topic, frozenset() if ends else _side_by_side(random, receivers)))
        (held.discard if ends else held.add)(topic)
    if random.random() < 0.3:
        place = random.randint(0, len(script))
        script[place:place] = [Forget(each) for each in sorted(_side_by_side(random, receivers))]
    scripts = _scripts(random, plan, topics, script, lambda: random.choice([8, 16, 32]))
    faulty = random.random() < 0.3
    world = AtomsWorld(name=name, plan=plan, receivers=receivers, options=options, scripts=scripts)
    return _troubled(random, world, script, faulty, 0.3)


def _members(random: Random, receivers: list[Address], share: float) -> Members:
    return frozenset(each for each in receivers if random.random() < share) or frozenset({random.choice(receivers)})


def _side_by_side(random: Random, receivers: list[Address]) -> Members:
    first, count = random.randrange(len(receivers)), random.choice([1, 2, 3, 3, 4])
    return frozenset((receivers * 2)[first : first + count])


def _changes(
    random: Random, topics: list[Topic], receivers: list[Address], held: set[Topic], share: float, count: int
) -> list[Command]:
    """Topics begin, change a little, change altogether, end, and begin again."""
    script: list[Command] = []
    for _ in range(count):
        topic = random.choice(topics)
        if topic in held and random.random() < 0.3:
            script.append(Change(topic, frozenset()))
            held.discard(topic)
        else:
            script.append(Change(topic, _members(random, receivers, share)))
            held.add(topic)
    return script


def _scripts(
    random: Random, plan: Plan, topics: list[Topic], changes: list[Command], count: Callable[[], int]
) -> dict[Address, list[Command]]:
    """The changes, and at each ingress that has topics so many publications on any of them."""
    scripts = {COORDINATOR: changes}
    for ingress in plan.ingresses:
        mine = [topic for topic in topics if plan.ingress_of(topic) == ingress]
        if mine:
            numbers = range(1, count() + 1)
            scripts[ingress] = [
                command for i in numbers for command in publish(ingress, random.choice(mine), f"{ingress}.{i}")
            ]
    return scripts


def _troubled(random: Random, world: AtomsWorld, changes: list[Command], faulty: bool, patient: float) -> AtomsWorld:
    """The same world with readers, in part with changes one at a time, and with faults if it is to have any."""
    return replace(
        world,
        one_at_a_time=frozenset({COORDINATOR} if random.random() < patient else ()),
        budgets=_budgets(random, world, changes) if faulty else {},
        readers={ingress: random.choice(world.receivers) for ingress in world.plan.ingresses},
        with_links=faulty,
        patience=PATIENCE if faulty else 0,
    )


def _budgets(random: Random, world: AtomsWorld, changes: list[Command]) -> dict[Address, Budget]:
    """Hosts crash or are taken over, and so do the others; messages are lost; receivers die, and most are forgotten."""
    budgets = {machine: server_budget(random) for machine in (COORDINATOR, *world.plan.hosts, *world.plan.ingresses)}
    for receiver in world.receivers:
        budgets[receiver] = client_budget(random)
        if budgets[receiver].deaths and random.random() < 0.7:
            changes.insert(random.randint(0, len(changes)), Forget(receiver))
    return budgets
