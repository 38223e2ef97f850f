"""The broker as a machine: what JetStream, Kafka or Redis do for the ordering protocols, and nothing more.

It keeps, per topic, a numbered log with its stamp channel (log mode) and write-once slots (ticket mode), and delivers
writes to its listeners. For all topics together it keeps the order log. It never fails by itself: loss, duplication and
reordering belong to the links around it, crashes to the roles beside it. Simulator and explorer drive it, and so may a
process that needs a broker in memory; it is also the reference for adapters to real ones.

All its state is plain data at `state`, and nothing depends on the insertion order of a dictionary, so an encoded and
decoded copy behaves exactly like the original.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec import Struct, field, structs

from seriatim.model import APPLICATION, Address, Entries, Event, Node, Number, Position, RemoteError, Topic
from seriatim.order import OrderedRange, from_position
from seriatim.protocols import with_broker as say
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.proofs import Proof

ORDER_READ_MAX = 1_000  # ranges in one answer


class Trim(Struct, frozen=True, tag=True):
    """Command to the broker: retention passes, and numbers below `first` are no longer replayed to anybody."""

    topic: Topic
    first: Number


class Erase(Struct, frozen=True, tag=True):
    """Command to the broker: positions `first` … `last` of the log hold no events from now on.

    Positions beyond the log's end are added to it: markers, or records that were aborted.
    """

    topic: Topic
    first: Number
    last: Number


class KeepOrder(Struct, frozen=True, tag=True):
    """Command to the broker: of the order log only positions `first` … `last` are left.

    Retention takes what is before. Who deletes the log, or restores an older copy of it, takes what is behind.
    """

    first: Position
    last: Position


class Slot(Struct):
    """What the first writer put there. No event: a void."""

    number: Number
    entries: Entries
    event: Event | None
    proof: Proof | None = None
    position: Position = 0


class TopicState(Struct):
    """One topic. A topic is used in one of the two modes, so either the log or the slots stay empty."""

    log: list[Event | None] = field(default_factory=list)  # the event at index i has number i + 1; None: a void
    numbers: dict[str, Number] = field(default_factory=dict)  # event id → its position, to know repeats
    stamps: list[say.Stamped] = field(default_factory=list)  # the stamp channel, by first number; ranges do not overlap
    slots: list[Slot] = field(default_factory=list)  # by number
    first_available: Number = 1  # retention: lower numbers are no longer replayed
    discarded_to: Number | None = None  # the topic was removed when its numbers ended here
    watchers: list[Address] = field(default_factory=list)  # all kept sorted, so that equal states look equal
    listeners: list[Address] = field(default_factory=list)
    attendance: dict[Address, Node] = field(default_factory=dict)  # listener → the node whose stages it wants
    followers: list[Address] = field(default_factory=list)  # publishers that want to know how far the stamps are
    home: Address = ""  # the node that stamps it


class OrderLogState(Struct):
    """The order log: each range, and how many positions come before it. What is missing between two ranges is lost."""

    end: Position = 0
    writer: Address = ""  # the root, which is told when the log becomes shorter
    since: int = 0  # the change of shape by which it became the root: earlier ones are refused
    ranges: list[OrderedRange] = field(default_factory=list)
    begins: list[Position] = field(default_factory=list)
    readers: dict[Address, say.ReadOrder] = field(default_factory=dict)  # who waits for something to follow

    @property
    def first(self) -> Position:
        """The first position that it holds; behind the end, if it holds none."""
        return self.begins[0] + 1 if self.begins else self.end + 1

    def read(self, question: say.ReadOrder) -> say.OrderRead:
        """A bounded number of the ranges behind a position that is not the end, up to the next loss."""
        after, ranges, begins = question.after, self.ranges, self.begins
        index = max(0, bisect_right(begins, after) - 1)
        if index < len(ranges) and begins[index] + ranges[index].count <= after:
            index += 1  # what follows is lost
        if index == len(ranges):
            return say.OrderRead(self.end, (), question.version)
        begin = expected = begins[index]
        some: list[OrderedRange] = []
        for each, begins_at in zip(
            ranges[index : index + ORDER_READ_MAX], begins[index : index + ORDER_READ_MAX], strict=True
        ):
            if begins_at != expected:
                break
            some.append(each)
            expected += each.count
        after = max(after, begin)
        return say.OrderRead(after, from_position(some, begin, after), question.version)

    def keep(self, first: Position, last: Position) -> None:
        """Drop all positions outside this range."""
        kept = [
            (begin, each)
            for begin, each in zip(self.begins, self.ranges, strict=True)
            if begin < last and begin + each.count >= first
        ]
        self.begins, self.ranges = [], []
        for begin, each in kept:
            skipped, end = max(0, first - 1 - begin), min(last, begin + each.count)
            self.begins.append(begin + skipped)
            self.ranges.append(OrderedRange(each.topic, each.first + skipped, each.first + end - begin - 1))
        self.end = min(self.end, last)


class BrokerState(Struct):
    """Everything the broker knows."""

    topics: dict[Topic, TopicState] = field(default_factory=dict)
    replays: bool = True  # False: plain publish-subscribe, which ignores `after` and delivers from now on
    markers: int = 0  # voids that follow each event in a log, as where the broker itself writes into it
    echoes: int = 0  # how often a plain message is repeated to each who wants it
    order: OrderLogState = field(default_factory=OrderLogState)
    begun: dict[Address, int] = field(default_factory=dict)  # node → the epoch of the last life that began


class Broker(Machine):
    """Answers every message at once; has no timers and needs no journal."""

    def __init__(self, replays: bool = True, markers: int = 0, echoes: int = 0) -> None:
        self.state = BrokerState(replays=replays, markers=markers, echoes=echoes)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        handler = _HANDLERS.get(type(message))
        if handler is None:
            raise RemoteError(f"{source} sent the broker an unknown message: {type(message).__name__}")
        handler(self, source, message, effects)
        return effects

    def _trim(self, source: Address, message: Trim, effects: Effects) -> None:
        """Make old messages unavailable to readers. Slots stay write-once, and repeated appends are still
        recognised."""
        if source != APPLICATION:
            raise RemoteError(f"{source} wanted to trim {message.topic}; only the broker's operator may")
        state = self._topic(message.topic)
        if message.first > state.first_available:
            state.first_available = message.first
            trimmed = say.Trimmed(message.topic, message.first)
            effects.send.extend([(address, trimmed) for address in (*state.watchers, *state.listeners)])

    def _topic(self, topic: Topic) -> TopicState:
        state = self.state.topics.get(topic)
        if state is None:
            state = self.state.topics[topic] = TopicState()
        return state

    # ── log mode ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, source: Address, message: say.Append, effects: Effects) -> None:
        event = message.event
        state = self._topic(event.topic)
        number = state.numbers.get(event.id)
        if number is None:
            state.log.append(event)
            number = state.numbers[event.id] = len(state.log)
            grown = say.Grown(event.topic, number)
            effects.send.extend([(watcher, grown) for watcher in state.watchers])
            delivered = say.Delivered(event.topic, number, None, event)
            effects.send.extend([(listener, delivered) for listener in state.listeners])
            self._add_voids(event.topic, state, self.state.markers, effects)
        effects.send.append((source, say.Appended(event.topic, event.id, number)))

    def _erase(self, source: Address, message: Erase, effects: Effects) -> None:
        """A subscriber that already has an event keeps it. One that listens later is told that there is none."""
        if source != APPLICATION:
            raise RemoteError(f"{source} wanted to erase from {message.topic}; only the broker's operator may")
        state = self._topic(message.topic)
        for number in range(message.first, min(message.last, len(state.log)) + 1):
            state.log[number - 1] = None
        self._add_voids(message.topic, state, message.last - len(state.log), effects)

    def _add_voids(self, topic: Topic, state: TopicState, count: int, effects: Effects) -> None:
        if count > 0:
            first = len(state.log) + 1
            state.log.extend([None] * count)
            effects.send.extend([(watcher, say.Grown(topic, len(state.log))) for watcher in state.watchers])
            voids = say.Voids(topic, first, len(state.log))
            effects.send.extend([(listener, voids) for listener in state.listeners])

    def _discard(self, source: Address, message: say.Discard, effects: Effects) -> None:
        """Drop what there is of a topic, once: what comes after a repeat belongs to the topic that follows."""
        if self._is_refused(source, message.epoch, effects):
            return
        topic, last = message.topic, message.last
        state = self._topic(topic)
        if state.discarded_to is None or state.discarded_to < last:
            if len(state.log) > last:
                effects.send.append((source, say.Grown(topic, len(state.log))))
                return
            state.discarded_to = last
            state.first_available = last + 1
            state.log[:] = [None] * len(state.log)
            state.numbers.clear()
            state.slots = [slot for slot in state.slots if slot.number > last]
            state.watchers = [address for address in state.watchers if address != source]
            effects.send.extend([(address, say.Trimmed(topic, last + 1)) for address in state.listeners])
        effects.send.append((source, say.Discarded(topic, last)))

    def _renew(self, source: Address, message: say.Renew, effects: Effects) -> None:
        """The log goes on at `first`, without what was before, if that may be dropped. A repeat changes nothing."""
        state, last = self._topic(message.topic), message.first - 1
        dropped = sum(event is not None for event in state.log[:last])
        if dropped and not message.drop:
            return
        state.log[:last] = [None] * last
        if state.first_available < message.first:
            state.first_available = message.first
            effects.send.extend([(each, say.Trimmed(message.topic, message.first)) for each in state.listeners])
        effects.send.append((source, say.Renewed(message.topic, message.first, dropped)))

    def _watch(self, source: Address, message: say.Watch, effects: Effects) -> None:
        for topic in sorted(message.topics):
            state = self._topic(topic)
            _add(state.watchers, source)
            if state.first_available > 1:
                effects.send.append((source, say.Trimmed(topic, state.first_available)))
            effects.send.append((source, say.Grown(topic, len(state.log))))  # also 0: a home waits for the answer

    def _begin(self, source: Address, message: say.Begin, effects: Effects) -> None:
        latest = self.state.begun[source] = max(message.epoch, self.state.begun.get(source, 0))
        order, topics = self.state.order, sorted(self.state.topics.items())
        stamped = {topic: each.stamps[-1].last for topic, each in topics if each.stamps and each.home == source}
        ordered = order.end if message.orders and order.writer == source else 0
        since = order.since if message.orders else 0
        begun = say.Begun(message.epoch, latest, stamped, ordered, since)
        effects.send.append((source, self._with_details(begun, message) if message.heals else begun))

    def _with_details(self, begun: say.Begun, message: say.Begin) -> say.Begun:
        """What a node needs that has lost its journal, and that only its stamps and the order log can tell."""
        named: dict[Topic, Number] = {}
        holes: dict[Topic, list[tuple[Number, Number]]] = {}
        lost: dict[Topic, list[tuple[Number, Number]]] = {}
        ahead: dict[Topic, Number | None] = {}
        for topic, state in sorted(self.state.topics.items()):
            known = 0
            for stamp in state.stamps:
                for other, number in stamp.entries.items():
                    named[other] = max(number, named.get(other, 0))
                if stamp.first > known + 1:
                    holes.setdefault(topic, []).append((known + 1, stamp.first - 1))
                known = stamp.last
                if stamp.is_lost:
                    lost.setdefault(topic, []).append((stamp.first, stamp.last))
                ahead[topic] = max(stamp.ahead, ahead.get(topic, 0) or 0) if stamp.ahead else None
        placed = {each.topic: each.last for each in self.state.order.ranges} if message.orders else {}
        kept = {topic: each.stamps[-1].last if each.stamps else 0 for topic, each in self.state.topics.items()}
        return structs.replace(begun, kept=kept, named=named, holes=holes, placed=placed, lost=lost, ahead=ahead)

    def _is_refused(self, source: Address, epoch: int, effects: Effects) -> bool:
        """Whether a later life of this node has begun. The earlier one is told."""
        latest = self.state.begun.get(source, 0)
        if is_refused := epoch < latest:
            effects.send.append((source, say.Begun(epoch, latest)))
        return is_refused

    def _unwatch(self, source: Address, message: say.Unwatch, effects: Effects) -> None:
        watchers = self._topic(message.topic).watchers
        if source in watchers:
            watchers.remove(source)
        effects.send.append((source, say.Unwatched(message.topic, message.move)))

    def _stamped(self, source: Address, message: say.Stamped, effects: Effects) -> None:
        """Keep a stamp once. A home that restarts repeats what it may not have sent; the repeat changes nothing."""
        if self._is_refused(source, message.epoch, effects):
            return
        state = self._topic(message.topic)
        state.home = source
        if not 1 <= message.first <= message.last <= len(state.log):
            raise RemoteError(
                f"{source} stamped {message.topic} {message.first}…{message.last}, but the log has 1…{len(state.log)}"
            )
        index = bisect_left(state.stamps, message.first, key=_last)
        known = state.stamps[index] if index < len(state.stamps) else None
        if known is None or message.last < known.first:
            state.stamps.insert(index, message)
            effects.send.extend([(listener, message) for listener in state.listeners])
            stamped_to = say.StampedTo(message.topic, state.stamps[-1].last, state.stamps[-1].era)
            effects.send.extend([(follower, stamped_to) for follower in state.followers])
        elif (known.first, known.last) != (message.first, message.last):
            raise RemoteError(
                f"{source} stamped {message.topic} {message.first}…{message.last}, "
                f"but {known.first}…{known.last} has its stamp"
            )
        effects.send.append((source, say.Kept(message.topic, message.first)))

    def _staged(self, source: Address, message: say.Staged, effects: Effects) -> None:
        """Handed on, and kept nowhere."""
        attendance = self._topic(message.topic).attendance
        for listener in sorted(name for name, node in attendance.items() if node == message.node):
            effects.send.extend([(listener, message)] * (1 + self.state.echoes))

    def _attend(self, source: Address, message: say.Attend, effects: Effects) -> None:
        attendance = self._topic(message.topic).attendance
        if message.node:
            attendance[source] = message.node
        else:
            attendance.pop(source, None)

    def _follow(self, source: Address, message: say.Follow, effects: Effects) -> None:
        """Answered also if there is no stamp yet."""
        state = self._topic(message.topic)
        _add(state.followers, source)
        last, era = (state.stamps[-1].last, state.stamps[-1].era) if state.stamps else (0, 0)
        effects.send.append((source, say.StampedTo(message.topic, last, era)))

    def _unfollow(self, source: Address, message: say.Unfollow, effects: Effects) -> None:
        followers = self._topic(message.topic).followers
        if source in followers:
            followers.remove(source)

    # ── ticket mode ───────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, source: Address, message: say.Write, effects: Effects) -> None:
        if message.number < 1:
            raise RemoteError(f"{source} wrote to slot {message.number} of {message.topic}; numbers start at 1")
        state = self._topic(message.topic)
        index = bisect_left(state.slots, message.number, key=_number)
        if index == len(state.slots) or state.slots[index].number != message.number:
            slot = Slot(message.number, message.entries, message.event, message.proof, message.position)
            state.slots.insert(index, slot)
            effects.send.extend([(listener, _delivered(message.topic, slot)) for listener in state.listeners])
        slot = state.slots[index]
        winner = None if slot.event is None else slot.event.id
        effects.send.append((source, say.Written(message.topic, message.number, winner, slot.proof)))

    # ── subscribers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _listen(self, source: Address, message: say.Listen, effects: Effects) -> None:
        """Start, or start again: a repeat is answered in full, since the first answer may have been lost."""
        topic = message.topic
        state = self._topic(topic)
        _add(state.listeners, source)
        effects.send.append((source, say.Listening(topic, message.version)))
        if message.after is None or not self.state.replays:
            return
        after = message.after
        if after < state.first_available - 1:
            after = state.first_available - 1
            effects.send.append((source, say.Trimmed(topic, state.first_available)))
        elif message.is_kept and not _keeps(state, after + 1):
            effects.send.append((source, say.Trimmed(topic, after + 2)))
        self._replay(source, topic, after + 1, len(state.log), effects)
        for stamped in state.stamps[bisect_right(state.stamps, after, key=_last) :]:
            effects.send.append((source, stamped))
        for slot in state.slots[bisect_right(state.slots, after, key=_number) :]:
            effects.send.append((source, _delivered(topic, slot)))

    def _replay(self, source: Address, topic: Topic, first: Number, last: Number, effects: Effects) -> None:
        """Deliver these positions of a log."""
        log, number = self._topic(topic).log, first
        while number <= last:
            event, begin = log[number - 1], number
            number += 1
            if event is not None:
                effects.send.append((source, say.Delivered(topic, begin, None, event)))
                continue
            while number <= last and log[number - 1] is None:
                number += 1
            effects.send.append((source, say.Voids(topic, begin, number - 1)))

    def _fetch(self, source: Address, message: say.Fetch, effects: Effects) -> None:
        """What is there of these numbers. An empty slot is left out: whoever waits for it asks again."""
        topic, first = message.topic, message.first
        state = self._topic(topic)
        if first < state.first_available:
            effects.send.append((source, say.Trimmed(topic, state.first_available)))
            first = state.first_available
        self._replay(source, topic, first, min(message.last, len(state.log)), effects)
        for slot in state.slots[bisect_left(state.slots, first, key=_number) :]:
            if slot.number > message.last:
                break
            effects.send.append((source, _delivered(topic, slot)))

    def _unlisten(self, source: Address, message: say.Unlisten, effects: Effects) -> None:
        state = self._topic(message.topic)
        state.attendance.pop(source, None)
        if source in state.listeners:
            state.listeners.remove(source)

    # ── the order log ─────────────────────────────────────────────────────────────────────────────────────────────

    def _ordered(self, source: Address, message: say.Ordered, effects: Effects) -> None:
        """Keep what follows the end, once. A repeat is only answered.

        The root continues behind what was kept. If the log ends before that, it was deleted or is an older copy: what
        is missing between is lost, and whoever reads is told.
        """
        order = self.state.order
        if self._is_refused(source, message.epoch, effects):
            return
        if self._is_deposed(message):
            latest = self.state.begun.get(source, message.epoch)
            effects.send.append((source, say.Begun(message.epoch, latest, since=order.since)))
            return
        order.writer, order.since = source, max(order.since, message.since)
        if message.after > order.end:
            effects.send.append((source, say.OrderKept(order.end)))
        if message.after > order.end or (message.after == order.end and message.ranges):
            order.end = message.after
            for each in message.ranges:
                order.begins.append(order.end)
                order.ranges.append(each)
                order.end += each.count
            waiting, order.readers = order.readers, {}
            for reader, question in sorted(waiting.items()):
                self._read_order(reader, question, effects)
        effects.send.append((source, say.OrderKept(order.end)))

    def _is_deposed(self, message: say.Ordered) -> bool:
        """Whether there has been another root since the one that writes this."""
        return message.since < self.state.order.since

    def _cede(self, source: Address, message: say.Cede, effects: Effects) -> None:
        if not self._is_refused(source, message.epoch, effects):
            self.state.order.since = max(self.state.order.since, message.since)
            effects.send.append((source, say.Ceded(message.since, message.epoch)))

    def _keep_order(self, source: Address, message: KeepOrder, effects: Effects) -> None:
        if source != APPLICATION:
            raise RemoteError(f"{source} wanted to cut the order log; only the broker's operator may")
        order, before = self.state.order, self.state.order.end
        order.keep(message.first, message.last)
        if order.end < before and order.writer:
            effects.send.append((order.writer, say.OrderKept(order.end)))

    def _read_order(self, source: Address, message: say.ReadOrder, effects: Effects) -> None:
        """Answer with what follows; if nothing does, as soon as something does. A reader has one question open."""
        order = self.state.order
        if message.after < order.end:
            effects.send.append((source, order.read(message)))
        else:
            order.readers[source] = message


def _delivered(topic: Topic, slot: Slot) -> say.Delivered:
    return say.Delivered(topic, slot.number, slot.entries, slot.event, slot.proof, slot.position)


def _keeps(state: TopicState, number: Number) -> bool:
    """Whether there is a stamp of this number, or something in its slot."""
    stamp, slot = bisect_left(state.stamps, number, key=_last), bisect_left(state.slots, number, key=_number)
    is_stamped = stamp < len(state.stamps) and state.stamps[stamp].first <= number
    return is_stamped or (slot < len(state.slots) and state.slots[slot].number == number)


def _add(addresses: list[Address], address: Address) -> None:
    index = bisect_left(addresses, address)
    if index == len(addresses) or addresses[index] != address:
        addresses.insert(index, address)


_last, _number = attrgetter("last"), attrgetter("number")

_HANDLERS: dict[type, Callable[[Broker, Address, Any, Effects], None]] = {
    say.Append: Broker._append,
    say.Watch: Broker._watch,
    say.Discard: Broker._discard,
    say.Begin: Broker._begin,
    say.Cede: Broker._cede,
    say.Unwatch: Broker._unwatch,
    say.Renew: Broker._renew,
    say.Stamped: Broker._stamped,
    say.Staged: Broker._staged,
    say.Attend: Broker._attend,
    say.Follow: Broker._follow,
    say.Unfollow: Broker._unfollow,
    Trim: Broker._trim,
    Erase: Broker._erase,
    say.Write: Broker._write,
    say.Listen: Broker._listen,
    say.Unlisten: Broker._unlisten,
    say.Fetch: Broker._fetch,
    say.Ordered: Broker._ordered,
    say.ReadOrder: Broker._read_order,
    KeepOrder: Broker._keep_order,
}
