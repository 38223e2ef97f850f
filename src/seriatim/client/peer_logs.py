"""The logs of a peer, in the common schema: what `seriatim audit <folder>` judges causal order from.

*Each life is a subscriber and a publisher of its own*: a new life begins at a new frontier, its publications are
numbered from 1 again, and a restarted process has forgotten what its predecessor was notified of. *So is each topic*,
since peers order the events of a topic, and nothing across topics: `3.1/chat` is peer 3 in its first life on `chat`.
Events have no number in their topic, so the rows have none.
"""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import msgspec
from msgspec import Struct

from seriatim.client.events import Event
from seriatim.client.inbox import NOTHING, Starts
from seriatim.client.logs import Gathered, RowFile, padded, table_paths
from seriatim.model import Delivery, Number, Publication, Subscription, Topic
from seriatim.runtime import Clock


def log_name(life: str, topic: Topic) -> str:
    """How logs call a life on a topic."""
    return f"{life}/{topic}"


class _Stay(Struct):
    """A topic is held, and the line that tells of it."""

    row: Subscription
    offset: int
    length: int


class PeerDeliveries:
    """What the subscriptions of one bus are given, as one folder is told of it."""

    def __init__(self, place: Path, clock: Clock) -> None:
        deliveries, subscriptions = table_paths(place)
        self._deliveries, self._subscriptions = RowFile(deliveries), RowFile(subscriptions)
        self._clock = clock
        self._stays: dict[Topic, _Stay] = {}
        self._positions: dict[str, int] = {}  # by subscriber
        self._gathered = Gathered(self._deliveries)

    # ── what happens, in the order in which the application gets it ───────────────────────────────────────────────

    def begin(self, topic: Topic, life: str) -> None:
        """From here on the topic is held, in this life."""
        self.end(topic)
        subscriber = log_name(life, topic)
        row = Subscription(subscriber, topic, self._positions.setdefault(subscriber, 0))
        line = padded(row)
        self._stays[topic] = _Stay(row, self._subscriptions.append(line), len(line))

    def end(self, topic: Topic) -> None:
        """It is not any more."""
        stay = self._stays.get(topic)
        if stay is not None:
            row = msgspec.structs.replace(stay.row, until=self._positions[stay.row.subscriber])
            self._subscriptions.change(stay.offset, [row], [stay.length])
            del self._stays[topic]

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """The application is given these. LogError: too many rows could not be written, and these are not accepted."""
        self._gathered.make_room()
        now = self._clock.now_ms()
        rows = []
        for event in events:
            stay = self._stays.get(event.topic)
            if stay is None:  # it has just left the topic
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

    # ── for publications ──────────────────────────────────────────────────────────────────────────────────────────

    def seen(self, topic: Topic, life: str) -> int:
        """How many events the application was given of a topic in this life. They are in the log from here on: what is
        said to have been seen must be found there, even if this process is killed now."""
        self.flush()
        return self._positions.get(log_name(life, topic), 0)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Write what has gathered."""
        self._gathered.flush()

    def close(self) -> None:
        """Write everything. May be called twice."""
        try:
            for topic in list(self._stays):
                self.end(topic)
            self.flush()
        finally:
            self._deliveries.close()
            self._subscriptions.close()


class PeerPublications:
    """What one bus publishes: a row before the event is given to the peer; changed if another life publishes it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = RowFile(folder / "publications.jsonl")
        self._clock = clock
        self._sequence = 0
        self._open: dict[str, tuple[Publication, int, int]] = {}  # by event id

    def sending(self, event_id: str, topic: Topic, life: str, seen: int) -> None:
        """It is given to the peer now."""
        self._sequence += 1
        row = Publication(event_id, topic, log_name(life, topic), self._clock.now_ms(), self._sequence, seen)
        line = padded(row)
        self._open[event_id] = (row, self._file.append(line), len(line))

    def sent(self, event_id: str, life: str) -> None:
        """The peer publishes it, in this life. A new life has, as such, seen nothing."""
        row, offset, length = self._open.pop(event_id)
        publisher = log_name(life, row.topic)
        if publisher != row.publisher:
            self._file.change(offset, [msgspec.structs.replace(row, publisher=publisher, seen=0)], [length])

    def withdraw(self, event_id: str) -> None:
        """The peer never took it."""
        row, offset, length = self._open.pop(event_id)
        self._file.withdraw(offset, [row], [length])

    def close(self) -> None:
        """May be called twice."""
        self._file.close()
