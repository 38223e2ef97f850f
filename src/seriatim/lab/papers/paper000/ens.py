"""The event notification service the paper builds on: reliable, and nothing but fan-out (§2, §3.3)."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from seriatim.lab.papers.paper000.messages import EnsNotify, EnsPublish, EnsSubscribe, EnsSubscribed, EnsUnsubscribe
from seriatim.model import Address, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload


class EnsState(Struct):
    subscribers: dict[Topic, list[Address]]


class Ens:
    """One process that hands every publication to all who subscribed to its topic, in the order they did."""

    def __init__(self, subscribers: Mapping[Topic, Sequence[Address]] | None = None) -> None:
        self.state = EnsState({topic: list(names) for topic, names in (subscribers or {}).items()})

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case EnsPublish(topic, event, timestamp):
                for subscriber in self.state.subscribers.get(topic, ()):
                    effects.send.append((subscriber, EnsNotify(topic, event, timestamp)))
            case EnsSubscribe(topic):
                names = self.state.subscribers.setdefault(topic, [])
                if source not in names:
                    names.append(source)
                effects.send.append((source, EnsSubscribed(topic)))
            case EnsUnsubscribe(topic):
                names = self.state.subscribers.get(topic, [])
                if source in names:
                    names.remove(source)
            case _:
                raise RemoteError(f"{source} sent the ENS what it does not understand: {message!r}")
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()
