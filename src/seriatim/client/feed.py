"""What feeds a subscription: its machine, the driver, the port to the broker.

Notices of the driver go into the inbox. If the application lags, the broker is asked to pause, and to go on when half
of what waited is read. While a change is under way it is never paused, since the change needs the broker's answers.

What has come and cannot be notified yet (a sequencer is away, a topic is slow) is bounded too. No more events are read
of topics whose next event is here already; those whose next event is missing are read on. The first in order of all
that waits is one or the other, so this cannot block itself. (Atoms: `Receiver.topics_ahead`.)
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import structs

from seriatim.brokers import Broker, Port
from seriatim.client.atoms_subscriber import AtomsSubscriber, Depart, Placed
from seriatim.client.batch import Unreadable, unfold
from seriatim.client.cluster import Network
from seriatim.client.durable import DurableSubscriber, Mark, Past, Place
from seriatim.client.events import Event
from seriatim.client.explain import HeldEvent
from seriatim.client.inbox import Inbox
from seriatim.client.options import Limits
from seriatim.client.unordered import UnorderedSubscriber
from seriatim.filters import EVERYTHING, Filter, attributes_of
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
from seriatim.protocols.atoms.live_messages import Forgotten
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Answer, Change, Changed, Delivered, Listen, Refused, Rejected, Trimmed
from seriatim.runtime import Clock, Driver, Journal

logger = logging.getLogger(__name__)

RECEIVED_REMEMBERED = 65_536
DEPART_LOOK_S = 0.005
SNAPSHOT_BYTES_MIN = 256 * 1024  # a subscriber's state is small


class Feed:
    """`wants` says whether the application holds a topic's name. `on_changed` and `on_gap` are told at once."""

    def __init__(
        self,
        address: Address,
        machine: Subscriber | DurableSubscriber | UnorderedSubscriber | AtomsSubscriber,
        inbox: Inbox,
        *,
        broker: Broker,
        network: Network,
        clock: Clock,
        limits: Limits,
        past: Past,
        wants: Callable[[Topic], bool],
        on_changed: Callable[[Changed], None],
        on_gap: Callable[[Gap], None],
        journal: Journal | None = None,
        times: bool = False,
        where: Filter | None = None,
    ) -> None:
        self.address = address
        self.failure: BaseException | None = None
        self.arrived = asyncio.Event()
        self.is_paused = False
        self.left_out = 0  # what came in its turn, and does not match
        self.out_of_order = 0  # what was handed out although something before it was missing
        self._where = where if where is not None and where != EVERYTHING else None
        self.rejected = 0  # what had no right to be there, or could not be read
        self.stuck: dict[Topic, Answer] = {}
        self._machine = machine
        self._inbox = inbox
        self._network = network
        self._clock = clock
        self._limits = limits
        self._past = past
        self._wants = wants
        self._on_changed = on_changed
        self._on_gap = on_gap
        self._received: dict[tuple[Topic, Number], float] | None = {} if times else None
        self._goal: frozenset[Topic] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._marks: deque[asyncio.Future[None]] = deque()
        self._is_running = False
        self._blocked: frozenset[Topic] = frozenset()  # topics of which no more events are read
        self._driver = Driver(
            address,
            machine,
            clock,
            send=self._send,
            notify=self._notified,
            journal=journal,
            encode_state=machine.encode if isinstance(machine, DurableSubscriber) else None,
            snapshot_bytes_min=SNAPSHOT_BYTES_MIN,
        )
        self._driver.failed.add_done_callback(self._driver_failed)
        self._broker = broker
        self._port: Port = broker.attach(address, self._from_broker, self._refused_by_broker)

    @property
    def topics(self) -> frozenset[Topic]:
        """The ordered topics that are held, or being joined."""
        machine = self._machine
        return machine.subscriber.topics if isinstance(machine, DurableSubscriber) else machine.topics

    @property
    def ordering(self) -> Subscriber | None:
        """The ordering machine, if there is one."""
        machine = self._machine.subscriber if isinstance(self._machine, DurableSubscriber) else self._machine
        return machine if isinstance(machine, Subscriber) else None

    def start(self) -> None:
        """Go."""
        self._is_running = True
        self._broker.know(self.topics)
        self._network.switchboard.attach(self.address, self._from_network)
        self._driver.start()

    async def stop(self) -> None:
        """Stop where it is. May be called twice."""
        if self._is_running:
            self._is_running = False
            self._network.switchboard.unplug(self.address)
            await self._driver.stop()
        await self._port.close()
        self._fail(Closed("the subscription is closed"))

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def change(self, add: frozenset[Topic], remove: frozenset[Topic], timeout_s: float) -> None:
        """Hold these ordered topics too, and those no longer. Returns when that is complete. One at a time."""
        self._raise_failure()
        if add or remove:
            await self._await_change((self.topics - remove) | add, Change(add, remove), timeout_s)

    async def finish_change(self, timeout_s: float) -> None:
        """Wait for a change that a restart has interrupted."""
        if self.ordering is not None and self.ordering.state.changing is not None:
            await self._await_change(self.topics, None, timeout_s)

    async def _await_change(self, goal: frozenset[Topic], command: Change | None, timeout_s: float) -> None:
        if self._changed is not None and not self._changed.done():  # only closing does not wait for its turn
            self._changed.set_exception(Closed("the subscription is closed"))
        self._broker.know(goal)
        self._goal = goal
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
        ordering = self.ordering
        changing = ordering.state.changing if ordering is not None else None
        if isinstance(self._machine, AtomsSubscriber):
            return ", ".join([*self._machine.explain(), *self._network.down()])
        if ordering is None or changing is None:
            return "the broker has not confirmed that it delivers them"
        waits = [f"the broker has not confirmed {topic}" for topic in sorted(changing.listen)]
        waits += [
            f"node {ordering.tree.home(topic)} has not answered for {topic}"
            for topic in sorted(changing.join - changing.listen)
        ]
        waits += [f"node {node} has not confirmed" for node in sorted(changing.update)]
        return ", ".join([*waits, *self._network.down()])

    async def depart(self, timeout_s: float) -> None:
        """Atoms: tell the coordinator that nobody shall wait for us. A courtesy: it may fail."""
        machine = self._machine
        if self.failure is None and isinstance(machine, AtomsSubscriber):
            self._driver.command(APPLICATION, Depart())
            deadline = asyncio.get_running_loop().time() + timeout_s
            while not machine.is_heard and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(DEPART_LOOK_S)

    # ── acknowledging ─────────────────────────────────────────────────────────────────────────────────────────────

    async def mark(self, acknowledged: Place, taken: Place) -> None:
        """Durable: write down how far the application is. Returns when it is written."""
        self._raise_failure()
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._marks.append(written)
        self._driver.command(APPLICATION, Mark(acknowledged, taken))
        await written

    # ── back-pressure ─────────────────────────────────────────────────────────────────────────────────────────────

    def regulate(self) -> None:
        """Pause the broker, or let it go on."""
        inbox, limits = self._inbox, self._limits
        if self.is_paused:
            is_half_read = inbox.events <= limits.unread_events // 2 and inbox.bytes <= limits.unread_bytes // 2
            if is_half_read or self._goal is not None:
                self.is_paused = False
                self._port.resume()
        elif (inbox.events > limits.unread_events or inbox.bytes > limits.unread_bytes) and self._goal is None:
            self.is_paused = True
            self._port.pause()

    def _relieve(self) -> None:
        """Stop reading what could only wait, or go on when half of what may wait does."""
        holder = self._machine if isinstance(self._machine, AtomsSubscriber) else self.ordering
        if holder is None:
            return
        share = holder.waiting / self._limits.unread_events
        if isinstance(holder, AtomsSubscriber):
            share = max(share, holder.waiting_bytes / self._limits.unread_bytes)
        if share <= 1.0 and not self._blocked:
            return
        blocked = holder.blocked_topics() if share > 0.5 else frozenset()
        if share <= 1.0:
            blocked &= self._blocked
        for topic in blocked - self._blocked:
            self._port.pause(topic)
        for topic in self._blocked - blocked:
            self._port.resume(topic)
        self._blocked = blocked

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def held(self) -> list[HeldEvent]:
        """What is held back, waiting for what."""
        now = self._clock.now_ms()
        waits = self.ordering.explain() if self.ordering is not None else []
        return [HeldEvent(self.address, each, (now - each.since) / 1000.0) for each in waits]

    @property
    def held_count(self) -> int:
        """How many that are, without looking at each."""
        holder = self._machine if isinstance(self._machine, AtomsSubscriber) else self.ordering
        return holder.waiting if holder is not None else 0

    @property
    def oldest_held_s(self) -> float | None:
        """How long the first of them has been held, 0 if there is none. None: atoms do not keep the time."""
        if isinstance(self._machine, AtomsSubscriber):
            return None
        since = self.ordering.oldest_since() if self.ordering is not None else None
        return (self._clock.now_ms() - since) / 1000.0 if since is not None else 0.0

    def notes(self) -> list[str]:
        """What else is worth knowing."""
        notes = [
            f"{self.address}: {topic} {answer.number} is {answer.state}: this wait does not end by itself; "
            "subscribe with gaps=GapPolicy.skip() to go on behind it"
            for topic, answer in sorted(self.stuck.items())
        ]
        if isinstance(self._machine, AtomsSubscriber):
            notes += [f"{self.address}: {line}" for line in self._machine.explain()]
        if self.rejected:
            notes.append(f"{self.address}: {self.rejected} messages of the broker were rejected; the log says why")
        if self.is_paused:
            notes.append(f"{self.address}: paused: {self._inbox.events} events are unread")
        if self._blocked:
            blocked = ", ".join(sorted(self._blocked))
            notes.append(f"{self.address}: {self.held_count} events wait for others; not read on: {blocked}")
        if self._changed is not None:
            notes.append(f"{self.address}: a change is under way: {self._unanswered()}")
        if self.failure is not None:
            notes.append(f"{self.address}: has ended: {self.failure}")
        return notes

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
                    self._take_in(notice)
                case Gap():
                    self._inbox.put_gap(notice)
                    self._on_gap(notice)
                case Mark():
                    written = self._marks.popleft()
                    if not written.done():
                        written.set_result(None)
                case Changed():
                    self._on_changed(notice)
                    if self._changed is not None and not self._changed.done() and notice.topics == self._goal:
                        self._changed.set_result(None)
                case Answer():
                    if self.stuck.get(notice.topic) != notice:
                        extra = {"at": self.address, "topic": notice.topic, "number": notice.number}
                        logger.warning("an event will not come", extra={**extra, "state": notice.state})
                    self.stuck[notice.topic] = notice
                case Rejected():
                    self.rejected += 1
                    extra = {"at": self.address, "topic": notice.topic, "number": notice.number}
                    logger.warning("rejected", extra={**extra, "publisher": notice.publisher, "reason": notice.reason})
                case Forgotten():
                    reason = "this subscriber was silent for too long, and the coordinator has forgotten it"
                    self._fail(Closed(f"{reason}; subscribe again"))
                case Trimmed():
                    reason = f"the broker has dropped items of {notice.topic} before this subscriber had read them"
                    self._fail(Closed(f"{reason}; read faster, or let it keep them for longer, and subscribe again"))
                case Refused():
                    logger.warning("request refused", extra={"at": self.address, "reason": notice.reason})
                    self._refuse(RequestRefused(f"a sequencer refused: {notice.reason}"))
        self.arrived.set()
        self.regulate()

    def _take_in(self, notification: Notification) -> None:
        message = notification.event
        key = (message.topic, notification.number)
        slot = notification.slot if isinstance(notification, Placed) else notification.number
        received_at = self._received.pop((message.topic, slot), None) if self._received is not None else None
        if self.stuck:
            self.stuck.pop(message.topic, None)
        if not self._wants(message.topic if message.subject is None else message.subject):
            self._inbox.put([], 0)
            return
        try:
            events = unfold(notification)
        except Unreadable as error:
            self.rejected += 1
            logger.warning("unreadable", extra={"topic": key[0], "number": key[1], "reason": str(error)})
            gap = Gap(*key, notification.number, f"unreadable: {error}")
            self._inbox.put_gap(gap)
            self._on_gap(gap)
            return
        if self._past.acknowledged or self._past.taken:
            acknowledged = self._past.acknowledged.pop(key, 0)
            taken = self._past.taken.pop(key, 0)
            events = [
                structs.replace(event, replayed=True) if event.index < taken else event
                for event in events
                if event.index >= acknowledged
            ]
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
        for written in self._marks:
            if not written.done():
                written.set_exception(reason)
        self._marks.clear()
        if self._changed is not None and not self._changed.done():
            self._changed.set_exception(reason)
        self.arrived.set()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
