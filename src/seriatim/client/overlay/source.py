"""A subscription by content, of a client of an overlay: what its broker notifies it of, numbered for it alone.

A hole in these numbers is a gap, and has its place among the events. A subscription that takes events too slowly ends,
because its broker would keep everything for it.
"""

from contextlib import suppress
from functools import partial
from typing import Protocol

from seriatim.client.direct.source import LEAVE_S, DirectSource
from seriatim.client.events import Event
from seriatim.client.overlay.logs import OverlayDeliveries
from seriatim.client.session import Wishes
from seriatim.model import Address, Gap, Number, SeriatimError, Topic
from seriatim.model import Event as PublishedEvent


class Holder(Protocol):
    """The session, which speaks to the broker for its subscriptions."""

    async def begin(self, source: "OverlaySource", timeout_s: float) -> tuple[Address, ...]:
        """Returns when everything published from here on comes, but for what is beyond the brokers it returns."""

    async def end(self, source: "OverlaySource", timeout_s: float) -> None:
        """Returns when the broker knows that it is over."""


class OverlaySource(DirectSource):
    """`key`: the broker's name for it; `text`: the whole filter, topics included."""

    substrate = "overlay"
    changing = None

    def __init__(
        self, name: Address, key: str, text: str, wishes: Wishes, holder: Holder, log: OverlayDeliveries | None
    ) -> None:
        super().__init__(name, wishes, log)
        self.key = key
        self.text = text
        self._holder = holder
        self._deliveries = log
        self._begun = False

    @property
    def topics(self) -> frozenset[Topic]:
        """Those it was limited to; empty: whatever the filter matches."""
        return self.wishes.topics

    async def open(self) -> None:
        self._begun = True
        self.unreachable(await self._holder.begin(self, self.wishes.timeout_s))

    async def close(self) -> None:
        try:
            if self._begun:
                with suppress(SeriatimError):  # a courtesy: the broker forgets it by itself
                    await self._holder.end(self, min(LEAVE_S, self.wishes.timeout_s))
        finally:
            if self._deliveries is not None:
                self._deliveries.close()

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def notified(self, event: PublishedEvent, number: Number, received_at: float) -> None:
        """The next event that matches."""
        stamp = {self.key: number}
        handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
        self.keep(handed, received_at)

    def missed(self, first: Number, last: Number, reason: str) -> None:
        """These numbers never come; 0: it is not known how many."""
        self.miss(Gap(self.text, first, last, reason))

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
            self.inbox.put_news(partial(self._deliveries.renew, name))
