"""One line for any message: its kind, then what it says, without what goes without saying."""

from typing import Any

import msgspec

from seriatim.model import Event
from seriatim.order import OrderedRange
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import JoinId, Routed

# Fields whose value speaks for itself; all others are written name=value.
PLAIN = {"body", "entries", "event", "event_id", "join", "message", "number", "timestamp", "topic", "topics"}


def show(message: Payload) -> str:
    """The message in one line; nothing for a frame that only acknowledges."""
    if isinstance(message, Frame):
        return show(message.body) if message.body is not None else ""
    if isinstance(message, Routed):
        return f"{show(message.body)}, for {message.to}"
    words = [type(message).__name__]
    fields = {field.name: (getattr(message, field.name), field.default) for field in msgspec.structs.fields(message)}
    for name, (value, default) in fields.items():
        if name == "last" and "first" in fields:
            words[-1] = f"{fields['first'][0]}..{value}"
        elif name == "event" and value is None:
            words.append("dummy" if words[0].startswith("Ens") else "void")
        elif value in (default, None, (), {}, frozenset()) or (name == "epoch" and value == 1):
            continue
        elif value is True:
            words.append(name)
        elif name in PLAIN or name == "first":
            words.append(show_value(value))
        else:
            words.append(f"{name}={show_value(value)}")
    return " ".join(words)


def show_value(value: Any) -> str:
    match value:
        case Event():
            return value.id
        case JoinId():
            return f"{value.subscriber}+{value.topic}"
        case OrderedRange():
            return f"{value.topic} {value.first}..{value.last}"
        case msgspec.Struct():
            return f"({show(value)})"
        case dict():
            return "{" + " ".join(f"{key}:{show_value(each)}" for key, each in value.items()) + "}"
        case set() | frozenset():
            return "{" + " ".join(sorted(map(show_value, value))) + "}"
        case list() | tuple():
            return (
                "{"
                + (", " if any(isinstance(each, OrderedRange) for each in value) else " ").join(map(show_value, value))
                + "}"
            )
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)
