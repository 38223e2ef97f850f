"""Brokers and clients as live processes run them: over connections that lose nothing while they last.

What node.py does for every machine, and in addition: whatever the last connection lost is sent again as soon as there
is a new one, so the clock is only the last resort; of a large backlog so much is under way as a connection can hold
(window.py); something senseless is passed over, in the journal too, instead of
blocking the link it came on; a neighbour that has lost its journal is told of; and the link to a client that is
forgotten is forgotten.
"""

from typing import Any

from msgspec import Struct, field

from seriatim.model import Address, InputError, RemoteError
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.broker import Broker
from seriatim.protocols.overlay.client import Client
from seriatim.protocols.overlay.messages import Between, Forget, Reached, ToClient
from seriatim.protocols.overlay.node import Node
from seriatim.protocols.overlay.state import BrokerState
from seriatim.protocols.overlay.window import Window


class Nonsense(Struct, frozen=True, tag=True):
    """To whoever watches: this was passed over."""

    source: Address
    reason: str


class Amnesia(Struct, frozen=True, tag=True):
    """To whoever watches: this neighbour knows less of what we sent than it had acknowledged."""

    source: Address
    acknowledged: int
    known: int


class LinkedState(Struct, array_like=True):
    """A broker with its links: what a snapshot holds."""

    inner: BrokerState
    links: dict[Address, Link[ToClient | Between]]
    epoch: int
    gone: set[Address] = field(default_factory=set)


class ConnectedNode(Node):
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
        effects.send = [(target, frame) for target, frame in effects.send if self._window(target).admits(frame)]
        return effects

    def _window(self, address: Address) -> Window:
        window = self._windows.get(address)
        if window is None:
            window = self._windows[address] = Window(self.state.links[address])
        return window

    def _resend(self, address: Address, link: Link[Any], now: float) -> list[Frame[Any]]:
        link.resend_due = now + self.retry_ms
        return self._window(address).repeat(link, self.state.epoch)

    def _replay(self, record: Any) -> None:
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
        self._wish(effects)
        return effects


class ClientNode(ConnectedNode):
    """The machine of a client; it remembers nothing beyond its process."""

    inner: Client

    def __init__(self, client: Client, retry_ms: float) -> None:
        super().__init__(client, retry_ms, journals=False)

    @property
    def is_known(self) -> bool:
        """Whether its broker must know it: it has acknowledged or sent something."""
        link = self.state.links.get(self.inner.broker)
        return link is not None and (link.received > 0 or link.sent > len(link.unacknowledged))


class BrokerNode(ConnectedNode):
    """The machine of a broker."""

    inner: Broker

    def __init__(self, broker: Broker, retry_ms: float) -> None:
        super().__init__(broker, retry_ms)
        self.amnesiacs: dict[Address, Amnesia] = {}

    @property
    def linked_state(self) -> LinkedState:
        """For a snapshot."""
        return LinkedState(self.inner.state, self.state.links, self.state.epoch, self.state.gone)

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
                return Effects()  # of somebody who is forgotten; who is not begins with 1
            lost = self._amnesia(source, link, message)
        effects = super().step(source, message, now)
        if lost is not None and source not in self.amnesiacs:
            self.amnesiacs[source] = lost
            effects.notify.append(lost)
        elif lost is None:
            self.amnesiacs.pop(source, None)
        return effects

    def explain(self) -> list[str]:
        lines = super().explain()
        for source, each in sorted(self.amnesiacs.items()):
            lines.append(
                f"{source} has lost its journal: it knows {each.known} of the {each.acknowledged} messages it had; "
                "what is for it is kept here until its journal is restored"
            )
        return lines

    def _amnesia(self, source: Address, link: Link[Any] | None, frame: Frame[Any]) -> Amnesia | None:
        if link is None or source not in self.inner.place.neighbours or frame.epoch < link.peer_epoch:
            return None
        acknowledged = link.sent - len(link.unacknowledged)
        return Amnesia(source, acknowledged, frame.received) if frame.received < acknowledged else None

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        for client in [each for each in self.state.gone if each not in self.inner.state.clients]:
            self.state.gone.discard(client)  # since an earlier step: nothing more can be for it
        try:
            effects = super()._step(source, message, now, framed)
        except (RemoteError, InputError) as error:  # of a filter, say, that nobody can read
            effects = Effects()
            effects.notify.append(Nonsense(source, str(error)))
            effects.persist.append(self.stepped(source, message, now, framed))
        if isinstance(message, Forget):
            self.state.links.pop(message.client, None)
        return effects
