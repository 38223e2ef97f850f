"""Publishing to a machine that answers for each event: a peer in this process, or a broker of an overlay."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from seriatim.client.logs import PublicationLog
from seriatim.client.options import check_portable_topic
from seriatim.client.outbox import Outbox, Pending
from seriatim.client.settings import Settings
from seriatim.model import Address, Closed, Event, InputError, SeriatimError, TimedOut, Topic, event_bytes

ID_BYTES_MAX = 255


class DirectOutbox(Outbox):
    """An event that timed out still occupies room until the machine has settled it."""

    unfinished: ClassVar[str]  # of events without an answer: "... 3 events <unfinished>"
    late: ClassVar[str]  # of one whose time is over: "<late> <id> within ..."
    unknown: ClassVar[str]  # ... "; <unknown>"
    too_late: ClassVar[str]  # ... when the bus is closed

    def __init__(self, name: Address, settings: Settings, bytes_max: int, log: PublicationLog | None) -> None:
        super().__init__(name, settings.limits, settings.timeout_s)
        self._bytes_max = bytes_max  # of one event, with its headers
        self._log = log
        self._logged = 0
        self._counter = 0
        self._pending: dict[str, Pending] = {}  # not settled, by id
        self._by_deadline: deque[Pending] = deque()

    @abstractmethod
    def _publisher(self) -> Address:
        """The name under which events are published now."""

    @abstractmethod
    def _give(self, event: Event) -> None:
        """Give the event to the machine. SeriatimError: it was rejected."""

    def _log_sending(self, log: PublicationLog, pending: Pending, event: Event) -> None:
        """Write it down before it is given to the machine."""
        log.sending(event.id, event.publisher, [pending], [event.id])

    def _dropped(self, event_id: str) -> None:
        """Called when an event is settled."""
        if self._log is not None:
            self._log.settled(event_id)

    def close(self, error: SeriatimError | None = None) -> None:
        """Close. Events without an answer fail with `error`."""
        self.end(error if error is not None else Closed(f"the bus was closed before {self.too_late}"))

    def explain(self) -> list[str]:
        count: dict[Topic, int] = {}
        for pending in self._pending.values():
            count[pending.topic] = count.get(pending.topic, 0) + 1
        return [f"{topic}: {number} events {self.unfinished}" for topic, number in sorted(count.items())]

    def _check_topic(self, topic: Topic) -> Topic:
        return check_portable_topic(topic)

    def _check(self, pending: Pending) -> None:
        id = pending.id
        if id is not None and len(id.encode()) > ID_BYTES_MAX:
            raise InputError("id", f"{len(id.encode())} bytes in one id", f"use at most {ID_BYTES_MAX}")
        if id is not None and id in self._pending:
            raise InputError("id", f"{id!r} is used twice", "give every event its own")
        size = event_bytes(pending.data, pending.headers)
        if size > self._bytes_max:
            fix = f"send at most {self._bytes_max}, split it, or raise options.payload_bytes_max"
            raise InputError("data", f"{size} bytes in one event", fix)

    def _send(self, pending: Pending) -> None:
        """Send one event. After an error nothing of it is kept."""
        if self._closed is not None:
            raise self._closed
        if pending.id is None:
            self._counter += 1
            pending.id = f"{self.name}-{self._counter}"
        self._pending[pending.id] = pending
        self._begin(pending, self._loop.time() + self._timeout_s)
        try:
            self._hand_over(pending, Event(pending.id, pending.topic, self._publisher(), pending.data, pending.headers))
        except SeriatimError:
            self._settled(pending.id)
            pending.deadline = None
            self._count_answered(1)
            raise
        self._by_deadline.append(pending)

    def _hand_over(self, pending: Pending, event: Event) -> None:
        if self._log is None:
            self._give(event)
            return
        self._logged += 1
        pending.sequence = self._logged
        self._log_sending(self._log, pending, event)
        try:
            self._give(event)
        except SeriatimError:
            self._log.withdraw(event.id)
            raise

    def _settled(self, event_id: str) -> Pending | None:
        pending = self._pending.pop(event_id, None)
        self._dropped(event_id)
        if pending is not None:
            self.room.give(1, pending.size)
        return pending

    def _pending_events(self) -> Iterable[Pending]:
        return self._pending.values()

    def _sweep_due(self, now: float) -> None:
        waiting = self._by_deadline
        while waiting and (waiting[0].deadline is None or waiting[0].deadline <= now):
            pending = waiting.popleft()
            waited = f"{self.late} {pending.id} within {self._timeout_s:g} s"
            self._answer(pending, TimedOut(f"{waited}; {self.unknown}"))
