"""Whole runs: the tree survives what the scenarios do to it, the printed algorithm does not, and seeds replay."""

import os
import subprocess
import sys

import pytest

from seriatim.audit import audit
from seriatim.lab.sim import Options, Outcome, Simulation, draw, run
from seriatim.lab.sim.scenario import Crash, Replacement
from seriatim.model import InputError
from seriatim.protocols.tree import SequencerNode
from tests.cases import some_of

FINGERPRINT = """
import hashlib
from msgspec import msgpack
from seriatim.lab.sim import draw, run
for seed in (3, 4, 11):
    history = run(draw(seed), record_messages=True).history
    print(seed, hashlib.sha256(msgpack.Encoder(order="deterministic").encode(history)).hexdigest())
"""


# Worlds that the tree did not survive once, and why.
ROUGH = {"broker": "fifo", "crashes": 6, "loss": 0.1, "changes": 8}
MENDED = {
    "a ticket voided before its answer arrived is never answered": (16, {"mode": "ticket", **ROUGH}),
    "a join that a crash interrupted forgets what came meanwhile": (155, {"mode": "ticket", **ROUGH}),
    "the time to live of an event that waits for a join wakes for ever": (0, {}),
}


def explained(outcome: Outcome, options: str) -> str:
    """What pytest shows when a run fails, with the line that replays it."""
    wrong = [violation.sentence for violation in outcome.violations] + list(outcome.missing)
    return "\n".join([*wrong, f"replay: seriatim simulate --seed {outcome.scenario.seed} {options}"])


@pytest.mark.parametrize("seed", range(100, 110))
def test_topics_move_while_events_flow_and_nodes_crash(seed: int) -> None:
    simulation = Simulation(draw(seed, Options(moves=6, nodes=4, crashes=4)))
    outcome = simulation.finish()
    assert outcome.is_fine, explained(outcome, "--moves 6 --nodes 4 --crashes 4")
    root = simulation.world.simulator.machine("n1")
    assert isinstance(root, SequencerNode)
    assert root.inner.tree.moves.number > 0


@pytest.mark.parametrize("seed", some_of(range(60), 20))
@pytest.mark.parametrize("broker", ["fifo", "unordered"])
def test_the_tree_keeps_its_promises(seed: int, broker: str) -> None:
    outcome = run(draw(seed, Options(broker=broker)))  # type: ignore[arg-type]
    assert outcome.is_fine, explained(outcome, f"--broker {broker}")
    assert outcome.complete_at_ms is not None


@pytest.mark.parametrize("seed", some_of(range(60), 20))
@pytest.mark.parametrize("mode", ["log", "ticket"])
def test_the_tree_survives_crashes_and_loss(seed: int, mode: str) -> None:
    outcome = run(draw(seed, Options(mode=mode, **ROUGH)))  # type: ignore[arg-type]
    assert outcome.is_fine, explained(outcome, f"--mode {mode} --broker fifo --crashes 6 --loss 0.1 --changes 8")


@pytest.mark.parametrize("finding", MENDED)
def test_what_was_once_broken(finding: str) -> None:
    seed, options = MENDED[finding]
    assert run(draw(seed, Options(**options))).is_fine  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", some_of(range(30), 10))
def test_causal_order_holds_where_it_is_promised(seed: int) -> None:
    outcome = run(draw(seed, Options(own_order=True, broker="fifo", publishers=3)))
    assert outcome.is_fine, explained(outcome, "--own-order --broker fifo --publishers 3")
    assert any(row.seen for row in outcome.history.publications), "without reactions there is nothing to judge"


def test_the_scenarios_are_rough_enough() -> None:
    """The runs above prove something only if faults really happen in them."""
    outcomes = [run(draw(seed, Options(crashes=6, loss=0.1))) for seed in range(20)]
    assert sum(outcome.counts.crashes for outcome in outcomes) > 40
    assert sum(outcome.counts.fenced for outcome in outcomes) > 0
    assert sum(outcome.counts.lost for outcome in outcomes) > 100
    faults = [type(fault) for outcome in outcomes for fault in outcome.scenario.faults]
    assert {Crash, Replacement} <= set(faults)
    verdicts = audit(outcomes[0].history).verdicts
    assert verdicts["tno"].answer == "valid"


def test_the_printed_algorithm_gets_stuck_and_the_run_says_why() -> None:
    outcomes = [run(draw(seed, Options(protocol="paper000", changes=6))) for seed in range(20)]
    stuck = [outcome for outcome in outcomes if outcome.missing]
    assert len(stuck) > 10
    assert any("is held: " in sentence for outcome in stuck for sentence in outcome.missing)


def test_the_printed_algorithm_is_not_asked_for_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="paper000 has no answer to crashes"):
        Simulation(draw(1, Options(protocol="paper000", crashes=1)))


def test_the_same_seed_gives_the_same_bytes_in_every_process() -> None:
    """Hash randomisation changes the order of sets from process to process; nothing may depend on it."""
    prints = set()
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        program = [sys.executable, "-c", FINGERPRINT]
        prints.add(subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(prints) == 1
    assert len(prints.pop().splitlines()) == 3


def test_a_run_can_be_asked_before_it_is_over() -> None:
    unfinished = Simulation(draw(5, Options(broker="fifo")))
    unfinished.world.simulator.run(until_ms=500.0)
    outcome = unfinished.outcome()
    assert outcome.complete_at_ms is None
    assert not outcome.missing, "nothing is missing yet: there is still time"
    assert outcome.history.publications


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"events": -1}, "events"),
        ({"loss": 1.0}, "loss"),
        ({"duration_ms": 0.0}, "duration_ms"),
        ({"broker": "unreliable", "mode": "log"}, "broker"),
        ({"own_order": True, "mode": "log"}, "own_order"),
        ({"own_order": True, "order": "pairwise"}, "own_order"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Options(**options)  # type: ignore[arg-type]
    assert caught.value.field == field
