"""The rooted order: a publication climbs as high as its farthest receiver asks, and is notified on the way down.

Two subscribers get whatever both get from above, through the lowest broker that is above both (a broker is above
itself): there it passes once, and links keep the order. That holds whatever else changes.

Every publication that climbs comes back: as the publication itself where somebody wants it, otherwise in a `Turned`. So
a broker knows what of a publisher may still be above, and sends that publisher's next publication after it: its own
order is kept too. And it can notify clients early, on the way up, where nobody can see another order (README.md, "On
the way up").

A broker rarely waits to hear which publications have turned, and hearing it late is never wrong. So a parent reports
many at once, and a broker that waits asks.
"""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from seriatim.model import Address, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.messages import Ask, Climb, Descend, Id, Key, Publication, Turned
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.state import Climbing
from seriatim.protocols.overlay.tables import Matching

if TYPE_CHECKING:
    from seriatim.protocols.overlay.broker import Broker


class RootedOrder(Ordering):
    """Order where interests meet."""

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker)
        self._parent, self._children = broker.place.parent, frozenset(broker.place.children)
        # Counted beside the state, so that a publication costs what it matches and not what is under way.
        self._above: dict[Address, int] = {}  # by publisher
        self._told: dict[tuple[Address, Address], int] = {}  # by client and publisher
        self._tellers: dict[Address, set[Address]] = {}  # by client: the publishers of what it was told early
        self._untold: dict[Address, int] = {}  # by client
        for climbing in broker.state.climbing.values():
            self._count(climbing, 1)
        self._unasked = {key: climbing for key, climbing in broker.state.climbing.items() if not climbing.asked}
        self._owners: dict[Address, set[Address]] = {}  # by client: whose events it can get; known again when asked

    def accept(self, client: Address, publication: Publication, matching: Matching, effects: Effects) -> None:
        self._climb(publication, client, False, False, matching, effects)

    def receive(self, source: Address, message: Payload, effects: Effects) -> None:
        # What comes most often first: every broker on the way does this.
        if type(message) is Climb and source in self._children:
            matching = self._matching(message.publication)
            self._climb(message.publication, source, message.wanted, message.asks, matching, effects)
            if message.asks:
                self._asked(source, effects)
        elif type(message) is Descend and source == self._parent:
            if message.turned:
                self._turned(message.turned, effects)
            self._come_down(message.publication, effects)
        elif type(message) is Turned and source == self._parent:
            self._turned(message.keys, effects)
        elif type(message) is Ask and source in self._children:
            self._asked(source, effects)
        else:
            raise RemoteError(f"{source} sent {self.broker.place.name} an unknown message: {message!r}")

    # ── up ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _climb(
        self, publication: Publication, source: Address, wanted: bool, asks: bool, here: Matching, effects: Effects
    ) -> None:
        """Send a publication on to the parent, or let it turn here. `wanted`: somebody below, on its way so far, waits
        for it."""
        origin, parent = publication.origin, self._parent
        wanted_above = parent is not None and here.pop(parent, None) is not None  # the rest is here and below
        if parent is None or not (wanted_above or self._must_follow(origin, wanted, here)):
            self._descend(publication, source, (), here, effects)
            if source in self._children:
                self._send_back(publication, source, wanted or source in here, False, effects)
            return
        climbing = Climbing(origin, source, wanted)
        if here:
            self._tell_early(publication, climbing, here, effects)
        self.broker.state.climbing[publication.key] = self._unasked[publication.key] = climbing
        self._count(climbing, 1)
        wanted = wanted or len(here) > len(climbing.told)
        asks = asks or self._needs_word(origin, wanted_above, wanted)
        if asks:
            self._mark_asked()
        effects.send.append((parent, Climb(publication, wanted, asks)))

    def _must_follow(self, origin: Address, wanted: bool, here: Matching) -> bool:
        """If something of the same publisher may be up there, and somebody here has to be notified of that first."""
        return origin in self._above and (wanted or not all(self._is_told(each, origin) for each in here))

    def _is_told(self, direction: Address, origin: Address) -> bool:
        """Whether a direction is a client that was notified of everything above that it gets."""
        if direction in self._children or not self.broker.options.early:
            return False
        return self._may_tell(direction, origin)

    def _needs_word(self, origin: Address, wanted_above: bool, wanted: bool) -> bool:
        """Whether to hear at once that it has turned, so that the publisher's next need not follow it needlessly.

        That is so of publishers of which that was seen. What is wanted on the way back comes back in any case.
        """
        uneven = self.broker.state.uneven
        if not wanted_above:
            uneven.add(origin)
            return True
        return not wanted and origin in uneven

    def _tell_early(self, publication: Publication, climbing: Climbing, here: Matching, effects: Effects) -> None:
        """Notify those clients for whom the way down can make no difference."""
        for direction, ids in sorted(here.items()):
            if direction in self._children:
                continue
            if self._is_told(direction, publication.origin):
                climbing.told.add(direction)
                self.broker.deliver(direction, ids, publication, effects)
            else:
                climbing.untold.add(direction)

    def _may_tell(self, client: Address, origin: Address) -> bool:
        """Whether a client may be notified early: all its events are of this publisher, and nothing above is still to
        be notified to it.

        Not while one of its subscriptions waits for the return of what it was told early, because that wait must end.
        """
        if self._is_untold(client) or self._is_joining(client):
            return False
        return self._hears_only(client, origin)

    def _is_joining(self, client: Address) -> bool:
        return bool(self.broker.state.clients[client].joining)

    def _is_untold(self, client: Address) -> bool:
        return client in self._untold

    def _hears_only(self, client: Address, origin: Address) -> bool:
        owners = self._owners.get(client)
        if owners is None:
            wheres = self.broker.state.routes.wanted[client].values()
            owners = self._owners[client] = set().union(*map(self.broker.tables.owners, wheres))
        return owners == {origin}

    # ── down ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _come_down(self, publication: Publication, effects: Effects) -> None:
        here = self._matching(publication)
        if self._parent is not None:
            here.pop(self._parent, None)
        climbing = self._come_back(publication.key)
        if climbing is None:  # it did not climb through here
            self._descend(publication, None, (), here, effects)
            return
        back = climbing.direction
        self._descend(publication, back, climbing.told, here, effects)
        if back in self._children:
            self._send_back(publication, back, climbing.wanted or back in here, climbing.asked, effects)
        self.broker.returned(publication.key, climbing, effects)

    def _descend(
        self,
        publication: Publication,
        back: Address | None,
        told: Collection[Address],
        here: Matching,
        effects: Effects,
    ) -> None:
        """Send a publication that has its place to the clients and children that want it, except where it came from."""
        for direction, ids in sorted(here.items()):
            if direction in self._children:
                if direction != back:
                    self._down(direction, publication, effects)
            elif direction not in told:
                self._notify(publication, direction, ids, effects)

    def _send_back(self, publication: Publication, child: Address, wanted: bool, asked: bool, effects: Effects) -> None:
        """To the child that it climbed from."""
        if wanted:
            self._down(child, publication, effects)
        else:
            self._turn(child, publication.key, asked, effects)

    def _down(self, child: Address, publication: Publication, effects: Effects) -> None:
        turned = self.broker.state.turned.pop(child, None)
        effects.send.append((child, Descend(publication, tuple(turned) if turned else ())))

    def _notify(self, publication: Publication, client: Address, ids: list[Id], effects: Effects) -> None:
        """Notify a client in order. If the client was told something early whose place is not known yet, the event is
        missed instead.

        That happens only to events that were published before all brokers knew of their advertisement.
        """
        tellers = self._tellers.get(client)
        if tellers is not None and tellers != {publication.origin}:
            self.broker.miss(client, ids, "it came before everybody had heard of its advertisement", effects)
        else:
            self.broker.deliver(client, ids, publication, effects)

    # ── what has turned and is not wanted ─────────────────────────────────────────────────────────────────────────

    def _turn(self, child: Address, key: Key, asked: bool, effects: Effects) -> None:
        """The child hears of it now, if it asked, else with others."""
        turned = self.broker.state.turned.get(child)
        if turned is None:
            turned = self.broker.state.turned[child] = []
        turned.append(key)
        if asked or len(turned) >= self.broker.options.turned_max:
            self._tell_turned(child, effects)

    def _tell_turned(self, child: Address, effects: Effects) -> None:
        if keys := self.broker.state.turned.pop(child, None):
            effects.send.append((child, Turned(tuple(keys))))

    def _turned(self, keys: tuple[Key, ...], effects: Effects) -> None:
        """Take back publications that turned above, and tell the children that asked at once."""
        back = [(key, climbing) for key in keys if (climbing := self._come_back(key)) is not None]
        for key, climbing in back:
            if climbing.direction in self._children:
                self._turn(climbing.direction, key, False, effects)
        for child in sorted({climbing.direction for _, climbing in back if climbing.asked}):
            self._tell_turned(child, effects)
        for key, climbing in back:
            self.broker.returned(key, climbing, effects)

    def _asked(self, child: Address, effects: Effects) -> None:
        """A child asks: tell it what has turned, and have the rest told as soon as it has."""
        self._tell_turned(child, effects)
        self.ask_above(effects)

    def ask_above(self, effects: Effects) -> None:
        if self._unasked:
            self._mark_asked()
            assert self._parent is not None, "what climbs has where to climb"
            effects.send.append((self._parent, Ask()))

    def _mark_asked(self) -> None:
        for climbing in self._unasked.values():
            climbing.asked = True
        self._unasked.clear()

    def _come_back(self, key: Key) -> Climbing | None:
        climbing = self.broker.state.climbing.pop(key, None)
        if climbing is not None:
            self._unasked.pop(key, None)
            self._count(climbing, -1)
        return climbing

    def _count(self, climbing: Climbing, by: int) -> None:
        origin = climbing.origin
        _add(self._above, origin, by)
        if not climbing.untold and not climbing.told:
            return
        for client in climbing.untold:
            _add(self._untold, client, by)
        for client in climbing.told:
            _add(self._told, (client, origin), by)
            tellers = self._tellers.setdefault(client, set())
            if (client, origin) in self._told:
                tellers.add(origin)
            else:
                tellers.discard(origin)
            if not tellers:
                del self._tellers[client]

    # ── what the rest of the broker asks ──────────────────────────────────────────────────────────────────────────

    def is_under_way(self, origin: Address) -> bool:
        return origin in self._above

    def may_subscribe(self, client: Address) -> bool:
        """Whether a client may subscribe: not while something that it was notified of early has not come back."""
        return client not in self._tellers

    def begin(self, client: Address, effects: Effects) -> None:
        """Let a subscription wait for what is above now: it may match when it comes back."""
        self.ask_above(effects)
        for climbing in self.broker.state.climbing.values():
            if client not in climbing.untold:
                climbing.untold.add(client)
                _add(self._untold, client, 1)

    def unanswered(self) -> set[Key]:
        """A broker that did not hear of an advertisement may have notified early: that must be back first."""
        return {key for key, climbing in self.broker.state.climbing.items() if climbing.told}

    def changed(self, effects: Effects) -> None:
        self._owners.clear()

    def wants_changed(self, direction: Address, effects: Effects) -> None:
        self._owners.pop(direction, None)

    def explain(self) -> list[str]:
        """What has climbed and has not come back. What nobody has asked for may stay unfinished, and is left out."""
        missed = [each for each in self.broker.state.climbing.values() if each.asked or each.wanted or each.untold]
        above = sorted(Counter(each.origin for each in missed).items())
        return [f"{count} publications of {origin}: climbed, and have not come back" for origin, count in above]


class CentralOrder(RootedOrder):
    """A central sequencer, for comparison: everything climbs to the root."""

    def _must_follow(self, origin: Address, wanted: bool, here: Matching) -> bool:
        return True

    def _needs_word(self, origin: Address, wanted_above: bool, wanted: bool) -> bool:
        return False  # nothing ever follows needlessly

    def _may_tell(self, client: Address, origin: Address) -> bool:
        return False


def _add(counts: dict[Any, int], key: Any, by: int) -> None:
    """Count, and forget counts of zero."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
