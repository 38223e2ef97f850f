"""What subscriptions have in common that are notified directly, by a peer in the same process or by a broker of an
overlay, and need no machine of their own, no sequencers and no journal.

What the application does not take is kept up to a bound; who is slower than that is cut off, because whoever notifies
it would have to stop, or to keep everything for it.
"""

import asyncio
from collections.abc import Callable

from seriatim.client.cluster import Cluster, Network
from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.inbox import Inbox, Item, Log
from seriatim.client.subscription import Subscription, Wishes
from seriatim.model import Address, Closed, Gap, InputError, QueueFull, SeriatimError
from seriatim.runtime import Clock, Journal


class DirectSubscription(Subscription):
    """Its owner calls `_keep` with what comes, `_miss` with what does not, and `fail` when it is over."""

    def __init__(
        self, name: Address, wishes: Wishes, clock: Clock, log: Log | None, on_close: Callable[[Subscription], None]
    ) -> None:
        super().__init__(
            name,
            wishes,
            cluster=_no_cluster,
            network=_no_network,
            open_journal=_no_journal,
            clock=clock,
            log_name=name,
            on_close=on_close,
        )
        self._inbox = Inbox(show_gaps=self._stops_at_gaps, log=log)
        self._arrived = asyncio.Event()
        self._failure: SeriatimError | None = None

    @property
    def rejected(self) -> int:
        """Always 0: who sends what it cannot send is disconnected."""
        return 0

    async def unsubscribe(self) -> None:
        """Leave, and close."""
        self._check_open()
        await self.close()

    async def acknowledge(self) -> None:
        """There is nothing to acknowledge: nothing is remembered over a restart."""
        self._check_open()
        raise InputError("acknowledge", "only durable subscriptions remember it", "there are none here; leave it out")

    def explain(self) -> Explanation:
        """The bus itself explains what waits (`bus.explain`); what was missed is in `gaps`."""
        return Explanation()

    # ── what comes ────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, event: Event, received_at: float) -> None:
        """Until it is taken."""
        if self._failure is not None:
            return
        self._inbox.put([event], len(event.data), received_at)
        self._arrived.set()
        limits = self._wishes.limits
        if self._inbox.events > limits.unread_events or self._inbox.bytes > limits.unread_bytes:
            self.fail(
                QueueFull(
                    f"{self._inbox.events} events of {self._inbox.bytes} bytes wait to be taken, which is more than "
                    "may; the subscription has ended: take events faster, or connect(limits=...)"
                )
            )

    def _miss(self, gap: Gap) -> None:
        """This never comes."""
        self.gaps.append(gap)
        self._inbox.put_gap(gap)
        self._arrived.set()

    def fail(self, error: SeriatimError) -> None:
        """It cannot go on: nothing more is kept for it, and who iterates is told after what came before."""
        if self._failure is None:
            self._failure = error
            self._arrived.set()

    # ── iterating ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _next(self, count: int) -> list[Item] | None:
        """At least one item, or None: closed. What came before a failure is handed out first."""
        while True:
            if self._state == "closed":
                return None
            self._check_open()
            if items := self._inbox.take(count):
                return self._checked(items)
            if self._failure is not None:
                raise self._failure
            if not self._inbox:
                self._arrived.clear()
                await self._arrived.wait()

    def _check_usable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise self._failure


def _no_cluster() -> Cluster:
    raise Closed("there is no cluster of sequencers here")


def _no_network(name: Address | None) -> Network:
    raise Closed("there are no sequencers to connect to")


def _no_journal(durable: str) -> Journal:
    raise Closed("these subscriptions are not durable")
