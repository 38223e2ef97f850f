"""The resolution of paper 003 as its prose has it, for its figures: flags, acknowledgements, three ways to deliver.

A publication that may conflict is handed on at once, but notified only when the hops that could still send what comes
before it have acknowledged it (§IV). The listings are mended where they contradict the prose; the order by publication
id is the paper's own, and it is not safe: `protocols/overlay` has rules that are. What detection costs is counted in
rows: advertisements that were looked at.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import ClassVar

from msgspec import Struct

from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay import Broker, OverlayOptions, Place
from seriatim.protocols.overlay.messages import Id, Interest, Key, Publication, Where
from seriatim.protocols.overlay.ordering import Ordering, Surroundings
from seriatim.protocols.overlay.state import BrokerState
from seriatim.protocols.overlay.tables import Sends, Tables, filter_of


class Flagged(Struct, frozen=True):
    """A publication for the next broker. `requested`: acknowledge it. `waiting`: we tell you when you may notify."""

    publication: Publication
    requested: bool
    waiting: bool


class Acknowledged(Struct, frozen=True):
    """Nothing that could come before this publication comes from me any more."""

    key: Key


class Conflicts(Struct, frozen=True):
    """What detection found out: which hops have to wait for which, who has publishers, and the rows it looked at."""

    waits: Mapping[Address, frozenset[Address]]
    publishing: frozenset[Address]
    rows: int


class Pending(Struct):
    """A publication that somebody waits for: per hop, from whom acknowledgements are missing, and for the sender."""

    source: Address
    waits: dict[Address, set[Address]]
    back: set[Address]


class Queued(Struct):
    """A publication that a client is still to be notified of."""

    publication: Publication
    ids: list[Id]


class PaperOrder(Ordering):
    """Fast detection and progressive delivery (§IV, Optimizations)."""

    is_fast: ClassVar[bool] = True
    is_progressive: ClassVar[bool] = True

    def __init__(self, broker: Surroundings) -> None:
        super().__init__(broker)
        self.rows = 0  # that detection has looked at so far
        self.queued_max = 0  # publications that one client waited for
        self._pending: dict[Key, Pending] = {}
        self._queues: dict[Address, list[Queued]] = {}
        self._found: dict[tuple[Address, tuple[tuple[str, str], ...]], Conflicts] = {}

    def accept(self, publication: Publication, effects: Effects) -> None:
        self._take(Flagged(publication, False, False), publication.origin, effects)

    def receive(self, source: Address, message: Payload, effects: Effects) -> None:
        match message:
            case Flagged():
                self._take(message, source, effects)
            case Acknowledged(key):
                self._acknowledged(key, source, effects)
            case _:
                raise RemoteError(f"{source} sent {self.broker.place.name} what it does not understand: {message!r}")

    def changed(self, direction: Address | None, effects: Effects) -> None:
        self._found.clear()

    # ── a publication ─────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, message: Flagged, source: Address, effects: Effects) -> None:
        publication = message.publication
        everywhere = self._matching(publication)
        found = self._detect(publication, source, everywhere)
        matching = {hop: ids for hop, ids in everywhere.items() if hop != source}
        neighbours = self.broker.place.neighbours
        waits = {hop: set(found.waits.get(hop, ())) for hop in matching}
        requests = {other for others in waits.values() for other in others}
        back: set[Address] = set()
        if message.requested:
            back = {hop for hop in matching if hop in neighbours and hop in found.publishing}
            if not back:
                effects.send.append((source, Acknowledged(publication.key)))
        for hop in matching:
            if message.waiting:
                waits[hop].add(source)
            if hop not in neighbours:
                waits[hop] |= back
        if back or any(waits.values()):
            self._pending[publication.key] = Pending(source, waits, back)
        for hop in sorted(matching):
            if hop in neighbours:
                flagged = Flagged(publication, hop in requests or hop in back, bool(waits[hop]))
                effects.send.append((hop, flagged))
            else:
                queue = self._queues.setdefault(hop, [])
                queue.append(Queued(publication, matching[hop]))
                self.queued_max = max(self.queued_max, len(queue))
                self._deliver(hop, effects)

    def _acknowledged(self, key: Key, source: Address, effects: Effects) -> None:
        pending = self._pending[key]
        for hop, waits in pending.waits.items():
            if source not in waits:
                continue
            waits.discard(source)
            if waits:
                continue
            if hop in self.broker.place.neighbours:
                effects.send.append((hop, Acknowledged(key)))
            else:
                self._deliver(hop, effects)
        if source in pending.back:
            pending.back.discard(source)
            if not pending.back:
                effects.send.append((pending.source, Acknowledged(key)))
        if not pending.back and not any(pending.waits.values()):
            del self._pending[key]

    def _deliver(self, client: Address, effects: Effects) -> None:
        """Notify the client of what is acknowledged, sorted by publication ids."""
        queue = self._queues[client]
        ready = 0
        while ready < len(queue) and not self._is_waited_for(client, queue[ready].publication.key):
            ready += 1
        if not self.is_progressive and ready < len(queue):
            return
        for each in sorted(queue[:ready], key=lambda queued: _paper_id(queued.publication)):
            self.broker.deliver(client, each.ids, each.publication, effects)
        del queue[:ready]

    def _is_waited_for(self, client: Address, key: Key) -> bool:
        return key in self._pending and bool(self._pending[key].waits.get(client))

    # ── detection ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _detect(self, publication: Publication, source: Address, matching: Mapping[Address, list[Id]]) -> Conflicts:
        """The same for all publications with the same attributes from one direction, but the rows count each time."""
        attributes = (source, tuple(sorted((publication.event.headers or {}).items())))
        found = self._found.get(attributes)
        if found is None:
            found = self._found[attributes] = self._look(source, matching)
        self.rows += found.rows
        return found

    def _look(self, source: Address, matching: Mapping[Address, list[Id]]) -> Conflicts:
        """Algorithm 1. A hop waits for another one that has a publisher whom subscribers of both can hear.

        The hop that the publication came from is looked at as the others are, "every one of them at every broker"
        (§V), though nobody waits for it.
        """
        routes = self.broker.tables.routes
        wanted = {hop: Counter(routes.wanted[hop][id] for id in ids) for hop, ids in matching.items()}
        offered = {hop: [each.where for each in routes.offered.get(hop, {}).values()] for hop in matching}
        publishing = {hop for hop in matching if any(_meets(a, s, s) for a in set(offered[hop]) for s in wanted[hop])}
        waits: dict[Address, set[Address]] = {}
        rows = 0
        if len(matching.keys() - {source}) > 1:
            for hop in matching:
                others = {other: wanted[other].keys() for other in matching if other not in (hop, source)}
                if self.is_fast:
                    looked, conflicting = _look_fast(wanted[hop], offered[hop], others)
                else:
                    looked = wanted[hop].total() * len(offered[hop])
                    conflicting = _conflicting(wanted[hop], set(offered[hop]), others)
                rows += looked
                for other in conflicting if hop != source else ():
                    waits.setdefault(other, set()).add(hop)
        return Conflicts({hop: frozenset(others) for hop, others in waits.items()}, frozenset(publishing), rows)


class SlowPaperOrder(PaperOrder):
    """Progressive delivery, but every advertisement is looked at for every subscription that matches (Fig. 5)."""

    is_fast = False


class PlainPaperOrder(PaperOrder):
    """Without optimizations: a client's whole queue is delivered when all of it is acknowledged."""

    is_progressive = False


class WholeTables(Tables):
    """Without covering: every broker knows every subscription that it may have to send something to."""

    def _pass_on(self, neighbour: Address, id: Id, where: Where) -> Sends:
        if id in self.routes.passed_on[neighbour]:
            return []
        self._passed_on[neighbour].add(id, filter_of(where))
        self.routes.passed_on[neighbour][id] = where
        return [(neighbour, Interest(id, where))]


class PaperBroker(Broker):
    """A broker with whole tables."""

    def __init__(self, place: Place, options: OverlayOptions, state: BrokerState | None = None) -> None:
        super().__init__(place, options, state)
        self.tables = WholeTables(place.neighbours, self.state.routes)


def _look_fast(
    wanted: Iterable[Where], offered: Iterable[Where], others: Mapping[Address, Iterable[Where]]
) -> tuple[int, set[Address]]:
    """Stop where every other hop is known to conflict. How many advertisements were looked at, and who conflicts."""
    conflicting: set[Address] = set()
    looked = 0
    for advertisement in offered:
        looked += 1
        conflicting |= _conflicting(wanted, (advertisement,), others)
        if len(conflicting) == len(others):
            break
    return looked, conflicting


def _conflicting(
    wanted: Iterable[Where], offered: Iterable[Where], others: Mapping[Address, Iterable[Where]]
) -> set[Address]:
    """The other hops with a subscription that meets one of ours where an advertisement of ours matches both."""
    return {
        other
        for other, theirs in others.items()
        if any(_meets(advertisement, mine, yours) for advertisement in offered for mine in wanted for yours in theirs)
    }


@lru_cache(maxsize=65_536)
def _meets(advertisement: Where, subscription: Where, other: Where) -> bool:
    both = filter_of(subscription).intersection(filter_of(other))
    return both is not None and both.intersects(filter_of(advertisement))


def _paper_id(publication: Publication) -> tuple[Address, int]:
    """The publisher's id and its counter, which the broker's own counter stands for."""
    return publication.origin, int(publication.key.rpartition(".")[2])
