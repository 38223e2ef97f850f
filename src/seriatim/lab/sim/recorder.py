"""Writes down what happened, as the rows of model/records.py. It does not know any protocol: the worlds report to it
what they see."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from seriatim.model import (
    Delivery,
    Event,
    Gap,
    History,
    Message,
    Notification,
    Number,
    Publication,
    Subscription,
    Topic,
)


class _Holding(Struct):
    since: int
    start: Number | None = None
    last: Number | None = None
    complete: bool = False  # the change that brought the topic is complete


class _Log(Struct):
    """One subscriber's side of the run."""

    position: int = 0
    received: dict[str, float] = field(default_factory=dict)  # event id → when it first arrived
    joining: list[frozenset[Topic]] = field(default_factory=list)  # of each change under way, the topics it adds
    holdings: dict[Topic, _Holding] = field(default_factory=dict)


class Recorder:
    """Collects a history while a world runs; `history` may be asked at any time."""

    def __init__(self) -> None:
        self.gaps: dict[str, list[Gap]] = {}
        self._logs: dict[str, _Log] = {}
        self._deliveries: list[Delivery] = []
        self._publications: list[Publication] = []
        self._subscriptions: list[Subscription] = []
        self._sequences: dict[str, int] = {}

    def seen(self, subscriber: str) -> int:
        """How many notifications this subscriber has been given."""
        return self._log(subscriber).position

    def held(self, subscriber: str) -> set[Topic]:
        """Which topics this subscriber holds, all changes reported so far being complete."""
        return {topic for topic, holding in self._log(subscriber).holdings.items() if holding.complete}

    def published(self, event: Event, publisher: str, now: float, seen: int | None = None) -> None:
        """An application gave an event to its publisher. Its number is known only to the broker, in the end."""
        sequence = self._sequences[publisher] = self._sequences.get(publisher, -1) + 1
        self._publications.append(Publication(event.id, event.topic, publisher, now, sequence, seen))

    def received(self, subscriber: str, event_id: str, now: float) -> None:
        """An event reached a subscriber, which may hold it back."""
        self._log(subscriber).received.setdefault(event_id, now)

    def notified(self, subscriber: str, notification: Notification, now: float) -> None:
        """An application was notified."""
        log = self._log(subscriber)
        event = notification.event
        holding = log.holdings.get(event.topic)
        if holding is None and any(event.topic in topics for topics in log.joining):
            holding = log.holdings[event.topic] = _Holding(log.position)
        if holding is not None:
            holding.last = notification.number
        self._deliveries.append(
            Delivery(
                subscriber,
                log.position,
                event.id,
                event.topic,
                notification.number,
                notification.entries,
                log.received.get(event.id),
                now,
                notification.out_of_order,
            )
        )
        log.position += 1

    def gap(self, subscriber: str, gap: Gap) -> None:
        """An application was told that it will not get some numbers."""
        self.gaps.setdefault(subscriber, []).append(gap)

    def joining(self, subscriber: str, topics: Iterable[Topic]) -> None:
        """An application asked for a change: from now on these topics may begin, until `holds` reports it complete."""
        self._log(subscriber).joining.append(frozenset(topics))

    def holds(self, subscriber: str, topics: Iterable[Topic], start: Mapping[Topic, Number]) -> None:
        """A change is complete: the subscriber holds exactly these topics; `start` is where each new one begins."""
        log = self._log(subscriber)
        held = set(topics)
        del log.joining[:1]
        for topic, holding in sorted(log.holdings.items()):
            rejoined = topic in start and holding.start is not None
            if topic not in held or rejoined:
                end = holding.start if holding.last is None else holding.last
                row = Subscription(subscriber, topic, holding.since, log.position, holding.start, end)
                self._subscriptions.append(row)
                del log.holdings[topic]
        for topic in sorted(held):
            holding = log.holdings.setdefault(topic, _Holding(log.position))
            holding.start = start.get(topic, holding.start)
            holding.complete = True

    def history(self, numbers: Mapping[str, Number], messages: Iterable[Message] = ()) -> History:
        """Everything so far. `numbers`: which event has which number, according to the broker."""
        publications = [
            Publication(row.event_id, row.topic, row.publisher, row.published_at, row.sequence, row.seen, number)
            for row in self._publications
            for number in (numbers.get(row.event_id),)
        ]
        current = [
            Subscription(subscriber, topic, holding.since, None, holding.start)
            for subscriber, log in sorted(self._logs.items())
            for topic, holding in sorted(log.holdings.items())
        ]
        return History(list(self._deliveries), publications, self._subscriptions + current, list(messages))

    def _log(self, subscriber: str) -> _Log:
        log = self._logs.get(subscriber)
        if log is None:
            log = self._logs[subscriber] = _Log()
        return log
