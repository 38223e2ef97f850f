"""The feed of a subscription: its machine, the driver, the port to the broker.

Notices of the driver go into the inbox. If the application lags, the broker is asked to pause, and to continue when
half of the waiting events are read. While a change is under way it is never paused, since the change needs the broker's
answers.

Events that have come and cannot be notified yet (a sequencer is away, a topic is slow) are bounded too. No more events
are read of topics whose next event is here already; those whose next event is missing are read on. The first in order
of all that waits is one or the other, so this cannot block itself. (Atoms: `Receiver.topics_ahead`.)
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seriatim.brokers import Port
from seriatim.brokers.packs import Unreadable
from seriatim.client.brokered.cluster import Network
from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.events import Event, unfold
from seriatim.client.explain import HeldEvent
from seriatim.filters import EVERYTHING, attributes_of
from seriatim.model import (
    APPLICATION,
    BROKER,
    Address,
    Closed,
    Gap,
    Notification,
    Number,
    RequestRefused,
    SeriatimError,
    TimedOut,
    Topic,
)
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Answer, Refused
from seriatim.protocols.with_broker import (
    CaughtUp,
    Change,
    Changed,
    Delivered,
    Ended,
    Listen,
    Rejected,
    StampedTo,
    Start,
)
from seriatim.runtime import Driver, Journal

if TYPE_CHECKING:
    from seriatim.client.brokered.source import BrokerSource

logger = logging.getLogger(__name__)

RECEIVED_REMEMBERED = 65_536
FAREWELL_CHECK_S = 0.005
PART_MISSING = "part of the past is missing: subscriber=%s topic=%s first=%d last=%d reason=%s"
SNAPSHOT_BYTES_MIN = 256 * 1024  # a subscriber's state is small


class Feed:
    """Feeds one source. `journal` and `network`: a durable subscription has its own."""

    def __init__(
        self,
        source: "BrokerSource",
        view: SubscriberView,
        *,
        has_times: bool,
        journal: Journal | None = None,
        network: Network | None = None,
    ) -> None:
        address, connection = source.name, source.connection
        self.address = address
        self.view = view
        self.failure: BaseException | None = None
        self.is_paused = False
        self.left_out = 0  # events that do not match the filter
        self.out_of_order = 0  # events handed out although something before them was missing
        self.rejected = 0  # messages that had no right to be there, or could not be read
        self.stuck: dict[Topic, Answer] = {}
        self._in_past = view.past is not None  # as far as its notices were handled
        self._source = source
        self._where = source.where if source.where != EVERYTHING else None
        self._recall = view.recall
        self._inbox = source.inbox
        self._arrived = source.arrived
        self._early = connection.early
        self._unread_early = connection.early.add(source.inbox, view.early)
        self._network = network if network is not None else connection.network
        self._clock = connection.clock
        self._limits = source.wishes.limits
        self._received: dict[tuple[Topic, Number], float] | None = {} if has_times else None
        self._goal: frozenset[Topic] | None = None
        self._goal_in_past = False
        self._changed: asyncio.Future[None] | None = None
        self._asked: deque[tuple[Payload, asyncio.Future[None]]] = deque()
        self._is_running = False
        self._blocked: frozenset[Topic] = frozenset()  # topics of which no more events are read
        self._driver = Driver(
            address,
            view.machine,
            connection.clock,
            send=self._send,
            notify=self._notified,
            journal=journal,
            encode_state=view.encode,
            snapshot_bytes_min=SNAPSHOT_BYTES_MIN,
        )
        self._driver.failed.add_done_callback(self._driver_failed)
        self._broker = connection.cluster.broker
        self._port: Port = self._broker.attach(address, self._from_broker, self._refused_by_broker)

    @property
    def topics(self) -> frozenset[Topic]:
        return self.view.topics

    @property
    def wanted(self) -> frozenset[Topic]:
        """The topics that it holds when every change is made that was asked for."""
        return self.view.wanted

    def start(self) -> None:
        self._is_running = True
        self._broker.know(self.topics)
        self._network.switchboard.attach(self.address, self._from_network)
        self._driver.start()

    def end(self, error: BaseException) -> None:
        """End immediately: events that were not taken are no longer handed out."""
        self._driver.end(error)
        self._fail(error)

    async def stop(self) -> None:
        """Stop where it is. May be called twice."""
        if self._is_running:
            self._is_running = False
            self._network.switchboard.unplug(self.address)
            await self._driver.stop()
        await self._port.close()
        self._early.remove(self._unread_early)
        self._fail(Closed("the subscription is closed"))

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def change(
        self, add: frozenset[Topic], remove: frozenset[Topic], timeout_s: float, start: Start | None = None
    ) -> None:
        """Hold these ordered topics too, and those no longer. Returns when that is complete. One at a time.

        `start`: begin with the past.
        """
        self._raise_failure()
        if add or remove:
            await self._await_change((self.wanted - remove) | add, Change(add, remove, start), timeout_s)

    async def finish_change(self, timeout_s: float) -> None:
        """Wait for a change that a restart has interrupted."""
        if self.view.is_changing:
            await self._await_change(self.topics, None, timeout_s)

    async def _await_change(self, goal: frozenset[Topic], command: Change | None, timeout_s: float) -> None:
        if self._changed is not None and not self._changed.done():  # only closing does not wait for its turn
            self._changed.set_exception(Closed("the subscription is closed"))
        self._broker.know(goal)
        self._goal = goal
        self._goal_in_past = command is not None and command.start is not None
        self._changed = changed = asyncio.get_running_loop().create_future()
        self.regulate()
        try:
            if command is not None:
                self._driver.command(APPLICATION, command)
            async with asyncio.timeout(timeout_s):
                await changed
        except TimeoutError:
            raise TimedOut(f"waited {timeout_s} s for a change of topics: {self._unanswered()}") from None
        finally:
            if self._changed is changed:
                self._goal = self._changed = None

    def _unanswered(self) -> str:
        return ", ".join([*self.view.unanswered(), *self._network.down()])

    async def depart(self, timeout_s: float) -> bool:
        """Say farewell, if that is how this machine ends. A courtesy: it may fail. False: it leaves its topics."""
        command = self.view.farewell
        if command is None:
            return False
        if self.failure is None:
            self._driver.command(APPLICATION, command)
            deadline = asyncio.get_running_loop().time() + timeout_s
            while not self.view.is_heard and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - once
                await asyncio.sleep(FAREWELL_CHECK_S)
        return True

    async def ask(self, command: Payload) -> None:
        """Give the machine a command that it confirms by telling it back. Returns when it has."""
        self._raise_failure()
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((command, confirmed))
        self._driver.command(APPLICATION, command)
        await confirmed

    # ── back-pressure ─────────────────────────────────────────────────────────────────────────────────────────────

    def regulate(self) -> None:
        """Pause the broker, or let it continue."""
        room = self._inbox.room
        if self.is_paused:
            if room.is_half_free or self._goal is not None:
                self.is_paused = False
                self._port.resume()
        elif room.is_exceeded and self._goal is None:
            self.is_paused = True
            self._port.pause()

    def _relieve(self) -> None:
        """Stop reading topics whose events could only wait; continue when only half of the allowed events wait."""
        share = self.view.share(self._limits)
        if share <= 1.0 and not self._blocked:
            return
        blocked = self.view.blocked_topics() if share > 0.5 else frozenset()
        if share <= 1.0:
            blocked &= self._blocked
        for topic in blocked - self._blocked:
            self._port.pause(topic)
        for topic in self._blocked - blocked:
            self._port.resume(topic)
        self._blocked = blocked

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def held(self) -> list[HeldEvent]:
        """The events that are held back, and what each waits for."""
        now = self._clock.now_ms()
        return [HeldEvent(self.address, each, (now - each.since) / 1000.0) for each in self.view.waits()]

    @property
    def oldest_held_s(self) -> float | None:
        """How long the oldest message has waited; 0: none waits. None: the machine does not know."""
        if not self.view.knows_ages:
            return None
        since = self.view.oldest_since()
        return (self._clock.now_ms() - since) / 1000.0 if since is not None else 0.0

    def notes(self) -> list[str]:
        """What else to know about this subscription, in sentences."""
        notes = [
            f"{topic} {answer.number} is {answer.state}: this wait does not end by itself; "
            "subscribe with gaps=GapPolicy.skip() to continue after it"
            for topic, answer in sorted(self.stuck.items())
        ]
        notes += self.view.explain()
        if self.rejected:
            notes.append(f"{self.rejected} messages of the broker were rejected; the log says why")
        if self.is_paused:
            notes.append(f"paused: {self._inbox.room.events} events are unread")
        if self._blocked:
            blocked = ", ".join(sorted(self._blocked))
            notes.append(f"{self.view.waiting} events wait for others; not read on: {blocked}")
        if self._changed is not None:
            notes.append(f"a change of topics is under way: {self._unanswered()}")
        if self.failure is not None:
            notes.append(f"the subscription has ended: {self.failure}")
        return [f"{self.address}: {note}" for note in notes]

    # ── in and out ────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_broker(self, message: Payload) -> None:
        if self._received is not None and type(message) is Delivered and message.event is not None:
            self._received.setdefault((message.topic, message.number), self._clock.now_ms())
            if len(self._received) > RECEIVED_REMEMBERED:
                del self._received[next(iter(self._received))]
        self._driver.deliver(BROKER, message)
        self._relieve()

    def _from_network(self, source: Address, message: Payload) -> None:
        self._driver.deliver(source, message)
        self._relieve()

    def _send(self, source: Address, target: Address, message: Payload) -> None:
        if target == BROKER:
            self._port.send(message)
        else:
            self._network.switchboard.send(source, target, message)

    def _notified(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            match notice:
                case Notification():
                    if notice.early:
                        self._unread_early.put(notice.event.topic, notice.number)
                    self._take_in(notice)
                case StampedTo():
                    self._early.final(notice)
                case Gap():
                    if self._in_past:
                        fields = (self.address, notice.topic, notice.first, notice.last, notice.reason)
                        logger.warning(PART_MISSING, *fields)
                    self._inbox.put_gap(notice)
                    self._source.on_gap(notice)
                case Changed():
                    self._in_past = notice.in_past or (self._in_past and self.view.past is not None)
                    kept = notice.topics if not notice.in_past else frozenset()
                    self.stuck = {topic: answer for topic, answer in self.stuck.items() if topic in kept}
                    self._source.on_changed(notice)
                    is_goal = notice.topics == self._goal and (notice.in_past or not self._goal_in_past)
                    if self._changed is not None and not self._changed.done() and is_goal:
                        self._changed.set_result(None)
                case CaughtUp():
                    self._in_past = False
                    self._source.on_caught_up(notice)
                case Answer():
                    if self.stuck.get(notice.topic) != notice:
                        context = (self.address, notice.topic, notice.number, notice.state)
                        logger.warning("event will not come: subscriber=%s topic=%s number=%d state=%s", *context)
                    self.stuck[notice.topic] = notice
                case Rejected():
                    self._reject(notice.topic, notice.number, notice.publisher, notice.reason)
                case Ended():
                    self._fail(Closed(notice.reason))
                case Refused():
                    logger.warning("request refused: subscriber=%s reason=%s", self.address, notice.reason)
                    self._refuse(RequestRefused(f"a sequencer refused: {notice.reason}"))
                case _ if self._asked and notice == self._asked[0][0]:
                    _, confirmed = self._asked.popleft()
                    if not confirmed.done():
                        confirmed.set_result(None)
        self._arrived.set()
        self.regulate()

    def _reject(self, topic: Topic, number: Number, publisher: str | None, reason: str) -> None:
        self.rejected += 1
        context = (self.address, topic, number, publisher, reason)
        logger.warning("message rejected: subscriber=%s topic=%s number=%d publisher=%s reason=%s", *context)

    def _take_in(self, notification: Notification) -> None:
        message, number = notification.event, notification.number
        topic = message.topic
        received_at = None
        if self._received is not None:
            received_at = self._received.pop((topic, self.view.slot_of(notification)), None)
        if self.stuck:
            self.stuck.pop(topic, None)
        if not self._source.wants(topic if message.subject is None else message.subject):
            self._inbox.put([], 0)
            return
        try:
            events = unfold(notification)
        except Unreadable as error:
            self._reject(topic, number, message.publisher, f"unreadable: {error}")
            gap = Gap(topic, number, number, f"unreadable: {error}")
            self._inbox.put_gap(gap)
            self._source.on_gap(gap)
            return
        if self._recall is not None:
            events = self._recall(topic, number, events)
        others: list[Event] = []
        if self._where is not None:
            where, each = self._where, events
            events = [event for event in each if where.matches(attributes_of(event.headers))]
            if len(events) < len(each):
                wanted = {event.index for event in events}
                others = [event for event in each if event.index not in wanted]
                self.left_out += len(others)
        if notification.out_of_order:
            self.out_of_order += len(events)
        self._inbox.put(events, len(message.payload), received_at, others)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _refuse(self, error: SeriatimError) -> None:
        """Something was refused: the change under way, if there is one, cannot be completed."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_exception(error)

    def _refused_by_broker(self, message: Payload, error: SeriatimError) -> None:
        refused = RequestRefused(f"the broker refused: {error}")
        if isinstance(message, Listen) and self._changed is not None:
            self._refuse(refused)
        else:
            self._fail(refused)

    def _driver_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        if not failed.cancelled():
            self._fail(failed.result())

    def _fail(self, reason: BaseException) -> None:
        if self.failure is None:
            self.failure = reason
        for _, confirmed in self._asked:
            if not confirmed.done():
                confirmed.set_exception(reason)
        self._asked.clear()
        if self._changed is not None and not self._changed.done():
            self._changed.set_exception(reason)
        self._arrived.set()
        self._source.live.set()  # whoever waits for it finds the failure

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
