"""Events on their way from a client to its broker of an overlay.

An event is published when it is in that broker's journal; from there it goes to everybody whose filter it matches. Its
number is the place among the events that this bus has published.
"""

from collections.abc import Callable

from seriatim.client.direct.logs import DirectPublications
from seriatim.client.direct.outbox import DirectOutbox
from seriatim.client.events import Published
from seriatim.client.options import Limits, check_portable_topic
from seriatim.client.outbox import Headers, Pending
from seriatim.filters import HEADER_PREFIX, attributes_of, headers_of
from seriatim.model import Address, Event, InputError, LogError, RequestRefused, SeriatimError, Topic, Unsettled

TOPIC_HEADER = f"{HEADER_PREFIX}topic"


class OverlayOutbox(DirectOutbox):
    """`give`: hands an event to the broker, in the name of the client that it returns."""

    unfinished = "are not in the broker's journal"
    late = "the broker has not confirmed"
    unknown = "whether it will is unknown"
    too_late = "the broker had confirmed this event"

    def __init__(
        self,
        name: Address,
        *,
        limits: Limits,
        timeout_s: float,
        bytes_max: int,
        publisher: Callable[[], Address],
        give: Callable[[Event], None],
        log: DirectPublications | None,
    ) -> None:
        super().__init__(name, limits, timeout_s, bytes_max)
        self._publisher = publisher
        self._give = give
        self._log = log
        self._count = 0

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def published(self, event_id: str) -> None:
        """The broker has it in its journal."""
        if (pending := self._settled(event_id)) is not None:
            self._count += 1
            self._answer(pending, Published(pending.topic, self._count, 0, event_id))

    def refused(self, event_id: str, error: str, reason: str) -> None:
        """The broker does not take it, and notifies nobody."""
        if (pending := self._pending.get(event_id)) is not None:
            if self._log is not None:
                self._log.withdraw(event_id)
            self._settled(event_id)
            self._answer(pending, RequestRefused(f"{error}: {event_id} is not published: {reason}"))

    def forgotten(self, reason: str) -> None:
        """The broker has forgotten this client: whether it had taken what is under way is not known."""
        for event_id in list(self._pending):
            if (pending := self._settled(event_id)) is not None:
                self._answer(pending, Unsettled(f"{reason}; whether {event_id} was published is not known"))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, topic: Topic, data: bytes, headers: Headers, id: str | None) -> Pending:
        """The topic travels as an attribute, too. What a filter could not read is refused here, with the reason."""
        check_portable_topic(topic)
        if headers and TOPIC_HEADER in headers:
            raise InputError("attributes", "the topic is one of them already", "give the topic as the first argument")
        pending = super()._checked(topic, data, {**(headers or {}), **headers_of({"topic": topic})}, id)
        problems: list[InputError] = []
        attributes_of(pending.headers, problems)
        if problems:
            raise problems[0]
        return pending

    def _hand_over(self, pending: Pending, id: str) -> None:
        publisher = self._publisher()
        if self._log is not None:
            self._log.sending(id, pending.topic, publisher)
        try:
            self._give(Event(id, pending.topic, publisher, pending.data, pending.headers))
        except (SeriatimError, LogError):
            if self._log is not None:
                self._log.withdraw(id)
            raise

    def _dropped(self, event_id: str) -> None:
        if self._log is not None:
            self._log.settled(event_id)
