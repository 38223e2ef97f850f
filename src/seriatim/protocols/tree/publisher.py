"""A publisher: one request per topic under way, and whatever gathers meanwhile goes into the next one.

Ticket mode: ask the topic's home for as many numbers as events wait, write each event into its slot, tell the home
when all are in. An event whose slot was voided in the meantime (we were slower than our lease) asks for a new number.
Log mode: append to the topic's log; the broker numbers it.

One request and one batch at a time keep this publisher's events of a topic in their order: a batch is written from its
first number up, its home voids from the last one down, so what is lost is its end, and goes again before anything later
(as long as the connection to the broker keeps the order of what is sent). In causal mode there is one *event* at a time
over all topics, and the next one waits until it is on the broker: that keeps the publisher's own order across topics.
"""

from collections.abc import Iterator

from msgspec import Struct, field

from seriatim.model import APPLICATION, BROKER, Address, Entries, Event, InputError, Node, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.queue import Queue
from seriatim.protocols.tree.epochs import is_current
from seriatim.protocols.tree.messages import (
    Append,
    Appended,
    Granted,
    Publish,
    Published,
    Refused,
    Settled,
    Ticket,
    Withdraw,
    Write,
    Written,
)
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.proofs import Proof


class Slot(Struct):
    """An event that has a number and is not yet known to be on the broker."""

    event: Event
    entries: Entries
    proof: Proof | None = None


class Batch(Struct):
    """The events of one granted range that are not yet in their slots, and those whose slots were voided or stolen."""

    first: Number
    slots: dict[Number, Slot]
    lost: dict[Number, Event] = field(default_factory=dict)
    abandoned: bool = False  # an event of it was withdrawn: its home must void what is empty, so it is never settled
    stolen: list[Number] = field(default_factory=list)


class Outbox(Struct):
    """What is under way on one topic."""

    queue: Queue[Event] = field(default_factory=Queue)
    request: int = 0
    asked: int = 0  # how many events the request under way is for; 0: none is under way
    granted: Granted | None = None  # numbers that wait until the batch before them is on the broker
    batch: Batch | None = None
    withdrawn: int = 0  # of the events asked for, so many will not come
    settled: Number = 0  # the range that the request under way settles; 0: none
    untold: Number = 0  # a range that is settled, and its home has not been told in this step

    def is_idle(self) -> bool:
        return not self.asked and self.batch is None

    def events(self) -> Iterator[Event]:
        yield from self.queue
        if self.batch is not None:
            yield from (slot.event for slot in self.batch.slots.values())
            yield from self.batch.lost.values()


class PublisherState(Struct):
    """Everything a publisher knows. `line` is the order of topics to serve next in causal mode."""

    outboxes: dict[Topic, Outbox] = field(default_factory=dict)
    line: Queue[Topic] = field(default_factory=Queue)
    retry_due: float | None = None
    lost_slots: int = 0
    epochs: dict[Node, int] = field(default_factory=dict)


class Publisher:
    """The machine of one publisher. Its name must not be used again by a later incarnation."""

    def __init__(
        self, tree: SequencingTree, name: Address, options: TreeOptions, state: PublisherState | None = None
    ) -> None:
        self.tree = tree
        self.name = name
        self.options = options
        self.state = state if state is not None else PublisherState()
        outboxes = self.state.outboxes.items()
        self._busy = {topic: None for topic, outbox in outboxes if not outbox.is_idle()}
        self._under_way = {event.id for _, outbox in outboxes for event in outbox.events()}

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
            case Refused() if self._is_home(source, message.topic):
                effects.notify.append(message)
        self._wish(effects, now)
        return effects

    def tick(self, now: float) -> Effects:
        """Repeat what was not answered. Every request may be repeated: homes and slots know repeats."""
        effects = Effects()
        if self.state.retry_due is not None and now >= self.state.retry_due:
            self.state.retry_due = None
            for topic in self._busy:
                outbox = self.state.outboxes[topic]
                if outbox.asked and outbox.granted is None:
                    self._ask(topic, outbox, effects)
                if outbox.batch is not None:
                    for number, slot in outbox.batch.slots.items():
                        effects.send.append((BROKER, Write(topic, number, slot.entries, slot.event, slot.proof)))
        self._wish(effects, now)
        return effects

    def explain(self) -> list[str]:
        """What is not published yet, and who has to answer."""
        lines = []
        for topic, outbox in sorted(self.state.outboxes.items()):
            whom = "the broker" if self.options.mode == "log" else self.tree.home(topic)
            if outbox.asked:
                lines.append(f"{outbox.asked} events of {topic}: request {outbox.request} waits for {whom}")
            if outbox.batch is not None:
                numbers = ", ".join(map(str, outbox.batch.slots))
                lines.append(f"{topic} {numbers}: waits for the broker to take it")
            if waiting := len(outbox.queue) - outbox.asked + outbox.withdrawn:
                lines.append(f"{waiting} events of {topic}: wait for the request under way")
        return lines

    def _is_home(self, source: Address, topic: Topic) -> bool:
        return self.tree.knows(topic) and source == self.tree.home(topic)

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
        for event in message.events:
            outbox = self.state.outboxes.get(event.topic)
            if outbox is None:
                outbox = self.state.outboxes[event.topic] = Outbox()
            outbox.queue.append(event)
            if self.options.causal:
                self.state.line.append(event.topic)
        for topic in dict.fromkeys(event.topic for event in message.events):
            self._pump(topic, effects)

    def _pump(self, topic: Topic, effects: Effects) -> None:
        """Something changed on this topic: start a request if events wait and none is under way."""
        outbox = self.state.outboxes[topic]
        if not self.options.causal:
            if outbox.queue and not outbox.asked:
                self._begin(topic, outbox, len(outbox.queue), effects)
        elif self.state.line and not self._busy:
            (topic,) = self.state.line.take()
            self._begin(topic, self.state.outboxes[topic], 1, effects)

    def _begin(self, topic: Topic, outbox: Outbox, count: int, effects: Effects) -> None:
        outbox.asked = 1 if self.options.mode == "log" else min(count, self.options.ticket_count_max)
        outbox.request += 1
        outbox.settled, outbox.untold = outbox.untold, 0
        self._busy[topic] = None
        self._ask(topic, outbox, effects)

    def _ask(self, topic: Topic, outbox: Outbox, effects: Effects) -> None:
        if self.options.mode == "log":
            effects.send.append((BROKER, Append(outbox.queue.first)))
        else:
            ticket = Ticket(outbox.request, topic, outbox.asked, outbox.settled)
            effects.send.append((self.tree.home(topic), ticket))

    def _on_granted(self, message: Granted, effects: Effects) -> None:
        outbox = self.state.outboxes.get(message.topic)
        if outbox is not None and outbox.asked and message.request == outbox.request:
            outbox.granted = message
            self._write(message.topic, outbox, effects)

    def _write(self, topic: Topic, outbox: Outbox, effects: Effects) -> None:
        """Write the next batch, from its first number up, once the one before is on the broker: what that one loses
        must go first."""
        granted = outbox.granted
        if granted is None or outbox.batch is not None:
            return
        events = outbox.queue.take(outbox.asked - outbox.withdrawn)
        outbox.batch = Batch(granted.first, {}, abandoned=outbox.withdrawn > 0)
        outbox.asked, outbox.withdrawn, outbox.granted = 0, 0, None
        for number, event in enumerate(events, granted.first):
            entries = granted.entries if number == granted.first or self.options.full_stamps else {}
            proof = granted.proof if granted.rest is None or number == granted.first else granted.rest
            outbox.batch.slots[number] = Slot(event, entries, proof)
            effects.send.append((BROKER, Write(topic, number, entries, event, proof)))
        if not events:
            outbox.batch = None
            self._rest(topic, outbox, effects)
        self._pump(topic, effects)

    def _on_written(self, message: Written, effects: Effects) -> None:
        outbox = self.state.outboxes.get(message.topic)
        batch = outbox.batch if outbox is not None else None
        slot = batch.slots.pop(message.number, None) if batch is not None else None
        if outbox is None or batch is None or slot is None:
            return
        if message.event_id == slot.event.id and message.proof == slot.proof:
            self._under_way.discard(slot.event.id)
            effects.notify.append(Published(slot.event, message.number, slot.entries))
        else:  # voided before we got there, or somebody else was faster: the event needs a new number
            self.state.lost_slots += 1
            batch.lost[message.number] = slot.event
            if message.event_id is not None:
                batch.stolen.append(message.number)
        self._finish_batch(message.topic, outbox, batch, effects)

    def _finish_batch(self, topic: Topic, outbox: Outbox, batch: Batch, effects: Effects) -> None:
        """A settled range goes with the topic's next ticket, if one is sent now; else its home is told apart."""
        before = len(effects.send)
        if not batch.slots:
            outbox.batch = None
            if not batch.abandoned:
                outbox.untold = batch.first
            if batch.stolen:
                self._tell_settled(topic, outbox, tuple(batch.stolen), effects, before)
            self._publish_again(topic, outbox, batch)
            self._write(topic, outbox, effects)
        self._rest(topic, outbox, effects)
        self._tell_settled(topic, outbox, (), effects, before)

    def _tell_settled(
        self, topic: Topic, outbox: Outbox, stolen: tuple[Number, ...], effects: Effects, place: int
    ) -> None:
        if outbox.untold:
            effects.send.insert(place, (self.tree.home(topic), Settled(topic, outbox.untold, stolen)))
            outbox.untold = 0

    def _publish_again(self, topic: Topic, outbox: Outbox, batch: Batch) -> None:
        """What lost its slot goes first, in its old order: a request under way is for a count, not for an event."""
        again = [event for _, event in sorted(batch.lost.items())]
        outbox.queue.put_back(again)
        if self.options.causal:
            self.state.line.put_back([topic] * len(again))

    def _on_appended(self, message: Appended, effects: Effects) -> None:
        outbox = self.state.outboxes.get(message.topic)
        if outbox is not None and outbox.asked and outbox.queue.first.id == message.event_id:
            (event,) = outbox.queue.take()
            outbox.asked = 0
            self._under_way.discard(event.id)
            effects.notify.append(Published(event, message.number, {}))
            self._rest(message.topic, outbox, effects)

    def _on_withdraw(self, message: Withdraw, effects: Effects) -> None:
        """Forget an event wherever it is. A number it was given is left to its home, which voids it after the lease."""
        topic, outbox = message.topic, self.state.outboxes.get(message.topic)
        if outbox is None or all(event.id != message.event_id for event in outbox.events()):
            return
        self._under_way.discard(message.event_id)
        for index, event in enumerate(outbox.queue):
            if event.id == message.event_id:
                outbox.queue.remove(index)
                self._forget_queued(topic, outbox, index)
                self._rest(topic, outbox, effects)
                return
        batch = outbox.batch
        assert batch is not None, "what is not queued is in the batch"
        batch.abandoned = True
        batch.slots = {number: slot for number, slot in batch.slots.items() if slot.event.id != message.event_id}
        batch.lost = {number: event for number, event in batch.lost.items() if event.id != message.event_id}
        self._finish_batch(topic, outbox, batch, effects)

    def _forget_queued(self, topic: Topic, outbox: Outbox, index: int) -> None:
        asked = outbox.asked - outbox.withdrawn
        if index >= asked:  # not asked for yet
            if self.options.causal:
                places = [place for place, waiting in enumerate(self.state.line) if waiting == topic]
                self.state.line.remove(places[index - asked])
        elif self.options.mode == "log":
            outbox.asked = 0
        else:
            outbox.withdrawn += 1

    def _rest(self, topic: Topic, outbox: Outbox, effects: Effects) -> None:
        if outbox.is_idle():
            self._busy.pop(topic, None)
        self._pump(topic, effects)

    def _wish(self, effects: Effects, now: float) -> None:
        if not self._busy:
            self.state.retry_due = None
        elif self.state.retry_due is None:
            self.state.retry_due = now + self.options.retry_ms
        effects.wake_at = self.state.retry_due
