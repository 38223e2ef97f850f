"""Seriatim: every subscriber sees the same events in the same order, across topics.

    async with seriatim.connect("nats://127.0.0.1:4222") as bus:
        async with bus.subscribe("orders", "payments") as events:
            await bus.publish("orders", b"order 1")
            async for event in events:
                ...

The names below are imported when they are first used, so that `import seriatim` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seriatim.client import (
        Bus,
        Event,
        Explanation,
        GapPolicy,
        Limits,
        Published,
        Subscription,
        connect,
    )
    from seriatim.model import (
        Closed,
        ConnectionFailed,
        Fenced,
        Gap,
        GapError,
        InputError,
        JournalError,
        QueueFull,
        RequestRefused,
        SeriatimError,
        TimedOut,
        UnknownTopic,
        Unsettled,
    )

__version__ = "0.1.0"

__all__ = [
    "Bus",
    "Closed",
    "ConnectionFailed",
    "Event",
    "Explanation",
    "Fenced",
    "Gap",
    "GapError",
    "GapPolicy",
    "InputError",
    "JournalError",
    "Limits",
    "Published",
    "QueueFull",
    "RequestRefused",
    "SeriatimError",
    "Subscription",
    "TimedOut",
    "UnknownTopic",
    "Unsettled",
    "connect",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'seriatim' has no attribute {name!r}")
    client = import_module("seriatim.client")
    return getattr(client if hasattr(client, name) else import_module("seriatim.model"), name)
