"""A subscription of a process that is a peer itself: what the peer is notified of, by topic, in causal order.

The peer holds a topic as long as some subscription of its bus does. Order is kept within each topic, not across topics.
A subscription that takes events too slowly ends, because a peer that stopped reading would be presumed dead.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Protocol

from seriatim.client.direct.source import LEAVE_S, DirectSource
from seriatim.client.events import Event
from seriatim.client.options import check_held
from seriatim.client.peers.logs import PeerDeliveries
from seriatim.client.session import Wishes
from seriatim.model import Address, Gap, Notification, SeriatimError, Topic


class Holder(Protocol):
    """The session, which holds topics for its subscriptions."""

    async def hold(self, topic: Topic, timeout_s: float) -> None:
        """Returns when everything published on the topic from here on is notified."""

    async def release(self, topic: Topic, timeout_s: float) -> None:
        """Returns when the other members know that it is left, or at once if another subscription still needs it."""

    def life(self) -> str:
        """The present life, as logs call it."""

    def forget(self, source: "PeerSource") -> None:
        """It is closed."""


class PeerSource(DirectSource):
    """The topics of one subscription."""

    substrate = "peers"

    def __init__(self, name: Address, wishes: Wishes, holder: Holder, log: PeerDeliveries | None) -> None:
        super().__init__(name, wishes, log)
        self._holder = holder
        self._deliveries = log
        self._names: set[Topic] = set(wishes.topics)
        self._held: set[Topic] = set()  # asked for, and not given back
        self._changes = asyncio.Lock()

    @property
    def topics(self) -> frozenset[Topic]:
        return frozenset(self._names)

    @property
    def changing(self) -> "PeerSource":
        return self

    @property
    def is_logged(self) -> bool:
        """Whether its deliveries are written down."""
        return self._deliveries is not None

    def seen(self, topic: Topic) -> int:
        """How many events of a topic the application was given in the present life, by the log."""
        return self._deliveries.seen(topic, self._holder.life()) if self._deliveries is not None else 0

    # ── opening, changing, closing ────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        async with self._changes:
            await self._hold(self._names)

    async def close(self) -> None:
        try:
            with suppress(SeriatimError):  # a courtesy: the others find out by themselves
                await self._release(set(self._held), min(LEAVE_S, self.wishes.timeout_s))
        finally:
            self._holder.forget(self)
            if self._deliveries is not None:
                self._deliveries.flush()

    async def add(self, names: frozenset[Topic]) -> None:
        self._check_usable()
        async with self._changes:
            self._names |= names
            await self._hold(names - self._held)

    async def remove(self, names: frozenset[Topic]) -> None:
        self._check_usable()
        async with self._changes:
            check_held(names, self._names)
            self._names -= names
            self.inbox.drop(names)
            await self._release(set(names), self.wishes.timeout_s)

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _hold(self, topics: set[Topic] | frozenset[Topic]) -> None:
        """All at once: joining takes rounds over all peers."""
        for topic in sorted(topics):
            self._held.add(topic)
            self._log_begins(topic, self._holder.life())
        waits = {topic: self._holder.hold(topic, self.wishes.timeout_s) for topic in sorted(topics)}
        outcomes = dict(zip(waits, await asyncio.gather(*waits.values(), return_exceptions=True), strict=True))
        failed = {topic: outcome for topic, outcome in outcomes.items() if isinstance(outcome, BaseException)}
        if failed:  # they are not held; the peer ends what it has begun
            self._names -= failed.keys()
            with suppress(SeriatimError):
                await self._release(set(failed), min(LEAVE_S, self.wishes.timeout_s))
            raise next(iter(failed.values()))

    async def _release(self, topics: set[Topic], timeout_s: float) -> None:
        for topic in topics:
            self._held.discard(topic)
            if self._deliveries is not None:
                self.inbox.put_news(partial(self._deliveries.end, topic))
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
            self.keep(handed, received_at)

    def born(self, topic: Topic, life: str) -> None:
        """The peer was presumed dead, and joins the topic again in a new life."""
        if topic in self._held:
            reason = f"this peer was presumed dead and joins again as {life}; what was published meanwhile is missed"
            self.miss(Gap(topic, 0, 0, reason))
            self._log_begins(topic, life)

    def _log_begins(self, topic: Topic, life: str) -> None:
        if self._deliveries is not None:
            self.inbox.put_news(partial(self._deliveries.begin, topic, life))
