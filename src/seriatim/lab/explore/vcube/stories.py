"""Stories: small worlds of VCube-PS, each about one or two rules, that a random walk meets soon. `plotting.plot`
explains how they are written.

Tests catch every rule that is switched off in its own story, and the swarm walks through all of them.
"""

from dataclasses import replace
from random import Random

from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.vcube.cast import VCubeWorld
from seriatim.lab.explore.vcube.plotting import founded_by, plot, scripts_of
from seriatim.lab.explore.vcube.random_worlds import HEARTBEAT_MS
from seriatim.protocols.vcube import VCubeOptions, address_of


def story(
    ids: str, members: str, told: str, dying: str = "", crashing: str = "", ticks: int = 4, window: int = 4
) -> VCubeWorld:
    """Peers, who holds the topic at first, what they are told, and who may die or restart."""
    plan = plot(ids, members, told)
    fails = bool(dying or crashing or ticks > 4)
    budgets = {
        address_of(id): Budget(
            ticks=ticks, losses=99, deaths=int(str(id) in dying.split()), crashes=int(str(id) in crashing.split())
        )
        for id in plan.ids
    }
    return VCubeWorld(
        name="story",
        ids=plan.ids,
        options=VCubeOptions(
            window=window, heartbeat_ms=HEARTBEAT_MS if fails else None, suspect_after_ms=450.0 if ticks > 4 else 950.0
        ),
        scripts=scripts_of(plan.steps),
        setup=founded_by(plan.members),
        budgets=budgets if fails else {},
        lanes="kind",
        accurate=ticks <= 4,
        patience=300 if fails else 0,
    )


FOUR = "0 1 2 3"

JOINING = story("0 4 5", "0 5", "4 joins; 0 publishes 0.1, 0.2, 0.3; 5 publishes 5.1, 5.2")
MOVING = story(FOUR, "0 1 2", "3 joins; 0 publishes 0.1, 0.2; 1 publishes 1.1, 1.2; 1 leaves; 2 publishes 2.1, 2.2")
LEAVING = story(FOUR, FOUR, "0 publishes 0.1, 0.2, 0.3; 2 leaves")
WANDERING = story("0 1 2", "0 1", "0 publishes 0.1, 0.2; 0 leaves; 0 joins; 0 publishes 0.3; 1 leaves; 2 joins")
RETURNING = story(
    "0 1 2", "0 1 2", "0 leaves; 0 joins; 0 publishes 0.1, 0.2; 1 publishes 1.1, 1.2; 2 publishes 2.1, 2.2"
)
DYING = story(FOUR, FOUR, "0 publishes 0.1, 0.2; 1 publishes 1.1, 1.2; 3 publishes 3.1, 3.2", dying="0 2")
DYING_TOGETHER = story(
    FOUR,
    FOUR,
    "0 publishes 0.1, 0.2; 1 publishes 1.1, 1.2, 1.3; 2 publishes 2.1, 2.2; 3 publishes 3.1, 3.2",
    dying="1 2",
)
JOINING_WHILE_DYING = story(
    FOUR,
    "0 1 2",
    "0 publishes 0.1, 0.2, 0.3; 1 publishes 1.1, 1.2; 1 leaves; 1 joins; 2 publishes 2.1, 2.2; 3 joins",
    dying="0 2",
)
SUSPECTING = story(
    FOUR,
    FOUR,
    """
    0 suspects 1; 0 publishes 0.1, 0.2, 0.3; 1 publishes 1.1, 1.2, 1.3
    2 suspects 0; 2 publishes 2.1, 2.2; 3 publishes 3.1, 3.2
    """,
    ticks=99,
)
RESTARTING = story(
    FOUR,
    "2 3",
    "0 1 join; 0 publishes 0.1, 0.2; 1 publishes 1.1, 1.2; 2 publishes 2.1, 2.2; 3 publishes 3.1, 3.2",
    crashing="0 1",
)
ALL_GONE = story(  # of those who were members at the same time, nobody is left
    FOUR,
    FOUR,
    "0 publishes 0.1, 0.2; 1 publishes 1.1, 1.2; 2 leaves; 2 joins; 3 publishes 3.1",
    dying="0 3",
    crashing="1",
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
