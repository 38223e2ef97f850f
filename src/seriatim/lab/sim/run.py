"""Run a scenario: first with its faults, then healed, and say what went wrong.

Safety: whatever happens, nobody sees another order, nothing twice, nothing that was not published. Liveness: once
faults have ended, every event arrives within a bound; an event that does not is named, with what it waits for.
"""

from functools import partial

from msgspec import Struct

from seriatim.audit import audit
from seriatim.lab.sim.checkers import Violation, check_integrity, check_owed
from seriatim.lab.sim.engine import Counts, MachineFailed
from seriatim.lab.sim.network import between
from seriatim.lab.sim.paper_world import PaperWorld
from seriatim.lab.sim.scenario import Act, Changing, Crash, Fault, Moving, Partition, Publishing, Replacement, Scenario
from seriatim.lab.sim.tree_world import TreeWorld
from seriatim.model import Gap, History

LIVENESS_MS = 60_000.0  # simulated time for everything owed to arrive, once healed
QUIET_MS = 2_000.0  # simulated time after that, in which nothing wrong may happen any more
STEPS_MAX = 20_000_000  # per slice of time


class Outcome(Struct, frozen=True):
    """The outcome of a run."""

    scenario: Scenario
    history: History
    gaps: dict[str, list[Gap]]
    violations: tuple[Violation, ...]  # safety
    missing: tuple[str, ...]  # liveness: what never came, and why; empty if the run did not get to its end
    counts: Counts
    healed_at_ms: float
    complete_at_ms: float | None

    @property
    def is_fine(self) -> bool:
        return not self.violations and not self.missing


_WORLDS: dict[str, type[TreeWorld | PaperWorld]] = {"tree": TreeWorld, "paper000": PaperWorld}


def run(scenario: Scenario, record_messages: bool = False) -> Outcome:
    """Play a scenario to its end."""
    return Simulation(scenario, record_messages).finish()


class Simulation:
    """A run in progress: `outcome` may be asked at any time, also when `finish` was interrupted."""

    def __init__(self, scenario: Scenario, record_messages: bool = False) -> None:
        self.scenario = scenario
        self.world = _WORLDS[scenario.protocol](scenario, record_messages)
        self.healed_at_ms = scenario.duration_ms
        self.complete_at_ms: float | None = None
        self._failures: list[Violation] = []
        self._is_over = False
        for what in (*scenario.acts, *scenario.faults):
            self._plan(what)

    def finish(self) -> Outcome:
        """Run both phases. A machine that fails ends the run, and is a violation."""
        try:
            self._play()
        except MachineFailed as failed:
            self._failures.append(Violation("failure", "", str(failed)))
        return self.outcome()

    def _play(self) -> None:
        simulator = self.world.simulator
        self._advance(self.scenario.duration_ms)
        self.healed_at_ms = simulator.now
        self.world.heal()
        deadline_ms = simulator.now + LIVENESS_MS
        slice_ms = 200.0
        while simulator.now < deadline_ms and self._advance(min(simulator.now + slice_ms, deadline_ms)):
            if not self._missing(self._history()):
                self.complete_at_ms = simulator.now
                break
            slice_ms *= 2.0
        self._advance(simulator.now + QUIET_MS)
        self._is_over = True

    def outcome(self) -> Outcome:
        """What has been seen so far."""
        history = self._history()
        return Outcome(
            self.scenario,
            history,
            self.world.recorder.gaps,
            tuple(self._failures + check_integrity(history) + self._disorder(history)),
            tuple(self._missing(history)) if self._is_over else (),
            self.world.simulator.counts,
            self.healed_at_ms,
            self.complete_at_ms,
        )

    def _plan(self, what: Act | Fault) -> None:
        world = self.world
        match what:
            case Publishing():
                world.simulator.at(what.at_ms, partial(world.publish, what))
            case Changing():
                world.simulator.at(what.at_ms, partial(world.change, what))
            case Moving():
                assert isinstance(world, TreeWorld), "topics move on the tree only"
                world.simulator.at(what.at_ms, partial(world.move, what))
            case Crash():
                world.simulator.at(what.at_ms, partial(world.crash, what))
            case Replacement():
                world.simulator.at(what.at_ms, partial(world.replace, what))
            case Partition():
                pairs = between(what.left, what.right)
                world.simulator.partition(pairs, what.at_ms, what.at_ms + what.for_ms)

    def _advance(self, until_ms: float) -> bool:
        return self.world.simulator.run(until_ms, STEPS_MAX)

    def _history(self) -> History:
        return self.world.recorder.history(self.world.numbers(), self.world.simulator.messages or ())

    def _disorder(self, history: History) -> list[Violation]:
        """What the auditor finds against the promised order."""
        promised = ["acyclic" if self.scenario.order == "global" else "tno"]
        if self.scenario.own_order:
            promised.append("causal")
        anomalies = audit(history).anomalies_against(promised)
        return [Violation(anomaly.name, "", anomaly.sentence) for anomaly in anomalies]

    def _missing(self, history: History) -> list[str]:
        """Sentences. An unreliable broker owes nobody an event: what it loses is not a failure of the protocol."""
        sentences = self.world.unfinished()
        lost = [] if self.scenario.broker == "unreliable" else check_owed(history, self.world.recorder.gaps)
        sentences += [violation.sentence for violation in lost]
        for subscriber in sorted({violation.subscriber for violation in lost}):
            sentences += [f"{subscriber}: {line}" for line in self.world.explain(subscriber)]
        return sentences + (self.world.explain_nodes() if sentences else [])
