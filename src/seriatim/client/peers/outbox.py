"""Publishing from this process, which is a peer, to all others that hold the topic.

An event is published when every member has received it. Its number counts its publisher's own events of the topic, and
is known as soon as the peer has accepted it.
"""

from typing import TYPE_CHECKING

from seriatim.client.direct.outbox import DirectOutbox
from seriatim.client.events import Published
from seriatim.client.logs import PublicationLog
from seriatim.client.outbox import Pending
from seriatim.client.peers.logs import log_name
from seriatim.live.peers import LivePeer
from seriatim.model import APPLICATION, Address, Event, InputError, Unsettled
from seriatim.protocols.vcube.messages import Publish

if TYPE_CHECKING:
    from seriatim.client.peers.session import PeerSession

JOIN_FIX = "subscribe to it first, or connect(..., join=True), which does so by itself"


class PeerOutbox(DirectOutbox):
    """The outbox of a peer. With `connect(join=True)` the peer holds a topic before its first publication on it."""

    unfinished = "are not received by all members"
    late = "not all members have received"
    unknown = "whether they will is unknown"
    too_late = "all members had received this event"

    def __init__(self, session: "PeerSession", live: LivePeer, log: PublicationLog | None) -> None:
        super().__init__(session.name, session.settings, live.config.options.payload_bytes_max, log)
        self._session = session
        self._live = live
        self._events: dict[str, Event] = {}  # given to the peer, not numbered yet
        self._numbers: dict[str, int] = {}

    def taken(self, event: Event, number: int, life: str) -> None:
        """The peer has numbered one of our events, and sends it. Another peer's event may have the same id."""
        if self._events.get(event.id) is event:
            del self._events[event.id]
            self._numbers[event.id] = number
            if self._log is not None:  # a later life than the log says may publish it, which has seen nothing
                publisher = log_name(life, event.topic)
                is_new_life = event.publisher != life
                self._log.settled(event.id, **({"publisher": publisher, "seen": 0} if is_new_life else {}))

    def published(self, event_id: str) -> None:
        pending = self._settled(event_id)
        if pending is not None:
            self._answer(pending, Published(pending.topic, self._numbers.pop(event_id), 0, event_id))

    def unsettled(self, event_id: str) -> None:
        """Fail the publication of an event: this peer was presumed dead before all members had received it."""
        pending = self._settled(event_id)
        if pending is not None:
            self._numbers.pop(event_id, None)
            why = f"this peer was presumed dead before all had received {event_id}"
            self._answer(pending, Unsettled(f"{why}: either all the others have it, or none"))

    def _publisher(self) -> Address:
        return self._session.life

    def _log_sending(self, log: PublicationLog, pending: Pending, event: Event) -> None:
        pending.seen = self._session.seen_of(event.topic)
        log.sending(event.id, log_name(event.publisher, event.topic), [pending], [event.id])

    def _give(self, event: Event) -> None:
        self._events[event.id] = event
        join = self._session.settings.join
        try:
            self._live.command(APPLICATION, Publish(event, join))
        except InputError as error:
            if join:
                raise
            raise InputError(error.field, error.problem, JOIN_FIX) from None

    def _dropped(self, event_id: str) -> None:
        self._events.pop(event_id, None)
        super()._dropped(event_id)
