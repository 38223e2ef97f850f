"""Where subscriptions get their events that are notified directly, by a peer in this process or by a broker of an
overlay. They need no machine of their own, no sequencers and no journal.

What the application does not take is kept up to a bound. A subscription that is slower than that ends, because whoever
notifies it would have to stop, or to keep everything for it.
"""

from seriatim.client.events import Event
from seriatim.client.session import Source
from seriatim.model import Gap, QueueFull, SeriatimError

LEAVE_S = 2.0  # how long closing waits until the others know; nobody else waits for it


class DirectSource(Source):
    """Its session calls `keep` with what comes, `miss` with what does not, and `fail` when it cannot go on.

    What came before a failure is handed out first.
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
        """It cannot go on: nothing more is kept, and iterating raises this after what came before."""
        if self.failure is None:
            self.failure = error
            self.arrived.set()
