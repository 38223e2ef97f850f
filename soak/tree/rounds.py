"""One round: load, faults, end of the load, drain, judgement. The soak is many of them on one cluster; a test, one."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from seriatim.audit import write_history
from seriatim.model import SeriatimError, TimedOut
from soak.tree.cluster import IDLE_S, LOAD_S, Cluster
from soak.tree.nemesis import Nemesis
from soak.tree.order import judge_by_order
from soak.tree.plan import Fault
from soak.tree.recovery import Recovery, recoveries
from soak.tree.rows import Injected, RowFile
from soak.tree.verify import Carried, Verdict, verify


class Round(Struct):
    """The result of a round. `folder` holds its rows, and its history for `seriatim audit` if something was wrong."""

    number: int
    folder: Path
    verdict: Verdict = field(default_factory=Verdict)
    faults: list[Injected] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    drain_s: float | None = None

    @property
    def is_valid(self) -> bool:
        """No violation."""
        return not self.verdict.counts

    def complaint(self) -> str:
        """All violations that are shown, one per line."""
        return "\n".join(f"{each.kind}: {each.sentence}" for each in self.verdict.violations)


async def run_round(
    cluster: Cluster,
    number: int,
    plan: list[Fault],
    seconds: float,
    *,
    carried: Carried | None = None,
    idle_s: float = IDLE_S,
    events_min: int = 0,
    on_fault: Callable[[Injected], None] | None = None,
) -> Round:
    """A round from beginning to end. Whatever goes wrong in it becomes a violation, with its reason.

    `events_min`: the load goes on until so many events are acknowledged, on a machine that is too busy for `seconds`.
    """
    result = Round(number, cluster.folder / f"round-{number:03}")
    nemesis = Nemesis(cluster, f"{cluster.seed}/{number}", on_fault)
    trouble: list[tuple[str, str]] = []
    try:
        await cluster.begin_load()
        await nemesis.carry_out(plan, seconds)
        await cluster.wait(f"{events_min} events", lambda: cluster.acknowledged() >= events_min, LOAD_S)
        await cluster.end_load()
        result.drain_s = await cluster.drain(carried, idle_s)
    except* TimedOut as errors:
        trouble += [("stuck", str(error)) for error in errors.exceptions]
        trouble.append(("stuck", await cluster.explain()))
    except* SeriatimError as errors:
        trouble += [("fault", str(error)) for error in errors.exceptions]
    for child in cluster.dead():
        trouble.append(("died", f"{child.name} ended by itself with code {child.code}:\n{child.last_lines()}"))
    result.faults = nemesis.injected
    record = await cluster.take_record(result.folder)
    record.faults = result.faults
    RowFile(result.folder / "faults.jsonl").write(*result.faults)
    has_voids = cluster.shape.mode == "ticket"
    result.verdict = await asyncio.to_thread(verify, record, carried, cluster.shape.batches, has_voids=has_voids)
    try:
        order = await cluster.order(record, result.verdict, carried)
    except SeriatimError as error:
        trouble.append(("order-log", str(error)))
    else:
        await asyncio.to_thread(judge_by_order, result.verdict, order, cluster.shape, carried)
    result.recoveries = recoveries(result.verdict, result.faults)
    for kind, sentence in trouble:
        result.verdict.add(kind, sentence)
    if not result.is_valid:
        write_history(result.verdict.history, result.folder / "history")
        (result.folder / "violations.txt").write_text(result.complaint() + "\n", encoding="utf-8")
    return result


class Totals(Struct):
    """What all rounds so far showed."""

    rounds: int = 0
    attempted: int = 0
    acknowledged: int = 0
    notified: int = 0
    replayed: int = 0
    visits: int = 0
    interrupted: int = 0
    told: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Counter[str]] = field(default_factory=dict)
    recoveries: list[Recovery] = field(default_factory=list)

    def add(self, result: Round) -> None:
        """Add one more round."""
        verdict = result.verdict
        self.rounds += 1
        self.attempted += verdict.attempted
        self.acknowledged += verdict.acknowledged
        self.notified += sum(verdict.handed.values())
        self.replayed += verdict.replayed
        self.visits += verdict.visits
        self.interrupted += verdict.interrupted
        self.told += verdict.told
        self.faults.update(each.fault for each in result.faults)
        self.violations.update(verdict.counts)
        self.recoveries += result.recoveries
        for guarantee, answer in verdict.answers.items():
            self.answers.setdefault(guarantee, Counter())[answer] += 1


def forget(result: Round) -> None:
    """Remove the rows of a round in which nothing was wrong."""
    shutil.rmtree(result.folder)
