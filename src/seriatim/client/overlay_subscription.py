"""A subscription by content, of a client of an overlay: what its broker notifies it of, numbered for it alone.

A hole in these numbers is a gap, and is told in its place. Who takes too slowly is cut off, because its broker would
keep everything for it.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from seriatim.client.direct_subscription import DirectSubscription
from seriatim.client.events import Event
from seriatim.client.overlay_logs import OverlayDeliveries
from seriatim.client.subscription import LEAVE_S, Subscription, Wishes
from seriatim.model import Address, Gap, InputError, Number, SeriatimError, Topic
from seriatim.model import Event as PublishedEvent
from seriatim.runtime import Clock

FIX = "close this one, and subscribe again with another filter"


class Holder(Protocol):
    """The bus, which speaks to the broker for its subscriptions."""

    async def begin(self, stream: "OverlaySubscription", timeout_s: float) -> tuple[Address, ...]:
        """Returns when everything published from here on comes, but for what is beyond the brokers it returns."""

    async def end(self, stream: "OverlaySubscription", timeout_s: float) -> None:
        """Returns when the broker knows that it is over."""


class OverlaySubscription(DirectSubscription):
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
        super().__init__(name, wishes, clock, log, on_close)
        self.key = key
        self.text = text
        self._names = {text}  # for messages
        self._holder = holder
        self._deliveries = log
        self._begun = False

    @property
    def topics(self) -> frozenset[Topic]:
        """Those it was limited to; empty: whatever the filter matches."""
        return self._wishes.topics

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

    async def add(self, *topics: Topic) -> None:
        """A filter does not change."""
        raise InputError("topics", "the filter of a subscription does not change (overlay://)", FIX)

    async def remove(self, *topics: Topic) -> None:
        """A filter does not change."""
        raise InputError("topics", "the filter of a subscription does not change (overlay://)", FIX)

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def notified(self, event: PublishedEvent, number: Number, received_at: float) -> None:
        """The next event that matches."""
        stamp = {self.key: number}
        handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
        self._keep(handed, received_at)

    def missed(self, first: Number, last: Number, reason: str) -> None:
        """These numbers never come; 0: it is not known how many."""
        self._miss(Gap(self.text, first, last, reason))

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
