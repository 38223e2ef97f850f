"""Every rule of VCube-PS that is switched off is caught, in a world that is small enough to meet it soon."""

from collections.abc import Iterable
from random import Random

import pytest

from seriatim.explore.run import Run
from seriatim.explore.vcube import Command, VCubeWorld, publish
from seriatim.explore.vcube_random import HEARTBEAT_MS, PeerWalk
from seriatim.explore.vcube_variants import VCUBE_VARIANTS, peer_of
from seriatim.explore.world import Budget
from seriatim.model import InputError
from seriatim.protocols.vcube import Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Subscribe, Suspect, Unsubscribe

WALKS_MAX = 3_000
SEED = 20
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
        overtaking=True,
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

STORIES: dict[str, tuple[VCubeWorld, set[str]]] = {
    "no-frontier": (JOINING, {"stuck"}),
    "no-complete-view": (JOINING, {"loss", "stuck"}),
    "no-second-round": (JOINING, {"loss", "stuck"}),
    "no-full-counts": (RETURNING, {"causal-inversion"}),
    "no-memory": (WANDERING, {"stuck"}),
    "no-rerouting": (DYING, {"stuck"}),
    "no-custody": (DYING, {"loss", "stuck"}),
    "no-census": (DYING_TOGETHER, {"stuck"}),
    "no-recount": (JOINING_WHILE_DYING, {"causal-inversion"}),
    "no-second-look": (SUSPECTING, {"loss", "stuck"}),
    "no-witness": (ALL_GONE, {"causal-inversion", "fifo-inversion"}),
    "no-birth-notice": (SUSPECTING, {"loss", "stuck"}),
    "no-burial": (SUSPECTING, {"loss", "stuck", "causal-inversion", "fifo-inversion"}),
    "no-reception-order": (JOINING, {"loss", "stuck"}),
    "no-reaching-past": (LEAVING, {"loss", "stuck"}),
}


# These take several things at the right moments: `test_vcube_histories.py` tells of them step by step.
TOLD = {
    "no-closed-frontier",
    "no-spares",
    "no-stable-pruning",
    "no-known-start",
    "no-arrival",
    "no-remains",
    "no-own-answer",
}

# What is rare is looked for from here on, so that the test is short.
FIRST_WALK = {"no-witness": 1_600, "no-census": 650}


def walk(plan: VCubeWorld, peer: type[Peer], walk: int) -> list[str]:
    """The kinds of promises that are broken on one random way."""
    run = Run(plan.build(peer))
    PeerWalk(run, Random(f"{SEED}/{walk}")).go()
    return [violation.kind for violation in run.finish()]


def test_every_variant_has_a_story() -> None:
    assert set(STORIES) | TOLD == set(VCUBE_VARIANTS)


@pytest.mark.parametrize("variant", STORIES)
def test_a_rule_that_is_switched_off_is_caught(variant: str) -> None:
    plan, expected = STORIES[variant]
    first = FIRST_WALK.get(variant, 0)
    for number in range(first, first + WALKS_MAX):
        kinds = walk(plan, peer_of(variant), number)
        if kinds:
            assert kinds[0] in expected, f"walk {number}"
            assert walk(plan, Peer, number) == [], f"walk {number} with all rules"
            return
    raise AssertionError(f"{variant} was not caught on {WALKS_MAX} walks")


@pytest.mark.parametrize("number", [151, 256])
def test_a_census_that_ends_because_somebody_died_does_not_count(number: int) -> None:
    """Once it did: the death was noticed only after the census had been found complete."""
    assert walk(JOINING_WHILE_DYING, Peer, number) == []


def test_unknown_variant() -> None:
    with pytest.raises(InputError, match="no-frontier"):
        peer_of("no-such-rule")
