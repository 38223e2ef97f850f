"""The order of paper 003 as printed: detection by hops, request and wait flags, delivery sorted by publication id.

Algorithms 1 to 5 with both optimisations (progressive delivery, fast detection), as the prose tells them where the
listings contradict it. Everything around it (tables, clients, links) is that of `protocols.overlay`.
"""

from typing import ClassVar

from msgspec import Struct, field

from seriatim.filters import Filter
from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.broker import Broker
from seriatim.protocols.overlay.messages import Key, Publication
from seriatim.protocols.overlay.options import Order, OverlayOptions
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.state import BrokerState, Offer
from seriatim.protocols.overlay.tables import Matching, filter_of
from seriatim.protocols.overlay.topology import Place


class Carry(Struct, frozen=True, tag=True):
    """A publication with the paper's two flags: request an acknowledgement from here, wait for one from me."""

    publication: Publication
    request: bool = False
    wait: bool = False


class Ack(Struct, frozen=True, tag=True):
    """Promises that nothing more that conflicts with this publication comes from the sender."""

    key: Key


class Pending(Struct, array_like=True):
    """One publication at one broker: `acks[h]` are the hops that have to acknowledge before h gets it, or its ack."""

    acks: dict[Address, set[Address]] = field(default_factory=dict)


class PrintedState(BrokerState, array_like=True):
    """The state of a broker of the paper, besides its tables."""

    pending: dict[Key, Pending] = field(default_factory=dict)
    delayed: dict[Address, list[Publication]] = field(default_factory=dict)  # by client, as they came


class PrintedOrder(Ordering):
    """Conflict detection and resolution."""

    def accept(self, client: Address, publication: Publication, matching: Matching, effects: Effects) -> None:
        self._forward(Carry(publication), client, matching, effects)

    def receive(self, source: Address, message: Payload, effects: Effects) -> None:
        match message:
            case Carry():
                self._forward(message, source, self._matching(message.publication), effects)
            case Ack(key):
                self._acknowledged(key, source, effects)
            case _:
                raise RemoteError(f"{source} sent {self.broker.place.name} what it does not understand: {message!r}")

    def _forward(self, carried: Carry, source: Address, matching: Matching, effects: Effects) -> None:
        """Algorithm 3: detect, flag, answer requests, and forward."""
        publication = carried.publication
        hops = [hop for hop in sorted(matching) if hop != source or hop not in self.broker.place.neighbours]
        pending = Pending({hop: {source} for hop in hops} if carried.wait else {})
        requested: set[Address] = set()
        for hop in hops:
            rivals = self._conflicting(hop, hops, matching)
            if rivals:
                requested.add(hop)
            for rival in rivals:
                pending.acks.setdefault(rival, set()).add(hop)
        waiting = {hop for hop in hops if pending.acks.get(hop)}
        if carried.request:
            open_hops = {hop for hop in hops if hop in self.broker.place.neighbours and self._offers(hop, matching)}
            requested |= open_hops
            if open_hops:
                pending.acks[source] = open_hops
            else:
                effects.send.append((source, Ack(publication.key)))
        self._state.pending[publication.key] = pending
        for hop in hops:
            if hop in self.broker.place.neighbours:
                effects.send.append((hop, Carry(publication, hop in requested, hop in waiting)))
            else:
                self._state.delayed.setdefault(hop, []).append(publication)
        self._clean(publication.key)
        for hop in hops:
            self._deliver(hop, effects)

    def _conflicting(self, hop: Address, hops: list[Address], matching: Matching) -> list[Address]:
        """Algorithm 1: the hops where somebody wants what a publisher beyond `hop` may send to `hop` as well."""
        if hop not in self.broker.place.neighbours:
            return []
        offered = self._offers(hop, matching)
        wanted = self.broker.state.routes.wanted
        return [
            rival
            for rival in hops
            if rival != hop
            and any(offer.intersects(filter_of(wanted[rival][id])) for id in matching[rival] for offer in offered)
        ]

    def _offers(self, hop: Address, matching: Matching) -> list[Filter]:
        """The part of what is advertised beyond `hop` that the subscriptions there want, which match this one."""
        routes = self.broker.state.routes
        found = []
        for advertised in routes.offered.get(hop, {}).values():
            for id in matching.get(hop, []):
                both = filter_of(advertised.where).intersection(filter_of(routes.wanted[hop][id]))
                if both is not None:
                    found.append(both)
        return found

    def _acknowledged(self, key: Key, source: Address, effects: Effects) -> None:
        """Algorithm 5."""
        pending = self._state.pending.get(key)
        if pending is None:
            return
        for hop, acks in sorted(pending.acks.items()):
            if source not in acks:
                continue
            acks.discard(source)
            if not acks and hop in self.broker.place.neighbours:
                effects.send.append((hop, Ack(key)))
        self._clean(key)
        for client in sorted(self._state.delayed):
            self._deliver(client, effects)

    def _deliver(self, client: Address, effects: Effects) -> None:
        """Progressive delivery: from the head up to the first that is not acknowledged, sorted by publication id."""
        queue = self._state.delayed.get(client, [])
        count = 0
        while count < len(queue) and not self._waits(queue[count].key, client):
            count += 1
        for publication in sorted(queue[:count], key=publication_id):
            ids = self._matching(publication).get(client, [])
            if ids:
                self.broker.deliver(client, ids, publication, effects)
        del queue[:count]
        if not queue:
            self._state.delayed.pop(client, None)

    def _waits(self, key: Key, client: Address) -> bool:
        pending = self._state.pending.get(key)
        return pending is not None and bool(pending.acks.get(client))

    def _clean(self, key: Key) -> None:
        if not any(self._state.pending[key].acks.values()):
            del self._state.pending[key]

    @property
    def _state(self) -> PrintedState:
        state = self.broker.state
        assert isinstance(state, PrintedState), "the printed order comes with its broker"
        return state

    def explain(self) -> list[str]:
        return [f"{len(queue)} publications for {client} wait" for client, queue in sorted(self._state.delayed.items())]


class PrintedBroker(Broker):
    """A broker whose order by resolution is the printed one. Advertisements are acknowledged, which is ours."""

    orderings: ClassVar[dict[Order, type[Ordering]]] = {**Broker.orderings, "resolution": PrintedOrder}

    def __init__(self, place: Place, options: OverlayOptions, state: PrintedState | None = None) -> None:
        super().__init__(place, options, state if state is not None else PrintedState())


class UnacknowledgedBroker(PrintedBroker):
    """A broker as in the paper: a client may publish as soon as it has advertised."""

    def _may_publish(self, fitting: list[Offer]) -> bool:
        return True


def publication_id(publication: Publication) -> tuple[Address, int]:
    """The publisher's id and its counter: publications are sorted by these."""
    return publication.origin.partition("/")[2], int(publication.key.rpartition(".")[2])
