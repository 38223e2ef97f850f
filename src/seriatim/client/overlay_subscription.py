"""A subscription by content, of a client of an overlay: what its broker notifies it of, numbered for it alone.

A hole in these numbers is a gap, and is told in its place. What the application does not take is kept up to a bound;
who is slower than that is cut off, because its broker would keep everything for it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from seriatim.client.cluster import Cluster, Network
from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.inbox import Inbox, Item
from seriatim.client.overlay_logs import OverlayDeliveries
from seriatim.client.subscription import LEAVE_S, Subscription, Wishes
from seriatim.model import Address, Closed, Gap, InputError, Number, QueueFull, SeriatimError, Topic
from seriatim.model import Event as PublishedEvent
from seriatim.runtime import Clock, Journal

FIX = "close this one, and subscribe again with another filter"


class Holder(Protocol):
    """The bus, which speaks to the broker for its subscriptions."""

    async def begin(self, stream: "OverlaySubscription", timeout_s: float) -> tuple[Address, ...]:
        """Returns when everything published from here on comes, but for what is beyond the brokers it returns."""

    async def end(self, stream: "OverlaySubscription", timeout_s: float) -> None:
        """Returns when the broker knows that it is over."""


class OverlaySubscription(Subscription):
    """Made by `OverlayBus.subscribe`. `key`: what the broker calls it, `text`: the whole filter, topics included."""

    def __init__(
        self,
        name: Address,
        key: str,
        text: str,
        wishes: Wishes,
        holder: Holder,
        clock: Clock,
        log: OverlayDeliveries | None,
        on_close: Callable[[Subscription], None],
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
        self.key = key
        self.text = text
        self._names = {text}  # for messages
        self._holder = holder
        self._deliveries = log
        self._inbox = Inbox(show_gaps=self._stops_at_gaps, log=log)
        self._arrived = asyncio.Event()
        self._failure: SeriatimError | None = None
        self._begun = False

    @property
    def topics(self) -> frozenset[Topic]:
        """Those it was limited to; empty: whatever the filter matches."""
        return self._wishes.topics

    @property
    def rejected(self) -> int:
        """Always 0: what a broker cannot have sent ends the connection."""
        return 0

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        self._begun = True
        self.unreachable(await self._holder.begin(self, self._wishes.timeout_s))

    async def _close(self) -> None:
        try:
            if self._begun:
                with suppress(SeriatimError):  # a courtesy: the broker forgets it by itself
                    await self._holder.end(self, min(LEAVE_S, self._wishes.timeout_s))
        finally:
            self._arrived.set()
            self._on_close(self)
            if self._deliveries is not None:
                self._deliveries.close()

    async def unsubscribe(self) -> None:
        """Leave, and close."""
        self._check_open()
        await self.close()

    async def add(self, *topics: Topic) -> None:
        """A filter does not change."""
        raise InputError("topics", "the filter of a subscription does not change (overlay://)", FIX)

    async def remove(self, *topics: Topic) -> None:
        """A filter does not change."""
        raise InputError("topics", "the filter of a subscription does not change (overlay://)", FIX)

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def notified(self, event: PublishedEvent, number: Number, received_at: float) -> None:
        """The next event that matches."""
        if self._failure is not None:
            return
        stamp = {self.key: number}
        handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
        self._inbox.put([handed], len(event.payload), received_at)
        self._arrived.set()
        limits = self._wishes.limits
        if self._inbox.events > limits.unread_events or self._inbox.bytes > limits.unread_bytes:
            self.fail(
                QueueFull(
                    f"{self._inbox.events} events of {self._inbox.bytes} bytes wait to be taken, which is more than "
                    "may; the subscription has ended: take events faster, or connect(limits=...)"
                )
            )

    def missed(self, first: Number, last: Number, reason: str) -> None:
        """These numbers never come; 0: it is not known how many."""
        gap = Gap(self.text, first, last, reason)
        self.gaps.append(gap)
        self._inbox.put_gap(gap)
        self._arrived.set()

    def unreachable(self, brokers: tuple[Address, ...]) -> None:
        """Nobody waits for these: what is published beyond them may come late, or not at all."""
        if brokers:
            names = ", ".join(brokers)
            self.missed(0, 0, f"{names} did not answer: what is published there is missed until they are back")

    def renewed(self, name: Address, reason: str) -> None:
        """The broker had forgotten it, and it begins anew: from number 1, under this name in logs."""
        self.missed(0, 0, f"{reason}; what was published meanwhile is missed")
        self.log_name = name
        if self._deliveries is not None:
            self._inbox.put_news(partial(self._deliveries.renew, name))

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

    async def acknowledge(self) -> None:
        """There is nothing to acknowledge: a client remembers nothing over a restart."""
        self._check_open()
        raise InputError("acknowledge", "only durable subscriptions remember it", "an overlay has none; leave it out")

    def explain(self) -> Explanation:
        """The bus itself explains what waits (`bus.explain`); what was missed is in `gaps`."""
        return Explanation()


def _no_cluster() -> Cluster:
    raise Closed("an overlay has no cluster of sequencers")


def _no_network(name: Address | None) -> Network:
    raise Closed("an overlay has no sequencers to connect to")


def _no_journal(durable: str) -> Journal:
    raise Closed("subscriptions of an overlay are not durable")
