"""A subscription as the application sees it: topics that may change while events flow, and an iterator in order.

A `Source` (session.py) supplies the events. In a durable subscription, an event counts as acknowledged when the
application asks for the next one or, with `acknowledge="manual"`, when it calls `acknowledge`. The next event is handed
out only after that is recorded. After a crash, exactly the events that were handed out but not acknowledged come again,
marked `replayed`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.history import Progress, Start, check_start
from seriatim.client.inbox import Item, Place
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.options import names_of
from seriatim.client.refusals import refusal
from seriatim.client.session import Source, UsedOnce
from seriatim.filters import Filter
from seriatim.model import Address, Closed, Gap, GapError, InputError, TimedOut, Topic


class Subscription(UsedOnce):
    """Made by `Bus.subscribe`. Entering it joins the topics; iterating over it yields the events; leaving it
    leaves the topics, unless it is durable.
    """

    _kind, _made_by, _entered_as = "subscription", "bus.subscribe", "events"

    def __init__(self, source: Source, on_close: Callable[["Subscription"], None]) -> None:
        super().__init__()
        self._source = source
        self._inbox = source.inbox
        self._on_close = on_close
        self._is_quick = False
        self._is_ready = False

    @property
    def name(self) -> Address:
        """A name that no other subscription has."""
        return self._source.name

    @property
    def log_name(self) -> str:
        """The name of this subscriber in its delivery log."""
        return self._source.log_name

    @property
    def topics(self) -> frozenset[Topic]:
        """The topics held, by the names the application uses."""
        return self._source.topics

    @property
    def gaps(self) -> deque[Gap]:
        """Gaps: events that were skipped or lost, the latest last."""
        return self._source.inbox.gaps

    @property
    def unread(self) -> int:
        """Events that are ready and have not been taken."""
        return self._source.inbox.room.events

    @property
    def rejected(self) -> int:
        """How many messages from the broker were forged, misplaced or unreadable."""
        return self._source.metrics().rejected

    @property
    def left_out(self) -> int:
        """How many events did not match `where`."""
        return self._source.metrics().left_out

    @property
    def filter(self) -> Filter | None:
        """The filter. A resumed durable subscription keeps the one it was made with."""
        return self._source.where

    async def _open(self) -> None:
        await self._source.open()
        self._inbox = self._source.inbox
        self._is_quick = self._source.is_quick
        self._is_ready = True

    async def _close(self) -> None:
        self._is_quick = False
        try:
            await self._source.close()
        finally:
            self._source.arrived.set()  # wake iterators, which find it closed
            self._on_close(self)

    def _forked(self) -> None:
        super()._forked()
        self._is_quick = False

    async def add(self, *topics: Topic) -> None:
        """Hold these topics too, from now on. Returns when they have begun."""
        self._check_can_change("add")
        added = names_of(topics)
        await self._opened().add(added)

    async def remove(self, *topics: Topic) -> None:
        """Leave these topics. Hands out no more of their events. Returns when all nodes concerned know."""
        self._check_can_change("remove")
        removed = names_of(topics)
        await self._opened().remove(removed)

    def _check_can_change(self, method: str) -> None:
        if not self._source.can_change:
            raise refusal(method, self._source.substrate)

    async def seek(self, start: Start) -> None:
        """Begin again in the past, as `bus.subscribe(start=...)` does, with the same topics.

        Events that were not taken yet are dropped. A durable subscription remembers the new place.
        """
        source = self._opened()
        begin = check_start(start, self.topics)
        if begin == "now":
            raise InputError("start", "a subscription cannot skip to now", "close it, and subscribe again")
        await source.seek(begin)

    async def caught_up(self) -> None:
        """Wait until you have taken everything of the past, and what follows is live. Needs somebody who takes events.

        Waits as long as that takes: see `progress` and `explain`. Raises what ended the subscription, if something did.
        """
        await self._opened().caught_up()

    def progress(self) -> Progress:
        """How far the past is read: position, end, and share."""
        return self._source.progress()

    async def unsubscribe(self) -> None:
        """Leave all topics for good, even if it is durable, and close."""
        await self._opened().leave()
        await self.close()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Event:
        if self._is_quick and (event := self._inbox.quick()) is not None:
            return event
        items = await self._next(1)
        if items is None:
            raise StopAsyncIteration
        return items[0]  # type: ignore[return-value]  # a Gap only where show_gaps asked for it

    async def next(self, timeout_s: float | None = None) -> Event:
        """The next event. TimedOut: none came in time, and none was lost."""
        bound_s = self._source.wishes.timeout_s if timeout_s is None else timeout_s
        if not isinstance(bound_s, int | float) or bound_s != bound_s:  # NaN would wait for ever
            raise InputError("timeout_s", f"{bound_s!r} is not a time", "give a number of seconds")
        try:
            async with asyncio.timeout(bound_s):
                return await self.__anext__()
        except TimeoutError:
            what = ", ".join(sorted(self.topics)) or str(self.filter)
            raise TimedOut(f"waited {bound_s} s for an event of {what}: none came") from None
        except StopAsyncIteration:
            raise Closed("the subscription is closed") from None

    async def batches(self, max: int = 1_000) -> AsyncIterator[list[Event]]:
        """Events in lists of up to `max`: all that are ready, without waiting for more. Faster than taking them
        individually."""
        if not isinstance(max, int):
            raise InputError("max", f"{max!r} is not a whole number", "give at least 1")
        if max < 1:
            raise InputError("max", f"{max} is too small", "give at least 1")
        while (items := await self._next(max)) is not None:
            yield items  # type: ignore[misc]  # as in __anext__

    @property
    def handed_out(self) -> Place:
        """How far events were handed out. To be kept, and given to `acknowledge` later."""
        return self._source.handed_out

    async def acknowledge(self, place: Place | None = None) -> None:
        """Acknowledge everything handed out so far, or up to this `handed_out`. Returns when that is recorded."""
        await self._opened().acknowledge(place)

    async def _next(self, count: int) -> list[Item] | None:
        """Wait for at least one item; None if closed. Cancelling a waiting call loses nothing."""
        source, inbox = self._source, self._inbox
        while True:
            if self._state == "closed":
                return None
            self._opened()
            source.before_taking()
            items = await source.take(count) if source.is_durable else inbox.take(count)
            source.after_taking()
            if items:
                first = items[0]
                if isinstance(first, Gap) and source.wishes.gaps.kind == "raise":
                    raise GapError(first.topic, first.first, first.last, first.reason)
                return items
            if source.failure is not None:
                raise source.failure
            if not inbox:
                source.arrived.clear()
                await source.arrived.wait()

    def explain(self) -> Explanation:
        """The events that are held back: what each waits for, how long it has waited, and which node knows more."""
        return self._source.explain()

    def metrics(self) -> SubscriptionMetrics:
        """The counters of this subscription."""
        return self._source.metrics()

    def _opened(self) -> Source:
        self._check_open()
        if not self._is_ready:
            raise Closed("the subscription is not open yet: wait until it is entered")
        return self._source
