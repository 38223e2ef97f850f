"""The way to a violation: made short, and told so that a person can follow it."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from seriatim.explore.checks import Violation
from seriatim.explore.run import ExplorerError, Run, replay
from seriatim.explore.world import Transition, World
from seriatim.model import Event, Gap, Notification, SeriatimError
from seriatim.protocols.machine import Effects, Payload

Finish = Callable[[Run], list[Violation]]  # what is broken once the way has been gone

REPLAYS_MAX = 2_000


def broken_at_rest(run: Run) -> list[Violation]:
    """Let everything arrive that can arrive without further faults, then look."""
    run.end_faults()
    owed = run.settle()
    return [*run.violations(), *owed]


def shrink(
    world: World, way: Sequence[Transition], kind: str, replays_max: int = REPLAYS_MAX
) -> tuple[list[Transition], Violation | None]:
    """A shorter way to a violation of the same kind, and that violation. None: the way does not lead to one.

    Leaves out stretches of the way, long ones first, as long as the violation remains. What was left out and is still
    possible at the end simply happens last, in a fixed order: only the choices that matter remain in the way.
    """
    best = list(way)
    violation = _violation_after(world, best, kind)
    if violation is None:
        return best, None
    replays, length = 1, max(1, len(best) // 2)
    while replays < replays_max:
        shorter, start = False, 0
        while start < len(best) and replays < replays_max:
            attempt = best[:start] + best[start + length :]
            replays += 1
            found = _violation_after(world, attempt, kind)
            if found is not None:
                best, violation, shorter = attempt, found, True
            else:
                start += length
        if length == 1 and not shorter:
            break
        if not shorter:
            length //= 2
    return best, violation


def _violation_after(world: World, way: Sequence[Transition], kind: str) -> Violation | None:
    try:
        found = broken_at_rest(replay(world, way))
    except SeriatimError as error:
        found = [Violation("error", str(error))]
    return next((violation for violation in found if violation.kind == kind), None)


class _Told(Run):
    """A run that tells what happens in it."""

    def __init__(self, world: World) -> None:
        self.lines: list[str] = []
        super().__init__(world)

    def take(self, transition: Transition) -> Payload | None:
        process = self.processes[transition.target]
        command = process.script[process.issued] if transition.kind == "issue" else None
        told = len(process.log)
        before = process.log[:]
        message = super().take(transition)
        self.lines.append(told_transition(transition, message if command is None else command))
        self.lines.extend(f"    {transition.target} {show_notice(payload)}" for payload in process.log[len(before) :])
        del told
        return message
