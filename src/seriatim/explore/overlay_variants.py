"""Brokers of the overlay that are broken on purpose, one rule each: a checker that does not catch them is no checker.

Each variant replaces the one method that holds the rule. The names are what the rule is called in the protocol's
README, with `no-` in front.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec import structs

from seriatim.explore.overlay import PROPER_OVERLAY, OverlayCast
from seriatim.filters import Filter
from seriatim.model import Address, InputError
from seriatim.protocols.machine import Effects
from seriatim.protocols.overlay import Broker, Order, OverlayOptions, Place
from seriatim.protocols.overlay import messages as say
from seriatim.protocols.overlay.messages import Clock, Id, Key, Publication
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.resolution import ResolutionOrder
from seriatim.protocols.overlay.rooted import RootedOrder
from seriatim.protocols.overlay.state import BrokerState, ClientSide, Echo, Offer
from seriatim.protocols.overlay.tables import Matching, Sends, Tables
from seriatim.protocols.paper003 import PrintedBroker


class StraightOrder(Ordering):
    """Everything goes straight to whoever wants it, and is notified wherever it passes."""


class UnevenOrder(RootedOrder):
    """A publication climbs only as high as it must itself, although one before it is still above."""

    def _must_follow(self, origin: Address, wanted: bool, here: Matching) -> bool:
        return False


class ForgetfulOrder(RootedOrder):
    """Whoever sends a publication up does not say that somebody waits for it below."""

    def receive(self, source: Address, message: Any, effects: Effects) -> None:
        if isinstance(message, say.Climb):
            message = structs.replace(message, wanted=False)
        super().receive(source, message, effects)


class SilentOrder(RootedOrder):
    """Nobody hears of what turned and was not wanted."""

    def receive(self, source: Address, message: Any, effects: Effects) -> None:
        if isinstance(message, say.Descend):
            message = say.Descend(message.publication)
        if not isinstance(message, say.Turned):
            super().receive(source, message, effects)


class MuteOrder(RootedOrder):
    """Whoever waits for what is above does not ask."""

    def ask_above(self, effects: Effects) -> None:
        return


class LazyOrder(RootedOrder):
    """A broker that is asked says what it knows, and asks nobody itself."""

    def _asked(self, child: Address, effects: Effects) -> None:
        self._tell_turned(child, effects)


class RestlessOrder(RootedOrder):
    """Clients are told early although a subscription of theirs waits for the end of that."""

    def _is_joining(self, client: Address) -> bool:
        return False


class PrematureOrder(RootedOrder):
    """A broker that is asked says of everything that it has turned."""

    def _asked(self, child: Address, effects: Effects) -> None:
        above = self.broker.state.climbing.items()
        keys = tuple(key for key, climbing in above if climbing.direction == child and not climbing.wanted)
        effects.send.append((child, say.Turned(keys)))
        super()._asked(child, effects)


class HastyOrder(RootedOrder):
    """Clients are told early whoever else may publish what they want."""

    def _hears_only(self, client: Address, origin: Address) -> bool:
        return True

    def _notify(self, publication: Publication, client: Address, ids: list[Id], effects: Effects) -> None:
        self.broker.deliver(client, ids, publication, effects)


class LeapingOrder(RootedOrder):
    """Clients are told early although something before is still above."""

    def _is_untold(self, client: Address) -> bool:
        return False


class RashOrder(RootedOrder):
    """An advertisement is acknowledged although something told early has not come back."""

    def unanswered(self) -> set[Key]:
        return set()

    def _notify(self, publication: Publication, client: Address, ids: list[Id], effects: Effects) -> None:
        self.broker.deliver(client, ids, publication, effects)


class EagerOrder(RootedOrder):
    """A subscription begins although something told early has not come back."""

    def may_subscribe(self, client: Address) -> bool:
        return True

    def _notify(self, publication: Publication, client: Address, ids: list[Id], effects: Effects) -> None:
        self.broker.deliver(client, ids, publication, effects)


class UnwarnedOrder(RootedOrder):
    """What is above when a subscription begins is not looked at."""

    def begin(self, client: Address, effects: Effects) -> None:
        return


class ImpatientOrder(ResolutionOrder):
    """Nothing waits for its place."""

    def _open_ways(self, client: Address, head: Publication) -> list[Address]:
        return []


class ShortOrder(ResolutionOrder):
    """A broker promises for itself, and does not ask those beyond."""

    def _others(self, neighbour: Address) -> set[Address]:
        return set()


class StubbornOrder(ResolutionOrder):
    """A broker promises, and goes on with its old clock."""

    def receive(self, source: Address, message: Any, effects: Effects) -> None:
        clock = self.broker.state.clock
        super().receive(source, message, effects)
        if isinstance(message, say.Inquire):
            self.broker.state.clock = clock


class EarlyBirdOrder(ResolutionOrder):
    """A subscription counts from the beginning of time."""

    def _has_begun(self, after: Clock | None, clock: Clock) -> bool:
        return True


class LocalClockBroker(Broker):
    """Nobody tells its clock with an acknowledgement."""

    def _answer(self, token: Id, echo: Echo, effects: Effects) -> None:
        count = len(effects.send)
        super()._answer(token, echo, effects)
        for index in range(count, len(effects.send)):
            target, message = effects.send[index]
            if isinstance(message, say.Heard):
                effects.send[index] = target, structs.replace(message, clock=0)


class OneEchoBroker(Broker):
    """A subscription is acknowledged when it begins, before everybody's clock is beyond that."""

    def _begin(self, id: Id, echo: Echo, side: ClientSide, effects: Effects) -> bool:
        super()._begin(id, echo, side, Effects())
        self.state.echoes.pop(id, None)
        return False


class HurriedBroker(Broker):
    """Publishes before everybody has heard of the advertisement."""

    def _may_publish(self, fitting: list[Offer]) -> bool:
        return True


class DeafBroker(Broker):
    """A subscription is acknowledged at once."""

    def _ask(self, message: say.Advertisement | say.Sound, echo: Echo, effects: Effects) -> None:
        if isinstance(message, say.Sound):
            echo.waits_for = set()
        super()._ask(message, echo, effects)


class OvertakingBroker(Broker):
    """A withdrawal does not wait for the publications that it is about."""

    def _is_under_way(self, client: Address) -> bool:
        return False


class CountingBroker(Broker):
    """Numbers count what a client is sent, whatever it matches."""

    def _numbered(self, client: Address, ids: Iterable[Id]) -> dict[str, int]:
        side = self.state.clients[client]
        number = max(each.number for each in side.held.values()) + 1
        for each in side.held.values():
            each.number = number
        return {side.held[id].name: number for id in ids}


class NarrowTables(Tables):
    """When a subscription ends, what it covered is not told."""

    def _uncovered(self, filter: Filter) -> list[tuple[Address, Id]]:
        return []


class ReversedTables(Tables):
    """Neighbours are told of what is over before they are told of what is new."""

    def unwant(self, direction: Address, id: Id) -> Sends:
        return sorted(super().unwant(direction, id), key=lambda each: isinstance(each[1], say.Interest))


class PassiveTables(Tables):
    """An advertisement is not told who wants such things."""

    def _interested(self, filter: Filter) -> list[tuple[Address, Id]]:
        return []


def ordered(ordering: type[Ordering], order: Order = "rooted") -> OverlayCast:
    """A cast whose brokers have this order."""

    class Ordered(Broker):
        orderings: ClassVar[dict[Order, type[Ordering]]] = {**Broker.orderings, order: ordering}

    return OverlayCast(Ordered)


def tabled(tables: type[Tables]) -> OverlayCast:
    """A cast whose brokers have these tables."""

    class Tabled(Broker):
        def __init__(self, place: Place, options: OverlayOptions, state: BrokerState | None = None) -> None:
            super().__init__(place, options, state)
            self.tables = tables(place.neighbours, self.state.routes)

    return OverlayCast(Tabled)


OVERLAY_VARIANTS: dict[str, tuple[str, OverlayCast]] = {
    "no-way-down": ("publications are notified wherever they pass", ordered(StraightOrder)),
    "no-following": ("a publication does not follow its publisher's last one up", ordered(UnevenOrder)),
    "no-way-back": ("nobody above knows that somebody below waits", ordered(ForgetfulOrder)),
    "no-turning-mark": ("nobody hears of what turned and was not wanted", ordered(SilentOrder)),
    "no-asking-above": ("who waits for what is above does not ask", ordered(MuteOrder)),
    "no-asking-on": ("who is asked about what is above does not ask on", ordered(LazyOrder)),
    "no-end-of-early": ("told early although a subscription waits for its end", ordered(RestlessOrder)),
    "no-true-turning": ("who is asked says that all has turned", ordered(PrematureOrder)),
    "no-heard-advertisement": (
        "publications before everybody has heard of the advertisement",
        OverlayCast(HurriedBroker),
    ),
    "no-pulling": ("an advertisement is not told who wants such things", tabled(PassiveTables)),
    "no-echo": ("a subscription is acknowledged at once", OverlayCast(DeafBroker)),
    "no-late-withdrawal": ("a withdrawal overtakes publications", OverlayCast(OvertakingBroker)),
    "no-uncovering": ("what a subscription covered is forgotten with it", tabled(NarrowTables)),
    "no-new-before-old": ("what is over is told before what is new", tabled(ReversedTables)),
    "no-own-numbers": ("numbers count what a client gets, not a subscription", OverlayCast(CountingBroker)),
    "no-single-source": ("told early although others publish the same", ordered(HastyOrder)),
    "no-untold": ("told early although something before is above", ordered(LeapingOrder)),
    "no-late-answer": ("an advertisement is acknowledged before what was told early is back", ordered(RashOrder)),
    "no-late-joining": ("a subscription begins before what was told early is back", ordered(EagerOrder)),
    "no-warning": ("what is above when a subscription begins is overlooked", ordered(UnwarnedOrder)),
    "no-merge": ("nothing waits for its place", ordered(ImpatientOrder, "resolution")),
    "no-asking-beyond": ("a broker promises for itself only", ordered(ShortOrder, "resolution")),
    "no-raised-clock": ("a broker promises and keeps its old clock", ordered(StubbornOrder, "resolution")),
    "no-beginning": ("a subscription counts from the beginning of time", ordered(EarlyBirdOrder, "resolution")),
    "no-clock-heard": ("acknowledgements tell no clock", OverlayCast(LocalClockBroker)),
    "no-second-echo": ("acknowledged before all clocks are beyond the beginning", OverlayCast(OneEchoBroker)),
    "paper-003": ("the printed order: the acknowledged part is sorted by publication id", OverlayCast(PrintedBroker)),
}
RESOLUTION = frozenset(list(OVERLAY_VARIANTS)[-7:])


def overlay_cast_of(variant: str | None) -> OverlayCast:
    """The cast of this variant; without a name, the proper one."""
    if variant is None:
        return PROPER_OVERLAY
    if variant not in OVERLAY_VARIANTS:
        raise InputError("variant", f"there is none called {variant!r}", f"use one of {', '.join(OVERLAY_VARIANTS)}")
    return OVERLAY_VARIANTS[variant][1]


ORDERS: tuple[Order, ...] = ("rooted", "rooted", "rooted", "resolution", "resolution", "central", "fifo")


def orders_of(variant: str | None) -> tuple[Order, ...]:
    """The orders of the worlds in which a variant is played: the one whose rule it breaks; else all of them."""
    if variant is None:
        return ORDERS
    return ("resolution",) if variant in RESOLUTION else ("rooted",)
