"""The trace that leads to a violation: shortened, and printed so that a person can follow it."""

from collections.abc import Sequence

from seriatim.lab.explore.engine.checks import Violation
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.show import show, show_transition
from seriatim.lab.explore.engine.world import Transition, World
from seriatim.model import Address
from seriatim.protocols.machine import Payload

REPLAYS_MAX = 2_000
AFTERMATH_MAX = 60  # lines about what happens after the trace: often the same request, again and again


def shrink(
    world: World, way: Sequence[Transition], kind: str, replays_max: int = REPLAYS_MAX
) -> tuple[list[Transition], Violation | None]:
    """A shorter way to a violation of the same kind, and that violation. None: this way does not lead to one.

    Leaves out stretches of the way, long ones first, as long as the violation remains. A message that is no longer
    taken on the way arrives after it, with all others, in a fixed order; a command that is left out is not issued.
    So what remains are the commands and the choices that matter.
    """
    best, replays = list(way), 1
    violation = _violation_after(world, best, kind)
    length = len(best)
    while violation is not None and length > 1 and replays < replays_max:
        length = (length + 1) // 2
        shortened = True
        while shortened and replays < replays_max:
            shortened, start = False, 0
            while start < len(best) and replays < replays_max:
                attempt = best[:start] + best[start + length :]
                replays += 1
                found = _violation_after(world, attempt, kind)
                if found is None:
                    start += length
                else:
                    best, violation, shortened = attempt, found, True
    return best, violation


def _violation_after(world: World, way: Sequence[Transition], kind: str) -> Violation | None:
    run = Run(world)
    run.follow(way)
    return next((violation for violation in run.finish() if violation.kind == kind), None)


def transcript(world: World, way: Sequence[Transition]) -> list[str]:
    """What happens on this way and after it, one line for each step; what applications are told is indented."""
    run = _ToldRun(world)
    if run.lines:
        run.lines = ["set up, one command at a time:", *run.lines]
    run.lines.append("then:")
    run.follow(way)
    run.lines.append("faults end; what is on its way arrives:")
    told = len(run.lines)
    run.finish()
    left_out = len(run.lines) - told - AFTERMATH_MAX
    if left_out > 0:
        run.lines[told + AFTERMATH_MAX :] = [f"  … and {left_out} more lines"]
    return run.lines


class _ToldRun(Run):
    """A run that tells what happens in it."""

    def __init__(self, world: World) -> None:
        self.lines: list[str] = []
        super().__init__(world)

    def issue_setup(self, address: Address, command: Payload) -> None:
        self.lines.append(f"  {address} is told: {show(command)}")
        super().issue_setup(address, command)

    def take(self, transition: Transition) -> Payload | None:
        process = self.processes[transition.target]
        known = len(process.log)
        command = process.script[process.issued] if transition.kind == "issue" else None
        message = super().take(transition)
        self.lines.append("  " + show_transition(transition, message if command is None else command))
        self._tell_news(transition.target, known)
        return message

    def pass_time(self, address: Address) -> None:
        process = self.processes[address]
        known, busy = len(process.log), len(self.channels)
        super().pass_time(address)
        if len(self.channels) > busy or len(process.log) > known:
            self.lines.append(f"  {address}: time passes")
        self._tell_news(address, known)

    def _tell_news(self, address: Address, known: int) -> None:
        for payload in self.processes[address].log[known:]:
            self.lines.append(f"      {address} notifies {show(payload)}")
