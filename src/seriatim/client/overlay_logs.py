"""The logs of a client of an overlay, in the common schema: what `seriatim audit <folder>` judges its order from.

*Each subscription is a subscriber*: `ticker~1a2b/1`. After its broker has forgotten it, it begins anew under another
name (`ticker~1a2b.2/1`), because it is another subscription there. Events have a number in the subscription and none in
their topic, so the rows have none; which topics a filter matches is seen from what comes, so a topic counts as held
from its first event on.
"""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import msgspec
from msgspec import Struct

from seriatim.client.events import Event
from seriatim.client.inbox import NOTHING, Starts
from seriatim.client.logs import Gathered, RowFile, padded, table_paths
from seriatim.model import Address, Delivery, Number, Publication, Subscription, Topic
from seriatim.runtime import Clock


class _Stay(Struct):
    """Something of a topic has come, and the line that tells of it."""

    row: Subscription
    offset: int
    length: int


class OverlayDeliveries:
    """What one subscription is given."""

    def __init__(self, place: Path, subscriber: str, clock: Clock, where: str) -> None:
        deliveries, subscriptions = table_paths(place)
        self._deliveries, self._subscriptions = RowFile(deliveries), RowFile(subscriptions)
        self._subscriber = subscriber
        self._clock = clock
        self._where = where
        self._stays: dict[Topic, _Stay] = {}
        self._gathered = Gathered(self._deliveries)
        self.position = 0

    # ── what happens, in the order in which the application gets it ───────────────────────────────────────────────

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """The application is given these. LogError: too many rows could not be written, and these are not accepted."""
        self._gathered.make_room()
        for position, event in enumerate(events, self.position):
            if event.topic not in self._stays:
                row = Subscription(self._subscriber, event.topic, position, where=self._where)
                line = padded(row)
                self._stays[event.topic] = _Stay(row, self._subscriptions.append(line), len(line))
        now = self._clock.now_ms()
        rows = []
        for event in events:
            rows.append(
                Delivery(
                    self._subscriber,
                    self.position,
                    event.id,
                    event.topic,
                    received_at=received_at,
                    notified_at=now,
                )
            )
            self.position += 1
        self._gathered.put(rows)

    def renew(self, subscriber: str) -> None:
        """From here on it is another subscription."""
        self.end()
        self._subscriber = subscriber
        self.position = 0

    def end(self) -> None:
        """It holds nothing any more."""
        for topic, stay in list(self._stays.items()):
            row = msgspec.structs.replace(stay.row, until=self.position)
            self._subscriptions.change(stay.offset, [row], [stay.length])
            del self._stays[topic]

    def holds(self, starts: Starts) -> None:
        """Only where topics are numbered (client/logs.py)."""

    def begins(self, starts: Mapping[Topic, Number]) -> None:
        """Only where topics are numbered."""

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Write everything. May be called twice."""
        try:
            self.end()
            self._gathered.flush()
        finally:
            self._deliveries.close()
            self._subscriptions.close()


class OverlayPublications:
    """What one bus publishes: a row before the event is given to the broker; withdrawn if that refuses it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = RowFile(folder / "publications.jsonl")
        self._clock = clock
        self._sequence = 0
        self._open: dict[str, tuple[Publication, int, int]] = {}  # by event id

    def sending(self, event_id: str, topic: Topic, publisher: Address) -> None:
        """It is given to the broker now."""
        self._sequence += 1
        row = Publication(event_id, topic, publisher, self._clock.now_ms(), self._sequence)
        line = padded(row)
        self._open[event_id] = (row, self._file.append(line), len(line))

    def settled(self, event_id: str) -> None:
        """The broker has it, or nobody knows whether it has."""
        self._open.pop(event_id, None)

    def withdraw(self, event_id: str) -> None:
        """The broker never took it."""
        row, offset, length = self._open.pop(event_id)
        self._file.withdraw(offset, [row], [length])

    def close(self) -> None:
        """May be called twice."""
        self._file.close()
