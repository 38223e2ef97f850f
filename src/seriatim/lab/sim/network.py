"""Links between addresses, and what may go wrong on them.

A `Link` says how a connection behaves; a `Route` is that link at work between one source and one target. Partitions
cut routes; `heal` ends every fault at once, for the liveness phase.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random
from typing import TypeAlias

from msgspec import Struct

from seriatim.lab.sim.delays import LOCAL_NETWORK, Delay
from seriatim.model import Address, InputError
from seriatim.protocols.machine import Payload

Pair: TypeAlias = tuple[Address, Address]


class Link(Struct, frozen=True):
    """How messages travel. The default is a reliable connection: in order, exactly once.

    `loss`, `duplication` and `reordering` are probabilities per message; a reordered message is held back by up to
    three further delays and may be overtaken. `holds`: messages sent into a partition wait for its end, as on a
    connection that retransmits; otherwise they are lost.
    """

    delay: Delay = LOCAL_NETWORK
    fifo: bool = True
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    holds: bool = True

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(name, f"{getattr(self, name)} is not a probability", "give a value from 0 to 1")


def reliable_fifo(delay: Delay = LOCAL_NETWORK) -> Link:
    """A link that delivers everything once and in order, like a stream of a broker that stores and acknowledges."""
    return Link(delay)


def reliable_unordered(delay: Delay = LOCAL_NETWORK) -> Link:
    """Exactly once, in any order."""
    return Link(delay, fifo=False)


def unreliable(
    delay: Delay = LOCAL_NETWORK, loss: float = 0.05, duplication: float = 0.05, reordering: float = 0.05
) -> Link:
    """A link that may lose, repeat and reorder, like plain publish-subscribe."""
    return Link(delay, fifo=True, loss=loss, duplication=duplication, reordering=reordering, holds=False)


class Route:
    """One link between one source and one target, with its present troubles."""

    __slots__ = ("cuts", "draw", "fifo", "held", "last_arrival", "link", "plain")

    def __init__(self, link: Link, random: Random, source: Address, target: Address) -> None:
        self.link = link
        self.draw = link.delay.draw(random, source, target)
        self.fifo = link.fifo
        self.last_arrival = 0.0  # FIFO: nothing arrives before this
        self.cuts = 0  # how many partitions cut it now
        self.held: list[tuple[Payload, float]] = []  # sent into a partition, and when
        self.plain = False  # nothing can go wrong: the engine's short path
        self.refresh()

    def refresh(self) -> None:
        link = self.link
        self.plain = not (self.cuts or link.loss or link.duplication or link.reordering)

    def arrivals(self, depart: float, random: Random) -> list[float]:
        """When the copies of one message arrive: none if it is lost, two if it is duplicated."""
        link = self.link
        copies = 1
        if link.loss and random.random() < link.loss:
            copies -= 1
        if link.duplication and random.random() < link.duplication:
            copies += 1
        return [self._arrival(depart, random) for _ in range(copies)]

    def _arrival(self, depart: float, random: Random) -> float:
        arrival = depart + self.draw()
        if self.link.reordering and random.random() < self.link.reordering:
            return arrival + 3.0 * random.random() * self.draw()
        if self.fifo:
            arrival = self.last_arrival = max(arrival, self.last_arrival)
        return arrival


class Network:
    """All routes. `link` is one link for everybody or a function of source and target."""

    def __init__(self, link: Link | Callable[[Address, Address], Link], random: Random) -> None:
        self.random = random
        self._link = link
        self._routes: dict[Address, dict[Address, Route]] = {}

    def routes_from(self, source: Address) -> dict[Address, Route]:
        """The open routes of one source, by target. The engine looks here before it calls `route`."""
        return self._routes.setdefault(source, {})

    def route(self, source: Address, target: Address) -> Route:
        routes = self.routes_from(source)
        route = routes.get(target)
        if route is None:
            link = self._link if isinstance(self._link, Link) else self._link(source, target)
            route = routes[target] = Route(link, self.random, source, target)
        return route

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Let nothing pass from the first to the second of each pair until it is joined as often as it was cut."""
        for source, target in pairs:
            route = self.route(source, target)
            route.cuts += 1
            route.refresh()

    def mend(self, pairs: Iterable[Pair]) -> list[tuple[Pair, Route]]:
        """Undo one cut of each pair; returns the routes that are open again and hold messages to be sent."""
        waiting = []
        for pair in pairs:
            route = self.route(*pair)
            route.cuts = max(0, route.cuts - 1)
            route.refresh()
            if route.held and not route.cuts:
                waiting.append((pair, route))
        return waiting

    def heal(self) -> list[tuple[Pair, Route]]:
        """No more loss, duplication, reordering or partitions from now on. Delays and FIFO stay as they are."""
        original = self._link
        if isinstance(original, Link):
            self._link = _faultless(original)
        else:
            self._link = lambda source, target: _faultless(original(source, target))
        waiting = []
        for source, routes in self._routes.items():
            for target, route in routes.items():
                route.cuts = 0
                route.link = _faultless(route.link)
                route.refresh()
                if route.held:
                    waiting.append(((source, target), route))
        return waiting


def between(left: Iterable[Address], right: Iterable[Address]) -> Iterator[Pair]:
    """All pairs between two sides, in both directions, for a partition."""
    for one, other in product(list(left), list(right)):
        yield one, other
        yield other, one


def _faultless(link: Link) -> Link:
    return Link(link.delay, fifo=link.fifo, holds=link.holds)
