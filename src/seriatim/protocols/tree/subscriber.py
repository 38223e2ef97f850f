"""A subscriber: holds topics, changes them while events flow, and notifies in order.

Theory of operation
-------------------
*Notifying* is the hold-back queue's work (order/holdback.py): number n of topic T is done after n - 1 of T, and after
everything its stamp names of the topics held here. In ticket mode event and stamp arrive together. In log mode the
broker delivers events by position and stamps of ranges on a channel of their own; an event is admitted when it has
both.

*Changing* is one change at a time; later ones wait. What is removed is gone at once. What is added is joined: the
subscriber listens on the broker (where that cannot be done afterwards), asks each new topic's home, and is told after
which number the topic starts and which floor its first event must wait for. Until then whatever names the topic waits.

*Gaps.* A number that does not come is asked for at its home. The answer decides: wait on, take the void, listen again,
or (lost for good) rejoin the topic and report the gap. On unreliable brokers events are held for a bounded time and in
a bounded number; whatever comes too late is notified at once, tagged `out_of_order`.
"""

from collections.abc import Iterable, Set

from seriatim.model import (
    APPLICATION,
    BROKER,
    Address,
    Entries,
    Event,
    Gap,
    InputError,
    Notification,
    Number,
    Topic,
)
from seriatim.order import HoldBack, Released, SequencingTree
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree.epochs import is_current
from seriatim.protocols.tree.messages import (
    Answer,
    Began,
    Change,
    Changed,
    Delivered,
    Done,
    Inquire,
    Joined,
    Listen,
    Listening,
    Refresh,
    Refreshed,
    Refused,
    Stamped,
    Subscribe,
    Trimmed,
    Unlisten,
    Update,
    Updated,
)
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.subscriber_state import Arrived, Changing, Holding, SubscriberState, Waiting

MISSING_REMEMBERED = 1_024  # skipped stretches per topic that a late event can still be told from a repeat by


class Subscriber:
    """The machine of one subscriber. Its name must not be used again by one that has forgotten what this one saw."""

    holdback_type: type[HoldBack] = HoldBack

    def __init__(
        self, tree: SequencingTree, name: Address, options: TreeOptions, state: SubscriberState | None = None
    ) -> None:
        self.tree = tree
        self.name = name
        self.options = options
        self.state = state if state is not None else SubscriberState()
        bounded = options.buffer_max is not None or options.time_to_live_ms is not None
        self._queue = self.holdback_type(self.state.lanes, bounded)
        self._unstamped = sum(len(holding.unstamped) for holding in self.state.holdings.values())

    @classmethod
    def resume(
        cls, tree: SequencingTree, name: Address, options: TreeOptions, journal: Iterable[Began | Joined | Done]
    ) -> "Subscriber":
        """Rebuild a durable subscriber: it goes on after the last event it persisted. The first tick asks for more."""
        machine = cls(tree, name, options)
        for record in journal:
            match record:
                case Began():
                    machine.state.version = record.version - 1
                    machine._begin(record.add, record.remove, 0.0, Effects())
                case Joined():
                    machine._on_joined(record, 0.0, Effects())
                case Done():
                    holding = machine.state.holdings.get(record.topic)
                    if holding is not None:
                        machine._queue.open(record.topic, record.number)
                        holding.stamped_to = machine.state.lanes[record.topic].done
                        machine._forget_ready({record.topic})
        version = machine.state.version
        machine.state.unheard = {topic: version for topic, lane in machine.state.lanes.items() if lane.open}
        machine.state.retry_due = 0.0
        if machine.state.changing is not None:
            machine.state.changing.interrupted = True
        return machine

    # ── the seam ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Delivered() if source == BROKER:
                self._on_delivered(message, now)
            case Stamped() if source == BROKER:
                self._on_stamped(message, now)
            case Change() if source == APPLICATION:
                self._on_change(message, now, effects)
            case Listening() if source == BROKER:
                self._on_listening(message, effects)
            case Joined() if self._is_home(source, message.topic):
                if is_current(self.state.epochs, source, message.epoch):
                    self._on_joined(message, now, effects)
            case Updated() if source == message.node:
                if is_current(self.state.epochs, source, message.epoch):
                    self._on_updated(message, now, effects)
            case Refused() if source in self.tree.parents:
                effects.notify.append(message)
            case Answer() if self._is_home(source, message.topic):
                if is_current(self.state.epochs, source, message.epoch):
                    self._on_answer(message, now, effects)
            case Trimmed() if source == BROKER:
                self._on_trimmed(message, now, effects)
            case Refreshed() if source == message.node:
                self._on_refreshed(message, now, effects)
        self._flush(now, effects)
        self._wish(now, effects)
        return effects

    def tick(self, now: float) -> Effects:
        """Repeat unanswered requests, ask after missing numbers, give up on what was held for too long."""
        effects = Effects()
        if self.state.retry_due is not None and now >= self.state.retry_due:
            self.state.retry_due = None
            self._ask(effects)
        if self.state.patience_due is not None and now >= self.state.patience_due:
            self.state.patience_due = None
            self._inquire(now, effects)
        self._expire(now)
        self._refresh(now, effects)
        self._flush(now, effects)
        self._wish(now, effects)
        return effects

    def explain(self) -> list[Waiting]:
        """Which events are held, waiting for what, since when, at whose door."""
        waits = []
        for topic, lane in sorted(self.state.lanes.items()):
            for number, held in sorted(lane.held.items()):
                other, needed = held.waits_for
                why = f"{other} {needed} is not done" if self.state.lanes[other].open else f"{other} is being joined"
                event_id = held.event.id if held.event is not None else None
                home = self.tree.home(other)
                waits.append(Waiting(topic, number, event_id, held.waits_for, held.since, home, why))
            holding = self.state.holdings[topic]
            arrived = [
                (f"the stamp of {topic} {number} has not arrived", each) for number, each in holding.unstamped.items()
            ]
            arrived += [(f"{topic} is being joined", each) for each in holding.early.values()]
            for why, each in sorted(arrived, key=lambda pair: pair[1].delivered.number):
                number, event = each.delivered.number, each.delivered.event
                event_id = event.id if event is not None else None
                waits.append(Waiting(topic, number, event_id, (topic, number), each.since, self.tree.home(topic), why))
        return waits

    @property
    def topics(self) -> frozenset[Topic]:
        """What is held, or being joined."""
        return frozenset(self.state.holdings)

    def _is_home(self, source: Address, topic: Topic) -> bool:
        return self.tree.knows(topic) and source == self.tree.home(topic)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_delivered(self, message: Delivered, now: float) -> None:
        holding = self.state.holdings.get(message.topic)
        if holding is None:
            return
        lane = self.state.lanes[message.topic]
        if not lane.open:
            holding.early.setdefault(message.number, Arrived(message, now))
        elif message.number <= lane.done:
            self._on_late(holding, message)
        elif message.entries is not None:
            self._admit(message.topic, message.number, message.entries, message.event, now)
        elif message.number <= holding.stamped_to:
            entries = self._take_stamp(holding, message.number)
            self._admit(message.topic, message.number, entries, message.event, now)
        else:
            self._unstamped += message.number not in holding.unstamped
            holding.unstamped.setdefault(message.number, Arrived(message, now))

    def _on_stamped(self, message: Stamped, now: float) -> None:
        holding = self.state.holdings.get(message.topic)
        if holding is None or not self.state.lanes[message.topic].open or message.last <= holding.stamped_to:
            return
        if message.first <= holding.stamped_to:  # resumed in the middle of a range: its entries are done
            message = Stamped(message.topic, holding.stamped_to + 1, message.last, {}, message.epoch)
        holding.stamps[message.first] = message
        while (following := holding.stamps.get(holding.stamped_to + 1)) is not None:
            holding.stamped_to = following.last
            for number in range(following.first, following.last + 1):
                if number in holding.unstamped:
                    event = holding.unstamped.pop(number).delivered.event
                    self._unstamped -= 1
                    entries = self._take_stamp(holding, number)
                    self._admit(message.topic, number, entries, event, now)

    def _take_stamp(self, holding: Holding, number: Number) -> Entries:
        stamp = holding.stamps.pop(number, None)
        return stamp.entries if stamp is not None else {}

    def _admit(self, topic: Topic, number: Number, entries: Entries, event: Event | None, now: float) -> None:
        holding = self.state.holdings[topic]
        if number in self.state.lanes[topic].held:
            return
        if holding.floor and number == holding.start + 1:
            entries = {**entries, **{t: max(n, entries.get(t, 0)) for t, n in holding.floor.items()}}
        self._done(self._queue.admit(topic, number, entries, event, now))
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
            elif held.event is not None:
                self.state.ready.append(Notification(held.event, each.number, held.entries))

    def _on_late(self, holding: Holding, message: Delivered) -> None:
        """A number that is done: a repeat, unless we had given up on it."""
        for index, (first, last) in enumerate(holding.skipped):
            if first <= message.number <= last:
                rest = [(first, message.number - 1), (message.number + 1, last)]
                holding.skipped[index : index + 1] = [(a, b) for a, b in rest if a <= b]
                if message.event is not None:
                    entries = message.entries or {}
                    late = Notification(message.event, message.number, entries, out_of_order=True)
                    self.state.ready.append(late)
                return

    def _flush(self, now: float, effects: Effects) -> None:
        """Notify, unless some node may have forgotten us: then what is ready might be in the wrong order."""
        if not self.state.ready or self._lapsed(now):
            return
        if self.options.durable:
            effects.persist.extend(Done(topic, number) for topic, number in map(_told, self.state.ready))
        effects.notify.extend(self.state.ready)
        self.state.ready.clear()

    def _forget_ready(self, topics: Set[Topic]) -> None:
        """What was kept back while a lease had lapsed is not told after its topic is left."""
        self.state.ready = [each for each in self.state.ready if _told(each)[0] not in topics]

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_change(self, change: Change, now: float, effects: Effects) -> None:
        if not change.add and not change.remove:
            raise InputError("change", "it neither adds nor removes a topic", "name at least one topic")
        for topic in sorted(change.add):
            self.tree.home(topic)  # raises UnknownTopic before anything changes
        self.state.waiting.append(change)
        self._next_change(now, effects)

    def _next_change(self, now: float, effects: Effects) -> None:
        while self.state.changing is None and self.state.waiting:
            change = self.state.waiting.pop(0)
            add = change.add - (self.topics - change.remove)
            remove = change.remove & self.topics
            if add or remove:
                self._flush(now, effects)
                effects.persist.extend([Began(self.state.version + 1, add, remove)] if self.options.durable else [])
                self._begin(add, remove, now, effects)
                self._ask(effects)
            else:
                effects.notify.append(Changed(self.state.version, self.topics, {}))

    def _begin(self, add: frozenset[Topic], remove: frozenset[Topic], now: float, effects: Effects) -> None:
        self.state.version += 1
        touched = self.topics | add
        told = {topic: self._told_of(topic) for topic in remove & add}
        self._forget_ready(remove)
        for topic in sorted(remove):
            self._unstamped -= len(self.state.holdings.pop(topic).unstamped)
            self.state.unheard.pop(topic, None)
            if topic not in add:
                effects.send.append((BROKER, Unlisten(topic)))
        self._done(self._queue.close(remove))
        self.state.left = (self.state.left | remove) - add
        for topic in sorted(add):
            self.state.holdings[topic] = Holding(begins_anew_after=told.get(topic))
            self._queue.join(topic)
        listen = set(add) if self.options.mode == "ticket" else set()
        update = set() if add else {self.tree.home(topic) for topic in touched}
        self.state.changing = Changing(set(add), listen, set(add), update, now)

    def _told_of(self, topic: Topic) -> Number:
        """How many numbers of a topic are done and not still kept back."""
        kept_back = [each for each in self.state.ready if _told(each)[0] == topic]
        return _told_from(kept_back[0]) - 1 if kept_back else self.state.lanes[topic].done

    def _ask(self, effects: Effects) -> None:
        """Send every request that has not been answered. All of them may be repeated."""
        for topic in sorted(self.state.unheard):
            effects.send.append((BROKER, Listen(topic, self.state.lanes[topic].done, self.state.version)))
        changing = self.state.changing
        if changing is None:
            return
        for topic in sorted(changing.listen):
            effects.send.append((BROKER, Listen(topic, None, self.state.version)))
        for topic in sorted(changing.join - changing.listen):
            self._ask_to_join(topic, effects)
        for node in sorted(changing.update):
            effects.send.append((node, Update(self.state.version, self.topics)))

    def _ask_to_join(self, topic: Topic, effects: Effects) -> None:
        request = Subscribe(self.state.version, topic, self.topics, frozenset(self.state.left))
        effects.send.append((self.tree.home(topic), request))

    def _on_listening(self, message: Listening, effects: Effects) -> None:
        if message.version >= self.state.unheard.get(message.topic, message.version + 1):
            del self.state.unheard[message.topic]
        changing = self.state.changing
        if changing is not None and message.topic in changing.listen and message.version == self.state.version:
            changing.listen.discard(message.topic)
            self._ask_to_join(message.topic, effects)

    def _on_joined(self, message: Joined, now: float, effects: Effects) -> None:
        changing = self.state.changing
        if changing is None or message.version != self.state.version or message.topic not in changing.join:
            return
        if self.options.durable:
            effects.persist.append(message)
        topic = message.topic
        changing.join.discard(topic)
        changing.listen.discard(topic)
        holding = self.state.holdings[topic]
        holding.start = holding.stamped_to = message.start
        holding.floor, holding.acquaintance = message.floor, message.acquaintance
        self.state.confirmed.setdefault(self.tree.home(topic), changing.since)
        if holding.begins_anew_after is not None and holding.begins_anew_after < message.start:
            gap = Gap(topic, holding.begins_anew_after + 1, message.start, "the topic began anew")
            self.state.ready.append(gap)
        self._done(self._queue.open(topic, message.start))
        if self.options.mode == "log" or changing.interrupted:
            self.state.unheard[topic] = self.state.version
            effects.send.append((BROKER, Listen(topic, message.start, self.state.version)))
        early, holding.early = holding.early, {}
        for _, arrived in sorted(early.items()):
            self._on_delivered(arrived.delivered, now)
        self._finish_change(now, effects)

    def _on_updated(self, message: Updated, now: float, effects: Effects) -> None:
        changing = self.state.changing
        if changing is not None and message.version == self.state.version and message.node in changing.update:
            changing.update.discard(message.node)
            self._finish_change(now, effects)

    def _finish_change(self, now: float, effects: Effects) -> None:
        changing = self.state.changing
        if changing is None or changing.join or changing.update:
            return
        self.state.changing = self.state.retry_due = None
        start = {topic: self.state.holdings[topic].start for topic in sorted(changing.add)}
        effects.notify.append(Changed(self.state.version, self.topics, start))
        nodes = {self.tree.home(topic) for topic in self.topics}
        self.state.confirmed = {node: self.state.confirmed[node] for node in sorted(nodes)}
        for node in sorted({self.tree.home(topic) for topic in changing.add}):
            effects.send.append((node, Refresh(self.state.version, now)))
        self._next_change(now, effects)

    # ── gaps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _inquire(self, now: float, effects: Effects) -> None:
        for topic, number in self._missing():
            holding = self.state.holdings[topic]
            if holding.missing_since is None:
                holding.missing_since = now
            elif now - holding.missing_since >= self.options.patience_ms:
                holding.missing_since = now
                effects.send.append((self.tree.home(topic), Inquire(topic, number)))

    def _missing(self) -> list[tuple[Topic, Number]]:
        missing = dict(self._queue.missing())
        for topic, holding in self.state.holdings.items():
            if holding.unstamped and self.state.lanes[topic].open:
                missing.setdefault(topic, self.state.lanes[topic].done + 1)
        return sorted(missing.items())

    def _on_answer(self, message: Answer, now: float, effects: Effects) -> None:
        lane = self.state.lanes.get(message.topic)
        if lane is None or not lane.open or message.number != lane.done + 1 or message.number in lane.held:
            return
        if message.state == "void":
            self._admit(message.topic, message.number, message.entries, None, now)
        elif message.state == "published":
            effects.send.append((BROKER, Listen(message.topic, message.number - 1, self.state.version)))
        elif message.state == "lost" and self.options.on_lost == "skip":
            self._rejoin(frozenset({message.topic}), now, effects)
        elif message.state == "lost" or (message.state == "unissued" and self.options.mode == "ticket"):
            effects.notify.append(message)  # this wait will not end by itself: the application must decide

    def _on_trimmed(self, message: Trimmed, now: float, effects: Effects) -> None:
        lane = self.state.lanes.get(message.topic)
        if lane is None or not lane.open or self.options.on_lost != "skip":
            return
        holding = self.state.holdings[message.topic]
        unstamped = holding.unstamped if holding.missing_since is None else {}  # its stamp may still be on its way
        missing = lane.done + 1
        while missing in lane.held or missing in unstamped:
            missing += 1
        if missing < message.first:
            self._rejoin(frozenset({message.topic}), now, effects)

    def _rejoin(self, topics: frozenset[Topic], now: float, effects: Effects) -> None:
        """Begin these topics anew. What lies between is reported as a gap when the new start is known."""
        change = Change(topics, topics)
        if change not in self.state.waiting:
            self.state.waiting.insert(0, change)
        self._next_change(now, effects)

    def _expire(self, now: float) -> None:
        """Unreliable brokers: nothing is held longer than its time to live."""
        time_to_live = self.options.time_to_live_ms
        while time_to_live is not None:
            since = self._queue.oldest_since()
            if since is None or since + time_to_live > now or not (forced := self._queue.force_oldest()):
                return
            self._done(forced, "its time to live was over")

    # ── being known ───────────────────────────────────────────────────────────────────────────────────────────────

    def _lapsed(self, now: float) -> bool:
        lease = self.options.subscriber_lease_ms
        return lease is not None and any(confirmed + lease < now for confirmed in self.state.confirmed.values())

    def _refresh(self, now: float, effects: Effects) -> None:
        lease = self.options.subscriber_lease_ms
        if lease is not None and self.state.refresh_due is not None and now >= self.state.refresh_due:
            self.state.refresh_due = None
            complete = self.state.version - (self.state.changing is not None)
            for node in self.state.confirmed:
                effects.send.append((node, Refresh(complete, now)))

    def _on_refreshed(self, message: Refreshed, now: float, effects: Effects) -> None:
        confirmed = self.state.confirmed
        if self.options.subscriber_lease_ms is None or message.at <= confirmed.get(message.node, message.at):
            return  # nobody asked, or an old answer
        holdings, lanes = self.state.holdings.items(), self.state.lanes
        here = [each for topic, each in holdings if lanes[topic].open and self.tree.home(topic) == message.node]
        if all(each.acquaintance == message.acquaintance for each in here):
            confirmed[message.node] = message.at
        elif self.state.changing is None:  # the node has forgotten us: what is ready may be wrongly ordered
            self._rejoin(self.topics, now, effects)

    # ── timers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wish(self, now: float, effects: Effects) -> None:
        state, options = self.state, self.options
        if state.retry_due is None and (state.changing is not None or state.unheard):
            state.retry_due = now + options.retry_ms
        if state.patience_due is None and (self._queue.size or self._unstamped):
            state.patience_due = now + options.patience_ms
        if options.subscriber_lease_ms is not None and state.confirmed and state.refresh_due is None:
            state.refresh_due = now + options.subscriber_lease_ms / 3
        wishes = [due for due in (state.retry_due, state.patience_due, state.refresh_due) if due is not None]
        if options.time_to_live_ms is not None and (since := self._queue.oldest_since()) is not None:
            due = since + options.time_to_live_ms
            stuck = due <= now and state.changing is not None  # waits for a topic that is being joined
            wishes.append(now + options.retry_ms if stuck else due)
        effects.wake_at = min(wishes, default=None)


def _told(each: Notification | Gap) -> tuple[Topic, Number]:
    """Of which topic, and up to which number, this tells the application."""
    return (each.topic, each.last) if isinstance(each, Gap) else (each.event.topic, each.number)


def _told_from(each: Notification | Gap) -> Number:
    return each.first if isinstance(each, Gap) else each.number
