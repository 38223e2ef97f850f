"""Worlds of the content-based overlay: searched whole where they are small, walked at random where they are not."""

import json

import pytest
from click.testing import CliRunner

from seriatim.cli.explore import command
from seriatim.lab.explore.engine.search import SearchOptions, search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.overlay.cast import OverlayWorld
from seriatim.lab.explore.registry import OVERLAY
from seriatim.lab.explore.swarm import Swarm, SwarmOptions, walk_world
from seriatim.model import InputError
from seriatim.protocols.overlay.messages import Forget, Suspect, Unadvertise, Unsubscribe
from tests.protocols.overlay.test_stories import STORIES

LARGE = ["pair", "early"]
SMALL = [name for name in OVERLAY.worlds if name not in LARGE]


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_of_a_small_world(name: str) -> None:
    result = search(Space(OVERLAY.world(name).build()))
    assert result.exhausted and not result.violations and not result.cycles
    assert result.stopped_states >= 1


@pytest.mark.parametrize("name", LARGE)
def test_the_beginning_of_a_larger_one(name: str) -> None:
    result = search(Space(OVERLAY.world(name).build()), SearchOptions(max_states=1_000))
    assert not result.exhausted and not result.violations


@pytest.mark.parametrize(
    ("variant", "name", "kinds"),
    [
        ("no-way-down", "fork", {"inversion"}),
        ("no-turning-mark", "withdraw", {"stuck"}),
        ("no-asking-above", "withdraw", {"stuck"}),
        ("no-late-joining", "join", {"inversion"}),
        ("no-uncovering", "cover", {"loss"}),
        ("no-new-before-old", "cover", {"loss"}),
        ("no-merge", "clocks", {"gap", "inversion"}),
        ("paper-003", "clocks", {"inversion"}),
    ],
)
def test_the_search_finds_what_a_missing_rule_breaks(variant: str, name: str, kinds: set[str]) -> None:
    result = search(Space(OVERLAY.world(name).build(OVERLAY.cast(variant))))
    assert {violation.kind for violation in result.violations} <= kinds and result.violations


def test_unknown_world_and_variant() -> None:
    with pytest.raises(InputError, match="fork"):
        OVERLAY.world("nowhere")
    with pytest.raises(InputError, match="no-way-down"):
        OVERLAY.cast("no-such-rule")


def test_some_random_worlds_keep_every_promise() -> None:
    options = SwarmOptions(worlds=150, seed=11, protocol="overlay")
    result = Swarm(options).run()
    first = result.first_broken
    assert first is None, f"{first}; replay: seriatim explore swarm --protocol overlay --seed 11 --world {first.index}"
    assert result.worlds == 150 and result.notifications > 3_000


# World 0, 1, … of this seed until one is broken, and what may be broken in it.
CAUGHT = {
    "no-way-down": {"inversion"},
    "no-following": {"publisher-inversion"},
    "no-way-back": {"loss"},
    "no-turning-mark": {"stuck"},
    "no-asking-above": {"stuck"},
    "no-asking-on": {"stuck"},
    "no-true-turning": {"loss", "inversion"},
    "no-heard-advertisement": {"loss", "inversion"},
    "no-pulling": {"loss"},
    "no-echo": {"loss"},
    "no-uncovering": {"loss"},
    "no-own-numbers": {"gap", "hole"},
    "no-single-source": {"inversion"},
    "no-late-joining": {"inversion", "publisher-inversion"},
    "no-late-withdrawal": {"loss"},
    "no-merge": {"gap", "inversion"},
    "no-asking-beyond": {"gap"},
    "no-raised-clock": {"gap"},
    "no-clock-heard": {"gap"},
    "paper-003": {"inversion"},
}
TOLD_OTHERWISE = {
    "no-new-before-old",
    "no-end-of-early",
    "no-beginning",
    "no-second-echo",
    *STORIES,
}  # by search, or as a story


@pytest.mark.parametrize("variant", CAUGHT)
def test_random_worlds_catch_a_missing_rule(variant: str) -> None:
    for index in range(300):
        violations = walk_world(5, index, variant, "overlay").violations
        if violations:
            assert violations[0].kind in CAUGHT[variant], violations[0]
            return
    raise AssertionError(f"{variant} was not caught")


def test_every_variant_is_caught_somewhere() -> None:
    assert set(CAUGHT) | TOLD_OTHERWISE == set(OVERLAY.variants)


def test_random_worlds_meet_every_fault_and_kind_of_change() -> None:
    kinds: set[str] = set()
    seen: set[object] = set()
    for index in range(150):
        walked = walk_world(11, index, None, "overlay")
        plan = walked.plan
        assert isinstance(plan, OverlayWorld)
        kinds |= {transition.kind for transition in walked.way}
        seen |= {plan.options.order, ("early", plan.options.early), ("brokers", len(plan.overlay.parents))}
        for script in plan.scripts.values():
            seen |= {type(each) for each in script if isinstance(each, Forget | Suspect | Unadvertise | Unsubscribe)}
    assert kinds == {"deliver", "issue", "tick", "crash", "die", "lose", "replace", "haunt"}
    assert len(seen) == 4 + 2 + 9 + 4


def test_commands() -> None:
    runner = CliRunner()
    listed = runner.invoke(command, ["overlay", "--list"])
    assert listed.exit_code == 0 and "fork" in listed.output
    clean = runner.invoke(command, ["overlay", "--world", "withdraw"])
    assert clean.exit_code == 0 and "every interleaving" in clean.output
    broken = runner.invoke(command, ["overlay", "--world", "fork", "--variant", "no-way-down"])
    assert broken.exit_code == 1 and "replay: seriatim explore overlay --world fork" in broken.output
    variants = runner.invoke(command, ["swarm", "--protocol", "overlay", "--list-variants", "--json"])
    assert "paper-003" in json.loads(variants.output)
    swarm = runner.invoke(command, ["swarm", "--protocol", "overlay", "--worlds", "5", "--json"])
    assert swarm.exit_code == 0 and json.loads(swarm.output)["worlds"] == 5
