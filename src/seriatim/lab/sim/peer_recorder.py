"""Writes down what peers of VCube-PS tell their applications, as the rows of model/records.py.

Two things differ from a broker's log. Every life of a peer is a separate subscriber and publisher, because a process
that restarts does not know what its predecessor was notified of. And every topic is a separate history, because the
protocol orders nothing across topics: judged together, two topics would show violations of promises that nobody made.
"""

from msgspec import Struct

from seriatim.model import Address, Delivery, History, Notification, Publication, Subscription, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube.messages import Born, Subscribed, Unsubscribed


class _Stay(Struct):
    """The notifications of one life of a peer about one topic."""

    position: int = 0  # its notifications so far
    sequence: int = 0  # its publications so far
    since: int | None = None  # it holds the topic from here on


class PeerRecorder:
    """Collects the histories of all topics while peers run; `histories` may be asked at any time.

    `notified` is what a `Simulator` calls. The notifications of one peer must come in its order; those of different
    peers may be mixed in any way. An event is its publisher's own if it names the peer's address as `publisher`. It is
    then notified to that peer when it is published, so its place in the peer's log says what the peer had seen.
    """

    def __init__(self) -> None:
        self._histories: dict[Topic, History] = {}
        self._names: dict[Address, str] = {}
        self._stays: dict[tuple[str, Topic], _Stay] = {}
        self._published: set[str] = set()

    def notified(self, address: Address, payload: Payload, now: float | None = None) -> None:
        """A peer tells its application something."""
        name = self._names.get(address, address)
        match payload:
            case Notification():
                self._notification(address, name, payload, now)
            case Subscribed(topic):
                self._begin(name, topic)
            case Unsubscribed(topic):
                self._end(name, topic)
            case Born(births):
                for life, topic in list(self._stays):
                    if life == name:
                        self._end(name, topic)
                self._names[address] = f"{address}.{births}"

    def _notification(self, address: Address, name: str, notification: Notification, now: float | None) -> None:
        event = notification.event
        stay = self._begin(name, event.topic)
        history = self._histories[event.topic]
        if event.publisher == address and event.id not in self._published:  # a later life may be notified of it too
            self._published.add(event.id)
            history.publications.append(Publication(event.id, event.topic, name, now, stay.sequence, stay.position))
            stay.sequence += 1
        barrier = notification.entries
        row = Delivery(name, stay.position, event.id, event.topic, stamp=barrier, notified_at=now)
        history.deliveries.append(row)
        stay.position += 1

    def _begin(self, name: str, topic: Topic) -> _Stay:
        """Note that the peer holds the topic, now at the latest: it may be notified before the application is told that
        it joined."""
        self._histories.setdefault(topic, History())
        stay = self._stays.setdefault((name, topic), _Stay())
        if stay.since is None:
            stay.since = stay.position
        return stay

    def _end(self, name: str, topic: Topic) -> None:
        stay = self._stays.get((name, topic))
        if stay is not None and stay.since is not None:
            row = Subscription(name, topic, stay.since, stay.position)
            self._histories[topic].subscriptions.append(row)
            stay.since = None

    def histories(self) -> dict[Topic, History]:
        """Everything so far, by topic."""
        found = {}
        for topic, history in sorted(self._histories.items()):
            current = [
                Subscription(name, topic, stay.since)
                for (name, held), stay in sorted(self._stays.items())
                if held == topic and stay.since is not None
            ]
            subscriptions = [*history.subscriptions, *current]
            found[topic] = History(list(history.deliveries), list(history.publications), subscriptions)
        return found
