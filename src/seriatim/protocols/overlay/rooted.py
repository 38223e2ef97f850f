"""The rooted order: a publication climbs as high as its farthest receiver asks, and is notified on the way down.

Two subscribers get whatever both get from above, through the lowest broker that is above both (a broker is above
itself): there it passes once, and links keep the order. That holds whatever else changes.

Whatever climbs comes back: as the publication itself where somebody wants it, else as `Turned`. So a broker knows what
of a publisher is still above, and sends that publisher's next publication after it: its own order is kept too. And
it can notify clients early, on the way up, where nobody can see another order (README.md, "On the way up").
"""

from collections import Counter

from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.messages import Climb, Descend, Id, Key, Publication, Turned
from seriatim.protocols.overlay.ordering import Ordering, Surroundings
from seriatim.protocols.overlay.state import Climbing


class RootedOrder(Ordering):
    """Order where interests meet."""

    def __init__(self, broker: Surroundings) -> None:
        super().__init__(broker)
        self._above = Counter(climbing.origin for climbing in broker.state.climbing.values())

    def accept(self, publication: Publication, effects: Effects) -> None:
        self._climb(publication, publication.origin, False, effects)

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
        self._above[publication.origin] += 1
        untold = any(direction != parent and direction not in climbing.told for direction in matching)
        effects.send.append((parent, Climb(publication, wanted or untold)))

    def _must_climb(self, publication: Publication, wanted_above: bool) -> bool:
        """If somebody beyond the parent wants it, or something of the same publisher is still up there."""
        return wanted_above or self._above[publication.origin] > 0

    def _tell_early(
        self, publication: Publication, climbing: Climbing, matching: dict[Address, list[Id]], effects: Effects
    ) -> None:
        """Notify those clients for whom the way down can make no difference."""

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
                self.broker.deliver(direction, ids, publication, effects)
        if climbing is not None and back in place.children:
            wanted = climbing.wanted or back in matching
            effects.send.append((back, Descend(publication) if wanted else Turned(publication.key)))

    def _come_back(self, key: Key) -> Climbing | None:
        climbing = self.broker.state.climbing.pop(key, None)
        if climbing is not None:
            self._above[climbing.origin] -= 1
            if not self._above[climbing.origin]:
                del self._above[climbing.origin]
        return climbing

    def _came_back(self, key: Key, climbing: Climbing | None, effects: Effects) -> None:
        if climbing is not None:
            self.broker.returned(key, climbing, effects)

    # ── what the rest of the broker asks ──────────────────────────────────────────────────────────────────────────

    def is_under_way(self, client: Address) -> bool:
        return self._above[client] > 0

    def explain(self) -> list[str]:
        climbing = self.broker.state.climbing
        return [f"{key} of {each.origin}: climbed, and has not come back" for key, each in sorted(climbing.items())]


class CentralOrder(RootedOrder):
    """A central sequencer, for comparison: everything climbs to the root."""

    def _must_climb(self, publication: Publication, wanted_above: bool) -> bool:
        return True
