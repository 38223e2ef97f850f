"""`seriatim demo --simulated`: subscribers of an unordered network disagree, the same run ordered, the audit of both.

A small shop publishes orders, prices and stock levels through a broker, over a network with uneven delays, and its
subscribers hold several of these topics each. The network is simulated once. Every subscriber is watched in two ways:
what it would tell its application without Seriatim, and what it tells it with Seriatim. Both start from the very same
arrivals, so the difference between the two logs is the ordering and nothing else. The same seed is the same run.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest

import click

from seriatim.audit import Report, Row, audit
from seriatim.cli.common import show_json
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

SEED = 1  # the first disagreement it shows is easy to see
GUARANTEES = ("per-topic", "tno", "acyclic", "completeness")
COLUMN_WIDTH = 14

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
    """Records the notifications of each subscriber's application with Seriatim, and those it would get without.
    Without: each topic in its own order, as brokers promise; between topics, as they happen to arrive."""

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
                for history in (self.without, self.with_seriatim):
                    history.publications.append(publication)
            case Changed():
                held = [
                    Subscription(name, topic, since=0, start=start) for topic, start in sorted(message.start.items())
                ]
                for history in (self.without, self.with_seriatim):
                    history.subscriptions.extend(held)

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


def show(seed: int, as_json: bool) -> bool:
    """Run and print it. False: the ordered run is not in order, or something is missing from it."""
    without, ordered = open_shop(seed)
    report_without, report_ordered = audit(without), audit(ordered)
    missing = _missing(ordered)
    if as_json:
        logs = {"without": _summary(without, report_without), "ordered": _summary(ordered, report_ordered)}
        show_json({"seed": seed, **logs, "missing": missing})
    else:
        events = sum(len(events) for events in EVENTS.values())
        click.echo(f"{len(HOLDINGS)} subscribers, {len(EVENTS)} topics, {events} events, one run (seed {seed})\n")
        for line in (*_page_without(without, report_without), "", *_page_ordered(ordered, report_ordered, missing)):
            click.echo(line)
    return not missing and report_ordered.answer(GUARANTEES) == "valid"


def _page_without(history: History, report: Report) -> Iterator[str]:
    yield click.style("Without Seriatim: each topic in its own order, topics as they arrive", bold=True)
    inversion = next((anomaly for anomaly in report.anomalies if anomaly.name == "inversion"), None)
    columns = [_notified(history, name) for name in HOLDINGS]
    yield from _table(columns, marked=inversion.witness if inversion else ())
    yield from _verdicts(report)
    yield f"* {inversion.sentence}" if inversion else "  By luck, nobody disagrees with this seed: try another."


def _page_ordered(history: History, report: Report, missing: list[str]) -> Iterator[str]:
    yield click.style("With Seriatim: the same arrivals, one line per event", bold=True)
    columns: list[list[Delivery | None]] = []
    for name in HOLDINGS:
        rows = {row.event_id: row for row in _notified(history, name)}
        # The auditor's order, which fits everybody, lines the columns up.
        columns.append([rows.get(event_id) for event_id in report.order or rows])
    yield from _table(columns)
    yield from _verdicts(report)
    if missing:
        yield f"  missing: {', '.join(missing)}"
    waits_ms = [(row.notified_at or 0.0) - (row.received_at or 0.0) for row in history.deliveries]
    if waits_ms:
        mean_ms = sum(waits_ms) / len(waits_ms)
        yield f"  waited for stamp and turn: {mean_ms:.0f} ms on average, {max(waits_ms):.0f} ms at most"


def _table(columns: Sequence[Sequence[Delivery | None]], marked: Collection[Row] = ()) -> Iterator[str]:
    yield "  " + "  ".join(f"{name:{COLUMN_WIDTH}}" for name in HOLDINGS).rstrip()
    for rows in zip_longest(*columns):
        cells = ""
        for row in rows:
            text = f"{'*' if row in marked else ' '} {row.event_id if row else ''}"
            cells += click.style(text, fg="red") if row in marked else text
            cells += " " * (COLUMN_WIDTH + 2 - len(text))
        yield cells.rstrip()


def _verdicts(report: Report) -> Iterator[str]:
    colours = {"valid": "green", "invalid": "red", "unknown": "yellow"}
    answers = [(name, report.verdicts[name].answer) for name in GUARANTEES]
    yield "  audit: " + ", ".join(f"{name} {click.style(answer, fg=colours[answer])}" for name, answer in answers)


def _notified(history: History, name: str) -> list[Delivery]:
    return [row for row in history.deliveries if row.subscriber == name]


def _missing(history: History) -> list[str]:
    """What a subscriber holds the topic of and was not notified of: nothing is owed after the run."""
    seen = {(row.subscriber, row.event_id) for row in history.deliveries}
    owed = [(name, event_id) for name, topics in HOLDINGS.items() for topic in topics for event_id in EVENTS[topic]]
    return sorted(f"{event_id} at {name}" for name, event_id in owed if (name, event_id) not in seen)


def _summary(history: History, report: Report) -> dict[str, object]:
    return {
        "notified": {name: [row.event_id for row in _notified(history, name)] for name in HOLDINGS},
        "verdicts": {name: report.verdicts[name].answer for name in GUARANTEES},
        "anomalies": [anomaly.sentence for anomaly in report.anomalies],
    }
