"""The world of `seriatim demo`: one simulated run, watched twice.

A small shop publishes on three topics through a broker, over a network with uneven delays. Every subscriber is watched
in two ways at once: what it would tell its application without Seriatim, and what it tells it with. Both start from the
very same arrivals, so the difference between the two logs is the ordering and nothing else.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from seriatim.lab.sim.delays import Uniform
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.network import Link, reliable_fifo, reliable_unordered
from seriatim.model import (
    BROKER,
    Address,
    Delivery,
    Event,
    History,
    Notification,
    Number,
    Publication,
    Subscription,
    Topic,
)
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.tree import Publisher, SequencerNode, Subscriber, TreeOptions
from seriatim.protocols.with_broker import Change, Changed, Delivered, EventStored, Publish

EVENTS: Mapping[Topic, Sequence[str]] = {
    "orders": ("order 1", "order 2", "order 3"),
    "prices": ("price 9", "price 12", "price 8"),
    "stock": ("stock 5", "stock 4", "stock 0"),
}
HOLDINGS: Mapping[str, frozenset[Topic]] = {
    "billing": frozenset({"orders", "prices"}),
    "shipping": frozenset({"orders", "prices", "stock"}),
    "support": frozenset({"orders", "prices", "stock"}),
}
FIRST_EVENT_MS = 1_000.0  # by then everybody has subscribed
EVENT_INTERVAL_MS = 15.0
END_MS = 10_000.0


def open_shop(seed: int) -> tuple[History, History]:
    """Run the shop once: the log of what was notified without Seriatim, and the log with it."""
    tree = SequencingTree.star({topic: leaf for leaf, topic in enumerate(EVENTS, start=1)}, leaves=len(EVENTS))
    options = TreeOptions()

    def restore(address: Address, journal: Sequence[Payload], epoch: int) -> Machine:
        if address == BROKER:
            return Broker()
        if address in tree.parents:
            return SequencerNode.take_over(tree, address, options, journal)
        return Subscriber(tree, address, options) if address in HOLDINGS else Publisher(tree, address, options)

    watch = Watch()
    simulator = Simulator(seed, link=_link, notified=watch.on_notified)
    for address in (BROKER, *tree.parents, *map(_publisher_of, EVENTS)):
        simulator.add(address, partial(restore, address))
    for name, topics in HOLDINGS.items():
        simulator.add(name, partial(restore, name), observe=partial(watch.on_arrival, name))
        simulator.command(name, Change(add=topics))
    for topic, event_ids in EVENTS.items():
        publisher = _publisher_of(topic)
        for index, event_id in enumerate(event_ids):
            publish = Publish((Event(event_id, topic, publisher),))
            time_ms = FIRST_EVENT_MS + index * EVENT_INTERVAL_MS
            simulator.at(time_ms, partial(simulator.command, publisher, publish))
    simulator.run(until_ms=END_MS)
    return watch.without, watch.with_seriatim


class Watch:
    """Writes down what each subscriber's application is told with Seriatim, and what it would be told without.

    Without: each topic in its own order, as brokers promise; between topics, as they happen to arrive.
    """

    def __init__(self) -> None:
        self.without = History()
        self.with_seriatim = History()
        self._arrived_at: dict[tuple[str, str], float] = {}
        self._early: dict[tuple[str, Topic, Number], Event] = {}
        self._done: Counter[tuple[str, Topic]] = Counter()

    def on_arrival(self, name: str, source: Address, message: Payload, now: float) -> None:
        """A message reaches a subscriber, before its machine sees it."""
        if not isinstance(message, Delivered) or message.event is None:
            return
        topic = message.topic
        self._arrived_at.setdefault((name, message.event.id), now)
        self._early[name, topic, message.number] = message.event
        while event := self._early.pop((name, topic, self._done[name, topic] + 1), None):
            self._done[name, topic] += 1
            self._deliver(self.without, name, event, self._done[name, topic], now)

    def on_notified(self, name: Address, message: Payload, now: float) -> None:
        """A machine tells its application something."""
        match message:
            case Notification(event, number):
                self._deliver(self.with_seriatim, name, event, number, now)
            case EventStored(event, number):
                publication = Publication(event.id, event.topic, name, sequence=number, number=number)
                self.without.publications.append(publication)
                self.with_seriatim.publications.append(publication)
            case Changed():
                for topic, start in sorted(message.start.items()):
                    subscription = Subscription(name, topic, since=0, start=start)
                    self.without.subscriptions.append(subscription)
                    self.with_seriatim.subscriptions.append(subscription)

    def _deliver(self, history: History, name: str, event: Event, number: Number, now: float) -> None:
        position = sum(row.subscriber == name for row in history.deliveries)
        arrived_at = self._arrived_at[name, event.id]
        history.deliveries.append(
            Delivery(name, position, event.id, event.topic, number, received_at=arrived_at, notified_at=now)
        )


def _publisher_of(topic: Topic) -> Address:
    return f"publisher of {topic}"


def _link(source: Address, target: Address) -> Link:
    """From the broker to subscribers every message takes its own way; all other links are ordinary connections."""
    return reliable_unordered(Uniform(2.0, 60.0)) if source == BROKER and target in HOLDINGS else reliable_fifo()
