"""Publishing through a broker: batches form by themselves.

Each topic has one broker message under way; events published meanwhile gather, and are sent together in the next one.
There is no delay: a single event is sent at once, as a plain message. Where the publisher's own order across topics
counts, there is one line for all topics. This is the only place where events gather: the machine below has one message
of a topic at a time.

The next message of a topic is sent when the previous one is stored. Callers are answered then, or, if they want to know
that their event has its place in the order, a little later: until then the message is *unplaced*.

Every event has a deadline. An event that is still queued then was never sent. An event in a message under way may or
may not be on the broker, and TimedOut says so; an unplaced one is. A message is given up when no caller waits for it.
With atoms it keeps its place in the line to its ingress, and counts as waiting until the ingress is past it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from seriatim.brokers import Port
from seriatim.brokers.packs import BATCH_HEADER, BATCH_VERSION, EVENTS_MAX, derived_id, pack
from seriatim.client.brokered.cluster import Connection
from seriatim.client.brokered.machines import PublisherView
from seriatim.client.events import Published
from seriatim.client.logs import PublicationLog
from seriatim.client.options import check_topic
from seriatim.client.outbox import Outbox, Pending, Receipts
from seriatim.client.settings import Settings
from seriatim.model import (
    APPLICATION,
    BROKER,
    Address,
    Closed,
    InputError,
    LogError,
    Node,
    RequestRefused,
    SeriatimError,
    TimedOut,
    Topic,
)
from seriatim.model import Event as Message
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Refused
from seriatim.protocols.with_broker import (
    Append,
    EventLost,
    EventPlaced,
    EventStored,
    Follow,
    NotTaken,
    Publish,
    StampedTo,
    Unfollow,
    Withdraw,
    Write,
)
from seriatim.runtime import Driver

logger = logging.getLogger(__name__)

PACK_BYTES_MAX = 256 * 1024
HEADERS_BYTES = 1_024  # room in a broker message for its id, its publisher, and the mark of a pack


class Lane(Struct, eq=False):
    """The waiting events of one topic (with `own_order`: of all topics), and the message under way."""

    queue: deque[Pending] = field(default_factory=deque)
    under_way: "UnderWay | None" = None
    scheduled: bool = False


class UnderWay(Struct, eq=False):
    """One broker message and its events. `unanswered`: how many of them still have a waiting caller.

    `number`: once it is stored.
    """

    lane: Lane
    id: str
    ordered: Topic
    events: list[Pending]
    ids: list[str]
    unanswered: int
    number: int = 0


class BrokerOutbox(Outbox):
    """Publishes in batches. `seen`: for the log, returns how many events this publisher was given."""

    def __init__(
        self,
        name: Address,
        view: PublisherView,
        connection: Connection,
        settings: Settings,
        *,
        log: PublicationLog | None,
        seen: Callable[[], int | None],
    ) -> None:
        super().__init__(name, settings.limits, settings.timeout_s, view.given_up)
        description, broker = connection.cluster.description, connection.cluster.broker
        self.refusal: dict[Topic, str] = {}  # why a sequencer last refused a request for numbers
        self._view = view
        self._network = connection.network
        self._early = connection.early
        self._home_of = view.home_of or description.tree.home  # raises if no node orders a topic
        self._cluster = connection.cluster
        self._broker = broker
        self._switchboard = connection.network.switchboard
        self._log = log
        self._seen = seen
        self._event_bytes_max = broker.payload_bytes_max - HEADERS_BYTES - view.reserve_bytes
        self._pack_bytes_max = min(PACK_BYTES_MAX, self._event_bytes_max)
        self._deadline: float | None = None  # of what is published in this turn of the loop
        self._lanes: dict[Topic, Lane] = {}
        self._under_way: dict[str, UnderWay] = {}
        self._unplaced: dict[Topic, deque[UnderWay]] = {}  # by ordered topic, mostly in the order of their numbers
        self._counter = 1
        self._sequence = 0
        self._driver = Driver(name, view.machine, connection.clock, send=self._send_message, notify=self._notified)
        self._driver.failed.add_done_callback(self._driver_failed)
        self._port: Port = broker.attach(name, self._from_broker, self._refused_by_broker)

    def start(self) -> None:
        self._switchboard.attach(self.name, self._driver.deliver)
        self._driver.start()
        self._early.on_final = self._on_final

    def _on_final(self, message: StampedTo) -> None:
        self._driver.deliver(APPLICATION, message)

    async def close(self) -> None:
        """Stop. Events that are not published fail."""
        for unplaced in self._all_unplaced():
            self._fail(unplaced.events, Closed(f"the bus was closed; {_known(unplaced)}"))
        self.end(Closed("the bus was closed before this event was confirmed; whether the broker has it is unknown"))
        self._switchboard.unplug(self.name)
        await self._driver.stop()
        await self._port.close()

    def explain(self) -> list[str]:
        queued: dict[Topic, int] = {}
        for lane in self._lanes.values():
            for pending in lane.queue:
                queued[pending.topic] = queued.get(pending.topic, 0) + 1
        lines = [f"{topic}: {count} events wait for the next message" for topic, count in sorted(queued.items())]
        lines += self._view.explain()
        lines += [f"{topic}: its sequencer refused: {reason}" for topic, reason in sorted(self.refusal.items())]
        return lines

    def _check_topic(self, topic: Topic) -> Topic:
        ordered = self._broker.ordered_topic(check_topic(topic))
        self._home_of(ordered)
        return ordered

    def _check(self, pending: Pending) -> None:
        if pending.size > self._event_bytes_max:
            problem = f"{pending.size} bytes in one event"
            raise InputError("data", problem, f"send at most {self._event_bytes_max}, or split it")
        if self._log is not None:
            pending.seen = self._seen()

    def _send(self, pending: Pending) -> None:
        """Queue it in its lane, for the next message."""
        key = "" if self._view.own_order else pending.topic
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        if self._deadline is None:  # the clock is read once in a turn of the loop
            self._deadline = self._loop.time() + self._timeout_s
            self._loop.call_soon(self._end_turn)
        if self._log is not None:
            pending.sequence = self._sequence
            self._sequence += 1
        lane.queue.append(pending)
        pending.deadline = self._deadline  # `_begin`, without a call for each event
        self.unanswered += 1
        self.room.take(1, pending.size)
        if self._sweeper is None:
            self._sweep_later()
        if not lane.scheduled and lane.under_way is None:
            self._flush_soon(lane)

    def _end_turn(self) -> None:
        self._deadline = None

    def _flush(self, lane: Lane) -> None:
        """Make a message from the gathered events, if none is under way."""
        lane.scheduled = False
        if lane.under_way is not None or not lane.queue or self._closed is not None:
            return
        events = self._next_events(lane.queue)
        message, ids = self._message(events)
        if message.id in self._under_way:
            self._fail(events, InputError("id", f"{message.id!r} is used twice", "give every event its own"))
            self._flush_soon(lane)
            return
        if self._log is not None:
            try:
                self._log.sending(message.id, self.name, events, ids)
            except LogError as error:  # an event that cannot be logged is not sent
                self._fail(events, error)
                self._flush_soon(lane)
                return
        lane.under_way = under_way = UnderWay(lane, message.id, message.topic, events, ids, len(events))
        self._under_way[message.id] = under_way
        self._driver.command(APPLICATION, Publish((message,), self._early.behind()))

    def _flush_soon(self, lane: Lane) -> None:
        """Flush in the next turn of the loop, together with what is published until then."""
        if lane.queue and lane.under_way is None and not lane.scheduled:
            lane.scheduled = True
            self._loop.call_soon(self._flush, lane)

    def _next_events(self, queue: deque[Pending]) -> list[Pending]:
        """From the head, as many events of one topic as fit into one message.

        An event with its own id is sent alone: the broker recognizes a repeat by the id of the *message*.
        """
        events = [queue.popleft()]
        if events[0].id is not None:
            return events
        topic, size, room = events[0].topic, events[0].size, self._pack_bytes_max
        while queue and len(events) < EVENTS_MAX:
            following = queue[0]
            size += following.size
            if following.topic != topic or size > room or following.id is not None:
                break
            events.append(queue.popleft())
        return events

    def _message(self, events: list[Pending]) -> tuple[Message, list[str]]:
        first = self._counter
        self._counter += len(events)
        name = self.name
        ids = [event.id or f"{name}-{first + index}" for index, event in enumerate(events)]
        topic = events[0].topic
        ordered = self._ordered[topic]
        subject = topic if topic != ordered else None
        if len(events) == 1:
            return Message(ids[0], ordered, name, events[0].data, events[0].headers, subject), ids
        headers = {index: event.headers for index, event in enumerate(events) if event.headers is not None}
        payload = pack(first, [event.data for event in events], headers)
        id = derived_id(name, first)
        return Message(id, ordered, name, payload, {BATCH_HEADER: BATCH_VERSION}, subject), ids

    def _notified(self, notices: Sequence[Payload]) -> None:
        for notice in notices:
            match notice:
                case EventStored():
                    under_way = self._under_way.get(notice.event.id)
                    if under_way is not None:
                        self.refusal.pop(notice.event.topic, None)
                        self._settle(under_way, notice.number)
                case EventPlaced():
                    self._place(notice.topic, notice.number)
                case EventLost():
                    self._lose(notice.topic, notice.number)
                case NotTaken():
                    under_way = self._under_way.get(notice.event_id)
                    if under_way is not None:
                        self._settle(under_way, RequestRefused(notice.reason))
                case Refused():
                    if self.refusal.get(notice.topic) != notice.reason:
                        context = (self.name, notice.topic, notice.reason)
                        logger.warning("request for numbers refused: publisher=%s topic=%s reason=%s", *context)
                    self.refusal[notice.topic] = notice.reason

    def _from_broker(self, message: Payload) -> None:
        self._driver.deliver(BROKER, message)

    def _send_message(self, source: Address, target: Address, message: Payload) -> None:
        if target == BROKER:
            self._port.send(message)
        else:
            self._switchboard.send(source, target, message)

    def _refused_by_broker(self, message: Payload, error: SeriatimError) -> None:
        if isinstance(message, Follow):
            self._refused_to_follow(message.topic, error)
            return
        if not isinstance(message, (Append, Write)) or message.event is None:
            return
        under_way = self._under_way.get(message.event.id)
        if under_way is not None:
            reason = RequestRefused(f"the broker does not take events of {under_way.events[0].topic}: {error}")
            self._withdraw(under_way)
            self._settle(under_way, reason)

    def _refused_to_follow(self, topic: Topic, error: SeriatimError) -> None:
        """Whether events have their place cannot be known. Those that wait for it fail; the next one tries again."""
        self._driver.deliver(APPLICATION, Unfollow(topic))
        for unplaced in self._unplaced.pop(topic, ()):
            problem = f"{_known(unplaced)}, and when it gets one cannot be known: {error}"
            self._fail(unplaced.events, RequestRefused(f'{problem}; confirm="stored" does not ask for it'))

    def _withdraw(self, under_way: UnderWay) -> None:
        self._driver.deliver(APPLICATION, Withdraw(under_way.ordered, under_way.id))

    def _settle(self, under_way: UnderWay, outcome: int | SeriatimError) -> None:
        """The message is on the broker under this number, or will not be."""
        del self._under_way[under_way.id]
        lane = under_way.lane
        lane.under_way = None
        if self._log is not None:
            try:
                if isinstance(outcome, int):
                    self._log.settled(under_way.id, number=outcome)
                elif isinstance(outcome, TimedOut):  # whether the broker has it is not known
                    self._log.settled(under_way.id)
                else:
                    self._log.withdraw(under_way.id)
            except LogError as error:  # the row stays without its number
                logger.error("publication logged without its number: publisher=%s reason=%s", self.name, error)
        if isinstance(outcome, SeriatimError):
            self._fail(under_way.events, outcome)
        else:
            under_way.number = outcome
            if self._view.places:
                self._unplaced.setdefault(under_way.ordered, deque()).append(under_way)
            else:
                self._confirm(under_way)
        self._flush_soon(lane)

    def _place(self, topic: Topic, number: int) -> None:
        """Confirm all events of the topic up to this number: they have their place in the order."""
        unplaced = self._unplaced.get(topic)
        while unplaced and unplaced[0].number <= number:
            self._confirm(unplaced.popleft())

    def _lose(self, topic: Topic, number: int) -> None:
        """This number has no place and will get none."""
        for unplaced in [each for each in self._unplaced.get(topic, ()) if each.number == number]:
            self._unplaced[topic].remove(unplaced)
            problem = f"{_known(unplaced)}: a node lost its journal meanwhile, and nobody is notified of this event"
            self._fail(unplaced.events, RequestRefused(f"{problem}; publish it again, under a new id"))

    def _confirm(self, under_way: UnderWay) -> None:
        """The hot path: all events of a message at once."""
        count = size = 0
        number = under_way.number
        for index, event in enumerate(under_way.events):
            if event.deadline is None:
                continue  # it had timed out
            event.deadline = None
            count += 1
            size += event.size
            published = Published(event.topic, number, index, under_way.ids[index])
            receipt = event.receipt
            if isinstance(receipt, Receipts):
                receipt.put(event.place, published)
            elif not receipt.done():
                receipt.set_result(published)
        self.room.give(count, size)
        self._count_answered(count)

    def _fail(self, events: Sequence[Pending], error: SeriatimError) -> None:
        for event in events:
            self._answer(event, error)

    def _answer(self, pending: Pending, answer: Published | SeriatimError) -> bool:
        is_new = super()._answer(pending, answer)
        if is_new:
            self.room.give(1, pending.size)
        return is_new

    def _sweep_due(self, now: float) -> None:
        for topic, unplaced in self._unplaced.items():
            for message in unplaced:
                reason = f"waited {self._timeout_s} s; {_known(message)}{self._why_unplaced(topic)}"
                self._sweep_events(message, now, reason)
            self._unplaced[topic] = deque([message for message in unplaced if message.unanswered])
        for lane in list(self._lanes.values()):
            if lane.under_way is not None:
                self._sweep_message(lane.under_way, now)
            while lane.queue and (lane.queue[0].deadline or 0.0) <= now:
                event = lane.queue.popleft()
                reason = f"waited {self._timeout_s} s for the events of {event.topic} before it; it was not sent"
                self._answer(event, TimedOut(f"{reason}{self._why(event.topic)}"))

    def _sweep_message(self, under_way: UnderWay, now: float) -> None:
        topic = under_way.events[0].topic
        reason = f"waited {self._timeout_s} s for the broker to confirm an event of {topic}"
        self._sweep_events(under_way, now, f"{reason}; whether the broker has it is unknown{self._why(topic)}")
        if under_way.unanswered == 0:
            self._withdraw(under_way)
            self._settle(under_way, TimedOut("given up"))

    def _sweep_events(self, under_way: UnderWay, now: float, reason: str) -> None:
        for event in under_way.events:
            if event.deadline is not None and event.deadline <= now:
                under_way.unanswered -= 1
                self._answer(event, TimedOut(reason))

    def _why_unplaced(self, topic: Topic) -> str:
        """What its place waits for: its home, or a node above it that is not connected to this client either.

        A client does not know how far a stamp must climb, so it names every such node on the way to the root.
        """
        home, *above = self._path_of(topic)
        down = {
            node: line for line in self._network.down() for node in (home, *above) if line.startswith(f"node {node} ")
        }
        waits = self._view.why_unplaced(topic) if self._view.why_unplaced is not None else ""
        reasons = [down[home]] if home in down else [waits] if waits else []
        reasons += [f"{down[node]}, and its place may be decided there" for node in above if node in down]
        return f" ({'; '.join(reasons)})" if reasons else ""

    def _path_of(self, topic: Topic) -> tuple[Node, ...]:
        """The home of a topic and the nodes above it, as far as the root."""
        home = self._home_of(topic)
        return self._cluster.description.tree.paths.get(home, (home,))

    def _why(self, topic: Topic) -> str:
        reason = self.refusal.get(self._ordered[topic])
        if reason:
            return f" (its sequencer refused: {reason})"
        why = self._view.why_not(self._ordered[topic]) if self._view.why_not is not None else ""
        return f" ({why})" if why else ""

    def _driver_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        if not failed.cancelled():
            self.end(Closed(f"publishing has ended: {failed.result()}"))

    def _pending_events(self) -> Iterator[Pending]:
        for lane in self._lanes.values():
            if lane.under_way is not None:
                yield from lane.under_way.events
            yield from lane.queue
        for unplaced in self._all_unplaced():
            yield from unplaced.events

    def _all_unplaced(self) -> Iterator[UnderWay]:
        for unplaced in self._unplaced.values():
            yield from unplaced


def _known(unplaced: UnderWay) -> str:
    """The known facts about an event that has no place yet."""
    topic = unplaced.events[0].topic
    return f"the event is stored as {topic} {unplaced.number}, and has no place in the order yet"
