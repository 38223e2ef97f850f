"""Events on their way from a client to its broker of an overlay.

An event is published when it is in that broker's journal; from there it goes to everybody whose filter it matches. Its
number is the place among the events that this bus has published.
"""

from typing import TYPE_CHECKING

from seriatim.client.direct.outbox import DirectOutbox
from seriatim.client.events import Published
from seriatim.client.logs import PublicationLog
from seriatim.client.options import check_portable_topic
from seriatim.client.outbox import Headers, Pending
from seriatim.filters import HEADER_PREFIX, attributes_of, headers_of
from seriatim.model import Address, Event, InputError, RequestRefused, Topic, Unsettled

if TYPE_CHECKING:
    from seriatim.client.overlay.session import OverlaySession

TOPIC_HEADER = f"{HEADER_PREFIX}topic"


class OverlayOutbox(DirectOutbox):
    """The publications of a client, in the name under which its broker knows it."""

    unfinished = "are not in the broker's journal"
    late = "the broker has not confirmed"
    unknown = "whether it will is unknown"
    too_late = "the broker had confirmed this event"

    def __init__(self, session: "OverlaySession", bytes_max: int, log: PublicationLog | None) -> None:
        super().__init__(session.name, session.settings, bytes_max, log)
        self._session = session
        self._count = 0

    def published(self, event_id: str) -> None:
        if (pending := self._settled(event_id)) is not None:
            self._count += 1
            self._answer(pending, Published(pending.topic, self._count, 0, event_id))

    def refused(self, event_id: str, error: str, reason: str) -> None:
        """The broker rejected the event, and notifies no subscriber."""
        if (pending := self._pending.get(event_id)) is not None:
            if self._log is not None:
                self._log.withdraw(event_id)
            self._settled(event_id)
            self._answer(pending, RequestRefused(f"{error}: {event_id} is not published: {reason}"))

    def forgotten(self, reason: str) -> None:
        """The broker has forgotten this client. Whether it accepted the events under way is unknown."""
        for event_id in list(self._pending):
            if (pending := self._settled(event_id)) is not None:
                self._answer(pending, Unsettled(f"{reason}; whether {event_id} was published is not known"))

    def _checked(self, topic: Topic, data: bytes, headers: Headers, id: str | None) -> Pending:
        """Add the topic as an attribute, and refuse values that a filter could not read."""
        check_portable_topic(topic)
        if headers and TOPIC_HEADER in headers:
            raise InputError("attributes", "the topic is one of them already", "give the topic as the first argument")
        pending = super()._checked(topic, data, {**(headers or {}), **headers_of({"topic": topic})}, id)
        problems: list[InputError] = []
        attributes_of(pending.headers, problems)
        if problems:
            raise problems[0]
        return pending

    def _publisher(self) -> Address:
        return self._session.attached.name

    def _give(self, event: Event) -> None:
        self._session.give(event)
