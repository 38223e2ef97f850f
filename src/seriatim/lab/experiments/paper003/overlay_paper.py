"""The printed order of paper 003, measured: what detection costs, and what its optimisations are worth.

The algorithm is that of `protocols/paper003`. Here its detection is counted in *rows*, advertisements that it looks at,
since time is not the same on the paper's machines and on ours:

- as in Fig. 5: at every broker, for every subscription that matches, every advertisement of its direction, the one that
  the publication came from not excepted ("it must check every one of them for conflict at every broker", §V);
- fast, as in Fig. 6: for every direction, advertisements up to the first that shows a conflict with all others.

The result is the same for all publications with the same attributes, and is looked up once; the rows count each time.
"""

from collections.abc import Iterable
from itertools import product
from typing import ClassVar

from seriatim.filters import Filter
from seriatim.lab.papers.paper003 import PrintedBroker
from seriatim.lab.papers.paper003.broker import Carry, PrintedOrder
from seriatim.model import Address
from seriatim.protocols.machine import Effects
from seriatim.protocols.overlay import Broker, Order, OverlayOptions, Place
from seriatim.protocols.overlay.messages import Id, Interest, Publication, Where
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.tables import Sends, Tables, filter_of

Matching = dict[Address, list[Id]]
Attributes = tuple[tuple[str, str], ...]


class FastOrder(PrintedOrder):
    """Fast detection and progressive delivery (§IV, Optimizations)."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.rows = 0
        self._matches: dict[Attributes, Matching] = {}
        self._offered: dict[tuple[Address, tuple[Id, ...]], list[Filter]] = {}
        self._counted: dict[tuple[Address, Attributes], int] = {}

    def changed(self, effects: Effects) -> None:
        self._matches.clear()
        self._offered.clear()
        self._counted.clear()

    def _forward(self, carried: Carry, source: Address, matching: Matching, effects: Effects) -> None:
        key = source, _attributes(carried.publication)
        if key not in self._counted:
            self._counted[key] = self._count(self._matching(carried.publication), source)
        self.rows += self._counted[key]
        super()._forward(carried, source, matching, effects)

    def _count(self, matching: Matching, source: Address) -> int:
        """Rows of one detection. One hop only: nothing has to be looked at (Algorithm 1, line 1)."""
        if len(matching.keys() - {source}) < 2:
            return 0
        return sum(self._look(hop, matching, source) for hop in matching)

    def _look(self, hop: Address, matching: Matching, source: Address) -> int:
        """Advertisements of a hop, up to the first that may be wanted by all the other hops too."""
        routes = self.broker.state.routes
        others = [
            {routes.wanted[other][id] for id in ids} for other, ids in matching.items() if other not in (hop, source)
        ]
        looked = 0
        for advertised in routes.offered.get(hop, {}).values():
            looked += 1
            offered = filter_of(advertised.where)
            if all(_meets_any(offered, wanted) for wanted in others):
                break
        return looked

    def _matching(self, publication: Publication) -> Matching:
        attributes = _attributes(publication)
        if attributes not in self._matches:
            self._matches[attributes] = super()._matching(publication)
        return self._matches[attributes]

    def _offers(self, hop: Address, matching: Matching) -> list[Filter]:
        key = hop, tuple(matching.get(hop, ()))
        if key not in self._offered:
            routes = self.broker.state.routes  # the same filters as there, each once
            offered = {advertised.where for advertised in routes.offered.get(hop, {}).values()}
            wanted = {routes.wanted[hop][id] for id in matching.get(hop, ())}
            pairs = (filter_of(one).intersection(filter_of(other)) for one, other in product(offered, wanted))
            self._offered[key] = [both for both in pairs if both is not None]
        return self._offered[key]


class ProgressiveOrder(FastOrder):
    """Progressive delivery alone (Fig. 5)."""

    def _look(self, hop: Address, matching: Matching, source: Address) -> int:
        return len(matching[hop]) * len(self.broker.state.routes.offered.get(hop, {}))


class PlainOrder(FastOrder):
    """The order without progressive delivery: a client's queue is delivered when all of it is acknowledged."""

    def _deliver(self, client: Address, effects: Effects) -> None:
        if not any(self._waits(queued.key, client) for queued in self._state.delayed.get(client, ())):
            super()._deliver(client, effects)


class WholeTables(Tables):
    """Routing tables without covering: every broker knows every subscription that it may have to send something to."""

    def _pass_on(self, neighbour: Address, id: Id, where: Where) -> Sends:
        if id in self.routes.passed_on[neighbour]:
            return []
        self._passed_on[neighbour].add(id, filter_of(where))
        self.routes.passed_on[neighbour][id] = where
        return [(neighbour, Interest(id, where))]


class FastBroker(PrintedBroker):
    """A broker of the paper, with whole tables or, where `covers`, with ours."""

    orderings: ClassVar[dict[Order, type[Ordering]]] = {"resolution": FastOrder}

    def __init__(self, place: Place, options: OverlayOptions, covers: bool = False) -> None:
        super().__init__(place, options)
        if not covers:
            self.tables = WholeTables(place.neighbours, self.state.routes)


class ProgressiveBroker(FastBroker):
    """A broker with progressive delivery."""

    orderings: ClassVar[dict[Order, type[Ordering]]] = {"resolution": ProgressiveOrder}


class PlainBroker(FastBroker):
    """A broker without progressive delivery."""

    orderings: ClassVar[dict[Order, type[Ordering]]] = {"resolution": PlainOrder}


def _meets_any(offered: Filter, wanted: Iterable[Where]) -> bool:
    return any(offered.intersects(filter_of(where)) for where in wanted)


def _attributes(publication: Publication) -> Attributes:
    return tuple(sorted((publication.event.headers or {}).items()))
