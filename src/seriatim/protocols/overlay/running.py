"""Brokers and clients as live processes run them: over connections that lose nothing while they last.

It adds this to node.py:

- What the last connection lost is sent again as soon as there is a new one; the retry timer is the last resort.
- Of a large backlog no more is under way than a connection can hold (window.py).
- An input that makes no sense is skipped, in the journal too, so it does not block its link.
- A neighbour that has lost its journal is reported to the operator.
- The link to a forgotten client is dropped.
"""

from typing import Any, TypeAlias

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
        """What finds no room is left out here; its link keeps it until its turn comes."""
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
        """All that there is room for, in order, and how far we are: what went out before the connection is lost."""
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


class BrokerNode(ConnectedNode):
    """The machine of a broker."""

    passes_over = (RemoteError, InputError)  # an InputError: of a filter that nobody can read, say
    inner: Broker
    state: LinkedState

    def knows(self, client: Address) -> bool:
        """Whether it is a client that was not forgotten."""
        side = self.inner.state.clients.get(client)
        return client in self.state.links and (side is None or not side.forgotten)

    @property
    def clients(self) -> list[Address]:
        """Everybody it has a link to, besides its neighbours."""
        return [address for address in self.state.links if address not in self.inner.place.neighbours]

    def unacknowledged(self, address: Address) -> int:
        """How much is kept for somebody."""
        link = self.state.links.get(address)
        return len(link.unacknowledged) if link is not None else 0

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        lost = None
        if type(message) is Frame:
            link = self.state.links.get(source)
            if link is None and message.number != 1:
                return Effects()  # from a forgotten client; a new one begins with 1
            if source in self.inner.place.neighbours:
                lost = self._amnesia(source, message)
        effects = super().step(source, message, now)
        self._tell_of(lost, source, effects)
        return effects

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        for client in [each for each in self.state.gone if each not in self.inner.state.clients]:
            self.state.gone.discard(client)  # since an earlier step: nothing more can be for it
        return super()._step(source, message, now, framed)

    def _forget(self, whom: Address) -> None:
        super()._forget(whom)
        self.state.links.pop(whom, None)
