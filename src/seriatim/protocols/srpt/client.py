"""A subscriber of SRPT-B: connected to one broker, which sends it what it asked for."""

from msgspec import Struct, field

from seriatim.model import APPLICATION, Address, Notification, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.srpt.messages import Fall, Grow, Prune, Rise
from seriatim.protocols.srpt.node import root_of
from seriatim.protocols.vcube.cube import Cube, Id, address_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Subscribed, Unsubscribe, Unsubscribed


class ClientState(Struct):
    notified: dict[Topic, int] = field(default_factory=dict)


class Client:
    """`brokers` are the nodes of the tree; `broker` is the one this client is connected to."""

    def __init__(self, brokers: Cube, broker: Id, root: Id | None = None, state: ClientState | None = None) -> None:
        self.brokers = brokers
        self.broker = address_of(broker)
        self.root = root
        self.state = ClientState() if state is None else state

    def tick(self, now: float) -> Effects:
        return Effects()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Subscribe(topic) if source == APPLICATION:
                effects.send.append((self.broker, Grow(topic)))
                effects.notify.append(Subscribed(topic))
            case Unsubscribe(topic) if source == APPLICATION:
                effects.send.append((self.broker, Prune(topic)))
                effects.notify.append(Unsubscribed(topic))
            case Publish(event) if source == APPLICATION:
                root = root_of(self.brokers, event.topic) if self.root is None else self.root
                effects.send.append((address_of(root), Rise(event)))
            case Fall(event) if source == self.broker:
                number = self.state.notified[event.topic] = self.state.notified.get(event.topic, 0) + 1
                effects.notify.append(Notification(event, number, {}))
            case _:
                raise RemoteError(f"{source} sent a client what it does not understand: {message!r}")
        return effects
