"""Events on their way from this process, which is a peer, to all others that hold their topic.

An event is published when every member has received it. Its number is the place among its source's own events of the
topic, known as soon as the peer has taken it.
"""

from collections.abc import Callable

from seriatim.client.direct.outbox import DirectOutbox
from seriatim.client.events import Published
from seriatim.client.options import Limits
from seriatim.client.outbox import Pending
from seriatim.client.peers.logs import PeerPublications, log_name
from seriatim.live.peers import LivePeer
from seriatim.model import APPLICATION, Address, Event, InputError, LogError, SeriatimError, Topic, Unsettled
from seriatim.protocols.vcube.messages import Publish

JOIN_FIX = "subscribe to it first, or connect(..., join=True), which does so by itself"


class PeerOutbox(DirectOutbox):
    """`join`: hold a topic before the first publication on it. `seen`: for the log, what was seen of a topic."""

    unfinished = "are not received by all members"
    late = "not all members have received"
    unknown = "whether they will is unknown"
    too_late = "all members had received this event"

    def __init__(
        self,
        name: Address,
        live: LivePeer,
        *,
        join: bool,
        limits: Limits,
        timeout_s: float,
        life: Callable[[], str],
        log: PeerPublications | None,
        seen: Callable[[Topic], int],
    ) -> None:
        super().__init__(name, limits, timeout_s, live.config.options.payload_bytes_max)
        self._live = live
        self._join = join
        self._life = life
        self._log = log
        self._seen = seen
        self._events: dict[str, Event] = {}  # given to the peer, which has not given it a number yet
        self._numbers: dict[str, int] = {}

    # ── from the peer ─────────────────────────────────────────────────────────────────────────────────────────────

    def taken(self, event: Event, number: int, life: str) -> None:
        """The peer has given one of ours its number, and sends it. An event of others may have the same id."""
        if self._events.get(event.id) is event:
            del self._events[event.id]
            self._numbers[event.id] = number
            if self._log is not None:
                self._log.sent(event.id, life)

    def published(self, event_id: str) -> None:
        """Everybody has it."""
        pending = self._settled(event_id)
        if pending is not None:
            self._answer(pending, Published(pending.topic, self._numbers.pop(event_id), 0, event_id))

    def unsettled(self, event_id: str) -> None:
        """This peer was presumed dead before everybody had it."""
        pending = self._settled(event_id)
        if pending is not None:
            self._numbers.pop(event_id, None)
            why = f"this peer was presumed dead before all had received {event_id}"
            self._answer(pending, Unsettled(f"{why}: either all the others have it, or none"))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hand_over(self, pending: Pending, id: str) -> None:
        life = self._life()
        event = Event(id, pending.topic, life, pending.data, pending.headers)
        if self._log is not None:
            self._log.sending(id, pending.topic, log_name(life, pending.topic), self._seen(pending.topic))
        self._events[id] = event
        try:
            self._live.command(APPLICATION, Publish(event, self._join))
        except (SeriatimError, LogError) as error:
            if self._log is not None:
                self._log.withdraw(id)
            if isinstance(error, InputError) and not self._join:
                raise InputError(error.field, error.problem, JOIN_FIX) from None
            raise

    def _dropped(self, event_id: str) -> None:
        self._events.pop(event_id, None)
