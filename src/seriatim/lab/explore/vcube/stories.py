"""Stories: small worlds of VCube-PS, each about one or two rules, that a random walk meets soon.

Tests catch every rule that is switched off in its own story, and the swarm walks through all of them.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.vcube.cast import Command, VCubeWorld, publish
from seriatim.lab.explore.vcube.random_worlds import HEARTBEAT_MS
from seriatim.protocols.vcube import VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Subscribe, Suspect, Unsubscribe

JOIN, LEAVE = Subscribe("A"), Unsubscribe("A")


def story(
    ids: Iterable[int],
    scripts: dict[int, list[Command]],
    setup: Iterable[int],
    dying: Iterable[int] = (),
    crashing: Iterable[int] = (),
    ticks: int = 4,
    window: int = 4,
) -> VCubeWorld:
    """Peers, what they are told, who holds the topic at first, and who may die or restart."""
    ids, dying, crashing = list(ids), set(dying), set(crashing)
    fails = bool(dying or crashing or ticks > 4)
    budgets = {}
    for id in ids if fails else ():
        budgets[address_of(id)] = Budget(ticks=ticks, losses=99, deaths=int(id in dying), crashes=int(id in crashing))
    return VCubeWorld(
        name="story",
        ids=ids,
        options=VCubeOptions(
            window=window, heartbeat_ms=HEARTBEAT_MS if fails else None, suspect_after_ms=450.0 if ticks > 4 else 950.0
        ),
        scripts={address_of(id): script for id, script in scripts.items()},
        setup=[(address_of(id), JOIN) for id in setup],
        budgets=budgets,
        lanes="kind",
        accurate=ticks <= 4,
        patience=300 if fails else 0,
    )


def events(id: int, count: int = 2) -> list[Command]:
    """One event after the other."""
    return publish(id, "A", *(f"{id}.{i}" for i in range(1, count + 1)))


JOINING = story([0, 4, 5], {4: [JOIN], 0: events(0, 3), 5: events(5)}, setup=[0, 5])
MOVING = story([0, 1, 2, 3], {3: [JOIN], 0: events(0), 1: [*events(1), LEAVE], 2: events(2)}, setup=[0, 1, 2])
LEAVING = story(range(4), {0: events(0, 3), 2: [LEAVE]}, setup=range(4))
WANDERING = story(
    [0, 1, 2], {0: [*events(0), LEAVE, JOIN, *publish(0, "A", "0.3")], 1: [LEAVE], 2: [JOIN]}, setup=[0, 1]
)
RETURNING = story([0, 1, 2], {0: [LEAVE, JOIN, *events(0)], 1: events(1), 2: events(2)}, setup=[0, 1, 2])
DYING = story(range(4), {0: events(0), 1: events(1), 3: events(3)}, setup=range(4), dying=[0, 2])
DYING_TOGETHER = story(
    range(4), {0: events(0), 1: events(1, 3), 2: events(2), 3: events(3)}, setup=range(4), dying=[1, 2]
)
JOINING_WHILE_DYING = story(
    range(4), {0: events(0, 3), 1: [*events(1), LEAVE, JOIN], 2: events(2), 3: [JOIN]}, setup=range(3), dying=[0, 2]
)
SUSPECTING = story(
    range(4),
    {0: [Suspect(1), *events(0, 3)], 1: events(1, 3), 2: [Suspect(0), *events(2)], 3: events(3)},
    setup=range(4),
    ticks=99,
)
RESTARTING = story(
    range(4), {0: [JOIN, *events(0)], 1: [JOIN, *events(1)], 2: events(2), 3: events(3)}, setup=[2, 3], crashing=[0, 1]
)

ALL_GONE = story(  # of those who were members at the same time, nobody is left
    range(4),
    {0: events(0), 1: events(1), 2: [LEAVE, JOIN], 3: events(3, 1)},
    setup=range(4),
    dying=[0, 3],
    crashing=[1],
    window=1,
)

STORIES = (
    JOINING,
    MOVING,
    LEAVING,
    WANDERING,
    RETURNING,
    DYING,
    DYING_TOGETHER,
    JOINING_WHILE_DYING,
    SUSPECTING,
    RESTARTING,
    ALL_GONE,
)


def random_story(random: Random, name: str) -> VCubeWorld:
    """One of the stories."""
    return replace(random.choice(STORIES), name=name)
