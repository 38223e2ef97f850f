"""The rooted order: a publication climbs as high as its farthest receiver asks, and is notified on the way down.

Two subscribers get whatever both get from above, through the lowest broker that is above both (a broker is above
itself): there it passes once, and links keep the order. That holds whatever else changes.

Whatever climbs comes back: as the publication itself where somebody wants it, else as `Turned`. So a broker knows what
of a publisher is still above, and sends that publisher's next publication after it: its own order is kept too. And
it can notify clients early, on the way up, where nobody can see another order (README.md, "On the way up").
"""

from collections import Counter
from typing import Any

from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.messages import Climb, Descend, Id, Key, Publication, Turned
from seriatim.protocols.overlay.ordering import Ordering, Surroundings
from seriatim.protocols.overlay.state import Climbing


class RootedOrder(Ordering):
    """Order where interests meet."""

    def __init__(self, broker: Surroundings) -> None:
        super().__init__(broker)
        # Counted beside the state, so that a publication costs what it matches and not what is under way.
        self._above: Counter[Address] = Counter()  # by publisher
        self._told: Counter[tuple[Address, Address]] = Counter()  # by client and publisher
        self._tellers: dict[Address, set[Address]] = {}  # by client: the publishers of what it was told early
        self._untold: Counter[Address] = Counter()  # by client
        for climbing in broker.state.climbing.values():
            self._count(climbing, 1)
        self._owners: dict[Address, set[Address]] = {}  # by client: whose events it can get; known again when asked

    def accept(self, client: Address, publication: Publication, effects: Effects) -> None:
        self._climb(publication, client, False, effects)

    def receive(self, source: Address, message: Payload, effects: Effects) -> None:
        match message:
            case Climb(publication, wanted) if source in self.broker.place.children:
                self._climb(publication, source, wanted, effects)
            case Descend(publication) if source == self.broker.place.parent:
                climbing = self._come_back(publication.key)
                self._descend(publication, climbing, self._matching(publication), effects)
                self._came_back(publication.key, climbing, effects)
            case Turned(key) if source == self.broker.place.parent:
                climbing = self._come_back(key)
                if climbing is not None and climbing.direction in self.broker.place.children:
                    effects.send.append((climbing.direction, message))
                self._came_back(key, climbing, effects)
            case _:
                raise RemoteError(f"{source} sent {self.broker.place.name} what it does not understand: {message!r}")

    # ── up ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _climb(self, publication: Publication, source: Address, wanted: bool, effects: Effects) -> None:
        """It goes on to the parent, or turns here. `wanted`: somebody below, on its way so far, waits for it."""
        matching = self._matching(publication)
        climbing = Climbing(publication.origin, source, wanted)
        parent = self.broker.place.parent
        if parent is None or not self._must_climb(publication, parent in matching):
            self._descend(publication, climbing, matching, effects)
            return
        self._tell_early(publication, climbing, matching, effects)
        self.broker.state.climbing[publication.key] = climbing
        self._count(climbing, 1)
        wanted = wanted or any(direction != parent and direction not in climbing.told for direction in matching)
        effects.send.append((parent, Climb(publication, wanted)))

    def _must_climb(self, publication: Publication, wanted_above: bool) -> bool:
        """If somebody beyond the parent wants it, or something of the same publisher is still up there."""
        return wanted_above or self._above[publication.origin] > 0

    def _tell_early(
        self, publication: Publication, climbing: Climbing, matching: dict[Address, list[Id]], effects: Effects
    ) -> None:
        """Notify those clients for whom the way down can make no difference."""
        for direction, ids in sorted(matching.items()):
            if direction in self.broker.place.neighbours:
                continue
            if self.broker.options.early and self._may_tell(direction, publication.origin):
                climbing.told.add(direction)
                self.broker.deliver(direction, ids, publication, effects)
            else:
                climbing.untold.add(direction)

    def _may_tell(self, client: Address, origin: Address) -> bool:
        """If it can get events of this publisher only, and nothing is above that it still has to be notified of."""
        return self._hears_only(client, origin) and not self._is_untold(client)

    def _is_untold(self, client: Address) -> bool:
        return self._untold[client] > 0

    def _hears_only(self, client: Address, origin: Address) -> bool:
        owners = self._owners.get(client)
        if owners is None:
            wheres = self.broker.state.routes.wanted[client].values()
            owners = self._owners[client] = set().union(*map(self.broker.tables.owners, wheres))
        return owners == {origin}

    # ── down ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _descend(
        self,
        publication: Publication,
        climbing: Climbing | None,
        matching: dict[Address, list[Id]],
        effects: Effects,
    ) -> None:
        """It is in its place: to the clients and the children that want it, and back to where it climbed from."""
        place = self.broker.place
        back = climbing.direction if climbing is not None else None
        for direction, ids in sorted(matching.items()):
            if direction in place.children:
                if direction != back:
                    effects.send.append((direction, Descend(publication)))
            elif direction != place.parent and (climbing is None or direction not in climbing.told):
                self._notify(publication, direction, ids, effects)
        if climbing is not None and back in place.children:
            wanted = climbing.wanted or back in matching
            effects.send.append((back, Descend(publication) if wanted else Turned(publication.key)))

    def _notify(self, publication: Publication, client: Address, ids: list[Id], effects: Effects) -> None:
        """In its place; unless the client was told early of something whose place is not known yet.

        That happens only to what is published although not everybody has heard of its advertisement.
        """
        if self._tellers.get(client, {publication.origin}) != {publication.origin}:
            self.broker.miss(client, ids, "it came before everybody had heard of its advertisement", effects)
        else:
            self.broker.deliver(client, ids, publication, effects)

    def _come_back(self, key: Key) -> Climbing | None:
        climbing = self.broker.state.climbing.pop(key, None)
        if climbing is not None:
            self._count(climbing, -1)
        return climbing

    def _count(self, climbing: Climbing, by: int) -> None:
        origin = climbing.origin
        _add(self._above, origin, by)
        for client in climbing.untold:
            _add(self._untold, client, by)
        for client in climbing.told:
            _add(self._told, (client, origin), by)
            tellers = self._tellers.setdefault(client, set())
            if self._told[client, origin]:
                tellers.add(origin)
            else:
                tellers.discard(origin)
            if not tellers:
                del self._tellers[client]

    def _came_back(self, key: Key, climbing: Climbing | None, effects: Effects) -> None:
        if climbing is not None:
            self.broker.returned(key, climbing, effects)

    # ── what the rest of the broker asks ──────────────────────────────────────────────────────────────────────────

    def is_under_way(self, origin: Address) -> bool:
        return self._above[origin] > 0

    def may_subscribe(self, client: Address) -> bool:
        """Not as long as it was notified early of something that has not come back."""
        return client not in self._tellers

    def begin(self, client: Address) -> None:
        """What is above now may match the new subscription when it comes back."""
        for climbing in self.broker.state.climbing.values():
            if client not in climbing.untold:
                climbing.untold.add(client)
                _add(self._untold, client, 1)

    def unanswered(self) -> set[Key]:
        """Who has not heard of an advertisement may have notified early. Nothing of it may come before that is back."""
        return {key for key, climbing in self.broker.state.climbing.items() if climbing.told}

    def changed(self, effects: Effects) -> None:
        self._owners.clear()

    def wants_changed(self, direction: Address, effects: Effects) -> None:
        self._owners.pop(direction, None)

    def explain(self) -> list[str]:
        above = sorted(self._above.items())
        return [f"{count} publications of {origin}: climbed, and have not come back" for origin, count in above]


class CentralOrder(RootedOrder):
    """A central sequencer, for comparison: everything climbs to the root."""

    def _must_climb(self, publication: Publication, wanted_above: bool) -> bool:
        return True

    def _may_tell(self, client: Address, origin: Address) -> bool:
        return False


def _add(counter: Counter[Any], key: Any, by: int) -> None:
    """Count, and forget what is none."""
    counter[key] += by
    if not counter[key]:
        del counter[key]
