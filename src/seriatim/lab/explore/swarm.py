"""Random exploration: many worlds, each walked once, each checked when it has come to rest.

Every world has a safety phase, in which anything that its budgets allow may happen at any moment, and then a liveness
phase without faults, after which every event must have arrived where it belongs. No violation found is not a proof.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

from seriatim.lab.explore.engine.checks import Violation
from seriatim.lab.explore.engine.plan import Walked
from seriatim.lab.explore.registry import explorable
from seriatim.model import InputError

CHUNK = 50  # worlds handed to a process at a time


@dataclass(frozen=True)
class SwarmOptions:
    """Which worlds to walk, and with which machines."""

    worlds: int = 1_000
    seed: int = 1
    first: int = 0
    processes: int = 1
    variant: str | None = None
    stop_at_violation: bool = True
    max_seconds: float | None = None
    protocol: str = "tree"

    def __post_init__(self) -> None:
        for name in ("worlds", "processes"):
            if getattr(self, name) < 1:
                raise InputError(name, f"{getattr(self, name)} is too small", "give at least 1")
        if self.first < 0:
            raise InputError("first", f"{self.first} is negative", "worlds are counted from 0")
        if self.max_seconds is not None and self.max_seconds <= 0:
            raise InputError(
                "max_seconds", f"{self.max_seconds} is not positive", "give a positive bound or leave it out"
            )
        explorable(self.protocol).cast(self.variant)


@dataclass(frozen=True)
class Broken:
    """A world that broke a promise."""

    index: int
    violation: Violation


@dataclass
class SwarmResult:
    """The walked worlds and the findings."""

    worlds: int = 0
    steps: int = 0
    notifications: int = 0
    seconds: float = 0.0
    bound: str | None = None  # why it ended before all worlds were walked
    broken: list[Broken] = field(default_factory=list)  # by index

    @property
    def first_broken(self) -> Broken | None:
        return min(self.broken, key=lambda each: each.index, default=None)

    def add(self, other: "SwarmResult") -> None:
        self.worlds += other.worlds
        self.steps += other.steps
        self.notifications += other.notifications
        self.broken = sorted([*self.broken, *other.broken], key=lambda each: each.index)


def walk_world(seed: int, index: int, variant: str | None = None, protocol: str = "tree") -> Walked:
    """Walk through one random world. The same arguments give the same walk."""
    return explorable(protocol).walk(seed, index, variant)


def _walk_chunk(options: SwarmOptions, start: int, stop: int) -> SwarmResult:
    result = SwarmResult()
    for index in range(start, stop):
        walked = walk_world(options.seed, index, options.variant, options.protocol)
        result.worlds += 1
        result.steps += len(walked.way)
        result.notifications += walked.notifications
        if walked.violations:
            result.broken.append(Broken(index, walked.violations[0]))
            if options.stop_at_violation:
                break
    return result


class Swarm:
    """One exploration. `result` is usable at any time, also after Ctrl-C."""

    def __init__(self, options: SwarmOptions, progress: Callable[[SwarmResult], None] | None = None) -> None:
        self.options = options
        self.progress = progress
        self.result = SwarmResult()

    def run(self) -> SwarmResult:
        options, result = self.options, self.result
        began = time.monotonic()
        try:
            for part in self._parts():
                result.add(part)
                result.seconds = time.monotonic() - began
                if self.progress is not None:
                    self.progress(result)
                if result.broken and options.stop_at_violation:
                    result.bound = "stopped at the first violation"
                    break
                if options.max_seconds is not None and result.seconds >= options.max_seconds:
                    result.bound = f"{options.max_seconds:g} seconds"
                    break
        except KeyboardInterrupt:
            result.bound = "interrupted"
            raise
        finally:
            result.seconds = time.monotonic() - began
        return result

    def _parts(self) -> Iterator[SwarmResult]:
        """Results of chunk after chunk, in the order of the worlds, so that the first violation is always the same."""
        options = self.options
        end = options.first + options.worlds
        chunks: Sequence[tuple[int, int]] = [
            (start, min(start + CHUNK, end)) for start in range(options.first, end, CHUNK)
        ]
        if options.processes == 1:
            for start, stop in chunks:
                yield _walk_chunk(options, start, stop)
            return
        with ProcessPoolExecutor(options.processes) as pool:
            try:
                yield from self._in_order(pool, chunks)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _in_order(self, pool: ProcessPoolExecutor, chunks: Sequence[tuple[int, int]]) -> Iterator[SwarmResult]:
        ahead = 4 * self.options.processes
        waiting: list[Future[SwarmResult]] = []
        for start, stop in chunks:
            waiting.append(pool.submit(_walk_chunk, self.options, start, stop))
            while len(waiting) >= ahead:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()
