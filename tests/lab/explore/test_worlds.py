"""The real machines of the sequencing tree, in every interleaving of small worlds; broken ones are caught."""

from dataclasses import replace

import pytest
from msgspec import structs

from seriatim.lab.explore.engine.search import SearchOptions, SearchResult, search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.engine.trace import shrink, transcript
from seriatim.lab.explore.registry import TREE
from seriatim.lab.explore.tree.cast import TreeWorld
from seriatim.model import InputError


def small(name: str, without: tuple[str, ...] = ()) -> TreeWorld:
    """A named world, without some of its clients."""
    world = TREE.world(name)
    assert isinstance(world, TreeWorld)
    return replace(world, scripts={who: script for who, script in world.scripts.items() if who not in without})


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("leave", ()),
        ("leave-ticket", ()),
        ("move", ()),
        ("move-ticket", ()),
        ("leave-pairwise", ()),
        ("move-pairwise-ticket", ()),
        ("circle-pairwise-ticket", ()),
        ("pair", ("q",)),
        ("pair-chain-ticket", ("q",)),
        ("chain", ("p", "q")),
        ("star-ticket", ("p", "q")),
        ("past", ("p",)),
        ("moving", ()),
        ("moving-ticket", ()),
        ("moving-pair-ticket", ("p",)),
        ("joining-leaf", ()),
        ("joining-leaf-ticket", ()),
        ("leaving-leaf", ()),
        ("leaving-leaf-ticket", ()),
        ("growing-root", ()),
        ("growing-root-ticket", ()),
        pytest.param("growing-root-pair-ticket", ("p",), marks=pytest.mark.long),
    ],
)
def test_every_interleaving_keeps_every_promise(name: str, without: tuple[str, ...]) -> None:
    result = search(Space(small(name, without).build()))
    assert result.exhausted
    assert result.violations == {}
    assert result.stopped_states > 0
    assert result.cycles == 0


@pytest.mark.parametrize(
    ("name", "without"), [("leave", ()), ("move-ticket", ()), ("pair", ("q",)), ("pair-chain-ticket", ("q",))]
)
def test_the_order_log_fits_every_interleaving(name: str, without: tuple[str, ...]) -> None:
    world = small(name, without)
    world = replace(world, options=structs.replace(world.options, order="global"))
    result = search(Space(world.build()))
    assert result.exhausted
    assert result.violations == {}
    assert result.stopped_states > 0


@pytest.mark.parametrize(("name", "without"), [("move", ()), ("pair", ("q",))])
def test_voids_in_a_log_break_no_promise(name: str, without: tuple[str, ...]) -> None:
    result = search(Space(replace(small(name, without), markers=2).build()))
    assert result.exhausted
    assert result.violations == {}
    assert result.stopped_states > 0
    assert result.cycles == 0


@pytest.mark.parametrize(
    ("name", "without", "variant", "kind"),
    [
        ("leave-ticket", (), None, None),
        ("leave-pairwise-ticket", (), "no-closing", "inversion"),
        ("move-pairwise-ticket", (), "no-left-topics", "inversion"),
        ("move-on-ticket", ("r",), None, None),
        ("pair-ticket", ("q",), None, None),
    ],
)
def test_reductions_lose_nothing_on_real_machines(
    name: str, without: tuple[str, ...], variant: str | None, kind: str | None
) -> None:
    def everything(persistent_sets: bool, sleep_sets: bool) -> SearchResult:
        options = SearchOptions(persistent_sets, sleep_sets, stop_at_violation=False, keep_outcomes=True)
        result = search(Space(small(name, without).build(TREE.cast(variant))), options)
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
    world = TREE.world("move-pairwise-ticket").build(TREE.cast("no-left-topics"))
    [(violation, way)] = search(Space(world)).violations.items()
    assert violation.sentence == "y was notified of f before e, z of e before f"
    short, found = shrink(world, way, violation.kind)
    assert found == violation
    lines = transcript(world, short)
    assert lines.index("  z is told: Change add {B} remove {A}") > lines.index("      z notifies e (A 1)")


def test_named_worlds_are_described() -> None:
    assert all(world.about and world.name == name for name, world in TREE.worlds.items())
    with pytest.raises(InputError, match="world: unknown world 'nowhere'; use one of leave, "):
        TREE.world("nowhere")
