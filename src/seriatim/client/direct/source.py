"""Where subscriptions get their events that are notified directly, by a peer in this process or by a broker of an
overlay. They need no machine of their own, no sequencers and no journal.

What the application does not take is kept up to a bound. A subscription that is slower than that ends, because whoever
notifies it would have to stop, or to keep everything for it.
"""

import asyncio
from typing import ClassVar

from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.inbox import Inbox, Log
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.refusals import Substrate
from seriatim.client.session import Wishes
from seriatim.filters import Filter
from seriatim.model import Address, Gap, QueueFull, SeriatimError

LEAVE_S = 2.0  # how long closing waits until the others know; nobody else waits for it


class DirectSource:
    """Its session calls `keep` with what comes, `miss` with what does not, and `fail` when it cannot go on."""

    substrate: ClassVar[Substrate]
    acknowledging = None

    def __init__(self, name: Address, wishes: Wishes, log: Log | None) -> None:
        self.name = self.log_name = name
        self.wishes = wishes
        self.inbox = Inbox(wishes.limits, show_gaps=wishes.stops_at_gaps, log=log)
        self.arrived = asyncio.Event()
        self.failure: SeriatimError | None = None
        self.is_quick = False

    @property
    def where(self) -> Filter | None:
        return self.wishes.where

    async def leave(self) -> None:
        """Closing is enough: nothing is remembered."""

    def before_taking(self) -> None:
        """What came before a failure is handed out first."""

    def after_taking(self) -> None:
        """Nobody was asked to pause."""

    def explain(self) -> Explanation:
        """The session explains what waits; what was missed is in `gaps`."""
        return Explanation()

    def metrics(self) -> SubscriptionMetrics:
        return SubscriptionMetrics(
            subscriber=self.name,
            notified=self.inbox.notified,
            unread=self.inbox.room.events,
            held=None,
            oldest_held_seconds=None,
            out_of_order=0,
            gaps=self.inbox.gap_count,
            rejected=0,
            left_out=0,
        )

    def keep(self, event: Event, received_at: float) -> None:
        """Until it is taken."""
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
        """This never comes."""
        self.inbox.put_gap(gap)
        self.arrived.set()

    def fail(self, error: SeriatimError) -> None:
        """It cannot go on: nothing more is kept, and iterating raises this after what came before."""
        if self.failure is None:
            self.failure = error
            self.arrived.set()
