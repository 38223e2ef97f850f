"""Where fault tests take place: one cluster of real processes for all tests of a file, one round per test.

The moments of the faults follow from a seed, which a failure prints with the line that replays it. After a failed round
the next test gets a new cluster, so that one failure is one failure.
"""

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any

from soak.tree.cluster import Cluster
from soak.tree.plan import CHANGES, KINDS, Fault
from soak.tree.rounds import Round, run_round
from soak.tree.shapes import Shape
from soak.tree.verify import Carried

SEED_VARIABLE = "SERIATIM_FAULT_SEED"
RATE = 75.0  # events per second of each publisher: the soak is for more
AFTER_S = 1.5  # load after the last fault
EVENTS_MIN = 100  # or more load, if a busy machine has not come so far by then
DEADLY = ("kill-everything", "kill-nats")  # whoever asks for a move may hear nothing more of it


class Stage:
    """Use it as a context manager: no process is left behind."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        self.shape = shape.with_rate(RATE)
        self.folder = folder
        self.seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().getrandbits(31))
        self._runner = asyncio.Runner()
        self._cluster: Cluster | None = None
        self._clusters = 0
        self._rounds = 0
        self._carried: Carried | None = None

    def __enter__(self) -> "Stage":
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop_cluster()
        self._runner.__exit__(kind, error, trace)

    def round(self, test: str, *strikes: tuple[str, str], for_s: float | None = None, gap_s: float = 1.2) -> Round:
        """Load, these faults one after the other, drain, and the judgement, which must be spotless."""
        plan = self.plan(test, strikes, for_s, gap_s)
        seconds = max(fault.at_s + fault.for_s for fault in plan) + AFTER_S
        cluster = self._ready()
        self._rounds += 1
        result = self._runner.run(
            run_round(cluster, self._rounds, plan, seconds, carried=self._carried, events_min=EVENTS_MIN)
        )
        self._carried = result.verdict.carried
        replay = f"{SEED_VARIABLE}={self.seed} python -m pytest {test!r}; files in {cluster.folder}"
        if not result.is_valid:
            self._drop_cluster()
        assert result.is_valid, f"{result.complaint()}\nplan: {plan}\nreplay: {replay}"
        # A move may be undone because of other faults, but not all of them, unless everything else died too.
        for is_move in (False, True):
            wanted = sum((kind in CHANGES) == is_move for kind, _ in strikes)
            made = sum((each.fault in CHANGES) == is_move for each in result.faults)
            may_fail = is_move and (made or any(kind in DEADLY for kind, _ in strikes))
            assert made == wanted or may_fail, f"not all faults took place: {result.faults}"
        assert result.verdict.acknowledged >= EVENTS_MIN, "there was next to no load"
        for each in result.recoveries:
            print(f"{each.fault} {each.target}: {each.subscriber} went on after {each.recovery_s:.2f} s")
        return result

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        """Something else than a round, on the cluster of this file."""
        self._runner.run(work(self._ready()))

    def plan(self, test: str, strikes: tuple[tuple[str, str], ...], for_s: float | None, gap_s: float) -> list[Fault]:
        """At random moments, one after the other."""
        source = random.Random(f"{self.seed}/{test}")
        plan, at_s = [], 0.3
        for kind, target in strikes:
            lasts_s = for_s if for_s is not None else min(1.0, source.uniform(*KINDS[kind].for_s))
            at_s += source.uniform(0.0, 0.4)
            plan.append(Fault(round(at_s, 3), kind, target, round(lasts_s, 3)))
            at_s += lasts_s + gap_s
        return plan

    def _ready(self) -> Cluster:
        if self._cluster is None:
            self._clusters += 1
            self._carried = None
            cluster = Cluster(self.folder / f"cluster-{self._clusters}", self.shape, self.seed)
            self._runner.run(cluster.__aenter__())
            self._cluster = cluster
        return self._cluster

    def _drop_cluster(self) -> None:
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            self._runner.run(cluster.stop())
