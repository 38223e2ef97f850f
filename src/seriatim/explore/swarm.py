"""Random exploration: many worlds, each walked once, each checked when it has come to rest.

Every world has a safety phase, in which anything that its budgets allow may happen at any moment, and then a liveness
phase without faults, after which everything owed must have arrived. No violation found is not a proof.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from seriatim.explore.atoms import AtomsWorld
from seriatim.explore.atoms_random import AtomsWalk, random_atoms, random_forest, random_retirement
from seriatim.explore.atoms_variants import atoms_cast_of
from seriatim.explore.checks import Violation
from seriatim.explore.overlay import OverlayWorld
from seriatim.explore.overlay_random import OverlayWalk, random_meeting, random_overlay
from seriatim.explore.overlay_variants import orders_of, overlay_cast_of
from seriatim.explore.random_worlds import Walk, random_of, random_story, random_world
from seriatim.explore.run import Run
from seriatim.explore.tree import Cast, TreeWorld
from seriatim.explore.variants import cast_of
from seriatim.explore.vcube import VCubeWorld
from seriatim.explore.vcube_plots import random_plot
from seriatim.explore.vcube_plotting import HURRIED, PlotWalk, plotted_world
from seriatim.explore.vcube_random import PeerWalk, random_peers
from seriatim.explore.vcube_stories import random_story as random_peer_story
from seriatim.explore.vcube_variants import peer_of
from seriatim.explore.world import Transition, World
from seriatim.model import InputError
from seriatim.protocols.vcube import Peer

Plan: TypeAlias = TreeWorld | VCubeWorld | AtomsWorld | OverlayWorld

CHUNK = 50  # worlds handed to a process at a time

PROTOCOLS = ("tree", "vcube", "atoms", "overlay")

# Of six worlds of atoms two are about atoms that are put in and taken out, one is about trees that join and come apart.
KINDS_OF_ATOMS, RETIREMENTS, FOREST = 6, (2, 5), 4

MEETING_EVERY = 3  # of the worlds of the overlay, every third is about hearing of another publisher

STORY_EVERY = 8  # every eighth world is a quiet story about leaving

KINDS_OF_PEERS, PLOT, STORY = 5, 2, 3  # of five worlds of peers the third is a plot, the fourth a story


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
        check_variant(self.protocol, self.variant)


@dataclass(frozen=True)
class Broken:
    """A world that broke a promise."""

    index: int
    violation: Violation


@dataclass
class SwarmResult:
    """What was walked and what was found."""

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


@dataclass(frozen=True)
class Walked:
    """One world after its walk: the way through its safety phase, and what is wrong in the end."""

    plan: Plan
    world: World
    way: list[Transition]
    violations: list[Violation]
    notifications: int


def check_variant(protocol: str, variant: str | None) -> None:
    """Refuse a protocol or a variant that there is not."""
    if protocol not in PROTOCOLS:
        raise InputError("protocol", f"there is none called {protocol!r}", f"use one of {', '.join(PROTOCOLS)}")
    if protocol == "vcube":
        peer_of(variant)
    elif protocol == "atoms":
        atoms_cast_of(variant)
    elif protocol == "overlay":
        overlay_cast_of(variant)
    else:
        cast_of(variant)


def walk_world(seed: int, index: int, variant: str | None = None, protocol: str = "tree") -> Walked:
    """Walk one world. The same arguments give the same walk."""
    random = random_of(seed, index)
    name = f"world {index} of seed {seed}"
    if protocol == "vcube":
        return _walk_peers(index, name, random, peer_of(variant))
    if protocol == "atoms":
        kind = index % KINDS_OF_ATOMS
        make = random_forest if kind == FOREST else random_retirement if kind in RETIREMENTS else random_atoms
        atoms = make(random, name)
        world = atoms.build(atoms_cast_of(variant))
        return _go(atoms, world, AtomsWalk(Run(world), random))
    if protocol == "overlay":
        is_meeting = index % MEETING_EVERY == MEETING_EVERY - 1
        overlay = (random_meeting if is_meeting else random_overlay)(random, name, orders_of(variant))
        world = overlay.build(overlay_cast_of(variant))
        return _go(overlay, world, OverlayWalk(Run(world), random))
    if index % STORY_EVERY == STORY_EVERY - 1:
        return walk_plan(random_story(random, name), random, cast_of(variant), calm=True)
    return walk_plan(random_world(random, name), random, cast_of(variant))


def walk_plan(plan: TreeWorld, random: Random, cast: Cast, calm: bool = False) -> Walked:
    """Walk once through a given world."""
    world = plan.build(cast)
    return _go(plan, world, Walk(Run(world), random, calm))


def _walk_peers(index: int, name: str, random: Random, peer: type[Peer]) -> Walked:
    if index % KINDS_OF_PEERS == PLOT:
        plot = random_plot(random)
        peers = plotted_world(name, plot)
        world = peers.build(peer)
        return _go(peers, world, PlotWalk(Run(world), random, plot.steps, HURRIED))
    peers = random_peer_story(random, name) if index % KINDS_OF_PEERS == STORY else random_peers(random, name)
    world = peers.build(peer)
    return _go(peers, world, PeerWalk(Run(world), random))


def _go(plan: Plan, world: World, walk: Walk) -> Walked:
    run = walk.run
    walk.go()
    violations = run.finish()
    return Walked(plan, world, walk.way, violations, sum(len(process.log) for process in run.processes.values()))


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
