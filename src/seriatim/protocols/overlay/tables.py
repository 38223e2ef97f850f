"""Routing tables: subscriptions, advertisements, and which of them each neighbour has to know.

They use reverse-path forwarding with covering: a neighbour is told of a subscription if an advertisement from its
direction can match it, and if it was not told of a subscription that covers it. At every change, a neighbour is told of
new subscriptions before ended ones, so at every moment the subscriptions that it knows cover all that it should send.

The indexes are made from the plain state (`Routes`) and kept beside it; questions cost what they find.
"""

from collections.abc import Iterable
from functools import lru_cache

from seriatim.filters import Attributes, Filter, MatchIndex, OverlapIndex, parse
from seriatim.model import Address, RemoteError
from seriatim.protocols.overlay.messages import Disinterest, Id, Interest, Where
from seriatim.protocols.overlay.state import Advertised, Routes

QUOTED_MAX = 100  # characters of somebody's name in a message

Sends = list[tuple[Address, Interest | Disinterest]]
Matching = dict[Address, list[Id]]  # subscriptions, by direction


@lru_cache(maxsize=65_536)
def filter_of(where: Where) -> Filter:
    """The filter that a text says; the same text is read once."""
    return parse(where)


class Tables:
    """The routes of one broker, with indexes. Methods return what neighbours have to be told."""

    def __init__(self, neighbours: Iterable[Address], routes: Routes) -> None:
        self.neighbours = tuple(neighbours)
        self.routes = routes
        self._matches: MatchIndex[tuple[Address, Id]] = MatchIndex()
        self._wanted: OverlapIndex[tuple[Address, Id]] = OverlapIndex()
        self._offered: OverlapIndex[tuple[Address, Id]] = OverlapIndex()
        self._offered_by: dict[Address, OverlapIndex[Id]] = {each: OverlapIndex() for each in self.neighbours}
        self._passed_on: dict[Address, OverlapIndex[Id]] = {each: OverlapIndex() for each in self.neighbours}
        for direction, wanted in routes.wanted.items():
            for id, where in wanted.items():
                self._index_wanted(direction, id, filter_of(where))
        for direction, offered in routes.offered.items():
            for id, each in offered.items():
                self._index_offered(direction, id, filter_of(each.where))
        for neighbour in self.neighbours:
            for id, where in routes.passed_on.setdefault(neighbour, {}).items():
                self._passed_on[neighbour].add(id, filter_of(where))

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def matching(self, attributes: Attributes) -> Matching:
        """The subscriptions that match, by direction."""
        return _by_direction(self._matches.match(attributes))

    def wanting(self, where: Where) -> Matching:
        """The subscriptions that can match something of this, by direction."""
        return _by_direction(self._wanted.intersecting(filter_of(where)))

    def offers(self, neighbour: Address, where: Where) -> bool:
        """Whether something advertised from there can match this."""
        return self._offered_by[neighbour].intersects_any(filter_of(where))

    def owners(self, where: Where) -> set[Address]:
        """Whose advertisements can match this."""
        return {owner for _, owner in self.offers_by_owner(where)}

    def offers_by_owner(self, where: Where) -> set[tuple[Address, Address]]:
        """From which directions, and by whom, something can come that matches this."""
        offered = self.routes.offered
        found = self._offered.intersecting(filter_of(where))
        return {(direction, offered[direction][id].owner) for direction, id in found}

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def want(self, direction: Address, id: Id, where: Where) -> Sends:
        """A subscription from there. RemoteError: it is known already; FilterError: nobody can read it."""
        if id in self.routes.wanted.get(direction, {}):
            raise RemoteError(f"{direction} wants {id[:QUOTED_MAX]!r} for the second time")
        filter = filter_of(where)
        self.routes.wanted.setdefault(direction, {})[id] = where
        self._index_wanted(direction, id, filter)
        sends: Sends = []
        for neighbour in self.neighbours:
            if neighbour != direction and self._offered_by[neighbour].intersects_any(filter):
                sends += self._pass_on(neighbour, id, where)
        return sends

    def unwant(self, direction: Address, id: Id) -> Sends:
        """Remove a subscription. What only it covered is told first. RemoteError: unknown; nothing was changed."""
        if id not in self.routes.wanted.get(direction, {}):
            raise RemoteError(f"{direction} wants no more of {id[:QUOTED_MAX]!r}, which it never wanted")
        where = self.routes.wanted[direction].pop(id)
        if not self.routes.wanted[direction]:
            del self.routes.wanted[direction]
        self._matches.remove((direction, id))
        self._wanted.remove((direction, id))
        sends: Sends = []
        covered: list[tuple[Address, Id]] | None = None
        for neighbour in self.neighbours:
            if id not in self.routes.passed_on[neighbour]:
                continue
            self._forget(neighbour, id)
            if covered is None:
                covered = self._uncovered(filter_of(where))
            for source, other in covered:
                text = self.routes.wanted[source][other]
                if source != neighbour and self.offers(neighbour, text):
                    sends += self._pass_on(neighbour, other, text)
            sends.append((neighbour, Disinterest(id)))
        return sends

    def offer(self, direction: Address, id: Id, advertised: Advertised) -> Sends:
        """An advertisement from there: it has to be told who wants such things. Raises as `want` does."""
        if id in self.routes.offered.get(direction, {}):
            raise RemoteError(f"{direction} advertises {id[:QUOTED_MAX]!r} for the second time")
        filter = filter_of(advertised.where)
        self.routes.offered.setdefault(direction, {})[id] = advertised
        self._index_offered(direction, id, filter)
        sends: Sends = []
        if direction in self._offered_by:
            for source, wanted in self._interested(filter):
                if source != direction and wanted not in self.routes.passed_on[direction]:
                    sends += self._pass_on(direction, wanted, self.routes.wanted[source][wanted])
        return sends

    def unoffer(self, direction: Address, id: Id) -> Sends:
        """Remove an advertisement. Forget there what nobody can match any more. RemoteError: as above."""
        if id not in self.routes.offered.get(direction, {}):
            raise RemoteError(f"{direction} withdraws {id[:QUOTED_MAX]!r}, which it never advertised")
        filter = filter_of(self.routes.offered[direction].pop(id).where)
        if not self.routes.offered[direction]:
            del self.routes.offered[direction]
        self._offered.remove((direction, id))
        if direction not in self._offered_by:
            return []
        self._offered_by[direction].remove(id)
        sends: Sends = []
        for wanted in sorted(self._passed_on[direction].intersecting(filter)):
            if not self.offers(direction, self.routes.passed_on[direction][wanted]):
                self._forget(direction, wanted)
                sends.append((direction, Disinterest(wanted)))
        return sends

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _uncovered(self, filter: Filter) -> list[tuple[Address, Id]]:
        """The subscriptions that one covered which is over."""
        return sorted(self._wanted.covered(filter))

    def _interested(self, filter: Filter) -> list[tuple[Address, Id]]:
        """The subscriptions that an advertisement can match."""
        return sorted(self._wanted.intersecting(filter))

    def _pass_on(self, neighbour: Address, id: Id, where: Where) -> Sends:
        """Tell it, unless it knows one that covers this; then it need not know those that this one covers."""
        filter = filter_of(where)
        known = self._passed_on[neighbour]
        if known.covered_by_any(filter):
            return []
        superseded = sorted(known.covered(filter))
        known.add(id, filter)
        self.routes.passed_on[neighbour][id] = where
        sends: Sends = [(neighbour, Interest(id, where))]
        for other in superseded:
            self._forget(neighbour, other)
            sends.append((neighbour, Disinterest(other)))
        return sends

    def _forget(self, neighbour: Address, id: Id) -> None:
        self._passed_on[neighbour].remove(id)
        del self.routes.passed_on[neighbour][id]

    def _index_wanted(self, direction: Address, id: Id, filter: Filter) -> None:
        self._matches.add((direction, id), filter)
        self._wanted.add((direction, id), filter)

    def _index_offered(self, direction: Address, id: Id, filter: Filter) -> None:
        self._offered.add((direction, id), filter)
        if direction in self._offered_by:
            self._offered_by[direction].add(id, filter)


def _by_direction(found: Iterable[tuple[Address, Id]]) -> Matching:
    ids: Matching = {}
    for direction, id in found:
        ids.setdefault(direction, []).append(id)
    return ids
