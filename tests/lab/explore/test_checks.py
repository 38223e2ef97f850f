"""The check that one order fits what everybody saw: it finds a cycle if there is one, and shows the shortest."""

from itertools import combinations, permutations
from random import Random

import pytest

from seriatim.lab.explore.engine.checks import OrderChecks, shortest_cycle
from seriatim.lab.explore.swarm import walk_world
from seriatim.model import Event, Notification


def oracle(logs: dict[str, list[str]]) -> int:
    """How many subscribers the shortest cycle has; 0: one order of all events fits every log."""
    ids = sorted({id for log in logs.values() for id in log})
    before = {(a, b) for log in logs.values() for a, b in combinations(log, 2)}
    for size in range(2, len(ids) + 1):
        for chosen in permutations(ids, size):
            if all((chosen[i - 1], chosen[i]) in before for i in range(size)):
                return size
    return 0


@pytest.mark.parametrize("seed", range(200))
def test_the_shortest_cycle_is_found(seed: int) -> None:
    random = Random(f"cycles {seed}")
    ids = "abcdef"[: random.randint(2, 6)]
    logs = {f"s{i}": random.sample(ids, random.randint(0, min(3, len(ids)))) for i in range(random.randint(1, 5))}
    cycle = shortest_cycle(logs)
    assert len(cycle) == oracle(logs), f"seed {seed}: {logs}"
    for (who, a, b), (_, c, _) in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert logs[who].index(a) < logs[who].index(b) and b == c, f"seed {seed}: {logs}"


def log_of(*ids: str) -> list[Notification]:
    return [Notification(Event(id, id.upper(), "p"), 1, {}) for id in ids]


def test_a_cycle_is_shown_in_one_sentence() -> None:
    checks = OrderChecks()
    logs = {"x": log_of("a", "b"), "y": log_of("b", "c"), "z": log_of("c", "a")}
    assert checks.everybody(logs) is None, "three may disagree unless one order was promised"
    checks.is_acyclic = True
    found = checks.everybody(logs)
    assert found is not None and found.kind == "cycle"
    assert found.sentence == "x was notified of a before b, y of b before c, z of c before a"
    checks.forgotten = frozenset({"z"})
    assert checks.everybody(logs) is None, "who was forgotten is promised nothing"


def test_a_random_world_without_global_coupling_has_a_cycle() -> None:
    """The first one of seed 23; `docs/explorer.md` has the table."""
    assert walk_world(23, 516, "no-global-coupling").violations[0].kind == "cycle"
    assert walk_world(23, 516).violations == []
