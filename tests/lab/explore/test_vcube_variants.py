"""Every rule of VCube-PS that is switched off is caught, in a world that is small enough to meet it soon."""

from random import Random

import pytest

from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.registry import VCUBE
from seriatim.lab.explore.swarm import walk_world
from seriatim.lab.explore.vcube.cast import VCubeWorld
from seriatim.lab.explore.vcube.plots import PLOTS
from seriatim.lab.explore.vcube.plotting import Plot, PlotWalk, plotted_world
from seriatim.lab.explore.vcube.random_worlds import PeerWalk
from seriatim.lab.explore.vcube.stories import (
    ALL_GONE,
    DYING,
    DYING_TOGETHER,
    JOINING,
    JOINING_WHILE_DYING,
    LEAVING,
    RETURNING,
    SUSPECTING,
    WANDERING,
)
from seriatim.model import InputError
from seriatim.protocols.vcube import Peer

WALKS_MAX = 3_000
PLAYS = 12
SEED = 20


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


# These take several things at the right moments.
TOLD = [
    ("no-known-start", "only joiners are left of those who had it"),
    ("no-arrival", "what members have of the dead comes late"),
    ("no-remains", "a leaver hands on events whose causes are lost"),
    ("no-own-answer", "a leaver returns while it still hands on"),
    ("no-stable-pruning", "two crashes"),
    ("no-spares", "all had it before somebody joined"),
    ("no-closed-frontier", "how far, told too early"),
    ("no-obituary", "left out as dead"),
    ("no-lasting-remains", "spares of an earlier census"),
    ("no-lasting-remains", "named to a joiner by a leaver"),
    ("no-lasting-remains", "handed on by a leaver"),
    ("no-full-remains", "notified and handed on by a leaver"),
    ("no-taking-up", "notified and handed on by a leaver that returned"),
    ("no-keeping-below", "handed on by a peer that began after it"),
    ("no-equal-news", "handed on by an earlier life"),
]

# So rare that only a random world of the swarm has met it: seed and index.
MET = {"no-new-start": (12, 41185)}

# What is rare is looked for from here on, so that the test is short.
FIRST_WALK = {"no-witness": 1_600, "no-census": 650}


def walk(plan: VCubeWorld, peer: type[Peer], walk: int) -> list[str]:
    """The kinds of promises that are broken on one random way."""
    run = Run(plan.build(peer))
    PeerWalk(run, Random(f"{SEED}/{walk}")).go()
    return [violation.kind for violation in run.finish()]


def test_every_variant_has_a_story() -> None:
    assert {*STORIES, *dict(TOLD), *MET} == set(VCUBE.variants)
    assert sorted(name for _, name in TOLD) == sorted(PLOTS)


@pytest.mark.parametrize(("variant", "name"), TOLD)
def test_a_rule_that_is_switched_off_is_caught_in_its_plot(variant: str, name: str) -> None:
    plot = PLOTS[name]
    kinds = [play(plot, VCUBE.cast(variant), number) for number in range(PLAYS)]
    expected = "stuck" if variant == "no-spares" else "causal-inversion"
    assert {kind for each in kinds for kind in each[:1]} == {expected}
    assert [play(plot, Peer, number) for number in range(PLAYS)] == [[]] * PLAYS


@pytest.mark.parametrize("variant", MET)
def test_a_rule_that_is_switched_off_is_caught_in_a_world_of_the_swarm(variant: str) -> None:
    seed, index = MET[variant]
    assert [violation.kind for violation in walk_world(seed, index, variant, "vcube").violations] == ["stuck"]
    assert walk_world(seed, index, None, "vcube").violations == []


def play(plot: Plot, peer: type[Peer], number: int) -> list[str]:
    """The kinds of promises that are broken when a plot is played."""
    run = Run(plotted_world("plot", plot).build(peer))
    PlotWalk(run, Random(f"{SEED}/{number}"), plot.steps).go()
    return [violation.kind for violation in run.finish()]


@pytest.mark.parametrize("variant", STORIES)
def test_a_rule_that_is_switched_off_is_caught(variant: str) -> None:
    plan, expected = STORIES[variant]
    first = FIRST_WALK.get(variant, 0)
    for number in range(first, first + WALKS_MAX):
        kinds = walk(plan, VCUBE.cast(variant), number)
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
        VCUBE.cast("no-such-rule")
