"""One run of a world: faults, time, replacement, and the way from a violation to a story."""

from dataclasses import replace
from typing import Any

import pytest

from seriatim.lab.explore.engine.checks import Fact
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.search import search
from seriatim.lab.explore.engine.show import show
from seriatim.lab.explore.engine.space import Space
from seriatim.lab.explore.engine.trace import shrink, transcript
from seriatim.lab.explore.engine.world import Budget, Transition
from seriatim.model import Address, Event, InputError, Notification
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree.messages import Pass
from seriatim.protocols.with_broker import Change
from tests.lab.explore.toys import Said, SameOrder, Say, broadcast, retry
from tests.nonsense import Nonsense


def test_time_passes_until_what_was_lost_is_asked_for_again() -> None:
    run = Run(retry())
    run.follow([Transition("issue", "c0"), Transition("lose", "server", "c0")])
    assert run.waiting("c0") == 1
    assert run.finish() == []
    assert run.processes["c0"].clock == 10.0


def test_without_patience_a_lost_request_is_a_violation() -> None:
    run = Run(retry(patience=0))
    run.follow([Transition("issue", "c0"), Transition("lose", "server", "c0")])
    assert [violation.kind for violation in run.finish()] == ["stuck"]


def test_what_cannot_happen_is_left_out_of_a_way() -> None:
    run = Run(retry())
    run.follow([Transition("deliver", "server", "c0"), Transition("crash", "c0"), Transition("issue", "c0")])
    run.follow([Transition("issue", "c0")])
    assert run.processes["c0"].issued == 1


def test_a_replaced_process_is_refused_by_its_journal() -> None:
    world = broadcast(crashes=1)
    world = replace(world, budgets={"relay": Budget(takeovers=1)}, may_lose=lambda channel, message: True)
    way = [
        Transition("issue", "s0"),
        Transition("issue", "s1"),
        Transition("replace", "relay"),
        Transition("deliver", "relay", "s0"),
        Transition("haunt", "relay"),  # a tick that writes nothing teaches it nothing
        Transition("haunt", "relay", "s1"),
    ]
    run = Run(world)
    run.follow(way)
    assert run.processes["relay"].zombie is None
    assert len(run.processes["relay"].journal) == 1
    unfenced = Run(replace(world, fenced=False))
    unfenced.follow(way)
    assert len(unfenced.processes["relay"].journal) == 2


def test_a_process_that_has_not_read_what_the_replaced_one_appended_reads_again() -> None:
    world = replace(broadcast(), budgets={"relay": Budget(takeovers=1)})
    run = Run(world)
    run.follow([Transition("issue", "s0"), Transition("issue", "s1"), Transition("replace", "relay")])
    run.follow([Transition("haunt", "relay", "s0"), Transition("deliver", "relay", "s1")])
    relay = run.processes["relay"]
    assert relay.journal == [Said("s0.0", 1)]  # one number is not given twice
    assert run.machine("relay").state.numbers == {"s0.0": 1}
    assert relay.lives == 3


def test_a_replaced_process_does_not_append_to_an_older_copy() -> None:
    world = broadcast(speakers=3)
    world = replace(world, budgets={"relay": Budget(takeovers=1, copies=1)}, aged=lambda journal: 1)
    run = Run(world)
    run.follow([Transition("issue", "s0"), Transition("deliver", "relay", "s0"), Transition("replace", "relay")])
    run.follow([Transition("issue", "s1"), Transition("deliver", "relay", "s1"), Transition("issue", "s2")])
    relay = run.processes["relay"]
    run.follow([Transition("age", "relay", lane="1")])
    assert relay.zombie is not None and len(relay.journal) == relay.zombie.journal_last == 1
    run.follow([Transition("haunt", "relay", "s2")])
    assert relay.zombie is None and relay.journal == [Said("s0.0", 1)] and len(relay.newest or ()) == 2


def test_the_newest_journal_is_put_back_and_without_one_the_machine_stays_mute() -> None:
    world = broadcast()
    relay = replace(world.roles["relay"], restore=lambda journal: Doubter())
    world = replace(world, roles={**world.roles, "relay": relay}, is_outdated=lambda payload: payload == Say("old"))
    world = replace(world, budgets={"relay": Budget(crashes=1, copies=1)}, aged=lambda journal: 1)
    run = Run(world)
    run.follow([Transition("issue", "s0"), Transition("deliver", "relay", "s0"), Transition("age", "relay", lane="1")])
    process = run.processes["relay"]
    assert process.lives == 3 and process.newest is None and process.journal == [Said("s0.0", 1)]
    run.follow([Transition("crash", "relay")])
    assert process.lives == 4


@pytest.mark.parametrize(("keeper", "count"), [("l1", 1), ("l0", 0)])
def test_an_answer_may_change_when_one_who_keeps_it_has_seen_the_time_pass(keeper: str, count: int) -> None:
    class OneWord(SameOrder):
        def facts(self, target: Address, message: Payload) -> list[Fact]:
            return [Fact("the word", message, 10.0, ("relay", keeper))] if target == "relay" else []

    run = Run(replace(broadcast(), checks=OneWord(2)))
    run.follow([Transition("issue", "s0")])
    run.processes["l0"].clock = 10.0
    run.follow([Transition("issue", "s1")])
    assert len(run.contradictions) == count


class Doubter:
    """Says of every journal that it is old."""

    state: Any = None

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        return Effects()

    def tick(self, now: float) -> Effects:
        return Effects(notify=[Say("old")])


def test_a_search_refuses_worlds_with_takeovers() -> None:
    world = replace(broadcast(crashes=1), budgets={"relay": Budget(takeovers=1)})
    with pytest.raises(InputError, match=r"budgets\['relay'\].takeovers: a search has no zombies; walk this world"):
        Space(world)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roles": {}}, "roles: the world has no machines; give at least one"),
        ({"scripts": {"nobody": []}}, "scripts: unknown machine 'nobody'; use one of l0, l1, relay, s0, s1"),
        ({"budgets": {"s0": Budget(ticks=-1)}}, r"budgets\['s0'\]: a count is negative; give 0 or more"),
        ({"budgets": {"s0": Budget(crashes=1)}}, r"budgets\['s0'\]: it has no journal to crash with; give its role"),
        ({"patience": -1}, "patience: -1 is negative; give 0 or more"),
    ],
)
def test_a_world_must_make_sense(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(broadcast(), **change)  # type: ignore[arg-type]


def test_a_machine_that_fails_is_a_violation() -> None:
    run = Run(replace(broadcast(), scripts={"s0": [Nonsense("not a command")]}))
    run.follow([Transition("issue", "s0")])
    [failure, *_] = run.finish()
    assert failure.kind == "failure"
    assert failure.sentence.startswith("s0 failed at s0 is told: Nonsense not a command: AssertionError:")


def test_a_violation_is_shrunk_and_told() -> None:
    world = broadcast(speakers=3, ordered=False, in_order=False)
    [(violation, way)] = search(Space(world)).violations.items()
    short, found = shrink(world, way, violation.kind)
    assert found is not None
    assert found.kind == "inversion"
    assert len(short) <= len(way)
    assert sum(transition.kind == "issue" for transition in short) == 2
    lines = transcript(world, short)
    assert lines[0] == "then:"
    assert "  s0 is told: Say s0.0" in lines
    assert any(line.startswith("      l0 notifies Said") for line in lines)


def test_a_way_without_a_violation_stays_as_it_is() -> None:
    world = broadcast()
    way = [Transition("issue", "s0")]
    assert shrink(world, way, "inversion") == (way, None)


def test_messages_are_shown_short() -> None:
    assert show(Change(frozenset("BA"))) == "Change add {A, B}"
    assert show(Pass("A", 1, 2, "n1", {"C": 1, "B": 2})) == "Pass A first 1 last 2 n1 entries {B 2, C 1}"
    assert show(Notification(Event("e", "A", "p"), 3, {}, out_of_order=True)) == "e (A 3) out of order"
