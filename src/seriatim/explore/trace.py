"""The way to a violation: made short, and told so that a person can follow it."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from seriatim.explore.checks import Violation
from seriatim.explore.run import Run
from seriatim.explore.world import Transition, World
from seriatim.model import Address, Event, Gap, Notification
from seriatim.protocols.machine import Payload

REPLAYS_MAX = 2_000


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
        run.lines = ["set up, one command after the other:", *run.lines]
    run.lines.append("then:")
    run.follow(way)
    run.lines.append("faults end; what is on its way arrives:")
    run.finish()
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


def show_transition(transition: Transition, message: Payload | None) -> str:
    """One line for one step."""
    source, target = transition.source, transition.target
    match transition.kind:
        case "deliver":
            return f"{source} → {target}: {show(message)}"
        case "issue":
            return f"{target} is told: {show(message)}"
        case "tick":
            return f"{target}: time passes"
        case "crash" if source:
            return f"{target} crashes over {show(message)} from {source}, and restarts from its journal"
        case "crash":
            return f"{target} crashes and restarts from its journal"
        case "die":
            return f"{target} dies"
        case "lose":
            return f"{source} → {target}: {show(message)} is lost"
        case "replace":
            return f"{target} is replaced, but goes on"
        case "haunt" if source:
            return f"{source} → the replaced {target}: {show(message)}"
        case "haunt":
            return f"the replaced {target}: time passes"


def show(value: Any) -> str:
    """A message in a few characters: its name and what is in it, without what is empty."""
    match value:
        case Notification():
            late = " out of order" if value.out_of_order else ""
            return f"{value.event.id} ({value.event.topic} {value.number}){late}"
        case Gap():
            return f"a gap ({value.topic} {value.first}..{value.last}): {value.reason}"
        case Event():
            return value.id
        case Struct():
            fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
            return " ".join(
                [type(value).__name__, *(_show_field(name, inner) for name, inner in fields if _says(inner))]
            )
        case dict():
            return "{" + ", ".join(f"{key} {show(inner)}" for key, inner in sorted(value.items())) + "}"
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(show, value))) + "}"
        case list() | tuple():
            return ", ".join(map(show, value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _says(value: Any) -> bool:
    return value is not None and value != "" and value != b"" and (isinstance(value, int | float) or bool(value))


def _show_field(name: str, value: Any) -> str:
    if isinstance(value, Event | str):
        return show(value)
    if isinstance(value, Struct):
        return f"[{show(value)}]"
    return f"{name} {show(value)}"
