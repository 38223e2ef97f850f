"""Durable subscriptions: what the journal holds, and how a subscriber resumes after a restart.

The subscriber's machine persists a `Done` for every notification before it sends it. Notifications wait in an inbox
until the application takes them. So the journal also says how far the application is: a `Mark` names the first one that
is not *acknowledged* and the first that is not *taken*, each as a count of `Done` records and, within a pack of events,
an index.

After a restart the subscriber is rebuilt with the acknowledged `Done`s only, and the broker delivers the others again.
They may come in a different order than before (the difference is invisible to other subscribers), so the state of a
message that was half acknowledged, or taken and not acknowledged, is kept by topic and number. `Resumed` marks where a
later process continues: `Done`s that were not acknowledged by then no longer count.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct, field, structs

from seriatim.client.events import Event
from seriatim.client.inbox import Place
from seriatim.model import APPLICATION, UNREADABLE, Address, JournalError, Number, Position, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree import Subscriber, TreeOptions
from seriatim.protocols.tree.messages import Began, Done, Joined
from seriatim.protocols.with_broker import CaughtUp
from seriatim.runtime import Recovered

Key: TypeAlias = tuple[Topic, Number]  # one message
Record: TypeAlias = Began | Joined | Done | CaughtUp  # of the subscriber's machine

WHOLE = 1 << 32  # all events of a message, however many it has


class Mark(Struct, frozen=True, tag=True):
    """How far the application is. It is a command to the machine, a record in the journal, and the confirmation."""

    acknowledged: Place
    taken: Place


class Filtered(Struct, frozen=True, tag=True):
    """The subscription has this filter, in its canonical text, for as long as it lives."""

    where: str


class Resumed(Struct, frozen=True, tag=True):
    """A later process continues here."""


class Lived(Struct, frozen=True, tag=True):
    """A life of the subscription that has this journal, or was about to (tree/life.py)."""

    holder: str
    epoch: int


class Within(Struct):
    """Messages that were partly processed before a restart, each with the index of the first event that was not."""

    acknowledged: list[tuple[Topic, Number, int]] = field(default_factory=list)
    taken: list[tuple[Topic, Number, int]] = field(default_factory=list)


class Snapshot(Struct, frozen=True):
    """The journal up to here, shortened. `open` are the `Done`s that were not acknowledged yet."""

    records: list[Record]
    open: list[Done]
    count: int
    taken: Place
    within: Within
    where: str | None = None
    lived: Lived | None = None


class Past(Struct):
    """The state of the previous process that a restarted subscription must know."""

    records: list[Record] = field(default_factory=list)
    count: int = 0  # `Done`s acknowledged since the beginning of the journal
    acknowledged: dict[Key, int] = field(default_factory=dict)
    taken: dict[Key, int] = field(default_factory=dict)
    where: str | None = None  # its filter
    lives: list[Lived] = field(default_factory=list)  # since the last snapshot

    @property
    def is_empty(self) -> bool:
        """Whether the journal is new."""
        return not self.records

    def recall(self, topic: Topic, number: Number, events: list[Event]) -> list[Event]:
        """The events of a message that were not acknowledged; those that were taken are marked `replayed`."""
        acknowledged = self.acknowledged.pop((topic, number), 0)
        taken = self.taken.pop((topic, number), 0)
        if not acknowledged and not taken:
            return events
        return [
            structs.replace(event, replayed=True) if event.index < taken else event
            for event in events
            if event.index >= acknowledged
        ]


_record = msgspec.msgpack.Decoder(Began | Joined | Done | CaughtUp | Mark | Resumed | Filtered | Lived)
_snapshot = msgspec.msgpack.Decoder(Snapshot)
_encoder = msgspec.msgpack.Encoder()


def read_past(name: str, recovered: Recovered) -> Past:
    """Read a journal of a durable subscription."""
    try:
        snapshot = _snapshot.decode(recovered.snapshot) if recovered.snapshot is not None else None
        records = [_record.decode(record) for record in recovered.records]
    except UNREADABLE as error:
        raise JournalError(f"the journal of {name!r} is not the journal of a subscription: {error}") from None
    return _Reading(snapshot).read(records)


def encode_record(record: Lived) -> bytes:
    """A record of the journal that no machine writes."""
    return _encoder.encode(record)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A snapshot as the journal keeps it."""
    return _encoder.encode(snapshot)


def empty_snapshot(lived: Lived) -> bytes:
    """The journal of a subscription that starts over."""
    return encode_snapshot(Snapshot([], [], 0, (0, 0), Within(), None, lived))


class _Reading:
    """Walks through a journal. `open` are the places in `kept` of the `Done`s that are not acknowledged."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.past = Past()
        self.kept: list[Record | None] = []
        self.open: deque[int] = deque()
        self.taken: Place = (0, 0)
        if snapshot is not None:
            self.past.count, self.taken = snapshot.count, snapshot.taken
            self.past.where = snapshot.where
            self.past.lives += [snapshot.lived] if snapshot.lived is not None else []
            self.past.acknowledged = {(topic, number): index for topic, number, index in snapshot.within.acknowledged}
            self.past.taken = {(topic, number): index for topic, number, index in snapshot.within.taken}
            self.kept += snapshot.records
            self._add(snapshot.open)

    def read(self, records: Iterable[Record | Mark | Resumed | Filtered | Lived]) -> Past:
        for record in records:
            match record:
                case Mark():
                    self._acknowledge(record.acknowledged)
                    self.taken = record.taken
                case Resumed():
                    self._end_process()
                case Filtered():
                    self.past.where = record.where
                case Lived():
                    self.past.lives.append(record)
                case Done():
                    self._add([record])
                case _:
                    self.kept.append(record)
        self._end_process()
        self.past.records = [record for record in self.kept if record is not None]
        return self.past

    def _add(self, dones: Iterable[Done]) -> None:
        for done in dones:
            self.open.append(len(self.kept))
            self.kept.append(done)

    def _key(self, place: int) -> Key:
        done = self.kept[place]
        assert isinstance(done, Done)
        return done.topic, done.number

    def _acknowledge(self, place: Place) -> None:
        past, (count, index) = self.past, place
        while past.count < count:
            key = self._key(self.open.popleft())
            past.acknowledged.pop(key, None)
            past.taken.pop(key, None)
            past.count += 1
        if index:
            past.acknowledged[self._key(self.open[0])] = index

    def _end_process(self) -> None:
        """Forget unacknowledged events, but remember which of them were taken.

        If that goes back into the past, the subscription is not live yet.
        """
        count, index = self.taken
        for place in range(self.open[0], len(self.kept)) if self.open else ():
            if isinstance(self.kept[place], CaughtUp):
                self.kept[place] = None
        for ordinal, place in enumerate(self.open, self.past.count):
            upto = WHOLE if ordinal < count else index if ordinal == count else 0
            key = self._key(place)
            if upto > self.past.taken.get(key, 0):
                self.past.taken[key] = upto
            self.kept[place] = None
        self.open.clear()
        self.taken = (self.past.count, 0)


class DurableSubscriber:
    """A subscriber's machine together with how far the application is."""

    def __init__(
        self,
        tree: SequencingTree,
        name: Address,
        options: TreeOptions,
        past: Past,
        where: str | None = None,
        lived: Lived | None = None,
    ) -> None:
        self._where = where
        self._lived = lived
        self._first: list[Payload] = []  # for the journal, with the first tick
        if past.is_empty:
            self.subscriber = Subscriber(tree, name, options)
            if where is not None:
                self._first = [Filtered(where)]
        else:
            self.subscriber = Subscriber.resume(tree, name, options, past.records)
            self._first = [Resumed()]
        if lived is not None:
            self.subscriber.begin_life(lived.epoch)
        self._count = past.count
        self._taken: Place = (past.count, 0)
        self._open: deque[Done] = deque()  # persisted and not acknowledged
        self._within = Past(acknowledged=dict(past.acknowledged), taken=dict(past.taken))
        state = self.subscriber.state
        self._done = {topic: lane.done for topic, lane in state.lanes.items()}  # acknowledged
        self._position: Position | None = None  # the same in the past
        if state.reading is not None:
            self._done, self._position = dict(state.reading.read_to), state.reading.told
        self._earlier = 0  # how many of `_open` are from before the latest beginning in the past

    @property
    def acknowledged(self) -> dict[Topic, Number]:
        """The last acknowledged number of each topic held."""
        state = self.subscriber.state
        return {
            topic: self._done.get(topic, holding.start)
            for topic, holding in state.holdings.items()
            if state.reading is not None or state.lanes[topic].open
        }

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if source == APPLICATION and isinstance(message, Mark):
            return self._on_mark(message)
        return self._counted(self.subscriber.step(source, message, now))

    def tick(self, now: float) -> Effects:
        effects = self._counted(self.subscriber.tick(now))
        effects.persist[:0] = self._first
        self._first = []
        return effects

    def _counted(self, effects: Effects) -> Effects:
        for record in effects.persist:
            if type(record) is Done:
                self._open.append(record)
            elif type(record) is Began and record.start is not None:
                self._done, self._position, self._earlier = {}, record.start.after, len(self._open)
        return effects

    def _on_mark(self, mark: Mark) -> Effects:
        """Record how far the application is. Asks for no tick: the driver keeps its timer."""
        count, index = mark.acknowledged
        while self._count < count:
            done = self._open.popleft()
            self._within.acknowledged.pop((done.topic, done.number), None)
            self._within.taken.pop((done.topic, done.number), None)
            self._count += 1
            if self._earlier:
                self._earlier -= 1
                continue
            self._done[done.topic] = max(done.number, self._done.get(done.topic, 0))  # a late event must not lower it
            self._position = done.position
        if index:
            self._within.acknowledged[self._open[0].topic, self._open[0].number] = index
        self._taken = mark.taken
        effects = Effects()
        effects.persist.append(mark)
        effects.notify.append(mark)
        return effects

    def encode(self) -> bytes | None:
        """A snapshot that stands for the whole journal. None: not now.

        Not during a change, and not while an event is unacknowledged that came before its topic started again: a
        shortened journal has only the new start, and would forget the gap before it. The same goes for events from
        before the subscription began anew in the past, and for events of the past once it is live.
        """
        if self._earlier:
            return None
        state = self.subscriber.state
        for done in self._open if state.reading is None else ():
            holding = state.holdings.get(done.topic)
            if holding is not None and done.number <= holding.start:
                return None
        records = self.subscriber.compact(self._done, self._position)
        if records is None:
            return None
        within = Within(
            [(*key, index) for key, index in self._within.acknowledged.items()],
            [(*key, index) for key, index in self._within.taken.items()],
        )
        return encode_snapshot(
            Snapshot([*records], list(self._open), self._count, self._taken, within, self._where, self._lived)
        )
