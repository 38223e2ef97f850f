"""The search finds what there is to find, and the reductions lose nothing."""

from dataclasses import replace

import pytest

from seriatim.lab.explore.engine.run import ExplorerError, Run
from seriatim.lab.explore.engine.search import SearchOptions, SearchResult, search
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.engine.world import World
from seriatim.model import InputError
from tests.lab.explore.toys import broadcast, lock, ping_pong, retry

WORLDS = {
    "ordered": lambda: broadcast(speakers=2, listeners=2, words=2),
    "direct": lambda: broadcast(speakers=2, listeners=2, ordered=False, in_order=False),
    "direct, three": lambda: broadcast(speakers=3, listeners=2, ordered=False, in_order=False),
    "bag": lambda: broadcast(speakers=2, listeners=2, in_order=False, bag=True),
    "bag in order": lambda: broadcast(speakers=2, listeners=2, words=2, bag=True),
    "lossy": lambda: broadcast(speakers=2, listeners=2, losses=1),
    "crash": lambda: broadcast(speakers=2, listeners=2, words=1, crashes=1),
    "forgetful": lambda: broadcast(speakers=2, listeners=2, words=1, crashes=1, forgets=True),
    "vague": lambda: broadcast(speakers=2, listeners=2, ordered=False, in_order=False, precise=False),
    "lock": lambda: lock(3),
    "lock forgets": lambda: lock(3, "forgets"),
    "lock stutters": lambda: lock(3, "stutters"),
    "retry": lambda: retry(losses=1),
    "no retry": lambda: retry(losses=1, patience=0),
}
BROKEN = {
    "direct": {"inversion"},
    "direct, three": {"inversion"},
    "vague": {"inversion"},
    "bag": {"inversion"},
    "lossy": {"stuck"},
    "forgetful": {"stuck"},
    "lock forgets": {"stuck"},
    "lock stutters": {"shared"},
    "no retry": {"stuck"},
}


def everything(world: World, persistent_sets: bool, sleep_sets: bool) -> SearchResult:
    options = SearchOptions(persistent_sets, sleep_sets, stop_at_violation=False, keep_outcomes=True)
    result = search(Space(world), options)
    assert result.exhausted
    return result


@pytest.mark.parametrize("name", WORLDS)
def test_reductions_keep_outcomes_and_violations(name: str) -> None:
    plain = everything(WORLDS[name](), persistent_sets=False, sleep_sets=False)
    assert {violation.kind for violation in plain.violations} == BROKEN.get(name, set())
    for persistent_sets, sleep_sets in [(False, True), (True, False), (True, True)]:
        reduced = everything(WORLDS[name](), persistent_sets, sleep_sets)
        assert reduced.outcomes == plain.outcomes
        assert reduced.violations.keys() == plain.violations.keys()
        assert reduced.states <= plain.states
        assert reduced.transitions <= plain.transitions
        if not persistent_sets:
            assert reduced.states == plain.states  # sleep sets leave out ways, never states


def test_a_bound_is_said_to_be_one() -> None:
    result = search(Space(broadcast(words=2)), SearchOptions(max_states=10))
    assert not result.exhausted
    assert result.bound == "10 states"
    result = search(Space(broadcast(speakers=3, listeners=3, words=3, precise=False)), SearchOptions(max_seconds=0.05))
    assert not result.exhausted
    assert result.bound == "0.05 seconds"


def test_a_bound_must_be_positive() -> None:
    with pytest.raises(InputError, match="max_states: 0 is not positive; give a positive bound"):
        SearchOptions(max_states=0)


def test_stops_at_the_first_violation_with_the_way_that_led_there() -> None:
    world = broadcast(ordered=False, in_order=False)
    result = search(Space(world))
    assert not result.exhausted
    [(violation, way)] = result.violations.items()
    assert violation.kind == "inversion"
    run = Run(world)
    run.follow(way)
    assert run.violations() == [violation]


def test_the_same_world_is_searched_the_same_way() -> None:
    first, second = (search(Space(broadcast(words=2))) for _ in range(2))
    assert (first.states, first.transitions, first.depth) == (second.states, second.transitions, second.depth)


def test_a_world_that_sends_more_than_it_says_is_refused() -> None:
    honest = broadcast()
    with pytest.raises(ExplorerError, match=r"relay sent Said to l0 because of s\d; `influence` or `passive`"):
        search(Space(replace(honest, influence=lambda target, source: frozenset({"relay"}))))
    with pytest.raises(ExplorerError, match="`influence` or `passive`"):
        search(Space(replace(honest, passive=lambda machine: True)))


def test_a_run_that_may_never_stop_is_counted() -> None:
    result = search(Space(ping_pong()), SearchOptions())
    assert result.cycles == 1
    assert result.stopped_states == 0
