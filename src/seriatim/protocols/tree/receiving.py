"""A subscriber's events: admitted when they have their stamp, held until their turn, handed over in order.

Number n of topic T is done after n - 1 of T, and after everything its stamp names of the topics held here; that is the
hold-back queue's work (order/holdback.py). In ticket mode event and stamp arrive together. In log mode the broker
delivers events by position and stamps of ranges on a channel of their own; an event is admitted when it has both.

In ticket mode anybody who may publish can write anything into a stamp. So what is not proven by a home (proofs.py), or
lies too far ahead of what is done here, is rejected: it is counted and reported, and then treated as not received.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Set
from itertools import chain
from operator import attrgetter

from seriatim.model import BROKER, Address, Entries, Event, Gap, Node, Notification, Number, Position, Topic
from seriatim.order import HoldBack, Lane, Released, SequencingTree, level
from seriatim.protocols.machine import Effects
from seriatim.protocols.proofs import is_proven
from seriatim.protocols.tree.messages import Done, Locate
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import Arrived, Holding, Reading, SubscriberState
from seriatim.protocols.with_broker import Attend, Delivered, Rejected, Staged, Stamped, StampedTo, Voids

STAGES_AHEAD_MAX = 1_024  # ranges per topic that may wait for their events: who lags behind waits for finished stamps
PLACED_REMEMBERED = 256  # stamps per topic that tell positions, before those that are used up are forgotten
LOST = "lost in a node that has lost its journal"  # the reason of a gap
MISSING_REMEMBERED = 1_024  # skipped stretches per topic that a late event can still be told from a repeat by


class Receiving:
    """The part of a subscriber that takes events and notifies. `state` is all it knows."""

    holdback_type: type[HoldBack] = HoldBack

    def __init__(
        self, tree: SequencingTree, name: Address, options: TreeOptions, state: SubscriberState | None = None
    ) -> None:
        self.name = name
        self.options = options
        self.state = state if state is not None else SubscriberState()
        self.tree = tree.view(self.state.moves)
        bounded = options.buffer_max is not None or options.time_to_live_ms is not None
        self._queue = self.holdback_type(self.state.lanes, bounded)
        self._lease_ms = None if options.durable else options.subscriber_lease_ms  # a durable one is never forgotten
        self._levels: dict[Node, Node] = {}  # by home, of the topics held now
        self._moved: int | None = None  # the latest move of a topic held now
        self._unstamped = sum(len(holding.unstamped) for holding in self.state.holdings.values())

    @property
    def topics(self) -> frozenset[Topic]:
        """What is held, or being joined."""
        return frozenset(self.state.holdings)

    @property
    def waiting(self) -> int:
        """Events that are here and cannot be notified yet."""
        return self._queue.size + self._unstamped

    def oldest_since(self) -> float | None:
        """When the first of these came; None: there are none. Looks at all of them."""
        held = (each.since for lane in self.state.lanes.values() for each in lane.held.values())
        unstamped = (each.since for holding in self.state.holdings.values() for each in holding.unstamped.values())
        return min(chain(held, unstamped), default=None)

    def blocked_topics(self) -> frozenset[Topic]:
        """Topics whose next event is here and waits for something else: more events of them would not help."""
        holdings = self.state.holdings
        lanes = ((topic, lane, lane.done + 1) for topic, lane in self.state.lanes.items() if lane.open)
        return frozenset(topic for topic, lane, n in lanes if n in lane.held or n in holdings[topic].unstamped)

    def _is_home(self, source: Address, topic: Topic) -> bool:
        return self.tree.knows(topic) and source == self.tree.home(topic)

    def _on_delivered(self, message: Delivered, now: float, effects: Effects) -> None:
        holding = self.state.holdings.get(message.topic)
        if holding is None:
            return
        if self.state.reading is not None:
            self._on_fetched(self.state.reading, message, effects)
            return
        lane = self.state.lanes[message.topic]
        if not self._is_proven(message):
            self._reject(message, "its stamp is not proven by a sequencer", effects)
            if lane.open and message.number == lane.done + 1:
                holding.forged = message.number
        elif not lane.open or self._names_joining(message):
            holding.early.setdefault(message.number, Arrived(message, now))
        elif message.number <= lane.done:
            self._on_late(holding, message)
        elif (jump := self._jump(message, lane)) is not None:
            self._reject(message, jump, effects)
            self.state.beyond.add(message.topic)
        elif message.entries is not None:
            position = self._believed_position(message)
            self._admit(message.topic, message.number, message.entries, message.event, now, position=position)
        elif message.number <= holding.stamped_to:
            entries, position = self._take_stamp(holding, message.number), position_of(holding, message.number)
            self._admit(message.topic, message.number, entries, message.event, now, position=position)
        else:
            self._unstamped += message.number not in holding.unstamped
            holding.unstamped.setdefault(message.number, Arrived(message, now))

    def _on_fetched(self, reading: Reading, message: Delivered, effects: Effects) -> None:
        raise NotImplementedError  # history.py

    def _on_fetched_voids(self, reading: Reading, message: Voids) -> None:
        raise NotImplementedError  # history.py

    def _is_proven(self, message: Delivered) -> bool:
        """Whether number, entries and publisher are what a home granted; where stamps are not proven, they are."""
        key = self.options.stamp_key
        if key is None:
            return True
        if message.proof is None or message.entries is None:
            return False
        publisher = message.event.publisher if message.event is not None else None
        return is_proven(key, message.proof, message.topic, message.number, publisher, message.entries)

    def _believed_position(self, message: Delivered) -> Position:
        """The place that a publisher wrote with its event. No proof covers it: where stamps are proven, 0."""
        return message.position if self.options.stamp_key is None else 0

    def _names_joining(self, message: Delivered) -> bool:
        """Whether it must wait for the start of a topic before anybody can say how far ahead of it this is."""
        if self.options.jump_max is None or self.state.changing is None or message.entries is None:
            return False
        lanes = self.state.lanes
        return any(other in lanes and not lanes[other].open for other in message.entries)

    def _jump(self, message: Delivered, lane: Lane) -> str | None:
        """A sentence that says that a message is too far ahead to be believed. None: it is not."""
        jump_max = self.options.jump_max
        if jump_max is None or message.entries is None:
            return None
        if message.number - lane.done > jump_max:
            return f"{message.number} is more than {jump_max} beyond what is done"
        for other, needed in message.entries.items():
            known = self.state.lanes.get(other)
            if known is not None and needed - known.done > jump_max:
                return f"its stamp names {other} {needed}, more than {jump_max} beyond what is done"
        return None

    def _reject(self, message: Delivered, reason: str, effects: Effects) -> None:
        """Drop it and tell: it has not come, and if something waits for it, it is asked for like anything missing."""
        self.state.rejected += 1
        publisher = message.event.publisher if message.event is not None else None
        effects.notify.append(Rejected(message.topic, message.number, publisher, reason))

    def _on_staged(self, message: Staged, now: float, effects: Effects) -> None:
        """A stamp as far as it is. It may come twice, late or never: the finished one always comes."""
        holding = self.state.holdings.get(message.topic)
        if message.moves > self.state.moves.number:
            self._locate(message.moves, self.tree.home(message.topic), effects)
        if holding is None or not self._is_enough(message):
            return
        if message.final:
            self._finish_to(message.topic, holding, message.last, effects)
        if message.first not in holding.stamps and len(holding.stamps) < STAGES_AHEAD_MAX:
            numbers = message.topic, message.first, message.last
            self._doubt(message, holding, effects)
            self._take_stamps(Stamped(*numbers, message.entries, message.epoch, message.position, era=message.era), now)

    def _is_enough(self, message: Staged) -> bool:
        """Whether no topic held here, or just being joined, meets this one above the node that tells.

        Nor need one that is joined later: it begins behind whatever this number still collects of it. Where topics meet
        is what the home believed when it issued the number. If that may be somewhere else, only the finished stamp is
        enough.
        """
        if message.final:
            return True
        level = self._level(self.tree.home(message.topic))
        return message.node in self.tree.paths[level] and self._is_map_of(message)

    def _is_map_of(self, message: Staged) -> bool:
        """Whether the topics held here were all homed where they are now."""
        if self._moved is None:
            self._moved = max((self.tree.moved(topic) for topic in self.state.holdings), default=0)
        return self._moved <= message.moves <= self.state.moves.number

    def _locate(self, moves: int, node: Node, effects: Effects) -> None:
        """Ask about a move that somebody has named, unless that is asked already."""
        if not self.state.locating:
            effects.send.append((node, Locate(self.state.moves.number)))
        self.state.locating = max(self.state.locating, moves)

    def _level(self, home: Node) -> Node:
        """The highest node where a topic of this home meets one held here. One that is being joined counts as held."""
        known = self._levels.get(home)
        if known is None:
            known = self._levels[home] = level(self.tree, home, self.state.holdings)
        return known

    def _attend(self, topics: Iterable[Topic], effects: Effects) -> None:
        """Tell the broker whose stages are enough for these topics, where that is news.

        What is finished at its home has no stages. A stage that was taken before a change is enough after it.
        """
        if not self.options.tells_stages:
            return
        for topic in sorted(topics):
            home = self.tree.home(topic)
            node = self._level(home) if home != self.tree.root else ""
            if node != self.state.attending.get(topic, ""):
                self.state.attending[topic] = node
                effects.send.append((BROKER, Attend(topic, node)))

    def _on_stamped(self, message: Stamped, now: float, effects: Effects) -> None:
        holding = self.state.holdings.get(message.topic)
        if message.moves > self.state.moves.number and self.options.tells_stages:
            self._locate(message.moves, self.tree.home(message.topic), effects)
        if holding is not None and self.state.lanes[message.topic].open:
            self._doubt(message, holding, effects)
            if message.is_lost:
                self._lose(message, holding, now)
            self._finish_to(message.topic, holding, message.last, effects)
            self._take_stamps(message, now)

    def _doubt(self, message: Stamped | Staged, holding: Holding, effects: Effects) -> None:
        """An era has begun since the home knew us: it may have lost its journal. Ask, and tell nothing before."""
        raise NotImplementedError  # subscribing.py

    def _lose(self, message: Stamped, holding: Holding, now: float) -> None:
        """Nobody is told of these numbers any more: what is held of them, because of a stage, is dropped."""
        topic, lane = message.topic, self.state.lanes[message.topic]
        first = max(message.first, lane.done + 1)
        if first > message.last:
            return
        for number in _between(holding.unstamped, first, message.last):
            arrived = holding.unstamped.pop(number)
            if arrived.last > message.last:  # voids, also of numbers beyond
                rest = message.last + 1
                holding.unstamped[rest] = Arrived(Delivered(topic, rest, None, None), arrived.since, arrived.last)
            else:
                self._unstamped -= 1
        staged = min(message.last, holding.stamped_to)
        if first <= staged:  # it was told in stages, and is not done
            holding.lost.append((first, staged))
            self._queue.drop(topic, first, staged)
            self._done(self._queue.admit(topic, first, {}, None, now, staged))
        if staged < message.last:
            holding.lost.append((max(first, staged + 1), message.last))

    def _is_lost(self, topic: Topic, number: Number) -> bool:
        lost = self.state.holdings[topic].lost
        return bool(lost) and any(first <= number <= last for first, last in lost)

    def _finish_to(self, topic: Topic, holding: Holding, last: Number, effects: Effects) -> None:
        """The stamps up to here are finished. One with a hole before it counts: what is missing there has its place
        too, since a home issues ranges in the order of their numbers."""
        holding.final_to = max(holding.final_to, last)
        early = self.state.early.get(topic) if self.state.early else None
        if early is not None:
            effects.notify.append(StampedTo(topic, last))
            if early <= last:
                del self.state.early[topic]

    def _take_stamps(self, message: Stamped, now: float) -> None:
        holding = self.state.holdings[message.topic]
        if not self.state.lanes[message.topic].open or message.last <= holding.stamped_to:
            return
        if message.first <= holding.stamped_to:  # resumed in the middle of a range: its entries are done
            message = _rest_of(message, holding.stamped_to + 1)
        holding.stamps[message.first] = message
        while (following := holding.stamps.get(holding.stamped_to + 1)) is not None:
            holding.stamped_to = following.last
            if following.position:
                holding.placed.append(following)
            if following.is_lost:
                first = max(following.first, self.state.lanes[message.topic].done + 1)
                self._admit(message.topic, first, {}, None, now, following.last)
                continue
            for number in _between(holding.unstamped, following.first, following.last):
                arrived = holding.unstamped.pop(number)
                self._unstamped -= 1
                if arrived.last:
                    self._take_voids(message.topic, number, arrived.last, now)
                else:
                    entries, event = self._take_stamp(holding, number), arrived.delivered.event
                    self._admit(message.topic, number, entries, event, now, position=position_of(holding, number))
        placed, few = holding.placed, PLACED_REMEMBERED // 2
        if len(placed) > PLACED_REMEMBERED and placed[few].last <= self.state.lanes[message.topic].done:
            del placed[:few]

    def _on_voids(self, message: Voids, now: float) -> None:
        """Note the voids of a topic that is open. Until its start is known nothing is kept: a subscriber that joins
        listens again then."""
        if self.state.reading is not None:
            self._on_fetched_voids(self.state.reading, message)
            return
        lane = self.state.lanes.get(message.topic)
        if lane is None or not lane.open:
            return
        first, unstamped = max(message.first, lane.done + 1), self.state.holdings[message.topic].unstamped
        while first <= message.last and (here := lane.held.get(first) or unstamped.get(first)) is not None:
            first = max(first, here.last) + 1
        if first <= message.last:
            self._take_voids(message.topic, first, message.last, now)

    def _take_voids(self, topic: Topic, first: Number, last: Number, now: float) -> None:
        """Admit voids as far as they are stamped, in one stretch for each stamp; the rest waits for its stamps."""
        holding = self.state.holdings[topic]
        stamped = min(last, holding.stamped_to)
        if first <= stamped:
            begins = [first, *_between(holding.stamps, first + 1, stamped)]
            for begin, following in zip(begins, [*begins[1:], stamped + 1], strict=True):
                self._admit(topic, begin, self._take_stamp(holding, begin), None, now, following - 1)
        if stamped < last:
            rest = max(first, stamped + 1)
            self._unstamped += rest not in holding.unstamped
            holding.unstamped.setdefault(rest, Arrived(Delivered(topic, rest, None, None), now, last))

    def _take_stamp(self, holding: Holding, number: Number) -> Entries:
        stamp = holding.stamps.pop(number, None)
        return stamp.entries if stamp is not None else {}

    def _admit(
        self,
        topic: Topic,
        number: Number,
        entries: Entries,
        event: Event | None,
        now: float,
        last: Number = 0,
        position: Position = 0,
    ) -> None:
        holding = self.state.holdings[topic]
        if number in self.state.lanes[topic].held or (event is not None and self._is_lost(topic, number)):
            return
        if holding.floor and number == holding.start + 1:
            entries = {**entries, **{t: max(n, entries.get(t, 0)) for t, n in holding.floor.items()}}
        self._done(self._queue.admit(topic, number, entries, event, now, last, position))
        if self.options.buffer_max is not None:
            while self._queue.size > self.options.buffer_max and (forced := self._queue.force_oldest()):
                self._done(forced, "the buffer was full")

    def _done(self, released: list[Released], why_skipped: str = "skipped") -> None:
        for each in released:
            held = each.held
            holding = self.state.holdings[each.topic]
            holding.missing_since = None
            if held is None:
                holding.skipped.append((each.skipped_from, each.number))
                del holding.skipped[:-MISSING_REMEMBERED]
                self.state.ready.append(Gap(each.topic, each.skipped_from, each.number, why_skipped))
            elif held.event is None and holding.lost and (lost := _ending(holding.lost, each.number)) is not None:
                holding.lost.remove(lost)
                self.state.ready.append(Gap(each.topic, *lost, LOST))
            elif held.event is not None:
                early = self.options.tells_stages and each.number > holding.final_to
                if early:
                    self.state.early[each.topic] = each.number
                position = held.position or None
                notification = Notification(held.event, each.number, held.entries, position=position, early=early)
                self.state.ready.append(notification)

    def _on_late(self, holding: Holding, message: Delivered) -> None:
        """A number that is done: a repeat, unless we had given up on it."""
        for index, (first, last) in enumerate(holding.skipped):
            if first <= message.number <= last:
                rest = [(first, message.number - 1), (message.number + 1, last)]
                holding.skipped[index : index + 1] = [(a, b) for a, b in rest if a <= b]
                if message.event is not None:
                    entries = message.entries or {}
                    position = self._believed_position(message) or None
                    late = Notification(message.event, message.number, entries, True, position)
                    self.state.ready.append(late)
                return

    def _flush(self, now: float, effects: Effects) -> None:
        """Notify, unless some node may have forgotten us: then what is ready might be in the wrong order."""
        if not self.state.ready or self._lapsed(now) or self.state.doubts:
            return
        if self.options.durable:
            effects.persist.extend(Done(*told(each), early=_is_early(each)) for each in self.state.ready)
        effects.notify.extend(self.state.ready)
        self.state.ready.clear()

    def _forget_ready(self, topics: Set[Topic]) -> None:
        """Drop events of left topics that were kept back while a lease had lapsed."""
        self.state.ready = [each for each in self.state.ready if told(each)[0] not in topics]

    def _lapsed(self, now: float) -> bool:
        lease = self._lease_ms
        return lease is not None and any(confirmed + lease < now for confirmed in self.state.confirmed.values())


def _between(numbers: Collection[Number], first: Number, last: Number) -> list[Number]:
    """The numbers from `first` to `last`, in order. Costs the smaller of the range and the collection."""
    if last - first < len(numbers):
        return [number for number in range(first, last + 1) if number in numbers]
    return sorted(number for number in numbers if first <= number <= last)


def _is_early(each: Notification | Gap) -> bool:
    return isinstance(each, Notification) and each.early


def _rest_of(stamped: Stamped, first: Number) -> Stamped:
    """The stamp of the numbers from `first` on, whose entries are done."""
    position = stamped.position + first - stamped.first if stamped.position else 0
    return Stamped(
        stamped.topic, first, stamped.last, {}, stamped.epoch, position, era=stamped.era, is_lost=stamped.is_lost
    )


def _ending(stretches: list[tuple[Number, Number]], last: Number) -> tuple[Number, Number] | None:
    return next((each for each in stretches if each[1] == last), None)


def position_of(holding: Holding, number: Number) -> Position:
    """Log mode: the place of a stamped number in the order of all events; 0: not known."""
    placed = holding.placed
    if not placed:
        return 0
    stamped = placed[-1]
    if number < stamped.first:
        stamped = placed[max(0, bisect_right(placed, number, key=_first) - 1)]
    return stamped.position + number - stamped.first if stamped.first <= number <= stamped.last else 0


_first = attrgetter("first")


def told(each: Notification | Gap) -> tuple[Topic, Number]:
    """The topic of a notification or gap, and the last number that it covers."""
    return (each.topic, each.last) if isinstance(each, Gap) else (each.event.topic, each.number)


def told_from(each: Notification | Gap) -> Number:
    """The first number that this tells the application of."""
    return each.first if isinstance(each, Gap) else each.number
