"""A publisher: of a topic one request is under way and one range is being written; later commands wait, in order.

Ticket mode: ask the topic's home for a number for each event of the command, write each event into its slot, and tell
the home when all are in. An event whose slot was voided first (we were slower than our lease) asks for a new number.
Log mode: append to the topic's log, event by event; the broker numbers them. If somebody wants to know, the machine
also tells when an event has its place in the order (placing.py); the next one does not wait for that.

The machine gathers nothing: events share a request only if one command brought them. The client's outbox makes the
batches, and hands over one message at a time.

The order of a publisher's events within a topic is kept. A range is written from its first number up, and its home
voids from the last one down. So what is lost is the end of the range, and it goes again before anything later. This
needs a connection to the broker that keeps the order of what is sent. `own_order` has one lane for all topics, and one
*event* under way: the next one waits until it is on the broker, and in log mode, if it is of another topic, until all
before it have their place. That keeps the publisher's own order across topics.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from seriatim.model import APPLICATION, BROKER, Address, Entries, Event, InputError, Node, Number, Position, Topic
from seriatim.order import Moves, Place, SequencingTree, ShapeChange
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import is_current
from seriatim.protocols.proofs import Proof
from seriatim.protocols.queue import Queue
from seriatim.protocols.tree.messages import Answer, Granted, Located, Moved, Refused, Settled, Ticket
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.placing import Following, Placing
from seriatim.protocols.tree.reacting import Reacting, Reactions
from seriatim.protocols.tree.seeking import ask_around
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    EventStored,
    Publish,
    StampedTo,
    Unfollow,
    Withdraw,
    Write,
    Written,
)

ALL_TOPICS = ""  # the name of the only lane with `own_order`


class Slot(Struct):
    """An event that has a number and is not yet known to be on the broker."""

    event: Event
    entries: Entries
    proof: Proof | None = None
    position: Position = 0


class Grant(Struct):
    """A granted range: the events that are not yet in their slots, and those whose slots were voided or stolen."""

    first: Number
    slots: dict[Number, Slot]
    lost: dict[Number, Event] = field(default_factory=dict)
    abandoned: bool = False  # an event of it was withdrawn: its home must void what is empty, so it is never settled
    stolen: list[Number] = field(default_factory=list)

    def forget(self, withdrawn: Withdraw) -> bool:
        """Whether the event was in this range. Its number stays with the home."""
        numbers = [number for number, slot in self.slots.items() if _is(slot.event, withdrawn)]
        numbers += [number for number, event in self.lost.items() if _is(event, withdrawn)]
        for number in numbers:
            self.slots.pop(number, None)
            self.lost.pop(number, None)
            self.abandoned = True
        return bool(numbers)


class Lane(Struct):
    """One topic (with `own_order` all of them): what is under way, and what waits for it.

    A parcel is a list of events of one topic that share a request. `events` is the parcel that the request under way is
    for. It is shorter than `asked` if some of them were withdrawn, and longer if events that lost their slots went
    before them: a request is for a count.
    """

    queue: Queue[list[Event]] = field(default_factory=Queue)
    topic: Topic = ""  # of what is under way
    request: int = 0
    asked: int = 0  # how many numbers the request under way is for; 0: none is under way
    settled: Number = 0  # the range that the request under way settles; 0: none
    untold: Number = 0  # a range that is settled, and its home has not been told in this step
    events: list[Event] = field(default_factory=list)
    granted: Granted | None = None  # numbers that wait until the range before them is on the broker
    grant: Grant | None = None  # the range that is being written

    def is_idle(self) -> bool:
        return not self.asked and self.grant is None

    def all_events(self) -> Iterator[Event]:
        yield from self.events
        for parcel in self.queue:
            yield from parcel
        if self.grant is not None:
            yield from (slot.event for slot in self.grant.slots.values())
            yield from self.grant.lost.values()


class PublisherState(Struct):
    """Everything a publisher knows."""

    lanes: dict[Topic, Lane] = field(default_factory=dict)
    retry_due: float | None = None
    lost_slots: int = 0
    epochs: dict[Node, int] = field(default_factory=dict)
    following: dict[Topic, Following] = field(default_factory=dict)
    reacting: Reacting = field(default_factory=Reacting)
    moves: Moves = field(default_factory=Moves)
    sought: int = 0  # how often other nodes were asked because a home did not answer


class Publisher:
    """The machine of one publisher. Its name must not be used again by a later incarnation."""

    placing_type = Placing
    reactions_type = Reactions

    def __init__(
        self, tree: SequencingTree, name: Address, options: TreeOptions, state: PublisherState | None = None
    ) -> None:
        self.name = name
        self.options = options
        self.state = state if state is not None else PublisherState()
        self.tree = tree.view(self.state.moves)
        self._busy = {key: None for key, lane in self.state.lanes.items() if not lane.is_idle()}
        self._under_way = {event.id for lane in self.state.lanes.values() for event in lane.all_events()}
        self._reactions = self.reactions_type(self.state.reacting)
        self._under_way |= {event.id for event in self._reactions.events}
        self._placing = self.placing_type(self.state.following)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Publish() if source == APPLICATION:
                self._on_publish(message, effects)
            case Withdraw() if source == APPLICATION:
                self._on_withdraw(message, effects)
            case Granted() if self._is_home(source, message.topic):
                if is_current(self.state.epochs, source, message.epoch):
                    self._on_granted(message, effects)
            case Written() if source == BROKER:
                self._on_written(message, effects)
            case Appended() if source == BROKER:
                self._on_appended(message, effects)
            case StampedTo() if source == BROKER:
                if self._placing.on_stamped(message, self.tree.home(message.topic), effects):
                    self._go_on_in_order(effects)
                self._reactions.on_final(message)
                self._go_on_reacting(effects)
            case StampedTo() if source == APPLICATION:
                self._reactions.on_final(message)
                self._go_on_reacting(effects)
            case Answer() if self._is_home(source, message.topic):
                is_news = is_current(self.state.epochs, source, message.epoch)
                if is_news and self._placing.on_answer(message, effects):
                    self._go_on_in_order(effects)
            case Moved() if source in self.tree.paths:
                places = {message.topic: Place(message.home, message.move)}
                self._learn(self.state.moves.number, places, message.shape, effects)
            case Located() if source == APPLICATION or source in self.tree.paths:
                if message.after <= self.state.moves.number:  # else something between is not known
                    self._learn(message.number, message.places, message.shape, effects)
            case Unfollow() if source == APPLICATION:
                self._placing.forget(message.topic)
                effects.send.append((BROKER, message))
                self._go_on_in_order(effects)
            case Refused() if self._is_home(source, message.topic):
                effects.notify.append(message)
        self._wish(effects, now)
        return effects

    def tick(self, now: float) -> Effects:
        """Repeat what was not answered. Every request may be repeated: homes and slots know repeats."""
        effects = Effects()
        if self.state.retry_due is not None and now >= self.state.retry_due:
            self.state.retry_due = None
            silent = {self.tree.home(topic) for topic in self._placing.waiting}
            for key in self._busy:
                lane = self.state.lanes[key]
                if lane.asked and lane.granted is None:
                    self._ask(lane, effects)
                    silent |= {self.tree.home(lane.topic)} if self.options.mode == "ticket" else set()
                if lane.grant is not None:
                    for number, slot in lane.grant.slots.items():
                        effects.send.append((BROKER, _filling(lane.topic, number, slot)))
            for topic in self._placing.waiting:
                self._placing.ask_again(topic, self.tree.home(topic), effects)
            self._reactions.ask(effects)
            self._seek(silent, effects)
        self._wish(effects, now)
        return effects

    def explain(self) -> list[str]:
        lines = []
        for _, lane in sorted(self.state.lanes.items()):
            if lane.asked:
                whom = "the broker" if self.options.mode == "log" else self.tree.home(lane.topic)
                lines.append(f"{lane.asked} events of {lane.topic}: request {lane.request} waits for {whom}")
            if lane.grant is not None:
                numbers = ", ".join(map(str, lane.grant.slots))
                lines.append(f"{lane.topic} {numbers}: waits for the broker to take it")
            waiting: dict[Topic, int] = {}
            for parcel in lane.queue:
                waiting[parcel[0].topic] = waiting.get(parcel[0].topic, 0) + len(parcel)
            lines += [f"{count} events of {topic}: wait for the request under way" for topic, count in waiting.items()]
            if lane.events and not lane.asked and self._waits_for_place(lane):
                lines.append(f"{lane.events[0].topic}: waits until {lane.topic} before it has its place in the order")
        if why := self._reactions.explain():
            lines.append(why)
        return lines + [self._placing.explain(topic, self.tree.home(topic)) for topic in sorted(self._placing.waiting)]

    def why_unplaced(self, topic: Topic) -> str:
        """What the events of a topic that are stored and have no place wait for; empty: there are none."""
        return self._placing.why(topic, self.tree.home(topic))

    def why_held(self, topic: Topic) -> str:
        """Why events are not sent although nothing of their topic is under way; empty: there is no reason."""
        return self._reactions.explain()

    def _is_home(self, source: Address, topic: Topic) -> bool:
        return self.tree.knows(topic) and source == self.tree.home(topic)

    def _key(self, topic: Topic) -> Topic:
        return ALL_TOPICS if self.options.own_order else topic

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_publish(self, message: Publish, effects: Effects) -> None:
        for event in message.events:
            self.tree.home(event.topic)  # raises UnknownTopic before anything changes
            if event.publisher != self.name:
                raise InputError("event.publisher", f"{event.publisher!r} is not {self.name!r}", "use its own name")
        new: set[str] = set()
        for event in message.events:
            if event.id in self._under_way or event.id in new:
                raise InputError("event.id", f"{event.id!r} is used twice", "give every event an id of its own")
            new.add(event.id)
        self._under_way |= new
        if self.options.mode == "ticket" or not self._reactions.hold(message):
            self._take(message, effects)

    def _go_on_reacting(self, effects: Effects) -> None:
        """Commands that waited for what they may react to."""
        while (command := self._reactions.next()) is not None:
            self._take(command, effects)
        self._reactions.end(self.state.following, effects)

    def _take(self, message: Publish, effects: Effects) -> None:
        for parcel in self._parcels(message.events):
            key = self._key(parcel[0].topic)
            lane = self.state.lanes.get(key)
            if lane is None:
                lane = self.state.lanes[key] = Lane()
            lane.queue.append(parcel)
            self._go_on(key, lane, effects)

    def _parcels(self, events: tuple[Event, ...]) -> list[list[Event]]:
        """What shares a request: in ticket mode the events of a topic, unless they must keep an order across topics."""
        if len(events) == 1 or self.options.mode == "log" or self.options.own_order:
            return [[event] for event in events]
        by_topic: dict[Topic, list[Event]] = {}
        for event in events:
            by_topic.setdefault(event.topic, []).append(event)
        size = self.options.ticket_count_max
        return [part[start : start + size] for part in by_topic.values() for start in range(0, len(part), size)]

    def _on_withdraw(self, message: Withdraw, effects: Effects) -> None:
        """Forget an event wherever it is. A number it was given is left to its home, which voids it after the lease."""
        key = self._key(message.topic)
        lane = self.state.lanes.get(key)
        if message.event_id not in self._under_way:
            return
        if self._reactions.forget(message):
            self._under_way.discard(message.event_id)
            self._go_on_reacting(effects)
            return
        if lane is None:
            return
        if _forget(lane.events, message):  # the numbers it was asked for come nevertheless; an append is not awaited
            if self.options.mode == "log":
                lane.asked = 0
                self._go_on(key, lane, effects)
        elif lane.grant is not None and lane.grant.forget(message):
            self._finish(key, lane, lane.grant, effects)
        elif not _forget_queued(lane.queue, message):
            return
        self._under_way.discard(message.event_id)

    # ── one request after the other ───────────────────────────────────────────────────────────────────────────────

    def _go_on(self, key: Topic, lane: Lane, effects: Effects) -> None:
        """Ask for the next parcel, if no request is under way; with `own_order` also nothing may be being written."""
        if lane.asked or (self.options.own_order and lane.grant is not None):
            return
        if not lane.events and lane.queue:
            (lane.events,) = lane.queue.take()
        if lane.events and not self._waits_for_place(lane):
            if lane.events[0].topic != lane.topic:
                self._tell_settled(lane, (), effects, len(effects.send))
            lane.topic, lane.asked = lane.events[0].topic, len(lane.events)
            lane.request += 1
            lane.settled, lane.untold = lane.untold, 0
            self._busy[key] = None
            if self.options.follows_stamps:
                self._placing.sending(lane.topic, self.tree.home(lane.topic), effects)
            self._ask(lane, effects)
        elif lane.is_idle():
            self._busy.pop(key, None)

    def _go_on_in_order(self, effects: Effects) -> None:
        """Something has its place now: with `own_order` the next event may have waited for it."""
        lane = self.state.lanes.get(ALL_TOPICS) if self.options.own_order else None
        if lane is not None:
            self._go_on(ALL_TOPICS, lane, effects)

    def _waits_for_place(self, lane: Lane) -> bool:
        """Whether the next event is of another topic than the one before, and that one has no place yet."""
        return self.options.own_order and lane.topic in self._placing.waiting and lane.events[0].topic != lane.topic

    def _ask(self, lane: Lane, effects: Effects) -> None:
        if self.options.mode == "log":
            effects.send.append((BROKER, Append(lane.events[0])))
        else:
            ticket = Ticket(lane.request, lane.topic, lane.asked, lane.settled)
            effects.send.append((self.tree.home(lane.topic), ticket))

    def _on_granted(self, message: Granted, effects: Effects) -> None:
        key = self._key(message.topic)
        lane = self.state.lanes.get(key)
        if lane is not None and lane.asked and (lane.topic, lane.request) == (message.topic, message.request):
            lane.granted = message
            self._write(key, lane, effects)

    def _write(self, key: Topic, lane: Lane, effects: Effects) -> None:
        """Write the granted range, once the one before is on the broker: what that one loses must go first."""
        message = lane.granted
        if message is None or lane.grant is not None:
            return
        events = lane.events[: lane.asked]
        lane.grant = grant = Grant(message.first, {}, abandoned=len(events) < lane.asked)
        for number, event in enumerate(events, message.first):
            entries = message.entries if number == message.first or self.options.full_stamps else {}
            proof = message.proof if message.rest is None or number == message.first else message.rest
            position = message.position + number - message.first if message.position else 0
            grant.slots[number] = slot = Slot(event, entries, proof, position)
            effects.send.append((BROKER, _filling(lane.topic, number, slot)))
        lane.asked, lane.granted = 0, None
        del lane.events[: len(events)]
        if not events:
            lane.grant = None
        self._go_on(key, lane, effects)

    def _on_written(self, message: Written, effects: Effects) -> None:
        key = self._key(message.topic)
        lane = self.state.lanes.get(key)
        grant = lane.grant if lane is not None and lane.topic == message.topic else None
        slot = grant.slots.pop(message.number, None) if grant is not None else None
        if lane is None or grant is None or slot is None:
            return
        if message.event_id == slot.event.id and message.proof == slot.proof:
            self._under_way.discard(slot.event.id)
            effects.notify.append(EventStored(slot.event, message.number, slot.entries))
        else:  # voided before we got there, or somebody else was faster: the event needs a new number
            self.state.lost_slots += 1
            grant.lost[message.number] = slot.event
            if message.event_id is not None:
                grant.stolen.append(message.number)
        self._finish(key, lane, grant, effects)

    def _finish(self, key: Topic, lane: Lane, grant: Grant, effects: Effects) -> None:
        """If all slots are filled: what lost its slot goes again first, in its old order; then what waits.

        A settled range goes with the next ticket if that is for the same topic; else its home is told separately.
        """
        if grant.slots:
            return
        lane.grant = None
        lane.untold = 0 if grant.abandoned else grant.first
        lane.events[:0] = [event for _, event in sorted(grant.lost.items())]
        place = len(effects.send)
        if grant.stolen:
            self._tell_settled(lane, tuple(grant.stolen), effects, place)
        self._write(key, lane, effects)
        self._go_on(key, lane, effects)
        self._tell_settled(lane, (), effects, place)

    def _tell_settled(self, lane: Lane, stolen: tuple[Number, ...], effects: Effects, place: int) -> None:
        if lane.untold:
            effects.send.insert(place, (self.tree.home(lane.topic), Settled(lane.topic, lane.untold, stolen)))
            lane.untold = 0

    def _on_appended(self, message: Appended, effects: Effects) -> None:
        key = self._key(message.topic)
        lane = self.state.lanes.get(key)
        if lane is None or not lane.events or lane.topic != message.topic or lane.events[0].id != message.event_id:
            return
        event = lane.events.pop()
        lane.asked = 0
        self._under_way.discard(event.id)
        effects.notify.append(EventStored(event, message.number, {}))
        if self.options.follows_stamps:
            self._placing.stored(event.topic, message.number, self.tree.home(event.topic), effects)
        self._go_on(key, lane, effects)

    def _seek(self, silent: set[Node], effects: Effects) -> None:
        """Ask another node where these, which do not answer, are now: they may have left the tree."""
        self.state.sought = ask_around(self.tree, silent, self.state.sought, effects)

    def _learn(
        self, number: int, places: Mapping[Topic, Place], shape: Iterable[ShapeChange], effects: Effects
    ) -> None:
        """Topics live elsewhere: what was asked of their former homes is asked there."""
        for topic in self.tree.learn(number, places, shape):
            lane = self.state.lanes.get(self._key(topic))
            is_asking = lane is not None and lane.topic == topic and lane.asked and lane.granted is None
            if lane is not None and is_asking and self.options.mode == "ticket":
                self._ask(lane, effects)
            if topic in self._placing.waiting:
                self._placing.ask_again(topic, self.tree.home(topic), effects)

    def _wish(self, effects: Effects, now: float) -> None:
        if not self._busy and not self._placing.waiting and not self.state.reacting.queue:
            self.state.retry_due = None
        elif self.state.retry_due is None:
            self.state.retry_due = now + self.options.retry_ms
        effects.wake_at = self.state.retry_due


def _filling(topic: Topic, number: Number, slot: Slot) -> Write:
    return Write(topic, number, slot.entries, slot.event, slot.proof, slot.position)


def _is(event: Event, withdrawn: Withdraw) -> bool:
    return event.id == withdrawn.event_id and event.topic == withdrawn.topic


def _forget(events: list[Event], withdrawn: Withdraw) -> bool:
    """Whether the event was among these."""
    for index, event in enumerate(events):
        if _is(event, withdrawn):
            del events[index]
            return True
    return False


def _forget_queued(queue: Queue[list[Event]], withdrawn: Withdraw) -> bool:
    for index, parcel in enumerate(queue):
        if _forget(parcel, withdrawn):
            if not parcel:
                queue.remove(index)
            return True
    return False
