"""The paper's order, corrected: every broker notifies its clients in the order of Lamport clocks, and waits for it.

A publication goes straight to whoever wants it, with the clock of the broker that took it. Before it is notified it
waits until nothing with a smaller clock can come any more from a direction in which somebody advertises what the client
wants. A broker asks in such a direction (`Inquire`, the paper's request); the answer (`Promise`, the acknowledgement)
comes behind everything that was under way on the link, from as far as somebody publishes that may matter.

Clients are notified in one and the same order, that of (clock, key), so whatever two of them share they see alike. The
head of a client's queue is notified first: others wait behind it, and nobody waits for the whole queue (progressive
delivery). A client that hears one publisher only never waits.
"""

from bisect import insort
from typing import TYPE_CHECKING

from seriatim.filters import attributes_of
from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.messages import Clock, Id, Inquire, Promise, Publication, Spread
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.tables import Matching

if TYPE_CHECKING:
    from seriatim.protocols.overlay.broker import Broker

LATE = "it came after its place: a broker on its way did not answer in time"


class ResolutionOrder(Ordering):
    """Order by clocks, with a deterministic merge at every client."""

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker)
        self._sources: dict[Address, dict[Address, set[Address]]] = {}  # by client and direction: publishers
        self._beyond: dict[Address, set[Address]] = {}  # by neighbour: who else can send what it wants

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, source: Address, message: Payload, effects: Effects) -> None:
        match message:
            case Spread(publication):
                self.hear(publication.clock)
                merge = self.broker.state.merge
                heard = merge.heard
                heard[publication.origin] = max(heard.get(publication.origin, 0), publication.clock)
                self._spread(publication, source, self._matching(publication), effects)
            case Inquire(clock):
                self.hear(clock)
                self.broker.state.merge.asked.setdefault(source, []).append(clock)
                self._promise(source, effects)
            case Promise(clock):
                promised = self.broker.state.merge.promised
                promised[source] = max(promised.get(source, 0), clock)
                self._go_on(effects)
            case _:
                raise RemoteError(f"{source} sent {self.broker.place.name} an unknown message: {message!r}")

    def _spread(self, publication: Publication, source: Address, matching: Matching, effects: Effects) -> None:
        """To neighbours at once; for clients it waits for its place."""
        for direction, ids in sorted(matching.items()):
            if direction in self.broker.neighbours:
                if direction != source:
                    effects.send.append((direction, Spread(publication)))
            elif self._counting(direction, ids, publication):
                self._put(direction, publication, effects)

    def _counting(self, client: Address, ids: list[Id], publication: Publication) -> list[Id]:
        """The subscriptions that had begun by the publication's clock."""
        if not ids:
            return []
        held = self.broker.state.clients[client].held
        return [id for id in ids if self._has_begun(held[id].after, publication.clock)]

    def _has_begun(self, after: Clock | None, clock: Clock) -> bool:
        return after is not None and clock > after

    def _put(self, client: Address, publication: Publication, effects: Effects) -> None:
        merge = self.broker.state.merge
        if place_of(publication) < merge.done.get(client, (0, "")):
            ids = self._matching(publication).get(client, [])
            self.broker.miss(client, self._counting(client, ids, publication), LATE, effects)
            return
        insort(merge.waiting.setdefault(client, []), publication, key=place_of)
        self._release(client, effects)

    # ── waiting for a place ───────────────────────────────────────────────────────────────────────────────────────

    def _release(self, client: Address, effects: Effects) -> None:
        """Notify from the head of the queue up to the first that something may still come before."""
        merge = self.broker.state.merge
        queue = merge.waiting.get(client)
        while queue:
            head = queue[0]
            open_ways = self._open_ways(client, head)
            if open_ways:
                for neighbour in open_ways:
                    self._inquire(neighbour, head.clock, effects)
                return
            del queue[0]
            merge.done[client] = place_of(head)
            ids = self.broker.tables.matching(attributes_of(head.event.headers)).get(client, [])
            if counting := self._counting(client, ids, head):
                self.broker.deliver(client, counting, head, effects)
        merge.waiting.pop(client, None)

    def _open_ways(self, client: Address, head: Publication) -> list[Address]:
        """The directions from which something that is not after this clock may still come to the client."""
        state = self.broker.state
        sources = self._sources_of(client)
        if set().union(*sources.values()) == {head.origin}:  # one publisher: its own order is that of its clocks
            return []
        found = []
        for direction, owners in sorted(sources.items()):
            if direction not in self.broker.neighbours or direction in state.suspected:
                continue
            known = state.merge.promised.get(direction, 0)
            if len(owners) == 1:  # links keep its order: nothing of it comes any more that is before its last one
                known = max(known, state.merge.heard.get(min(owners), 0))
            if known < head.clock:
                found.append(direction)
        return found

    def _sources_of(self, client: Address) -> dict[Address, set[Address]]:
        """The publishers whose events this client may get, by direction."""
        sources = self._sources.get(client)
        if sources is None:
            sources = self._sources[client] = {}
            for where in self.broker.state.routes.wanted.get(client, {}).values():
                for direction, owner in self.broker.tables.offers_by_owner(where):
                    sources.setdefault(direction, set()).add(owner)
        return sources

    # ── asking and answering ──────────────────────────────────────────────────────────────────────────────────────

    def _inquire(self, neighbour: Address, clock: Clock, effects: Effects) -> None:
        """Ask, once for the same clock or a smaller one."""
        inquired = self.broker.state.merge.inquired
        if inquired.get(neighbour, 0) < clock:
            inquired[neighbour] = clock
            effects.send.append((neighbour, Inquire(clock)))

    def _promise(self, neighbour: Address, effects: Effects) -> None:
        """Answer it as far as everybody beyond has answered; what this broker takes itself is after its clock."""
        merge = self.broker.state.merge
        asked = merge.asked.get(neighbour, [])
        beyond = sorted(self._others(neighbour) - self.broker.state.suspected)
        answered = [clock for clock in asked if all(merge.promised.get(each, 0) >= clock for each in beyond)]
        open_clocks = [clock for clock in asked if clock not in answered]
        if answered:
            effects.send.append((neighbour, Promise(max(answered))))
        for clock in open_clocks:
            for each in beyond:
                if merge.promised.get(each, 0) < clock:
                    self._inquire(each, clock, effects)
        if open_clocks:
            merge.asked[neighbour] = open_clocks
        else:
            merge.asked.pop(neighbour, None)

    def _others(self, neighbour: Address) -> set[Address]:
        """The other neighbours that can send what this one wants."""
        others = self._beyond.get(neighbour)
        if others is None:
            wanted = self.broker.state.routes.wanted.get(neighbour, {}).values()
            candidates = (each for each in self.broker.place.neighbours if each != neighbour)
            others = {each for each in candidates if any(self.broker.tables.offers(each, where) for where in wanted)}
            self._beyond[neighbour] = others
        return others

    def _go_on(self, effects: Effects) -> None:
        for client in sorted(self.broker.state.merge.waiting):
            self._release(client, effects)
        for neighbour in sorted(self.broker.state.merge.asked):
            self._promise(neighbour, effects)

    # ── what the rest of the broker asks ──────────────────────────────────────────────────────────────────────────

    def stamp(self) -> Clock:
        self.broker.state.clock += 1
        return self.broker.state.clock

    def hear(self, clock: Clock) -> None:
        self.broker.state.clock = max(self.broker.state.clock, clock)

    def begins_at_once(self) -> bool:
        return False

    def changed(self, effects: Effects) -> None:
        self._sources.clear()
        self._beyond.clear()
        self._go_on(effects)

    def wants_changed(self, direction: Address, effects: Effects) -> None:
        self._sources.pop(direction, None)
        self._beyond.pop(direction, None)
        if direction not in self.broker.state.clients:
            self.broker.state.merge.done.pop(direction, None)
        self._go_on(effects)

    def explain(self) -> list[str]:
        merge = self.broker.state.merge
        lines = []
        for client, queue in sorted(merge.waiting.items()):
            ways = ", ".join(self._open_ways(client, queue[0]))
            which = f"{queue[0].event.id} for {client}, and {len(queue) - 1} more"
            lines.append(f"{which}: wait to know that nothing earlier comes from {ways}")
        lines += [f"{neighbour} asks about clock {max(clocks)}" for neighbour, clocks in sorted(merge.asked.items())]
        return lines


def place_of(publication: Publication) -> tuple[Clock, str]:
    """The place of a publication in the one order."""
    return publication.clock, publication.key
