"""Worlds of VCube-PS: searched whole where they are small, walked at random where they are not."""

import json

import pytest
from click.testing import CliRunner

from seriatim.cli.explore import command
from seriatim.lab.explore.engine.search import SearchOptions, search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.engine.trace import shrink, transcript
from seriatim.lab.explore.registry import VCUBE
from seriatim.lab.explore.swarm import Swarm, SwarmOptions, walk_world
from seriatim.lab.explore.vcube.cast import VCubeWorld
from seriatim.model import InputError

SMALL = [name for name in VCUBE.worlds if name != "join-late"]


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_of_a_small_world(name: str) -> None:
    result = search(Space(VCUBE.world(name).build()))
    assert result.exhausted and not result.violations and not result.cycles
    assert result.stopped_states > 1


@pytest.mark.parametrize(
    ("variant", "name", "kind"),
    [
        ("no-frontier", "join", "stuck"),
        ("no-complete-view", "join-behind", "loss"),
        ("no-reaching-past", "leave-behind", "loss"),
    ],
)
def test_the_search_finds_what_a_missing_rule_breaks(variant: str, name: str, kind: str) -> None:
    result = search(Space(VCUBE.world(name).build(VCUBE.cast(variant))))
    assert {violation.kind for violation in result.violations} == {kind}


def test_a_search_that_is_too_long_says_so() -> None:
    result = search(Space(VCUBE.world("join-late").build()), SearchOptions(max_states=2_000))
    assert not result.exhausted and result.bound == "2,000 states" and not result.violations


def test_unknown_world() -> None:
    with pytest.raises(InputError, match="join-behind"):
        VCUBE.world("nowhere")


def test_some_random_worlds_keep_every_promise() -> None:
    options = SwarmOptions(worlds=300, seed=11, protocol="vcube")
    result = Swarm(options).run()
    first = result.first_broken
    assert first is None, f"{first}; replay: seriatim explore swarm --protocol vcube --seed 11 --world {first.index}"
    assert result.worlds == 300 and result.notifications > 5_000


ONCE_BROKEN = {
    "who waited to leave was not told that its orphan was settled by another way": [(7, 42210)],
    "a joiner was handing on what a census did not count": [(8, 399)],
    "who was alone settled the first of its orphans, left, and then looked for the second": [(31, 22960)],
}


@pytest.mark.parametrize(("seed", "index"), [world for worlds in ONCE_BROKEN.values() for world in worlds])
def test_what_was_once_broken(seed: int, index: int) -> None:
    assert walk_world(seed, index, None, "vcube").violations == []


def test_random_worlds_meet_every_fault_and_size() -> None:
    kinds: set[str] = set()
    seen: set[object] = set()
    for index in range(400):
        walked = walk_world(11, index, None, "vcube")
        plan = walked.plan
        assert isinstance(plan, VCubeWorld)
        kinds |= {transition.kind for transition in walked.way}
        seen |= {
            plan.options.window,
            plan.options.pruning,
            ("accurate", plan.accurate),
            ("lanes", plan.lanes),
        }
        seen.add("large" if len(plan.ids) > 12 else "small")
    assert kinds == {"deliver", "issue", "tick", "crash", "die", "lose", "suspect"}
    assert len(seen) == 4 + 2 + 2 + 3 + 2


def test_a_broken_world_is_told_in_few_lines() -> None:
    walked = next(each for index in range(100) if (each := walk_world(1, index, "no-frontier", "vcube")).violations)
    short, violation = shrink(walked.world, walked.way, walked.violations[0].kind)
    assert violation is not None and violation.kind == "stuck"
    assert len(short) < len(walked.way)
    assert any("Subscribe" in line for line in transcript(walked.world, short))


def test_commands() -> None:
    runner = CliRunner()
    listed = runner.invoke(command, ["vcube", "--list"])
    assert listed.exit_code == 0 and "join-behind" in listed.output
    clean = runner.invoke(command, ["vcube", "--world", "window"])
    assert clean.exit_code == 0 and "every interleaving" in clean.output
    broken = runner.invoke(command, ["vcube", "--world", "join-behind", "--variant", "no-complete-view"])
    assert broken.exit_code == 1 and "replay: seriatim explore vcube --world join-behind" in broken.output
    variants = runner.invoke(command, ["swarm", "--protocol", "vcube", "--list-variants", "--json"])
    assert "no-custody" in json.loads(variants.output)
    swarm = runner.invoke(command, ["swarm", "--protocol", "vcube", "--worlds", "20", "--json"])
    assert swarm.exit_code == 0 and json.loads(swarm.output)["worlds"] == 20
    caught = runner.invoke(command, ["swarm", "--protocol", "vcube", "--variant", "no-rerouting"])
    assert caught.exit_code == 1 and "--protocol vcube" in caught.output
    with pytest.raises(InputError, match="unknown"):
        SwarmOptions(protocol="vcube", variant="no-hop-by-hop")
    with pytest.raises(InputError, match="use one of tree, vcube"):
        SwarmOptions(protocol="mesh")
