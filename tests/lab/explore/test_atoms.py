"""Worlds of sequencing atoms: searched whole where they are small, walked at random where they are not."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from seriatim.cli.explore import command
from seriatim.lab.explore.atoms.cast import AtomsWorld
from seriatim.lab.explore.engine.search import SearchOptions, search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.registry import ATOMS
from seriatim.lab.explore.swarm import Swarm, SwarmOptions, walk_world
from seriatim.model import InputError
from seriatim.protocols import atoms
from seriatim.protocols.atoms.messages import Change, Forget

LARGE = ["retire"]
SMALL = [name for name in ATOMS.worlds if name not in LARGE]


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_of_a_small_world(name: str) -> None:
    result = search(Space(ATOMS.world(name).build()))
    assert result.exhausted and not result.violations and not result.cycles
    assert result.stopped_states > 1


@pytest.mark.parametrize("name", LARGE)
def test_a_search_that_is_too_long_says_so(name: str) -> None:
    result = search(Space(ATOMS.world(name).build()), SearchOptions(max_states=2_000))
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
        ("no-drain-marker", "bypass", {"stuck"}),
        ("no-flush", "shorten", {"stray"}),
    ],
)
def test_the_search_finds_what_a_missing_rule_breaks(variant: str, name: str, kinds: set[str]) -> None:
    result = search(Space(ATOMS.world(name).build(ATOMS.cast(variant))))
    assert {violation.kind for violation in result.violations} <= kinds and result.violations


def test_unknown_world_and_variant() -> None:
    with pytest.raises(InputError, match="triangle"):
        ATOMS.world("nowhere")
    with pytest.raises(InputError, match="no-drain-marker"):
        ATOMS.cast("no-such-rule")


def test_some_random_worlds_keep_every_promise() -> None:
    options = SwarmOptions(worlds=200, seed=11, protocol="atoms")
    result = Swarm(options).run()
    first = result.first_broken
    assert first is None, f"{first}; replay: seriatim explore swarm --protocol atoms --seed 11 --world {first.index}"
    assert result.worlds == 200 and result.notifications > 5_000


# The first world of seed 1 that is broken without each rule, and by what name: the table in the protocol's README.
CAUGHT = {
    "no-direction": (2, "stuck"),
    "no-forest": (11, "stuck"),
    "no-drain-marker": (8, "stuck"),
    "no-later-entry-drain": (8, "stuck"),
    "no-drain-report": (2, "stray"),
    "no-atom-numbers": (2, "inversion"),
    "no-marks": (1, "stuck"),
    "no-opening": (24, "stuck"),
    "no-two-phases": (11, "stuck"),
    "no-confirmation": (10, "unconfirmed"),
    "no-inherited-entry": (38, "topic-inversion"),
    "no-lingering": (0, "stuck"),
    "no-coupling-with-closed": (100, "graph"),
    "no-started-neighbours": (1, "failure"),
}
SEARCHED = {"no-flush"}  # too rare for a walk: the search finds it


@pytest.mark.parametrize("variant", CAUGHT)
def test_a_random_world_catches_a_missing_rule(variant: str) -> None:
    world, kind = CAUGHT[variant]
    violations = walk_world(1, world, variant, "atoms").violations
    assert violations and violations[0].kind == kind, violations
    assert walk_world(1, world, None, "atoms").violations == []


def test_the_readme_says_in_which_world() -> None:
    table = (Path(atoms.__file__).parent / "README.md").read_text(encoding="utf-8")
    for variant, (world, kind) in CAUGHT.items():
        rule = variant.removeprefix("no-").replace("-", " ")
        line = next(line for line in table.splitlines() if line.startswith(f"| {rule} |"))
        assert line.endswith(f"| {world}, {kind} |"), line


def test_the_page_of_the_explorer_says_how_soon_each_rule_is_missed() -> None:
    """In worlds of another seed, which nobody had looked at."""
    rows = re.findall(
        r"^\| `(no-[a-z-]+)` \| [^|]+ \| ([^|]+) \| ([a-z ]*) ?\|$", section("Sequencing atoms"), re.MULTILINE
    )
    assert {variant for variant, *_ in rows} == set(ATOMS.variants)
    for variant, worlds, kind in rows:
        if variant not in SEARCHED:
            violations = walk_world(2062, int(worlds) - 1, variant, "atoms").violations
            assert violations and violations[0].kind == kind.strip().replace(" ", "-"), variant


def section(title: str) -> str:
    page = (Path(__file__).parents[3] / "docs" / "explorer.md").read_text(encoding="utf-8")
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_variant_is_caught_somewhere() -> None:
    assert set(CAUGHT) | SEARCHED == set(ATOMS.variants)


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
