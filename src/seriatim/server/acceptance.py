"""The request of an operator to the home of a topic whose stream was deleted on purpose, and the answer, as JSON.

The subject is `_<cluster>.accept.<node>`. A user that may publish there may accept; the broker's permissions decide who
may.
"""

from msgspec import Struct

from seriatim.model import Number, Topic


class Accept(Struct, frozen=True, kw_only=True):
    """Accept the log that has the name of this topic now. Asking again is how to learn that it is done.

    `drop`: and drop the events that it holds already, which were never numbered.
    """

    topic: Topic
    drop: bool = False


class Acceptance(Struct, frozen=True, kw_only=True):
    """The answer. `refused`: why not; nothing has changed. `first`: the number that the log goes on at."""

    topic: Topic
    refused: str = ""
    first: Number = 0
    is_done: bool = False
    dropped: int = 0  # once it is done
