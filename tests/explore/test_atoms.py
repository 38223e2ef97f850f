"""Worlds of sequencing atoms: searched whole where they are small, walked at random where they are not."""

import json

import pytest
from click.testing import CliRunner

from seriatim.cli.explore import command
from seriatim.explore.atoms import AtomsWorld
from seriatim.explore.atoms_variants import ATOMS_VARIANTS, atoms_cast_of
from seriatim.explore.atoms_worlds import named_atoms_world, named_atoms_worlds
from seriatim.explore.search import SearchOptions, search
from seriatim.explore.space import Space
from seriatim.explore.swarm import Swarm, SwarmOptions, walk_world
from seriatim.model import InputError
from seriatim.protocols.atoms.messages import Change, Forget

LARGE = ["retire"]
SMALL = [name for name in named_atoms_worlds() if name not in LARGE]


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_of_a_small_world(name: str) -> None:
    result = search(Space(named_atoms_world(name).build()))
    assert result.exhausted and not result.violations and not result.cycles
    assert result.stopped_states > 1


@pytest.mark.parametrize("name", LARGE)
def test_a_search_that_is_too_long_says_so(name: str) -> None:
    result = search(Space(named_atoms_world(name).build()), SearchOptions(max_states=2_000))
    assert not result.exhausted and result.bound == "2,000 states" and not result.violations


@pytest.mark.parametrize(
    ("variant", "name", "kinds"),
    [
        ("no-direction", "triangle", {"stuck"}),
        ("no-forest", "triangle", {"stuck"}),
        ("no-atom-numbers", "triangle", {"inversion"}),
        ("no-marks", "open", {"stuck"}),
        ("no-opening", "open", {"inversion", "stuck"}),
        ("no-two-phases", "open", {"inversion", "stuck"}),
        ("no-started-neighbours", "replace", {"stuck"}),
    ],
)
def test_the_search_finds_what_a_missing_rule_breaks(variant: str, name: str, kinds: set[str]) -> None:
    result = search(Space(named_atoms_world(name).build(atoms_cast_of(variant))))
    assert {violation.kind for violation in result.violations} <= kinds and result.violations


def test_unknown_world_and_variant() -> None:
    with pytest.raises(InputError, match="triangle"):
        named_atoms_world("nowhere")
    with pytest.raises(InputError, match="no-drain-marker"):
        atoms_cast_of("no-such-rule")


def test_some_random_worlds_keep_every_promise() -> None:
    options = SwarmOptions(worlds=200, seed=11, protocol="atoms")
    result = Swarm(options).run()
    first = result.first_broken
    assert first is None, f"{first}; replay: seriatim explore swarm --protocol atoms --seed 11 --world {first.index}"
    assert result.worlds == 200 and result.notifications > 5_000


# World 0, 1, … of this seed until one is broken, and what may be broken in it.
CAUGHT = {
    "no-direction": {"stuck", "stray", "inversion", "causal-inversion"},
    "no-forest": {"stuck", "stray", "inversion"},
    "no-atom-numbers": {"inversion", "topic-inversion"},
    "no-opening": {"stuck", "inversion", "topic-inversion"},
    "no-marks": {"stuck"},
    "no-two-phases": {"stuck", "inversion"},
    "no-confirmation": {"unconfirmed"},
    "no-lingering": {"stuck", "inversion"},
    "no-started-neighbours": {"stuck", "failure"},
    "no-drain-report": {"stray"},
    "no-drain-marker": {"stuck"},
}
TOLD_AS_STORIES = {  # too rare for a short walk
    "no-coupling-with-closed",
    "no-flush",
    "no-inherited-entry",
    "no-later-entry-drain",
}
FIRST_WORLD = {"no-drain-marker": 30}


@pytest.mark.parametrize("variant", CAUGHT)
def test_random_worlds_catch_a_missing_rule(variant: str) -> None:
    first = FIRST_WORLD.get(variant, 0)
    for index in range(first, first + 100):
        violations = walk_world(5, index, variant, "atoms").violations
        if violations:
            assert violations[0].kind in CAUGHT[variant], violations[0]
            assert walk_world(5, index, None, "atoms").violations == []
            return
    raise AssertionError(f"{variant} was not caught")


def test_every_variant_is_caught_somewhere() -> None:
    assert set(CAUGHT) | TOLD_AS_STORIES == set(ATOMS_VARIANTS)


def test_random_worlds_meet_every_fault_and_kind_of_change() -> None:
    kinds: set[str] = set()
    seen: set[object] = set()
    for index in range(150):
        walked = walk_world(11, index, None, "atoms")
        plan = walked.plan
        assert isinstance(plan, AtomsWorld)
        kinds |= {transition.kind for transition in walked.way}
        seen |= {("causal", plan.options.causal), ("spread", plan.options.spread), ("links", plan.with_links)}
        for script in plan.scripts.values():
            seen |= {"ends" for each in script if isinstance(each, Change) and not each.members}
            seen |= {"forgets" for each in script if isinstance(each, Forget)}
    assert kinds == {"deliver", "issue", "tick", "crash", "die", "lose", "replace", "haunt"}
    assert len(seen) == 3 * 2 + 2


def test_commands() -> None:
    runner = CliRunner()
    listed = runner.invoke(command, ["atoms", "--list"])
    assert listed.exit_code == 0 and "triangle" in listed.output
    clean = runner.invoke(command, ["atoms", "--world", "pair"])
    assert clean.exit_code == 0 and "every interleaving" in clean.output
    broken = runner.invoke(command, ["atoms", "--world", "triangle", "--variant", "no-direction"])
    assert broken.exit_code == 1 and "replay: seriatim explore atoms --world triangle" in broken.output
    variants = runner.invoke(command, ["swarm", "--protocol", "atoms", "--list-variants", "--json"])
    assert "no-drain-marker" in json.loads(variants.output)
    swarm = runner.invoke(command, ["swarm", "--protocol", "atoms", "--worlds", "10", "--json"])
    assert swarm.exit_code == 0 and json.loads(swarm.output)["worlds"] == 10
    caught = runner.invoke(command, ["swarm", "--protocol", "atoms", "--variant", "no-marks"])
    assert caught.exit_code == 1 and "--protocol atoms" in caught.output
