"""The delivery log of a peer, in the common schema. `seriatim audit <folder>` checks causal order with it.

*Each life is a subscriber and a publisher of its own*: a new life begins at a new frontier, its publications are
numbered from 1 again, and a restarted process has forgotten what its predecessor was notified of. *So is each topic*,
because peers order the events of a topic, and nothing across topics: `3.1/chat` is peer 3 in its first life on `chat`.
Events have no number in their topic, so the rows have none.
"""

from collections.abc import Sequence, Set
from pathlib import Path

from seriatim.client.events import Event
from seriatim.client.logs import DeliveryLog, open_tables
from seriatim.model import Topic
from seriatim.runtime import Clock


def log_name(life: str, topic: Topic) -> str:
    """The name of a life on a topic, in logs."""
    return f"{life}/{topic}"


class PeerDeliveries:
    """The deliveries to the subscriptions of one bus, logged in one folder."""

    def __init__(self, place: Path, clock: Clock) -> None:
        self._tables = open_tables(place)
        self._clock = clock
        self._logs: dict[str, DeliveryLog] = {}  # of each life on each topic
        self._held: dict[Topic, DeliveryLog] = {}

    def begin(self, topic: Topic, life: str) -> None:
        """Log that the topic is held from now on, in this life."""
        self.end(topic)
        name = log_name(life, topic)
        if name not in self._logs:
            self._logs[name] = DeliveryLog(*self._tables, name, self._clock, is_numbered=False)
        self._logs[name].holds({topic: None})
        self._held[topic] = self._logs[name]

    def end(self, topic: Topic) -> None:
        if (log := self._held.get(topic)) is not None:
            log.end()
            del self._held[topic]

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int]) -> None:
        """Log events of one topic that the application gets. LogError: they are not logged."""
        log = self._held.get(events[0].topic) if events else None
        if log is not None:  # otherwise the topic was just left
            log.handed(events, received_at)

    def seen(self, topic: Topic, life: str) -> int:
        """How many events of a topic the application was given in this life. Writes them to the log first: a
        publication may refer to them even if this process is killed now."""
        log = self._logs.get(log_name(life, topic))
        if log is None:
            return 0
        log.flush()
        return log.position

    def flush(self) -> None:
        for log in self._logs.values():
            log.flush()

    def close(self) -> None:
        """Write everything. May be called twice."""
        try:
            for topic in list(self._held):
                self.end(topic)
            self.flush()
        finally:
            for table in self._tables:
                table.close()
