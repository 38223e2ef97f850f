"""The source of subscriptions that get events directly from a peer in this process or from a broker of an overlay. They
need no machine of their own, no sequencers and no journal.

Unread events are kept up to a limit. A subscription that exceeds it ends, because otherwise the peer or broker would
have to stop, or keep everything for it.
"""

from seriatim.client.events import Event
from seriatim.client.session import Source
from seriatim.model import Gap, QueueFull, SeriatimError

LEAVE_S = 2.0  # how long closing waits until the others know


class DirectSource(Source):
    """The source of a subscription without a broker. Its session calls `keep` for events, `miss` for gaps, and `fail`
    when it cannot continue.

    Events that came before a failure are handed out first.
    """

    failure: SeriatimError | None = None

    def keep(self, event: Event, received_at: float) -> None:
        """Put an event into the inbox. A subscription that is too slow ends."""
        if self.failure is not None:
            return
        self.inbox.put([event], len(event.data), received_at)
        self.arrived.set()
        room = self.inbox.room
        if room.is_exceeded:
            self.fail(
                QueueFull(
                    f"the subscription has ended: {room.events} unread events of {room.bytes} bytes are more than "
                    "allowed; take events faster, or connect(limits=...)"
                )
            )

    def miss(self, gap: Gap) -> None:
        """Report events that will never come."""
        self.inbox.put_gap(gap)
        self.arrived.set()

    def fail(self, error: SeriatimError) -> None:
        """Keep nothing more. Iterating raises this error after the events that came before it."""
        if self.failure is None:
            self.failure = error
            self.arrived.set()
