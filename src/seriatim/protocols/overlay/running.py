"""Brokers and clients as live processes run them: over connections that lose nothing while they last.

It adds this to node.py:

- What the last connection lost is sent again as soon as there is a new one; the retry timer is the last resort.
- Of a large backlog no more is under way than a connection can hold (window.py).
- An input that makes no sense is skipped, in the journal too, so it does not block its link.
- A neighbour that has lost its journal is reported to the operator.
- *Who is behind stops.* What comes from a neighbour says how much it has received, and how much of what it sent it
  knows to be received. If that is more than the journal here knows of, the journal is an old copy, or another process
  runs this broker: it says so (`Outdated`), and is mute for ever. Until a neighbour was heard, nothing is sent to it
  that it could take for something else. A client that knows more than its broker is reported, to be forgotten.
- The link to a forgotten client is dropped.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from seriatim.model import Address, InputError, RemoteError
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import JournaledNode, NodeState
from seriatim.protocols.overlay.broker import Broker
from seriatim.protocols.overlay.client import Client
from seriatim.protocols.overlay.messages import Between, Forget, Reached, ToClient
from seriatim.protocols.overlay.state import BrokerState
from seriatim.protocols.overlay.window import Window

LinkedState: TypeAlias = NodeState[BrokerState, ToClient | Between]  # a snapshot of a broker


GREETINGS_MAX = 5  # retries to somebody who says nothing: a build that does not answer greetings


class Outdated(Struct, frozen=True, tag=True):
    """To the driver: `source` has seen more of this broker than its journal knows.

    `is_client`: only its subscriptions are concerned. Else this broker must stop.
    """

    source: Address
    reason: str
    is_client: bool = False


class ConnectedNode(JournaledNode):
    """A machine whose links are told of new connections, and have no more under way than one can hold."""

    def __init__(self, inner: Any, retry_ms: float, journals: bool = True) -> None:
        super().__init__(inner, retry_ms, journals)
        self._windows: dict[Address, Window] = {}

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if isinstance(message, Reached):
            return self._repeat(message.address, now)
        effects = super().step(source, message, now)
        if type(message) is Frame:
            window, link = self._windows.get(source), self.state.links.get(source)
            if window is not None and link is not None:
                effects.send.extend((source, frame) for frame in window.go_on(link, self.state.epoch))
        elif isinstance(message, Forget):
            self._windows.pop(message.client, None)
        return effects

    def _framed(self, effects: Effects, now: float) -> Effects:
        """Send only what the window admits. The link keeps the rest until its turn comes."""
        effects = super()._framed(effects, now)
        effects.send = [
            (target, frame)
            for target, frame in effects.send
            if type(frame) is Frame and self._window(target).admits(frame)
        ]
        return effects

    def _window(self, address: Address) -> Window:
        window = self._windows.get(address)
        if window is None:
            window = self._windows[address] = Window(self.state.links[address])
        return window

    def _resend(self, address: Address, link: Link[Any], now: float) -> list[Frame[Any]]:
        link.resend_due = now + self.retry_ms
        return self._window(address).repeat(link, self.state.epoch)

    def _replay(self, record: Payload) -> None:
        super()._replay(record)
        self._windows.clear()  # nothing is under way

    def _repeat(self, address: Address, now: float) -> Effects:
        """Send all that fits, in order, and how far we are: what was sent before this connection is lost."""
        effects = Effects()
        link = self.state.links.get(address)
        if link is not None:
            epoch = self.state.epoch
            window = self._windows[address] = Window(link)
            frames = window.go_on(link, epoch)
            effects.send = [(address, frame) for frame in frames or [link.acknowledgement(epoch)]]
            if link.unacknowledged:
                link.resend_due = now + self.retry_ms
                self._plan_resend(address, link)
        return self._wish(effects)


class ClientNode(ConnectedNode):
    """The machine of a client; it remembers nothing beyond its process."""

    inner: Client

    def __init__(self, client: Client, retry_ms: float) -> None:
        super().__init__(client, retry_ms, journals=False)

    @property
    def is_known(self) -> bool:
        """Whether its broker must know it: it has acknowledged or sent something."""
        link = self.state.links.get(self.inner.broker)
        return link is not None and (link.received > 0 or link.acknowledged > 0)


def _has_body(message: Payload) -> bool:
    return type(message) is not Frame or message.body is not None


class BrokerNode(ConnectedNode):
    """The machine of a broker."""

    passes_over = (RemoteError, InputError)  # an InputError: of a filter that nobody can read, say
    inner: Broker
    state: LinkedState

    outdated: Outdated | None = None

    def __init__(self, inner: Any, retry_ms: float, journals: bool = True) -> None:
        super().__init__(inner, retry_ms, journals)
        self.unheard: dict[Address, int] = {}  # neighbours that may know more, and how often they did not answer

    def confirm(self) -> None:
        """Hear every neighbour before anything is sent to it."""
        self.unheard = dict.fromkeys(self.inner.place.neighbours, 0)

    def knows(self, client: Address) -> bool:
        """Whether a client is connected to this broker and not forgotten."""
        side = self.inner.state.clients.get(client)
        return client in self.state.links and (side is None or not side.forgotten)

    @property
    def clients(self) -> list[Address]:
        """Everybody it has a link to, besides its neighbours."""
        return [address for address in self.state.links if address not in self.inner.place.neighbours]

    def unacknowledged(self, address: Address) -> int:
        """How many messages are kept for a neighbour or client until it acknowledges them."""
        link = self.state.links.get(address)
        return len(link.unacknowledged) if link is not None else 0

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if self.outdated is not None:
            return Effects()
        if type(message) is not Frame:
            return super().step(source, message, now)
        is_neighbour, link = source in self.inner.place.neighbours, self.state.links.get(source)
        if link is None and not is_neighbour and message.number != 1:
            return Effects()  # from a forgotten client; a new one begins with 1
        if (why := self._why_behind(link if link is not None else Link(), message)) is not None:
            found = Outdated(source, why, is_client=not is_neighbour)
            self.outdated = found if is_neighbour else None
            return Effects(notify=[found])
        if link is None and message.number == 0:
            self.unheard.pop(source, None)
            return self._idle()  # it has not sent anything yet
        lost = self._amnesia(source, message) if is_neighbour else None
        is_first = self.unheard.pop(source, None) is not None
        effects = super().step(source, message, now)
        if is_first:
            effects.add(self._repeat(source, now))
        self._tell_of(lost, source, effects)
        return effects

    def tick(self, now: float) -> Effects:
        return super().tick(now) if self.outdated is None else Effects()

    def _why_behind(self, link: Link[Any], frame: Frame[Any]) -> str | None:
        """What the sender of a frame has seen that the journal here does not know of."""
        if frame.received > link.sent:
            return f"it has received {frame.received} messages; the journal here knows of {link.sent}"
        if frame.number or frame.body is not None:
            return None
        if frame.heard > self.epoch:
            return f"it has heard epoch {frame.heard}; this one is {self.epoch}"
        if frame.acknowledged > link.received:
            known = f"the journal here knows of {link.received}"
            return f"{frame.acknowledged} of its messages were received; {known}"
        return None

    def _framed(self, effects: Effects, now: float) -> Effects:
        effects = super()._framed(effects, now)
        if self.unheard:
            effects.send = [each for each in effects.send if each[0] not in self.unheard or not _has_body(each[1])]
        return effects

    def _resend(self, address: Address, link: Link[Any], now: float) -> list[Frame[Any]]:
        if address not in self.unheard:
            return super()._resend(address, link, now)
        link.resend_due = now + self.retry_ms
        self.unheard[address] += 1
        if self.unheard[address] > GREETINGS_MAX:
            del self.unheard[address]
        return [link.acknowledgement(self.epoch)]

    def _repeat(self, address: Address, now: float) -> Effects:
        """To a neighbour first of all how far we are: it compares that, and so do we with what it says."""
        if address not in self.inner.place.neighbours:
            return super()._repeat(address, now)
        greeting = (address, self.state.links.get(address, Link[Any]()).acknowledgement(self.epoch))
        if address in self.unheard:
            self.unheard[address] = 0
            return self._wish(Effects(send=[greeting]))
        effects = super()._repeat(address, now)
        effects.send = [greeting, *(each for each in effects.send if _has_body(each[1]))]
        return effects

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        for client in [each for each in self.state.gone if each not in self.inner.state.clients]:
            self.state.gone.discard(client)  # since an earlier step: nothing more can be for it
        return super()._step(source, message, now, framed)

    def _forget(self, whom: Address) -> None:
        super()._forget(whom)
        self.state.links.pop(whom, None)
