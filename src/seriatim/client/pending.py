"""Events on their way to the broker: one, the answers to many, what gathers for a topic, what is under way."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from seriatim.client.batch import OVERHEAD_BYTES
from seriatim.client.events import Published
from seriatim.model import Closed, SeriatimError, Topic


class PublicationLog(Protocol):
    """Writes down what was published (client/logs.py)."""

    def sending(self, events: Sequence["Pending"], ids: Sequence[str]) -> None: ...

    def settled(self, events: Sequence["Pending"], number: int | None, is_known: bool) -> None: ...


class Pending:
    """One event on its way. `deadline` is None when it is answered; `sequence` and `seen` are for the log."""

    __slots__ = ("data", "deadline", "headers", "id", "place", "receipt", "seen", "sequence", "size", "topic")

    def __init__(self, topic: Topic, data: bytes, headers: dict[str, str] | None, id: str | None) -> None:
        self.topic = topic
        self.data = data
        self.headers = headers
        self.id = id
        size = len(data) + OVERHEAD_BYTES
        if headers is not None:
            size += sum(len(name) + len(value) + 2 * OVERHEAD_BYTES for name, value in headers.items())
        if id is not None:
            size += len(id) + OVERHEAD_BYTES
        self.size = size
        self.deadline: float | None
        self.sequence: int
        self.seen: int | None
        self.place: int
        self.receipt: asyncio.Future[Published] | Receipts


class Receipts:
    """The answers to one `publish_many`, in its order; `complete` is done when all have come."""

    __slots__ = ("complete", "left", "results")

    def __init__(self, count: int) -> None:
        self.results: list[Published | SeriatimError] = [Closed("not published")] * count
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = count

    def put(self, place: int, result: Published | SeriatimError) -> None:
        """One answer more."""
        self.results[place] = result
        self.left -= 1
        if self.left == 0 and not self.complete.done():
            self.complete.set_result(None)


class Lane:
    """What gathers for one topic (in causal mode: for all of them), and what is under way."""

    __slots__ = ("queue", "scheduled", "under_way")

    def __init__(self) -> None:
        self.queue: deque[Pending] = deque()
        self.under_way: UnderWay | None = None
        self.scheduled = False


class UnderWay:
    """One broker message: its events, of which `unanswered` still have somebody waiting."""

    __slots__ = ("events", "id", "ids", "lane", "ordered", "unanswered")

    def __init__(self, lane: Lane, id: str, ordered: Topic, events: list[Pending], ids: list[str]) -> None:
        self.lane = lane
        self.id = id
        self.ordered = ordered
        self.events = events
        self.ids = ids
        self.unanswered = len(events)
