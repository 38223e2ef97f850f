"""SRPT-B: the tree is one of brokers; a client talks to one broker, which sends it everything itself."""

from seriatim.lab.papers.srpt.messages import Request
from seriatim.lab.papers.srpt.node import SrptNode
from seriatim.lab.papers.srpt.overlay import Overlay
from seriatim.model import APPLICATION, Address, InputError, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload


class Broker(SrptNode):
    """A node without an application. Its clients are below it in the trees of the topics that they hold."""

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if type(message) is not Request or self.overlay.id_at(source) is not None:
            return super().step(source, message, now)
        effects = Effects()
        self.request(message, effects)
        return effects

    def command(self, command: Payload, effects: Effects) -> None:
        raise InputError("command", f"broker {self.id} has no application", "give commands to a client")

    def may_be_below(self, child: Address, topic: Topic) -> bool:
        return self.overlay.id_at(child) is None or super().may_be_below(child, topic)


class Client(SrptNode):
    """Publishes and is notified, through one broker: a node below it in every tree."""

    def __init__(self, broker: Address) -> None:
        super().__init__(Overlay([0], prefix="client"), 0)
        self.broker = broker

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if source not in (self.broker, APPLICATION):
            raise RemoteError(f"{source} is not the broker of this client, which is {self.broker}")
        return super().step(source, message, now)

    def parent(self, topic: Topic) -> Address:
        return self.broker

    def request(self, request: Request, effects: Effects) -> None:
        effects.send.append((self.broker, request))
