"""Brokers of the overlay that are broken on purpose, one rule each: a checker that does not catch them proves nothing.

Each variant replaces the one method that holds the rule. The names are what the rule is called in the protocol's
README, with `no-` in front.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from seriatim.lab.explore.engine.plan import broken, gives
from seriatim.lab.papers.paper003 import PrintedBroker
from seriatim.model import Address
from seriatim.protocols.machine import Effects
from seriatim.protocols.overlay import Broker, Order, OverlayOptions, Place
from seriatim.protocols.overlay import messages as say
from seriatim.protocols.overlay.messages import Id, Publication
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.resolution import ResolutionOrder
from seriatim.protocols.overlay.rooted import RootedOrder
from seriatim.protocols.overlay.state import BrokerState, ClientSide, Echo
from seriatim.protocols.overlay.tables import Sends, Tables

VARIANTS: dict[str, tuple[str, type[Broker]]] = {}


def breaks(name: str, text: str, part: type = RootedOrder, **methods: Callable[..., Any]) -> None:
    """Brokers whose order (rooted, if nothing else is said), tables or own rules have these methods."""
    VARIANTS[name] = text, broken(Broker, **methods) if part is Broker else broker_with(broken(part, **methods))


def broker_with(part: type) -> type[Broker]:
    """Brokers that have this order, or these tables."""
    if issubclass(part, Tables):

        def __init__(self: Broker, place: Place, options: OverlayOptions, state: BrokerState | None = None) -> None:
            Broker.__init__(self, place, options, state)
            self.tables = part(place.neighbours, self.state.routes)

        return broken(Broker, __init__=__init__)
    order: Order = "resolution" if issubclass(part, ResolutionOrder) else "rooted"
    return type("Ordered", (Broker,), {"orderings": {**Broker.orderings, order: part}})


# ── the rooted order ──────────────────────────────────────────────────────────────────────────────────────────────


def receive_unwanted(self: RootedOrder, source: Address, message: Any, effects: Effects) -> None:
    if isinstance(message, say.Climb):
        message = structs.replace(message, wanted=False)
    RootedOrder.receive(self, source, message, effects)


def receive_no_turning(self: RootedOrder, source: Address, message: Any, effects: Effects) -> None:
    if isinstance(message, say.Descend):
        message = say.Descend(message.publication)
    if not isinstance(message, say.Turned):
        RootedOrder.receive(self, source, message, effects)


def tell_all_turned(self: RootedOrder, child: Address, effects: Effects) -> None:
    above = self.broker.state.climbing.items()
    keys = tuple(key for key, climbing in above if climbing.direction == child and not climbing.wanted)
    effects.send.append((child, say.Turned(keys)))
    RootedOrder._asked(self, child, effects)


def deliver(self: RootedOrder, publication: Publication, client: Address, ids: list[Id], effects: Effects) -> None:
    """Whatever was told early."""
    self.broker.deliver(client, ids, publication, effects)


VARIANTS["no-way-down"] = "publications are notified wherever they pass", broker_with(Ordering)
breaks("no-following", "a publication does not follow its publisher's last one up", _must_follow=gives(False))
breaks("no-way-back", "nobody above knows that somebody below waits", receive=receive_unwanted)
breaks("no-turning-mark", "nobody hears of what turned and was not wanted", receive=receive_no_turning)
breaks("no-asking-above", "a broker that waits for what is above does not ask", ask_above=gives(None))
breaks(
    "no-asking-on",
    "a broker that is asked about what is above does not ask further",
    _asked=lambda self, child, effects: self._tell_turned(child, effects),
)
breaks("no-end-of-early", "told early although a subscription waits for its end", _is_joining=gives(False))
breaks("no-true-turning", "a broker that is asked says that all has turned", _asked=tell_all_turned)

# ── brokers and tables ────────────────────────────────────────────────────────────────────────────────────────────


def hear_subscriptions_at_once(
    self: Broker, message: say.Advertisement | say.Sound, echo: Echo, effects: Effects
) -> None:
    if isinstance(message, say.Sound):
        echo.waits_for = set()
    Broker._ask(self, message, echo, effects)


def count_by_client(self: Broker, client: Address, ids: Iterable[Id]) -> dict[str, int]:
    side = self.state.clients[client]
    number = max(each.number for each in side.held.values()) + 1
    for each in side.held.values():
        each.number = number
    return {side.held[id].name: number for id in ids}


def unwant_reversed(self: Tables, direction: Address, id: Id) -> Sends:
    return sorted(Tables.unwant(self, direction, id), key=lambda each: isinstance(each[1], say.Interest))


breaks(
    "no-heard-advertisement",
    "publications before everybody has heard of the advertisement",
    Broker,
    _may_publish=gives(True),
)
breaks("no-pulling", "an advertisement is not told who wants such things", Tables, _interested=gives([]))
breaks("no-echo", "a subscription is acknowledged at once", Broker, _ask=hear_subscriptions_at_once)
breaks("no-late-withdrawal", "a withdrawal overtakes publications", Broker, _is_under_way=gives(False))
breaks("no-uncovering", "what a subscription covered is forgotten with it", Tables, _uncovered=gives([]))
breaks("no-new-before-old", "what is over is told before what is new", Tables, unwant=unwant_reversed)
breaks("no-own-numbers", "numbers count what a client gets, not a subscription", Broker, _numbered=count_by_client)

# ── what is told early ────────────────────────────────────────────────────────────────────────────────────────────

breaks("no-single-source", "told early although others publish the same", _hears_only=gives(True), _notify=deliver)
breaks("no-untold", "told early although something before is above", _is_untold=gives(False))
breaks(
    "no-late-answer",
    "an advertisement is acknowledged before what was told early is back",
    unanswered=gives(set()),
    _notify=deliver,
)
breaks(
    "no-late-joining",
    "a subscription begins before what was told early is back",
    may_subscribe=gives(True),
    _notify=deliver,
)
breaks("no-warning", "what is above when a subscription begins is overlooked", begin=gives(None))

# ── the order by resolution ───────────────────────────────────────────────────────────────────────────────────────


def receive_with_old_clock(self: ResolutionOrder, source: Address, message: Any, effects: Effects) -> None:
    clock = self.broker.state.clock
    ResolutionOrder.receive(self, source, message, effects)
    if isinstance(message, say.Inquire):
        self.broker.state.clock = clock


def answer_without_clock(self: Broker, token: Id, echo: Echo, effects: Effects) -> None:
    count = len(effects.send)
    Broker._answer(self, token, echo, effects)
    for index in range(count, len(effects.send)):
        target, message = effects.send[index]
        if isinstance(message, say.Heard):
            effects.send[index] = target, structs.replace(message, clock=0)


def begin_with_one_echo(self: Broker, id: Id, echo: Echo, side: ClientSide, effects: Effects) -> bool:
    Broker._begin(self, id, echo, side, Effects())
    self.state.echoes.pop(id, None)
    return False


ROOTED = frozenset(VARIANTS)
breaks("no-merge", "nothing waits for its place", ResolutionOrder, _open_ways=gives([]))
breaks("no-asking-beyond", "a broker promises for itself only", ResolutionOrder, _others=gives(set()))
breaks("no-raised-clock", "a broker promises and keeps its old clock", ResolutionOrder, receive=receive_with_old_clock)
breaks("no-beginning", "a subscription counts from the beginning of time", ResolutionOrder, _has_begun=gives(True))
breaks("no-clock-heard", "acknowledgements tell no clock", Broker, _answer=answer_without_clock)
breaks("no-second-echo", "acknowledged before all clocks are beyond the beginning", Broker, _begin=begin_with_one_echo)
VARIANTS["paper-003"] = "the printed order: the acknowledged part is sorted by publication id", PrintedBroker

ORDERS: tuple[Order, ...] = ("rooted", "rooted", "rooted", "resolution", "resolution", "central", "fifo")


def orders_of(variant: str | None) -> tuple[Order, ...]:
    """The orders of the worlds in which a variant is played: the one whose rule it breaks; else all of them."""
    if variant is None:
        return ORDERS
    return ("rooted",) if variant in ROOTED else ("resolution",)
