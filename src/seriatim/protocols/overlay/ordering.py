"""The interface between an order of publications and the rest of a broker, and the weakest order: each publisher's own.

A broker keeps the tables and the questions; an `Ordering` moves publications. Each rule is one small method, so that
the checkers can be checked by replacing it.
"""

from typing import TYPE_CHECKING

from seriatim.filters import attributes_of
from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.messages import Clock, Key, Publication, Spread
from seriatim.protocols.overlay.tables import Matching

if TYPE_CHECKING:
    from seriatim.protocols.overlay.broker import Broker


class Ordering:
    """Per publisher: everything goes straight to those who want it, and links keep the order."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────

    def accept(self, client: Address, publication: Publication, matching: Matching, effects: Effects) -> None:
        """From a client of this broker. `matching`: who wants it."""
        self._spread(publication, client, matching, effects)

    def receive(self, source: Address, message: Payload, effects: Effects) -> None:
        """From a neighbour."""
        if not isinstance(message, Spread):
            raise RemoteError(f"{source} sent {self.broker.place.name} an unknown message: {message!r}")
        self._spread(message.publication, source, self._matching(message.publication), effects)

    def _spread(self, publication: Publication, source: Address, matching: Matching, effects: Effects) -> None:
        neighbours = self.broker.neighbours
        for direction, ids in sorted(matching.items()):
            if direction not in neighbours:
                self.broker.deliver(direction, ids, publication, effects)
            elif direction != source:
                effects.send.append((direction, Spread(publication)))

    def _matching(self, publication: Publication) -> Matching:
        return self.broker.tables.matching(attributes_of(publication.event.headers))

    # ── what the rest of the broker asks ──────────────────────────────────────────────────────────────────────────

    def is_under_way(self, origin: Address) -> bool:
        """Whether something of this publisher is under way that its withdrawal could overtake."""
        return False

    def may_subscribe(self, client: Address) -> bool:
        """Whether a new subscription of this client can begin now."""
        return True

    def begin(self, client: Address, effects: Effects) -> None:
        """A new subscription of this client begins now."""

    def ask_above(self, effects: Effects) -> None:
        """Called when somebody waits for what is under way: it matters when that has come back."""

    def unanswered(self) -> set[Key]:
        """The publications that have to come back before an advertisement is acknowledged from here."""
        return set()

    def begins_at_once(self) -> bool:
        """Whether a subscription counts from the moment its broker has it; else when its echo has come back."""
        return True

    def stamp(self) -> Clock:
        """The clock of the next publication."""
        return 0

    def hear(self, clock: Clock) -> None:
        """Called with a clock that somebody has told."""

    def changed(self, effects: Effects) -> None:
        """Called when subscriptions or advertisements have changed, or a neighbour does not answer."""

    def wants_changed(self, direction: Address, effects: Effects) -> None:
        """Called when only the wishes of this direction have changed."""
        self.changed(effects)

    def explain(self) -> list[str]:
        """What waits here, and for what."""
        return []
