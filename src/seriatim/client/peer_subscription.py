"""A subscription of a process that is a peer itself: what the peer is notified of, by topic, in causal order.

The peer holds a topic as long as some subscription of its bus does. Order is kept within each topic, and not across
topics. Who takes too slowly is cut off, because a peer that stopped reading would be held for dead.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from seriatim.client.direct_subscription import DirectSubscription
from seriatim.client.events import Event
from seriatim.client.peer_logs import PeerDeliveries
from seriatim.client.subscription import Subscription, Wishes, names_of
from seriatim.model import (
    Address,
    Gap,
    InputError,
    Notification,
    SeriatimError,
    Topic,
)
from seriatim.runtime import Clock

LEAVE_S = 2.0  # how long closing waits until the other members know; nobody else waits for it


class Holder(Protocol):
    """The bus, which holds topics for its subscriptions."""

    async def hold(self, topic: Topic, timeout_s: float) -> None:
        """Returns when everything published on the topic from here on is notified."""

    async def release(self, topic: Topic, timeout_s: float) -> None:
        """Returns when nobody needs it any more, or the other members know that it is left."""

    def life(self) -> str:
        """The present life, as logs call it."""


class PeerSubscription(DirectSubscription):
    """Made by `PeerBus.subscribe`. The same as any subscription, without what brokers and sequencers are needed for."""

    def __init__(
        self,
        name: Address,
        wishes: Wishes,
        holder: Holder,
        clock: Clock,
        log: PeerDeliveries | None,
        on_close: Callable[[Subscription], None],
    ) -> None:
        super().__init__(name, wishes, clock, log, on_close)
        self._holder = holder
        self._deliveries = log
        self._held: set[Topic] = set()  # asked for, and not given back

    @property
    def is_logged(self) -> bool:
        """Whether its deliveries are written down."""
        return self._deliveries is not None

    def seen(self, topic: Topic) -> int:
        """How many events of a topic the application was given in the present life, by the log."""
        return self._deliveries.seen(topic, self._holder.life()) if self._deliveries is not None else 0

    # ── opening, changing, closing ────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        async with self._changes:
            await self._hold(self._names)

    async def _close(self) -> None:
        try:
            await self._release(set(self._held), min(LEAVE_S, self._wishes.timeout_s))
        except SeriatimError:
            pass  # a courtesy to the others, who find out by themselves
        finally:
            self._arrived.set()
            self._on_close(self)
            if self._deliveries is not None:
                self._deliveries.flush()

    async def add(self, *topics: Topic) -> None:
        """Hold these topics too, from now on. Returns when they have begun."""
        added = names_of(topics)
        self._check_usable()
        async with self._changes:
            self._names |= added
            await self._hold(added - self._held)

    async def remove(self, *topics: Topic) -> None:
        """Leave these topics. No event of them is handed out from now on; returns when the other members know."""
        removed = names_of(topics)
        self._check_usable()
        async with self._changes:
            if not removed <= self._names:
                unknown = ", ".join(sorted(removed - self._names))
                raise InputError("topics", f"{unknown} is not held", f"name some of {', '.join(sorted(self._names))}")
            self._names -= removed
            self._inbox.drop(removed)
            await self._release(set(removed), self._wishes.timeout_s)

    async def _hold(self, topics: set[Topic] | frozenset[Topic]) -> None:
        """All at once: joining takes rounds over all peers."""
        for topic in sorted(topics):
            self._held.add(topic)
            self._log_begins(topic, self._holder.life())
        waits = {topic: self._holder.hold(topic, self._wishes.timeout_s) for topic in sorted(topics)}
        outcomes = dict(zip(waits, await asyncio.gather(*waits.values(), return_exceptions=True), strict=True))
        failed = {topic: outcome for topic, outcome in outcomes.items() if isinstance(outcome, BaseException)}
        if failed:  # nobody may take them for held; what was begun is ended when the peer gets to it
            self._names -= failed.keys()
            with suppress(SeriatimError):
                await self._release(set(failed), min(LEAVE_S, self._wishes.timeout_s))
            raise next(iter(failed.values()))

    async def _release(self, topics: set[Topic], timeout_s: float) -> None:
        for topic in topics:
            self._held.discard(topic)
            if self._deliveries is not None:
                self._inbox.put_news(partial(self._deliveries.end, topic))
        waits = [self._holder.release(topic, timeout_s) for topic in sorted(topics)]
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # ── from the peer ─────────────────────────────────────────────────────────────────────────────────────────────

    def notified(self, notification: Notification, received_at: float) -> None:
        """The next event of a topic, if it is one of ours."""
        event = notification.event
        if event.topic in self._held:
            stamp, number = notification.entries, notification.number
            handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
            self._keep(handed, received_at)

    def born(self, topic: Topic, life: str) -> None:
        """The peer was held for dead, and joins the topic again in a new life."""
        if topic in self._held:
            reason = f"this peer was held for dead and joins again as {life}; what was published meanwhile is missed"
            self._miss(Gap(topic, 0, 0, reason))
            self._log_begins(topic, life)

    def _log_begins(self, topic: Topic, life: str) -> None:
        if self._deliveries is not None:
            self._inbox.put_news(partial(self._deliveries.begin, topic, life))
