"""The messages of both baselines. README.md beside this file has the same list as a table.

The application's commands are those of protocols.vcube, so that the same workload can be given to all three.
"""

from msgspec import Struct

from seriatim.model import Event, Topic


class Grow(Struct, frozen=True, tag=True):
    """Node → its parent in the topic's tree, or client → its broker: send me what is published on the topic."""

    topic: Topic


class Prune(Struct, frozen=True, tag=True):
    """The same way: send it no longer."""

    topic: Topic


class Rise(Struct, frozen=True, tag=True):
    """Publisher → root of the topic: publish this."""

    event: Event


class Fall(Struct, frozen=True, tag=True):
    """Parent → child, or broker → client: this was published."""

    event: Event
