"""A subscription as the application sees it: topics that may change while events flow, and an iterator in order.

Names and ordered topics: where several names share one ordered topic on the broker (a bucket), the subscription holds
the bucket and hands out only the names it was asked for. Adding a second name of a bucket needs no sequencer,
only a broker that keeps what is published under it.

Acknowledging (durable subscriptions): an event counts as acknowledged when the application asks for the next one, or,
with `acknowledge="manual"`, when it says so. The next event is handed out only after that is written down, so after a
crash exactly those come again that were handed out and not acknowledged, marked `replayed`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from seriatim.client.atoms_subscriber import AtomsSubscriber
from seriatim.client.cluster import Cluster, Network
from seriatim.client.durable import DurableSubscriber, Past, read_past
from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.feed import Feed
from seriatim.client.inbox import Inbox, Item
from seriatim.client.lifetime import UsedOnce
from seriatim.client.logs import DeliveryLog, open_delivery_log
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.options import GapPolicy, Limits, check_portable_topic
from seriatim.client.unordered import UnorderedSubscriber
from seriatim.filters import Filter, parse
from seriatim.model import (
    Address,
    Closed,
    ConnectionFailed,
    Gap,
    GapError,
    InputError,
    Number,
    RequestRefused,
    TimedOut,
    Topic,
)
from seriatim.order import Lane
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Changed
from seriatim.protocols.tree.subscribing import BEGAN_ANEW
from seriatim.runtime import Clock, Journal

CAPTURE_AGAIN_S = 0.1
LEAVE_S = 2.0  # how long closing waits for the nodes to confirm; nobody else waits for it

OpenJournal = Callable[[str], Journal]


class Wishes(Struct, frozen=True, kw_only=True):
    """What the application asked for, checked."""

    topics: frozenset[Topic]
    durable: str | None
    ordered: bool
    gaps: GapPolicy
    show_gaps: bool
    acknowledge: Literal["next", "manual"]
    log: Path | str | None
    start: Literal["now", "first"]
    stamp_key: bytes | None
    limits: Limits
    timeout_s: float
    where: Filter | None = None


class Subscription(UsedOnce):
    """Made by `Bus.subscribe`. Enter it to join the topics; iterate over it to get the events; leave it to leave the
    topics, but a durable one keeps them.

    `gaps` lists what was skipped or lost, the latest at the end.
    """

    _kind, _made_by, _entered_as = "subscription", "bus.subscribe", "events"

    def __init__(
        self,
        name: Address,
        wishes: Wishes,
        *,
        cluster: Callable[[], Cluster],
        network: Callable[[Address | None], Network],
        open_journal: OpenJournal,
        clock: Clock,
        log_name: str,
        on_close: Callable[["Subscription"], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.gaps: deque[Gap] = deque(maxlen=wishes.limits.gaps)
        self._wishes = wishes
        self._open_cluster = cluster
        self._open_network = network
        self._open_journal = open_journal
        self._clock = clock
        self.log_name = log_name
        self._on_close = on_close
        self._names: set[Topic] = set(wishes.topics)
        self._changes = asyncio.Lock()
        self._inbox = Inbox(show_gaps=self._stops_at_gaps)
        self._feed: Feed | None = None
        self._journal: Journal | None = None
        self._network: Network | None = None
        self._log: DeliveryLog | None = None
        self._where = wishes.where
        self._ready: list[Item] = []  # durable: taken from the inbox, not yet written down as taken
        self._given = self._acknowledged = self._inbox.handed  # places: handed out, and acknowledged
        self._marked = (self._acknowledged, self._given)  # what the journal says
        self._is_quick = False  # neither journal nor log has to be told of every event

    @property
    def topics(self) -> frozenset[Topic]:
        """What is held, by the names the application uses."""
        return frozenset(self._names)

    @property
    def unread(self) -> int:
        """Events that are ready and have not been taken."""
        return self._inbox.events

    @property
    def rejected(self) -> int:
        """How often something came from the broker that had no right to be there, or could not be read."""
        return self._feed.rejected if self._feed is not None else 0

    @property
    def left_out(self) -> int:
        """How many events came in their turn and did not match `where`."""
        return self._feed.left_out if self._feed is not None else 0

    @property
    def filter(self) -> Filter | None:
        """The filter; a durable subscription that was resumed has the one it remembers."""
        return self._where

    def events_logged(self) -> int:
        """How many events the application was given; 0 without a delivery log. They are in it from here on:
        what is said to have been seen must be found there, even if this process is killed now."""
        if self._log is None:
            return 0
        self._log.flush()
        return self._log.position

    @property
    def _stops_at_gaps(self) -> bool:
        return self._wishes.show_gaps or self._wishes.gaps.kind == "raise"

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        wishes, cluster = self._wishes, self._open_cluster()
        past = Past()
        if wishes.durable is not None:
            self._journal = self._open_journal(wishes.durable)
            past = read_past(wishes.durable, await self._journal.open())
            self._network = self._open_network(self.name)
            await self._network.open()
            self._where = remembered(wishes.durable, wishes.where, past)
        machine = self._machine(cluster, past)
        if wishes.log is not None:
            self._log = open_delivery_log(wishes.log, cluster.broker, self.log_name, self._clock, text_of(self._where))
            if isinstance(machine, DurableSubscriber) and not past.is_empty:
                await self._log.resume(self._resumed(machine.subscriber))
        self._inbox = Inbox(show_gaps=self._stops_at_gaps, count=past.count, log=self._log)
        self._given = self._acknowledged = self._inbox.handed
        self._marked = (self._acknowledged, self._given)
        self._feed = feed = Feed(
            self.name,
            machine,
            self._inbox,
            broker=cluster.broker,
            network=self._network if self._network is not None else self._open_network(None),
            clock=self._clock,
            limits=wishes.limits,
            past=past,
            wants=self._names.__contains__,
            on_changed=self._on_changed,
            on_gap=self._on_gap,
            journal=self._journal,
            times=self._log is not None,
            where=self._where,
        )
        feed.start()
        self._is_quick = self._journal is None and self._log is None
        async with self._changes:
            wanted = self._ordered(self._names)
            await self._capture(self._names)
            if not past.is_empty:
                await feed.finish_change(wishes.timeout_s)
            await feed.change(wanted - feed.topics, feed.topics - wanted, wishes.timeout_s)

    def _machine(
        self, cluster: Cluster, past: Past
    ) -> Subscriber | DurableSubscriber | UnorderedSubscriber | AtomsSubscriber:
        wishes, description = self._wishes, cluster.description
        if not wishes.ordered:
            return UnorderedSubscriber(description.retry_ms, 0 if wishes.start == "first" else None)
        durable = wishes.durable is not None
        options = wishes.gaps.applied_to(
            description.options, lossy=cluster.broker.lossy, durable=durable, stamp_key=wishes.stamp_key
        )
        if durable:
            return DurableSubscriber(description.tree, self.name, options, past, text_of(self._where))
        return Subscriber(description.tree, self.name, options)

    async def _close(self) -> None:
        """Leave the topics (a durable subscription keeps them) and stop."""
        self._is_quick = False
        feed = self._feed
        try:
            if feed is not None and feed.failure is None and self._wishes.durable is None and feed.topics:
                await self._leave(feed)
        finally:
            try:
                await self._stop(feed)
            finally:
                self._on_close(self)

    async def _stop(self, feed: Feed | None) -> None:
        if feed is not None:
            await feed.stop()
        if self._journal is not None:
            await self._journal.close()
        if self._network is not None:
            await self._network.close()
        if self._log is not None:
            if self._wishes.durable is None or not self._names:
                self._log.end()
            await self._log.close(self._wishes.timeout_s)

    async def unsubscribe(self) -> None:
        """Leave all topics for good, also a durable subscription's, and close."""
        feed = self._opened()
        async with self._changes:
            self._change_names(frozenset(), self.topics)
            await feed.change(frozenset(), feed.topics, self._wishes.timeout_s)
        await self.close()

    async def _leave(self, feed: Feed) -> None:
        """So that nodes do not keep coupling topics for somebody who is gone. A courtesy: it may fail."""
        try:
            await feed.change(frozenset(), feed.topics, min(LEAVE_S, self._wishes.timeout_s))
        except (TimedOut, RequestRefused, Closed):
            return

    # ── changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def add(self, *topics: Topic) -> None:
        """Hold these topics too, from now on. Returns when they have begun."""
        added = names_of(topics)
        feed = self._opened()
        async with self._changes:
            ordered = self._ordered(added)  # raises before anything changes
            for topic in sorted(ordered - feed.topics):
                self._open_cluster().description.tree.home(topic)
            await self._capture(added)
            self._change_names(added, frozenset())
            try:
                await feed.change(ordered - feed.topics, frozenset(), self._wishes.timeout_s)
            except RequestRefused:
                self._change_names(frozenset(), added)
                raise

    async def remove(self, *topics: Topic) -> None:
        """Leave these topics. No event of them is handed out from now on; returns when the nodes know."""
        removed = names_of(topics)
        feed = self._opened()
        async with self._changes:
            if not removed <= self._names:
                unknown = ", ".join(sorted(removed - self._names))
                raise InputError("topics", f"{unknown} is not held", f"name some of {', '.join(sorted(self._names))}")
            self._change_names(frozenset(), removed)
            left = feed.topics - self._ordered(self._names)
            await feed.change(frozenset(), left, self._wishes.timeout_s)

    async def _capture(self, names: Iterable[Topic]) -> None:
        """Whoever publishes to what is held, whatever client they use: it is kept before the topic counts as held."""
        try:
            async with asyncio.timeout(self._wishes.timeout_s):
                while True:
                    try:
                        return await self._open_cluster().broker.capture(names)
                    except ConnectionFailed:
                        await asyncio.sleep(CAPTURE_AGAIN_S)
        except TimeoutError:
            waited = f"waited {self._wishes.timeout_s} s for the broker to keep"
            raise TimedOut(f"{waited} {', '.join(sorted(names))}: it cannot be reached") from None

    def _change_names(self, add: frozenset[Topic], remove: frozenset[Topic]) -> None:
        self._names -= remove
        self._names |= add
        if remove:
            self._inbox.drop(remove)
            self._ready = [item for item in self._ready if isinstance(item, Gap) or item.topic not in remove]
        if self._log is not None:  # names of a topic that is held anyway begin, or end, without a sequencer
            lanes = self._lanes()
            held = {name: topic for name, topic in self._topics_by_name().items() if topic in self._opened().topics}
            begun = {name: lanes[topic].done if topic in lanes else None for name, topic in held.items() if name in add}
            open_ = {name for name, topic in held.items() if topic not in lanes or lanes[topic].open}
            self._inbox.put_holds({name: begun.get(name) for name in open_})

    def _ordered(self, names: frozenset[Topic] | set[Topic]) -> frozenset[Topic]:
        broker = self._open_cluster().broker
        return frozenset(broker.ordered_topic(name) for name in names)

    def _topics_by_name(self) -> dict[Topic, Topic]:
        broker = self._open_cluster().broker
        return {name: broker.ordered_topic(name) for name in self._names}

    def _lanes(self) -> dict[Topic, Lane]:
        ordering = self._feed.ordering if self._feed is not None else None
        return ordering.state.lanes if ordering is not None else {}

    def _on_changed(self, changed: Changed) -> None:
        if self._log is not None and self._state == "open":
            held = {name: topic for name, topic in self._topics_by_name().items() if topic in changed.topics}
            self._inbox.put_holds({name: changed.start.get(topic) for name, topic in held.items()})

    def _on_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        if self._log is not None and gap.reason == BEGAN_ANEW:  # what lies before its new start is not owed
            names = [name for name, topic in self._topics_by_name().items() if topic == gap.topic]
            self._inbox.put_begins(dict.fromkeys(names, gap.last))

    def _resumed(self, subscriber: Subscriber) -> dict[Topic, tuple[Number, Number]]:
        """Of every name that a resumed subscriber holds: where it began, and how far it is."""
        holdings, lanes = subscriber.state.holdings, subscriber.state.lanes
        begun = {name: topic for name, topic in self._topics_by_name().items() if topic in lanes and lanes[topic].open}
        return {name: (holdings[topic].start, lanes[topic].done) for name, topic in begun.items()}

    # ── iterating ─────────────────────────────────────────────────────────────────────────────────────────────────

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
        bound_s = self._wishes.timeout_s if timeout_s is None else timeout_s
        if not isinstance(bound_s, int | float) or bound_s != bound_s:  # NaN would wait for ever
            raise InputError("timeout_s", f"{bound_s!r} is not a time", "give a number of seconds")
        try:
            async with asyncio.timeout(bound_s):
                return await self.__anext__()
        except TimeoutError:
            raise TimedOut(f"waited {bound_s} s for an event of {', '.join(sorted(self._names))}: none came") from None
        except StopAsyncIteration:
            raise Closed("the subscription is closed") from None

    async def batches(self, max: int = 1_000) -> AsyncIterator[list[Event]]:
        """Events in lists of up to `max`: what is there, without waiting for more. Faster than one by one."""
        if not isinstance(max, int):
            raise InputError("max", f"{max!r} is not a whole number", "give at least 1")
        if max < 1:
            raise InputError("max", f"{max} is too small", "give at least 1")
        while (items := await self._next(max)) is not None:
            yield items  # type: ignore[misc]  # as in __anext__

    async def acknowledge(self) -> None:
        """Everything handed out so far is dealt with. Returns when that is written down."""
        feed = self._opened()
        if self._wishes.durable is None:
            raise InputError("acknowledge", "only durable subscriptions remember it", 'subscribe with durable="name"')
        self._acknowledged = self._given
        await self._write_mark(feed)

    async def _next(self, count: int) -> list[Item] | None:
        """At least one item, or None: closed. Who is cancelled while waiting has lost nothing."""
        is_durable = self._wishes.durable is not None
        while True:
            if self._state == "closed":
                return None
            feed = self._opened()
            if feed.failure is not None:
                raise feed.failure
            if not is_durable:
                items = self._inbox.take(count)
            else:
                items = await self._take_durably(feed, count)
            if feed.is_paused:
                feed.regulate()
            if items:
                return self._checked(items)
            if not self._inbox:
                feed.arrived.clear()
                await feed.arrived.wait()

    async def _take_durably(self, feed: Feed, count: int) -> list[Item]:
        """Acknowledge what was given, take what is there, write both down, and only then hand it out."""
        if self._wishes.acknowledge == "next":
            self._acknowledged = self._given
        if not self._ready:
            self._ready = self._inbox.take(count)
        await self._write_mark(feed)
        items, self._ready = self._ready, []
        self._given = self._inbox.handed
        return items

    async def _write_mark(self, feed: Feed) -> None:
        mark = (self._acknowledged, self._inbox.handed)
        if mark != self._marked:
            if self._log is not None:
                await self._log.written(
                    self._wishes.timeout_s
                )  # what is acknowledged does not come again, so it must be in the log
            await feed.mark(*mark)
            self._marked = mark

    def _checked(self, items: list[Item]) -> list[Item]:
        first = items[0]
        if isinstance(first, Gap) and self._wishes.gaps.kind == "raise":
            raise GapError(first.topic, first.first, first.last, first.reason)
        return items

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Explanation:
        """What is held back, waiting for what, since when, at whose door."""
        if self._feed is None:
            return Explanation()
        down = self._network.down() if self._network is not None else []
        return Explanation(held=self._feed.held(), notes=self._feed.notes(), down=down)

    def metrics(self) -> SubscriptionMetrics:
        """What is counted of it."""
        feed = self._feed
        return SubscriptionMetrics(
            subscriber=self.name,
            notified=self._inbox.notified,
            unread=self.unread,
            held=feed.held_count if feed is not None else None,
            oldest_held_seconds=feed.oldest_held_s if feed is not None else None,
            out_of_order=feed.out_of_order if feed is not None else 0,
            gaps=self._inbox.gaps,
            rejected=self.rejected,
            left_out=self.left_out,
        )

    def _opened(self) -> Feed:
        self._check_open()
        if self._feed is None:
            raise Closed("the subscription is not open yet: wait until it is entered")
        return self._feed


def text_of(where: Filter | None) -> str | None:
    """A filter as it is written down."""
    return None if where is None else str(where)


def remembered(durable: str, asked: Filter | None, past: Past) -> Filter | None:
    """The filter that a durable subscription goes on with: the one it has. To ask for another one is an error: what it
    acknowledged, and what it left out, was decided by the first."""
    if past.is_empty:
        return asked
    known = parse(past.where) if past.where is not None else None
    if asked is None or asked == known:
        return known
    had = f"it goes on with {past.where!r}" if past.where is not None else "it was made without a filter"
    fix = "leave it out, give the same, or subscribe under another name"
    raise InputError("where", f"the durable subscription {durable!r} cannot have {str(asked)!r}: {had}", fix)


def names_of(topics: tuple[Topic, ...]) -> frozenset[Topic]:
    if not topics:
        raise InputError("topics", "none is named", "name at least one")
    return frozenset(check_portable_topic(topic) for topic in topics)
