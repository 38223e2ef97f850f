"""The state of a machine as bytes: equal states give equal bytes, and a copy is one decoding."""

from typing import Any, TypeVar

import msgspec

State = TypeVar("State")


def snapshot(state: object) -> bytes:
    """Keys and sets sorted; JSON, because numbers as keys cannot be sorted in MessagePack."""
    return msgspec.json.encode(msgspec.to_builtins(state, str_keys=True, order="deterministic"))


def copy_of(state: State, of_type: Any = None) -> State:
    """What a process that reads the snapshot gets."""
    copy: State = msgspec.json.decode(snapshot(state), type=of_type if of_type is not None else type(state))
    return copy
