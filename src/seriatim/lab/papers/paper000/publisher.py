"""The publisher of paper 000, Fig. 16(a): ask for a timestamp, then publish event and timestamp together."""

from msgspec import Struct, field

from seriatim.lab.papers.paper000.messages import CreateTimestamp, EnsPublish, EventTimestamp
from seriatim.lab.papers.paper000.ranks import Ranks, manager_of
from seriatim.model import APPLICATION, BROKER, Address, Event, InputError, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube.messages import Publish


class Outgoing(Struct):
    """An event that waits for its timestamp."""

    event: Event
    asked_at: float


class PublisherState(Struct):
    outgoing: dict[str, Outgoing] = field(default_factory=dict)  # outgoingEvents, by event id


class Publisher:
    """`retry_ms`: how long to wait for a timestamp before asking again (§4, Reliability). None: forever.

    Asking again is the paper's remedy for lost messages; the manager cannot tell it from a new event and takes a
    second number.
    """

    def __init__(self, name: Address, ranks: Ranks, retry_ms: float | None = None) -> None:
        if retry_ms is not None and retry_ms <= 0:
            raise InputError("retry_ms", f"{retry_ms} is not a time to wait", "give a positive number, or None")
        self.name = name
        self.ranks = ranks
        self.retry_ms = retry_ms
        self.state = PublisherState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Publish(event) if source == APPLICATION:
                self._publish(event, now, effects)
            case EventTimestamp(timestamp, event_id):
                outgoing = self.state.outgoing.pop(event_id, None)
                if outgoing is not None:  # otherwise the second answer to a repeated request
                    event = outgoing.event
                    effects.send.append((BROKER, EnsPublish(event.topic, event, timestamp)))
            case _:
                raise RemoteError(f"{source} sent publisher {self.name} what it does not understand: {message!r}")
        self._set_timer(effects)
        return effects

    def tick(self, now: float) -> Effects:
        effects = Effects()
        if self.retry_ms is not None:
            for outgoing in self.state.outgoing.values():
                if outgoing.asked_at + self.retry_ms <= now:
                    outgoing.asked_at = now
                    self._ask(outgoing.event, effects)
        self._set_timer(effects)
        return effects

    def _publish(self, event: Event, now: float, effects: Effects) -> None:
        self.ranks.check(event.topic)
        if event.id in self.state.outgoing:
            raise InputError(f"event id {event.id!r}", "it is already being published", "give every event its own id")
        self.state.outgoing[event.id] = Outgoing(event, asked_at=now)
        self._ask(event, effects)

    def _ask(self, event: Event, effects: Effects) -> None:
        effects.send.append((manager_of(event.topic), CreateTimestamp(event.id, self.name, event.topic)))

    def _set_timer(self, effects: Effects) -> None:
        if self.retry_ms is not None and self.state.outgoing:
            effects.wake_at = min(outgoing.asked_at for outgoing in self.state.outgoing.values()) + self.retry_ms
