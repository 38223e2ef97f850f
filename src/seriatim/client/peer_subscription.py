"""A subscription of a process that is a peer itself: what the peer is notified of, by topic, in causal order.

The peer holds a topic as long as some subscription of its bus does. Order is kept within each topic, and not across
topics. What its subscribers do not take is kept for them up to a bound; who is slower than that is cut off, because a
peer that stopped reading would be held for dead.
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
from seriatim.client.peer_logs import PeerDeliveries
from seriatim.client.subscription import Subscription, Wishes, names_of
from seriatim.model import (
    Address,
    Closed,
    Gap,
    InputError,
    Notification,
    QueueFull,
    SeriatimError,
    Topic,
)
from seriatim.runtime import Clock, Journal

LEAVE_S = 2.0  # how long closing waits until the other members know; nobody else waits for it


class Holder(Protocol):
    """The bus, which holds topics for its subscriptions."""

    async def hold(self, topic: Topic, timeout_s: float) -> None:
        """Returns when everything published on the topic from here on is notified."""

    async def release(self, topic: Topic, timeout_s: float) -> None:
        """Returns when nobody needs it any more, or the other members know that it is left."""

    def life(self) -> str:
        """The present life, as logs call it."""


class PeerSubscription(Subscription):
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
        self._holder = holder
        self._deliveries = log
        self._inbox = Inbox(show_gaps=wishes.show_gaps, log=log)
        self._held: set[Topic] = set()  # asked for, and not given back
        self._arrived = asyncio.Event()
        self._failure: SeriatimError | None = None

    @property
    def rejected(self) -> int:
        """Always 0: what no peer can have sent ends the connection it came from."""
        return 0

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

    async def unsubscribe(self) -> None:
        """Leave all topics, and close."""
        self._check_open()
        await self.close()

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
        if event.topic not in self._held or self._failure is not None:
            return
        size = len(event.payload)
        stamp, number = notification.entries, notification.number
        handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
        self._inbox.put([handed], size, received_at)
        self._arrived.set()
        limits = self._wishes.limits
        if self._inbox.events > limits.unread_events or self._inbox.bytes > limits.unread_bytes:
            self.fail(
                QueueFull(
                    f"{self._inbox.events} events of {self._inbox.bytes} bytes wait to be taken, which is more than "
                    "may; the subscription has ended: take events faster, or connect(limits=...)"
                )
            )

    def born(self, topic: Topic, life: str) -> None:
        """The peer was held for dead, and joins the topic again in a new life."""
        if topic in self._held:
            reason = f"this peer was held for dead and joins again as {life}; what was published meanwhile is missed"
            gap = Gap(topic, 0, 0, reason)
            self.gaps.append(gap)
            self._inbox.put_gap(gap)
            self._log_begins(topic, life)
            self._arrived.set()

    def fail(self, error: SeriatimError) -> None:
        """It cannot go on: nothing more is kept for it, and who iterates is told after what came before."""
        if self._failure is None:
            self._failure = error
            self._arrived.set()

    def _log_begins(self, topic: Topic, life: str) -> None:
        if self._deliveries is not None:
            self._inbox.put_news(partial(self._deliveries.begin, topic, life))

    # ── iterating ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _next(self, count: int) -> list[Item] | None:
        """At least one item, or None: closed. What came before a failure is handed out first."""
        while True:
            if self._state == "closed":
                return None
            self._check_open()
            if items := self._inbox.take(count):
                return items
            if self._failure is not None:
                raise self._failure
            if not self._inbox:
                self._arrived.clear()
                await self._arrived.wait()

    async def acknowledge(self) -> None:
        """There is nothing to acknowledge: a peer remembers nothing over a restart."""
        self._check_open()
        raise InputError("acknowledge", "only durable subscriptions remember it", "peers have none; leave it out")

    def explain(self) -> Explanation:
        """The peer itself explains what waits (`bus.explain`); what was missed is in `gaps`."""
        return Explanation()

    def _check_usable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise self._failure


def _no_cluster() -> Cluster:
    raise Closed("peers have no cluster of sequencers")


def _no_network(name: Address | None) -> Network:
    raise Closed("peers have no sequencers to connect to")


def _no_journal(durable: str) -> Journal:
    raise Closed("subscriptions of peers are not durable")
