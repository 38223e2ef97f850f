"""Messages and steps as short lines of text."""

from typing import Any

from msgspec import Struct, structs

from seriatim.lab.explore.engine.world import Transition
from seriatim.model import Event, Gap, Notification
from seriatim.protocols.machine import Payload

# What happens to a machine without a message, and with one.
ALONE = {
    "issue": "{target} is told: {message}",
    "tick": "{target}: time passes",
    "crash": "{target} crashes and restarts from its journal",
    "forget": "{target} loses its journal, and is healed",
    "die": "{target} dies",
    "suspect": "{target} is told that {lane} is gone",
    "replace": "{target} is replaced, but goes on",
    "haunt": "the replaced {target}: time passes",
    "age": "{target} restarts from an older copy of its journal, which lacks {lane} records",
    "double": "another process takes over {target} with a copy of its journal",
}
WITH_MESSAGE = {
    "deliver": "{source} → {target}: {message}",
    "crash": "{target} crashes over {message} from {source}, and restarts from its journal",
    "lose": "{source} → {target}: {message} is lost",
    "haunt": "{source} → the replaced {target}: {message}",
}


def show_transition(transition: Transition, message: Payload | None) -> str:
    """One line for one step."""
    kind, target, source, lane = transition
    return (WITH_MESSAGE if source else ALONE)[kind].format(
        target=target, source=source, lane=lane, message=show(message)
    )


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
            fields = [(each.name, getattr(value, each.name), each.default) for each in structs.fields(value)]
            said = [_show_field(name, inner) for name, inner, usual in fields if _says(inner, usual)]
            return " ".join([type(value).__name__, *said])
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


def _says(value: Any, usual: Any) -> bool:
    """Whether it is worth showing: neither empty nor false, nor a number that is there unless another is given."""
    if value is None or value is False:
        return False
    return value != usual if isinstance(value, int | float) else bool(value)


def _show_field(name: str, value: Any) -> str:
    if isinstance(value, Event | str):
        return show(value)
    if isinstance(value, Struct):
        return f"[{show(value)}]"
    return f"{name} {show(value)}"
