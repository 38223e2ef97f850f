"""Where a subscription on a broker gets its events: it holds topics by name, opens log and feed, and changes them.

Names and ordered topics: where several names share one ordered topic on the broker (a bucket), the source holds the
bucket and hands out only the names it was asked for. Adding a second name of a bucket needs no sequencer, only a broker
that keeps what is published under it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from seriatim.client.brokered.cluster import Connection, Network
from seriatim.client.brokered.feed import Feed
from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.explain import Explanation
from seriatim.client.inbox import Inbox
from seriatim.client.logs import DeliveryLog, open_delivery_log
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.options import check_held
from seriatim.client.refusals import Substrate
from seriatim.client.session import Acknowledging, Wishes
from seriatim.filters import Filter
from seriatim.model import Address, Closed, ConnectionFailed, Gap, RequestRefused, TimedOut, Topic
from seriatim.protocols.tree.subscribing import BEGAN_ANEW
from seriatim.protocols.with_broker import Changed
from seriatim.runtime import Journal

CAPTURE_AGAIN_S = 0.1
LEAVE_S = 2.0  # how long closing waits for the nodes to confirm; nobody else waits for it


class BrokerSource(ABC):
    """`log_name`: the name of the subscriber in its delivery log."""

    substrate: ClassVar[Substrate]

    def __init__(self, connection: Connection, name: Address, wishes: Wishes, log_name: str) -> None:
        self.name = name
        self.wishes = wishes
        self.log_name = log_name
        self.inbox = Inbox(wishes.limits, show_gaps=wishes.stops_at_gaps)
        self.arrived = asyncio.Event()
        self.where: Filter | None = wishes.where
        self.is_closed = False
        self._is_closing = False
        self._connection = connection
        self._names: set[Topic] = set(wishes.topics)
        self._changes = asyncio.Lock()
        self._feed: Feed | None = None
        self._log: DeliveryLog | None = None

    # ── what tree and atoms do differently ────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _view(self) -> SubscriberView:
        """The machine, made when the source is opened."""

    # ── a source ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def feed(self) -> Feed:
        """Once it is open."""
        if self._feed is None:
            raise Closed("the subscription is not open yet: wait until it is entered")
        return self._feed

    @property
    def failure(self) -> BaseException | None:
        return self._feed.failure if self._feed is not None else None

    @property
    def topics(self) -> frozenset[Topic]:
        return frozenset(self._names)

    @property
    def changing(self) -> "BrokerSource":
        return self

    @property
    def acknowledging(self) -> Acknowledging | None:
        return None

    @property
    def is_quick(self) -> bool:
        return self._log is None and self.acknowledging is None

    def before_taking(self) -> None:
        if self._feed is not None and self._feed.failure is not None:
            raise self._feed.failure

    def after_taking(self) -> None:
        if self._feed is not None and self._feed.is_paused:
            self._feed.regulate()

    def events_logged(self) -> int:
        """How many events the application was given; 0 without a delivery log. They are in it from here on:
        what is said to have been seen must be found there, even if this process is killed now."""
        if self._log is None:
            return 0
        self._log.flush()
        return self._log.position

    def explain(self) -> Explanation:
        if self._feed is None:
            return Explanation()
        return Explanation(held=self._feed.held(), notes=self._feed.notes())

    def metrics(self) -> SubscriptionMetrics:
        feed = self._feed
        return SubscriptionMetrics(
            subscriber=self.name,
            notified=self.inbox.notified,
            unread=self.inbox.room.events,
            held=feed.view.waiting if feed is not None else None,
            oldest_held_seconds=feed.oldest_held_s if feed is not None else None,
            out_of_order=feed.out_of_order if feed is not None else 0,
            gaps=self.inbox.gap_count,
            rejected=feed.rejected if feed is not None else 0,
            left_out=feed.left_out if feed is not None else 0,
        )

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        self._open_log()
        await self._run(self._view())

    def _open_log(self) -> None:
        if self.wishes.log is not None:
            where = None if self.where is None else str(self.where)
            broker, clock = self._connection.cluster.broker, self._connection.clock
            self._log = open_delivery_log(self.wishes.log, broker, self.log_name, clock, where)

    async def _run(
        self, view: SubscriberView, count: int = 0, journal: Journal | None = None, network: Network | None = None
    ) -> None:
        """Start the feed, and hold the topics. `count`: parcels that an earlier process has handed out."""
        wishes, connection = self.wishes, self._connection
        self.inbox = Inbox(wishes.limits, show_gaps=wishes.stops_at_gaps, count=count, log=self._log)
        self._feed = feed = Feed(
            self.name,
            view,
            self.inbox,
            broker=connection.cluster.broker,
            network=network if network is not None else connection.network,
            clock=connection.clock,
            limits=wishes.limits,
            arrived=self.arrived,
            wants=self._names.__contains__,
            on_changed=self._on_changed,
            on_gap=self._on_gap,
            journal=journal,
            times=self._log is not None,
            where=self.where,
        )
        feed.start()
        async with self._changes:
            wanted = self._ordered(self._names)
            await self._capture(self._names)
            await feed.finish_change(wishes.timeout_s)
            await feed.change(wanted - feed.topics, feed.topics - wanted, wishes.timeout_s)

    async def leave(self) -> None:
        feed = self.feed
        async with self._changes:
            self._change_names(frozenset(), self.topics)
            await feed.change(frozenset(), feed.topics, self.wishes.timeout_s)

    async def close(self) -> None:
        self._is_closing = True
        try:
            await self._depart()
        finally:
            try:
                await self._stop()
            finally:
                self.is_closed = True

    async def _stop(self) -> None:
        if self._feed is not None:
            await self._feed.stop()
        if self._log is not None:
            if self.acknowledging is None or not self._names:  # a durable one goes on later
                self._log.end()
            await self._log.close(self.wishes.timeout_s)

    async def _depart(self) -> None:
        """So that nobody keeps coupling topics, or waits, for a subscriber that is gone. A courtesy: it may fail."""
        feed, timeout_s = self._feed, min(LEAVE_S, self.wishes.timeout_s)
        if feed is None or feed.failure is not None:
            return
        try:
            if not await feed.depart(timeout_s) and feed.topics:
                await feed.change(frozenset(), feed.topics, timeout_s)
        except (TimedOut, RequestRefused, Closed):
            return

    # ── changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def add(self, names: frozenset[Topic]) -> None:
        feed = self.feed
        async with self._changes:
            ordered = self._ordered(names)  # raises before anything changes
            for topic in sorted(ordered - feed.topics):
                self._connection.cluster.description.tree.home(topic)
            await self._capture(names)
            self._change_names(names, frozenset())
            try:
                await feed.change(ordered - feed.topics, frozenset(), self.wishes.timeout_s)
            except RequestRefused:
                self._change_names(frozenset(), names)
                raise

    async def remove(self, names: frozenset[Topic]) -> None:
        feed = self.feed
        async with self._changes:
            check_held(names, self._names)
            self._change_names(frozenset(), names)
            left = feed.topics - self._ordered(self._names)
            await feed.change(frozenset(), left, self.wishes.timeout_s)

    async def _capture(self, names: Iterable[Topic]) -> None:
        """Whoever publishes to what is held, with any client: the broker keeps it before the topic counts as held."""
        try:
            async with asyncio.timeout(self.wishes.timeout_s):
                while True:
                    try:
                        return await self._connection.cluster.broker.capture(names)
                    except ConnectionFailed:
                        await asyncio.sleep(CAPTURE_AGAIN_S)
        except TimeoutError:
            waited = f"waited {self.wishes.timeout_s} s for the broker to keep {', '.join(sorted(names))}"
            raise TimedOut(f"{waited}: it cannot be reached") from None

    def _change_names(self, add: frozenset[Topic], remove: frozenset[Topic]) -> None:
        self._names -= remove
        self._names |= add
        if remove:
            self._drop(remove)
        if self._log is not None:  # names of a topic that is held anyway begin, or end, without a sequencer
            feed = self.feed
            lanes = feed.view.lanes
            held = {name: topic for name, topic in self._topics_by_name().items() if topic in feed.topics}
            begun = {name: lanes[topic].done if topic in lanes else None for name, topic in held.items() if name in add}
            open_ = {name for name, topic in held.items() if topic not in lanes or lanes[topic].open}
            self.inbox.put_holds({name: begun.get(name) for name in open_})

    def _drop(self, names: frozenset[Topic]) -> None:
        """Hand out no more events of these."""
        self.inbox.drop(names)

    def _ordered(self, names: Iterable[Topic]) -> frozenset[Topic]:
        broker = self._connection.cluster.broker
        return frozenset(broker.ordered_topic(name) for name in names)

    def _topics_by_name(self) -> dict[Topic, Topic]:
        broker = self._connection.cluster.broker
        return {name: broker.ordered_topic(name) for name in self._names}

    def _on_changed(self, changed: Changed) -> None:
        if self._log is not None and not self._is_closing:
            held = {name: topic for name, topic in self._topics_by_name().items() if topic in changed.topics}
            self.inbox.put_holds({name: changed.start.get(topic) for name, topic in held.items()})

    def _on_gap(self, gap: Gap) -> None:
        if self._log is not None and gap.reason == BEGAN_ANEW:  # what lies before its new start is not owed
            names = [name for name, topic in self._topics_by_name().items() if topic == gap.topic]
            self.inbox.put_begins(dict.fromkeys(names, gap.last))
