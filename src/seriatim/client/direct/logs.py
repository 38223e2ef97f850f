"""Delivery and publication logs where topics have no numbers: of peers, and of clients of an overlay.

peers/logs.py and overlay/logs.py say what counts as a subscriber and as a publisher there.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from seriatim.client.events import Event
from seriatim.client.inbox import Starts
from seriatim.client.logs import Gathered, RowFile, padded, table_paths
from seriatim.model import Delivery, Number, Publication, Subscription, Topic
from seriatim.runtime import Clock


class _Stay(Struct):
    """A topic is held, and the line that tells of it."""

    row: Subscription
    offset: int
    length: int


class DirectDeliveries:
    """Deliveries and holdings, by topic."""

    def __init__(self, place: Path, clock: Clock) -> None:
        deliveries, subscriptions = table_paths(place)
        self._deliveries, self._subscriptions = RowFile(deliveries), RowFile(subscriptions)
        self._clock = clock
        self._stays: dict[Topic, _Stay] = {}
        self._positions: dict[str, int] = {}  # by subscriber
        self._gathered = Gathered(self._deliveries)

    def _begin(self, topic: Topic, subscriber: str, since: int, where: str | None = None) -> None:
        """From here on the topic is held."""
        row = Subscription(subscriber, topic, since, where=where)
        line = padded(row)
        self._stays[topic] = _Stay(row, self._subscriptions.append(line), len(line))

    def end(self, topic: Topic) -> None:
        """The topic is no longer held."""
        stay = self._stays.get(topic)
        if stay is not None:
            row = msgspec.structs.replace(stay.row, until=self._positions[stay.row.subscriber])
            self._subscriptions.change(stay.offset, [row], [stay.length])
            del self._stays[topic]

    def end_all(self) -> None:
        """Nothing is held any longer."""
        for topic in list(self._stays):
            self.end(topic)

    def _put(self, events: Sequence[Event], received_at: float | None) -> None:
        """The application is given these. LogError comes before this: `Gathered.make_room`."""
        now = self._clock.now_ms()
        rows = []
        for event in events:
            stay = self._stays.get(event.topic)
            if stay is None:  # the topic was just left
                continue
            subscriber = stay.row.subscriber
            position = self._positions[subscriber]
            self._positions[subscriber] = position + 1
            rows.append(Delivery(subscriber, position, event.id, event.topic, received_at=received_at, notified_at=now))
        self._gathered.put(rows)

    def holds(self, starts: Starts) -> None:
        """Only where topics are numbered (client/logs.py)."""

    def begins(self, starts: Mapping[Topic, Number]) -> None:
        """Only where topics are numbered."""

    def flush(self) -> None:
        """Write what has gathered."""
        self._gathered.flush()

    def close(self) -> None:
        """Write everything. May be called twice."""
        try:
            self.end_all()
            self.flush()
        finally:
            self._deliveries.close()
            self._subscriptions.close()


class DirectPublications:
    """What one bus publishes: a row before the event is handed over; changed or withdrawn if that fails."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = RowFile(folder / "publications.jsonl")
        self._clock = clock
        self._sequence = 0
        self._open: dict[str, tuple[Publication, int, int]] = {}  # by event id

    def sending(self, event_id: str, topic: Topic, publisher: str, seen: int | None = None) -> None:
        """It is handed over now."""
        self._sequence += 1
        row = Publication(event_id, topic, publisher, self._clock.now_ms(), self._sequence, seen)
        line = padded(row)
        self._open[event_id] = (row, self._file.append(line), len(line))

    def settled(self, event_id: str) -> None:
        """It is published, or nobody knows whether it is."""
        self._open.pop(event_id, None)

    def change(self, event_id: str, changed: Callable[[Publication], Publication]) -> None:
        """It is published, with another row."""
        row, offset, length = self._open.pop(event_id)
        if (new := changed(row)) != row:
            self._file.change(offset, [new], [length])

    def withdraw(self, event_id: str) -> None:
        """It was never published."""
        row, offset, length = self._open.pop(event_id)
        self._file.withdraw(offset, [row], [length])

    def close(self) -> None:
        """May be called twice."""
        self._file.close()
