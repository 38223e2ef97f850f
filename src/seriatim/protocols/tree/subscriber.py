"""A subscriber: holds topics, changes them while events flow, and notifies in order. The machine that a driver steps.

It is written in four parts, each of which can be read alone: events (receiving.py), the past (history.py), changes of
what is held (subscribing.py), and numbers that do not come (gaps.py).
"""

from collections.abc import Iterable, Mapping

from seriatim.model import APPLICATION, BROKER, Address, Number, Position, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import is_current
from seriatim.protocols.tree.gaps import Gaps
from seriatim.protocols.tree.messages import Answer, Began, Done, Joined, Located, Moved, Refreshed, Refused, Updated
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import Waiting
from seriatim.protocols.with_broker import (
    CaughtUp,
    Change,
    Delivered,
    Listening,
    OrderRead,
    Staged,
    Stamped,
    Trimmed,
    Voids,
)

CHANGES_OF_A_LIFE = 1 << 20  # more than any life makes


class Subscriber(Gaps):
    """The machine of one subscriber. Its name must not be used again by one that has forgotten what this one saw."""

    @classmethod
    def resume(
        cls, tree: SequencingTree, name: Address, options: TreeOptions, journal: Iterable[Payload]
    ) -> "Subscriber":
        """Rebuild a durable subscriber: it goes on after the last event it persisted. The first tick asks for more."""
        machine = cls(tree, name, options)
        for record in journal:
            match record:
                case Began():
                    machine._begin(record, 0.0, Effects())
                case Joined():
                    machine._on_joined(record, 0.0, Effects())
                case CaughtUp():
                    machine._go_live(record, Effects())
                case Done():
                    if record.early:
                        machine.state.early[record.topic] = record.number
                    holding = machine.state.holdings.get(record.topic)
                    if machine.state.reading is not None:
                        machine._resume_past(machine.state.reading, record)
                    elif holding is not None:
                        machine._queue.open(record.topic, record.number)
                        holding.stamped_to = machine.state.lanes[record.topic].done
                        if not record.early:
                            machine._finish_to(record.topic, holding, holding.stamped_to, Effects())
                        machine._forget_ready({record.topic})
        version = machine.state.version
        machine.state.unheard = {topic: version for topic, lane in machine.state.lanes.items() if lane.open}
        machine.state.retry_due = 0.0
        if machine.state.changing is not None:
            machine.state.changing.interrupted = True
        return machine

    def begin_life(self, epoch: int) -> None:
        """Number changes behind those of every earlier life, whatever this one remembers of them."""
        if self.state.changing is None:
            self.state.version = max(self.state.version, epoch * CHANGES_OF_A_LIFE)

    def compact(
        self, done: Mapping[Topic, Number] | None = None, position: Position | None = None
    ) -> list[Began | Joined | Done] | None:
        """The shortest journal from which `resume` gives this subscriber. None: a change is under way, ask later.

        `done`: resume after these numbers instead, where lower. They must belong to one moment: with every event
        that counts as done, so does whatever was notified before it. A topic that is not named counts as just begun.
        `position`: the same for a subscriber that reads the past.
        """
        state = self.state
        if state.changing is not None:
            return None
        records: list[Began | Joined | Done] = []
        if state.left:  # as if all of it had been left in the latest change
            records.append(Began(state.version - 1, frozenset(state.left), frozenset()))
        start = self._rest_of_past(position)
        if state.left or state.holdings:
            records.append(Began(state.version, self.topics, frozenset(state.left), start))
        if state.reading is not None and start is not None:
            return records + self._compact_past(state.reading, done, start)
        for topic, holding in sorted(state.holdings.items()):
            at = state.lanes[topic].done
            if done is not None:
                at = max(holding.start, min(at, done.get(topic, 0)))
            floor = holding.floor if at == holding.start else {}  # only the first event waits for it
            records.append(Joined(state.version, topic, at, floor, acquaintance=holding.acquaintance, era=holding.era))
            if self.options.tells_stages and at > holding.final_to:
                records.append(Done(topic, at, early=True))
        early = sorted((topic, number) for topic, number in state.early.items() if topic not in state.holdings)
        records.extend(Done(topic, number, early=True) for topic, number in early)
        return records

    # ── the seam ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Delivered() if source == BROKER:
                self._on_delivered(message, now, effects)
            case Stamped() if source == BROKER:
                self._on_stamped(message, now, effects)
            case Staged() if source == BROKER:
                self._on_staged(message, now, effects)
            case Voids() if source == BROKER:
                self._on_voids(message, now)
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
            case Refused() if source in self.tree.paths and message.request == self.state.version:
                effects.notify.append(message)
            case Answer() if self._is_home(source, message.topic):
                if is_current(self.state.epochs, source, message.epoch):
                    self._on_answer(message, now, effects)
            case Trimmed() if source == BROKER:
                self._on_trimmed(message, now, effects)
            case Refreshed() if source == message.node:
                self._on_refreshed(message, now, effects)
            case Moved() if source in self.tree.paths:
                self._on_moved(message, now, effects)
            case Located() if source == APPLICATION or source in self.tree.paths:
                self._on_located(message, now, effects)
            case OrderRead() if source == BROKER:
                self._on_order_read(message)
        if self.state.reading is not None:
            self._go_on_reading(now, effects)
        self._flush(now, effects)
        self._wish(now, effects)
        return effects

    def tick(self, now: float) -> Effects:
        """Repeat unanswered requests, ask after missing numbers, give up on what was held for too long."""
        effects = Effects()
        if self.state.retry_due is not None and now >= self.state.retry_due:
            self.state.retry_due = None
            self._ask(effects)
            self._seek_again(effects)
        if self.state.patience_due is not None and now >= self.state.patience_due:
            self.state.patience_due = None
            self._inquire(now, effects)
        self._expire(now)
        self._refresh(now, effects)
        if self.state.reading is not None:
            self._go_on_reading(now, effects)
        self._flush(now, effects)
        self._wish(now, effects)
        return effects

    def _go_on_reading(self, now: float, effects: Effects) -> None:
        self._read_on(now, effects)
        if self.state.reading is None:  # changes that have waited for the end of the past
            self._next_change(now, effects)

    def explain(self) -> list[Waiting]:
        """Which events are held, waiting for what, since when, and which node to ask."""
        waits = []
        for topic, lane in sorted(self.state.lanes.items()):
            for number, held in sorted(lane.held.items()):
                other, needed = held.waits_for
                why = f"{other} {needed} is not done" if self.state.lanes[other].open else f"{other} is being joined"
                if 0 < self.state.holdings[other].forged == self.state.lanes[other].done + 1:
                    why += f"; what came as {other} {self.state.holdings[other].forged} was rejected as forged"
                event_id = held.event.id if held.event is not None else None
                home = self.tree.home(other)
                waits.append(Waiting(topic, number, event_id, held.waits_for, held.since, home, why))
            holding = self.state.holdings[topic]
            arrived = [
                (f"the stamp of {topic} {number} has not arrived", each) for number, each in holding.unstamped.items()
            ]
            joining = "a topic that it names" if lane.open else topic
            arrived += [(f"{joining} is being joined", each) for each in holding.early.values()]
            for why, each in sorted(arrived, key=lambda pair: pair[1].delivered.number):
                number, event = each.delivered.number, each.delivered.event
                event_id = event.id if event is not None else None
                waits.append(Waiting(topic, number, event_id, (topic, number), each.since, self.tree.home(topic), why))
        return waits

    def _is_owed(self) -> bool:
        """Whether somebody has still to answer."""
        state = self.state
        is_asking = state.reading is not None or bool(state.locating) or bool(state.doubts)
        return state.changing is not None or bool(state.unheard) or is_asking

    def _wish(self, now: float, effects: Effects) -> None:
        state, options = self.state, self.options
        if state.retry_due is None and self._is_owed():
            state.retry_due = now + options.retry_ms
        if state.patience_due is None and (self._queue.size or self._unstamped or state.beyond):
            state.patience_due = now + options.patience_ms
        if self._lease_ms is not None and state.confirmed and state.refresh_due is None:
            state.refresh_due = now + self._lease_ms / 3
        wishes = [due for due in (state.retry_due, state.patience_due, state.refresh_due) if due is not None]
        if options.time_to_live_ms is not None and (since := self._queue.oldest_since()) is not None:
            due = since + options.time_to_live_ms
            stuck = due <= now and state.changing is not None  # waits for a topic that is being joined
            wishes.append(now + options.retry_ms if stuck else due)
        effects.wake_at = min(wishes, default=None)
