"""The source of a subscription on a broker: it holds topics by name, opens the log and the feed, and changes topics.

Names and ordered topics: where several names share one ordered topic on the broker (a bucket), the source holds the
bucket and hands out only the names it was asked for. Adding a second name of a bucket needs no sequencer, only a broker
that keeps events under the name.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from functools import partial

from msgspec import structs

from seriatim.client.brokered.cluster import Connection, Network
from seriatim.client.brokered.feed import Feed
from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.explain import Explanation
from seriatim.client.history import Progress, Start
from seriatim.client.inbox import Inbox
from seriatim.client.logs import DeliveryLog, open_delivery_log
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.options import check_held
from seriatim.client.refusals import METHODS, refusal
from seriatim.client.session import Source, Wishes
from seriatim.model import Address, Closed, ConnectionFailed, Gap, InputError, Position, RequestRefused, TimedOut, Topic
from seriatim.protocols.tree.subscribing import BEGAN_ANEW
from seriatim.protocols.with_broker import CaughtUp, Changed
from seriatim.protocols.with_broker import Start as PastStart
from seriatim.runtime import Journal

CAPTURE_AGAIN_S = 0.1
LEAVE_S = 2.0  # how long closing waits for the nodes to confirm
LEAVE_AGAIN_S = 0.2  # the same, if they have not confirmed the change before


class BrokerSource(Source):
    """The source for tree and atoms, which differ only in the machine."""

    def __init__(self, connection: Connection, name: Address, wishes: Wishes, log_name: str) -> None:
        super().__init__(name, wishes, log_name)
        self.is_closed = False
        self._is_closing = False
        self.connection = connection
        self.live = asyncio.Event()  # the application has taken all of the past, or the subscription has ended
        self._reached: Position = 0  # where the past ended
        self._pasts = 0  # how often it began with the past
        self._feed: Feed | None = None
        self._log: DeliveryLog | None = None

    @abstractmethod
    def _view(self) -> SubscriberView:
        """The machine, made when the source is opened."""

    @property
    def feed(self) -> Feed:
        """The feed. Closed: the source is not open."""
        if self._feed is None:
            raise Closed("the subscription is not open yet: wait until it is entered")
        return self._feed

    @property
    def failure(self) -> BaseException | None:
        return self._feed.failure if self._feed is not None else None

    def before_taking(self) -> None:
        if self._feed is not None and self._feed.failure is not None:
            raise self._feed.failure

    def after_taking(self) -> None:
        if self._feed is not None and self._feed.is_paused:
            self._feed.regulate()
        if not self.live.is_set():
            self.inbox.skip_empty()

    def events_logged(self) -> int:
        """How many events the application was given; 0 without a delivery log. Writes them to the log first:
        a publication may refer to them even if this process is killed now."""
        if self._log is None:
            return 0
        self._log.flush()
        return self._log.position

    def explain(self) -> Explanation:
        if self._feed is None:
            return Explanation()
        return Explanation(held=self._feed.held(), notes=self._feed.notes())

    def metrics(self) -> SubscriptionMetrics:
        counted, feed = super().metrics(), self._feed
        if feed is None:
            return counted
        return structs.replace(
            counted,
            held=feed.view.waiting,
            oldest_held_seconds=feed.oldest_held_s,
            out_of_order=feed.out_of_order,
            rejected=feed.rejected,
            left_out=feed.left_out,
            history_left=feed.view.past[1] - feed.view.past[0] if feed.view.past is not None else 0,
        )

    async def open(self) -> None:
        self._open_log()
        await self._run(self._view())

    def _open_log(self) -> None:
        if self.wishes.log is not None:
            where = None if self.where is None else str(self.where)
            broker, clock = self.connection.cluster.broker, self.connection.clock
            self._log = open_delivery_log(self.wishes.log, broker, self.log_name, clock, where)

    async def _run(
        self, view: SubscriberView, count: int = 0, journal: Journal | None = None, network: Network | None = None
    ) -> None:
        """Start the feed and join the topics. `count`: parcels that an earlier process has handed out."""
        wishes = self.wishes
        log = self._log.handed if self._log is not None else None
        self.inbox = Inbox(wishes.limits, show_gaps=wishes.stops_at_gaps, count=count, log=log)
        self.is_quick = log is None and not self.is_durable
        self._feed = feed = Feed(self, view, has_times=log is not None, journal=journal, network=network)
        feed.start()
        async with self._changes:
            wanted = self._ordered(self._names)
            await self._capture(self._names)
            await feed.finish_change(wishes.timeout_s)
            if wanted - feed.topics:
                self._check_live("topics")
            start = await self._begin(wishes.start) if not feed.topics else None
            await feed.change(wanted - feed.topics, feed.topics - wanted, wishes.timeout_s, start)
            if feed.view.past is None and start is None:
                self.live.set()

    async def _begin(self, start: Start) -> PastStart | None:
        """Where this is in the order of all events; None: from now on. InputError: it cannot begin there."""
        return None

    def _check_live(self, field: str) -> None:
        if self.feed.view.past is not None:
            fix = "wait for caught_up() first"
            raise InputError(field, "the subscription still reads the past; topics are added when it is live", fix)

    async def seek(self, start: Start) -> None:
        if self.substrate in METHODS["seek"]:
            raise refusal("seek", self.substrate)
        feed = self.feed
        async with self._changes:
            if self._log is not None:
                problem = "the delivery log would show events twice"
                raise InputError("seek", problem, "subscribe without a log, or again under another name")
            begin = await self._begin(start)
            if begin is None:
                raise InputError("seek", "events that are not ordered have no position", "leave out ordered=False")
            self.live.clear()
            await feed.change(feed.topics, frozenset(), self.wishes.timeout_s, begin)

    async def caught_up(self) -> None:
        await self.live.wait()
        if self.failure is not None:
            raise self.failure

    def on_caught_up(self, notice: CaughtUp) -> None:
        """The past is told. The application may not have taken all of it yet."""
        self._reached = notice.position
        self.inbox.put_news(partial(self._end_past, self._pasts))
        self.inbox.skip_empty()

    def _end_past(self, past: int) -> None:
        """The application has taken all of it, or has begun anew meanwhile."""
        if past == self._pasts:
            self.live.set()

    def progress(self) -> Progress:
        past = self._feed.view.past if self._feed is not None else None
        return Progress(*past, False) if past is not None else Progress(self._reached, self._reached, True)

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
            goes_on = self.is_durable and bool(self._names)
            await self._log.close(self.wishes.timeout_s, ends=not goes_on)

    async def _depart(self) -> None:
        """Tell the nodes, so that they stop coupling topics or waiting for this subscriber. Best effort."""
        feed, timeout_s = self._feed, min(LEAVE_S, self.wishes.timeout_s)
        if feed is None or feed.failure is not None:
            return
        if feed.view.is_changing:  # a node is away, and was waited for long enough: only tell the others
            timeout_s = min(LEAVE_AGAIN_S, timeout_s)
        try:
            if not await feed.depart(timeout_s) and feed.topics:
                await feed.change(frozenset(), feed.topics, timeout_s)
        except (TimedOut, RequestRefused, Closed):
            return

    async def add(self, names: frozenset[Topic]) -> None:
        feed = self.feed
        async with self._changes:
            ordered = self._ordered(names)  # raises before anything changes
            self._check_live("topics")
            for topic in sorted(ordered - feed.wanted):
                self.connection.cluster.description.tree.home(topic)
            await self._capture(names)
            self._change_names(names, frozenset())
            try:
                await feed.change(ordered - feed.wanted, frozenset(), self.wishes.timeout_s)
            except RequestRefused:
                self._change_names(frozenset(), names)
                raise

    async def remove(self, names: frozenset[Topic]) -> None:
        feed = self.feed
        async with self._changes:
            check_held(names, self._names)
            self._change_names(frozenset(), names)
            left = feed.wanted - self._ordered(self._names)
            await feed.change(frozenset(), left, self.wishes.timeout_s)

    async def _capture(self, names: Iterable[Topic]) -> None:
        """Make the broker keep what any client publishes under these names, before the topics count as held."""
        try:
            async with asyncio.timeout(self.wishes.timeout_s):
                while True:
                    try:
                        return await self.connection.cluster.broker.capture(names)
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
        if self._log is not None:  # names of a topic that is held already change without a sequencer
            feed = self.feed
            lanes = feed.view.lanes
            held = {name: topic for name, topic in self._topics_by_name().items() if topic in feed.topics}
            begun = {name: lanes[topic].done if topic in lanes else None for name, topic in held.items() if name in add}
            open_ = {name for name, topic in held.items() if topic not in lanes or lanes[topic].open}
            self.inbox.put_news(partial(self._log.holds, {name: begun.get(name) for name in open_}))

    def _drop(self, names: frozenset[Topic]) -> None:
        """Hand out no more events of these."""
        self.inbox.drop(names)

    def _ordered(self, names: Iterable[Topic]) -> frozenset[Topic]:
        broker = self.connection.cluster.broker
        return frozenset(broker.ordered_topic(name) for name in names)

    def _topics_by_name(self) -> dict[Topic, Topic]:
        broker = self.connection.cluster.broker
        return {name: broker.ordered_topic(name) for name in self._names}

    def wants(self, name: Topic) -> bool:
        return name in self._names

    def on_changed(self, changed: Changed) -> None:
        """A change of topics is complete. If it begins in the past, nothing from before that is handed out any more."""
        if changed.in_past:
            self._pasts += 1
            self.live.clear()
            self._drop(self.topics)
        elif self.feed.view.past is None and not self.live.is_set():  # it has left all topics that it read the past of
            self.inbox.put_news(partial(self._end_past, self._pasts))
            self.inbox.skip_empty()
        if self._log is not None and not self._is_closing:
            held = {name: topic for name, topic in self._topics_by_name().items() if topic in changed.topics}
            starts = {name: changed.start.get(topic) for name, topic in held.items()}
            self.inbox.put_news(partial(self._log.holds, starts))

    def on_gap(self, gap: Gap) -> None:
        """Numbers of a topic will not come."""
        if self._log is not None and gap.reason == BEGAN_ANEW:  # events before its new start are not owed
            names = [name for name, topic in self._topics_by_name().items() if topic == gap.topic]
            self.inbox.put_news(partial(self._log.begins, dict.fromkeys(names, gap.last)))
