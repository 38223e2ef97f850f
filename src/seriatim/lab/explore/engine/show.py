"""Messages and steps as short lines of text."""

from typing import Any

from msgspec import Struct

from seriatim.lab.explore.engine.world import Transition
from seriatim.model import Event, Gap, Notification
from seriatim.protocols.machine import Payload


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
        case "suspect":
            return f"{target} is told that {transition.lane} is gone"
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
