"""SRPT-B: the tree is one of brokers; a client talks to one broker, which sends it everything itself."""

from msgspec import Struct, field

from seriatim.lab.papers.srpt.messages import (
    Join,
    Joined,
    Leave,
    Pub,
    Publish,
    Request,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from seriatim.lab.papers.srpt.node import Branch, SrptNode
from seriatim.lab.papers.srpt.overlay import Overlay
from seriatim.model import APPLICATION, Address, InputError, Notification, Number, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube.cube import Id


class Audience(Struct):
    """The clients of one broker that hold one topic, in the order they came, with their last join."""

    members: dict[Address, int] = field(default_factory=dict)
    waiting: dict[Address, int] = field(default_factory=dict)  # the tree does not reach the broker yet


class Broker(SrptNode):
    """A node whose application is its clients. It takes part in a topic's tree while one of them holds the topic."""

    def __init__(self, overlay: Overlay, id: Id) -> None:
        super().__init__(overlay, id)
        self.audiences: dict[Topic, Audience] = {}

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if source == APPLICATION or self.overlay.id_at(source) is not None:
            return super().step(source, message, now)
        effects = Effects()
        match message:
            case Request():
                self.request(message, effects)
            case Join(topic, attempt):
                self._admit(source, attempt, topic, effects)
            case Leave(topic):
                audience = self._audience(topic)
                audience.members.pop(source, None)
                audience.waiting.pop(source, None)
                branch = self.branch(topic)
                branch.subscribed = bool(audience.members or audience.waiting)
                self.prune(topic, branch, effects)
            case _:
                raise RemoteError(f"{source} sent a broker what it does not understand: {message!r}")
        return effects

    def command(self, command: Payload, effects: Effects) -> None:
        raise InputError("command", f"broker {self.id} has no application", "give commands to a client")

    def take(self, pub: Pub, branch: Branch, effects: Effects) -> None:
        members = self._audience(pub.event.topic).members
        if not members:
            self.forwarded += 1
        for client in members:
            effects.send.append((client, pub))

    def reached(self, topic: Topic, branch: Branch, effects: Effects) -> None:
        audience = self._audience(topic)
        waiting, audience.waiting = audience.waiting, {}
        for client, attempt in waiting.items():
            self._welcome(client, attempt, topic, effects)

    def _admit(self, client: Address, attempt: int, topic: Topic, effects: Effects) -> None:
        branch = self.branch(topic)
        branch.subscribed = True
        if branch.attached:
            self._welcome(client, attempt, topic, effects)
        else:
            self._audience(topic).waiting[client] = attempt
            self.attach(topic, branch, effects)

    def _welcome(self, client: Address, attempt: int, topic: Topic, effects: Effects) -> None:
        self._audience(topic).members[client] = attempt
        effects.send.append((client, Joined(topic, attempt, self.branch(topic).number)))

    def _audience(self, topic: Topic) -> Audience:
        audience = self.audiences.get(topic)
        if audience is None:
            audience = self.audiences[topic] = Audience()
        return audience


class Holding(Struct):
    """One topic at one client."""

    attempt: int = 0
    number: Number | None = None  # the last one we were sent; None: not held, or not yet


class Client:
    """Publishes and is notified, through one broker."""

    def __init__(self, broker: Address) -> None:
        self.broker = broker
        self.holdings: dict[Topic, Holding] = {}

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if source not in (self.broker, APPLICATION):
            raise RemoteError(f"{source} is not the broker of this client, which is {self.broker}")
        match message:
            case Pub(number, event):
                self._take(number, message, self._holding(event.topic), effects)
            case Joined(topic, attempt, number):
                holding = self._holding(topic)
                if attempt == holding.attempt:
                    holding.number = number
                    effects.notify.append(Subscribed(topic))
            case Subscribe(topic):
                holding = self._holding(topic)
                if holding.number is not None:
                    effects.notify.append(Subscribed(topic))
                    return effects
                holding.attempt += 1
                effects.send.append((self.broker, Join(topic, holding.attempt)))
            case Unsubscribe(topic):
                holding = self._holding(topic)
                holding.attempt += 1  # an answer that is on its way is to the join before
                holding.number = None
                effects.send.append((self.broker, Leave(topic)))
                effects.notify.append(Unsubscribed(topic))
            case Publish(event):
                effects.send.append((self.broker, Request(event)))
            case _:
                raise InputError("command", f"{message!r} is none of a client's", "see messages.py")
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()

    def _holding(self, topic: Topic) -> Holding:
        holding = self.holdings.get(topic)
        if holding is None:
            holding = self.holdings[topic] = Holding()
        return holding

    def _take(self, number: Number, pub: Pub, holding: Holding, effects: Effects) -> None:
        if holding.number is None:
            return  # it was on its way when we left
        if number != holding.number + 1:
            raise RemoteError(f"{self.broker} sent publication {number} of {pub.event.topic!r} after {holding.number}")
        holding.number = number
        effects.notify.append(Notification(pub.event, number, {}))
