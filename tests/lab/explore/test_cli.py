"""`seriatim explore`: what it prints, and how it ends."""

import json

import pytest
from click.testing import CliRunner, Result

from seriatim.cli import main
from seriatim.lab.explore.swarm import Swarm, SwarmResult


def explore(*words: str) -> Result:
    return CliRunner().invoke(main, ["explore", *words])


def test_a_world_is_searched() -> None:
    result = explore("tree", "--world", "leave-ticket")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("world leave-ticket: every interleaving\n")
    assert result.output.endswith("no violation found\n")


def test_a_violation_is_told_with_its_replay() -> None:
    result = explore("tree", "--world", "move-pairwise-ticket", "--variant", "no-left-topics")
    assert result.exit_code == 1
    assert "violation: inversion: y was notified of f before e, z of e before f" in result.output
    assert "      z notifies e (A 1)" in result.output
    assert result.output.endswith(
        "replay: seriatim explore tree --world move-pairwise-ticket --variant no-left-topics\n"
    )


def test_a_bound_is_not_an_end() -> None:
    result = explore("tree", "--world", "chain", "--max-states", "100", "--json")
    assert result.exit_code == 3
    found = json.loads(result.output)
    assert (found["states"], found["exhausted"], found["bound"]) == (100, False, "100 states")


def test_worlds_and_variants_are_listed() -> None:
    assert "pair-twice" in explore("tree", "--list").output
    assert "no-closing" in explore("swarm", "--list-variants").output
    assert "chain" in json.loads(explore("tree", "--list", "--json").output)
    assert "no-floor" in json.loads(explore("swarm", "--list-variants", "--json").output)


def test_a_swarm_is_walked() -> None:
    result = explore("swarm", "--worlds", "20", "--seed", "11", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["worlds"] == 20


def test_a_broken_world_is_named_and_replayed_alone() -> None:
    result = explore("swarm", "--worlds", "200", "--seed", "4", "--variant", "no-at-least")
    assert result.exit_code == 1
    replay = result.output.splitlines()[-1]
    assert replay.startswith("replay: seriatim explore swarm --seed 4 --world ")
    alone = explore(*replay.split()[3:])
    assert alone.exit_code == 1
    assert alone.output.splitlines()[-1] == replay


def test_an_interrupt_leaves_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Swarm) -> SwarmResult:
        self.result.worlds = 7
        self.result.bound = "interrupted"
        raise KeyboardInterrupt

    monkeypatch.setattr(Swarm, "run", interrupted)
    result = explore("swarm", "--json")
    assert result.exit_code == 130
    assert json.loads(result.output)["worlds"] == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tree", "--world", "nowhere"], "world: unknown world 'nowhere'"),
        (["tree"], "name a world with --world"),
        (["tree", "--world", "leave", "--max-states", "0"], "max_states: 0 is not positive"),
        (["swarm", "--variant", "no-way"], "variant: unknown variant 'no-way'"),
        (["swarm", "--worlds", "-5"], "worlds: -5 is too small"),
    ],
)
def test_bad_input_is_named(words: list[str], message: str) -> None:
    result = explore(*words)
    assert result.exit_code == 2
    assert message in result.output
