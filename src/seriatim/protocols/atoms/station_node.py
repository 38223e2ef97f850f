"""A station as it runs: on links, from a journal, with snapshots.

What node.py does for every machine, and in addition: it begins from a snapshot; something senseless is passed over,
in the journal too, instead of blocking the link it came on; a neighbour that has lost its journal is told of; and the
link to somebody who is forgotten is forgotten.
"""

from collections.abc import Callable, Iterable
from typing import Self

from msgspec import Struct

from seriatim.model import Address, Node, RemoteError
from seriatim.protocols.atoms.live_messages import Alive, Amnesia, Forgotten, Input, Nonsense, Sent
from seriatim.protocols.atoms.messages import Forget, TookOver
from seriatim.protocols.atoms.node import Node as LinkedNode
from seriatim.protocols.atoms.station import Station, StationState
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import NodeState


class Step(Struct, frozen=True, tag="Stepped"):
    """As `messages.Stepped`, with everything typed: what a journal on a disk is read as."""

    source: Address
    message: Input
    now: float
    framed: bool


class LinkedState(Struct, array_like=True):
    """A station with its links: what a snapshot holds."""

    station: StationState
    links: dict[Address, Link[Sent]]
    epoch: int


class StationNode(LinkedNode):
    """The machine that a driver runs."""

    inner: Station
    stepped = Step

    def __init__(self, station: Station, retry_ms: float) -> None:
        super().__init__(station, retry_ms)
        self.amnesiacs: dict[Address, Amnesia] = {}

    @classmethod
    def restore(
        cls,
        create: Callable[..., Station],
        retry_ms: float,
        snapshot: LinkedState | None,
        records: Iterable[Step | TookOver],
    ) -> Self:
        """Rebuild a station under a new epoch, which is recorded before anything leaves it."""
        state = NodeState(snapshot.station, snapshot.links, snapshot.epoch) if snapshot is not None else None
        return cls.take_over(create, retry_ms, records, state)

    @property
    def linked_state(self) -> LinkedState:
        """For a snapshot."""
        return LinkedState(self.inner.state, self.state.links, self.state.epoch)

    def answer_alive(self, source: Address, message: Alive) -> Forgotten | None:
        """Changes nothing. None: it is known."""
        link = self.state.links.get(source)
        received = link.received if link is not None else 0
        return Forgotten() if received < message.acknowledged else None

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        link = self.state.links.get(source)
        if type(message) is Frame and link is None and message.number != 1:
            return Effects()  # of somebody who is forgotten; who is not begins with 1
        lost = None
        if type(message) is Frame and link is not None and message.epoch >= link.peer_epoch:
            acknowledged = link.sent - len(link.unacknowledged)
            if message.received < acknowledged:
                lost = Amnesia(source, acknowledged, message.received)
        effects = super().step(source, message, now)
        if lost is not None and source not in self.amnesiacs:
            effects.notify.append(lost)
            self.amnesiacs[source] = lost
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

    def links_of_clients(self, stations: Iterable[Node]) -> list[Address]:
        """Whom this station talks to, besides stations and the broker."""
        known = {*stations, "broker"}
        return [address for address in self.state.links if address not in known]

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        try:
            effects = super()._step(source, message, now, framed)
        except RemoteError as error:
            effects = Effects()
            effects.notify.append(Nonsense(source, str(error)))
            effects.persist.append(Step(source, message, now, framed))
            return effects
        if isinstance(message, Forget):  # nothing that was decided before goes to clients, so no name is remembered
            self._drop_link(message.receiver)
            self.state.gone.discard(message.receiver)
        return effects
