"""The real machines of the sequencing tree, in every interleaving of small worlds; broken ones are caught."""

from dataclasses import replace

import pytest

from seriatim.explore.search import SearchOptions, SearchResult, search
from seriatim.explore.space import Space
from seriatim.explore.trace import shrink, transcript
from seriatim.explore.tree import TreeWorld
from seriatim.explore.variants import cast_of
from seriatim.explore.worlds import named_world, named_worlds
from seriatim.model import InputError


def small(name: str, without: tuple[str, ...] = ()) -> TreeWorld:
    """A named world, without some of its clients."""
    world = named_world(name)
    return replace(world, scripts={who: script for who, script in world.scripts.items() if who not in without})


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("leave", ()),
        ("leave-ticket", ()),
        ("move", ()),
        ("move-ticket", ()),
        ("pair", ("q",)),
        ("pair-chain-ticket", ("q",)),
        ("chain", ("p", "q")),
        ("star-ticket", ("p", "q")),
    ],
)
def test_every_interleaving_keeps_every_promise(name: str, without: tuple[str, ...]) -> None:
    result = search(Space(small(name, without).build()))
    assert result.exhausted
    assert result.violations == {}
    assert result.stopped_states > 0
    assert result.cycles == 0


@pytest.mark.parametrize(
    ("name", "without", "variant", "kind"),
    [
        ("leave-ticket", (), None, None),
        ("leave-ticket", (), "no-closing", "inversion"),
        ("move-ticket", (), "no-left-topics", "inversion"),
        ("pair-ticket", ("q",), None, None),
    ],
)
def test_reductions_lose_nothing_on_real_machines(
    name: str, without: tuple[str, ...], variant: str | None, kind: str | None
) -> None:
    def everything(persistent_sets: bool, sleep_sets: bool) -> SearchResult:
        options = SearchOptions(persistent_sets, sleep_sets, stop_at_violation=False, keep_outcomes=True)
        result = search(Space(small(name, without).build(cast_of(variant))), options)
        assert result.exhausted
        return result

    plain = everything(persistent_sets=False, sleep_sets=False)
    assert {violation.kind for violation in plain.violations} == ({kind} if kind else set())
    for persistent_sets, sleep_sets in [(False, True), (True, False), (True, True)]:
        reduced = everything(persistent_sets, sleep_sets)
        assert reduced.outcomes == plain.outcomes
        assert reduced.violations.keys() == plain.violations.keys()
        assert reduced.states <= plain.states


def test_a_caught_variant_is_told_as_a_story() -> None:
    world = named_world("move-ticket").build(cast_of("no-left-topics"))
    [(violation, way)] = search(Space(world)).violations.items()
    assert violation.sentence == "y was notified of f before e, z of e before f"
    short, found = shrink(world, way, violation.kind)
    assert found == violation
    lines = transcript(world, short)
    assert lines.index("  z is told: Change add {B} remove {A}") > lines.index("      z notifies e (A 1)")


def test_named_worlds_are_described() -> None:
    assert all(world.about and world.name == name for name, world in named_worlds().items())
    with pytest.raises(InputError, match="world: there is none called 'nowhere'; use one of leave, "):
        named_world("nowhere")
