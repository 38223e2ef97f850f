"""A made-up internet of transit and stub domains, as GT-ITM makes them, and the delays between its routers.

A few *transit* domains carry what goes far. Every transit router has a few *stub* domains, each attached by one link
of its gateway; a stub carries only what begins or ends in it. Routers have places on a square: domains anywhere, the
routers of a domain near each other, a stub near its transit router. A link takes as long as it is. Domains are
connected by chance: a random tree, so that nothing is cut off, and further links each with a probability.

A message from stub to stub passes both gateways and the transit routers they belong to. So delays need no search
through 10,000 routers: inside a stub, to its gateway, and between transit routers is enough.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import hypot
from random import Random
from typing import TypeAlias

from msgspec import Struct

from seriatim.model import InputError

Router: TypeAlias = int
Place: TypeAlias = tuple[float, float]
Links: TypeAlias = dict[Router, dict[Router, float]]  # both directions, with delays in milliseconds


class TransitStub(Struct, frozen=True, kw_only=True):
    """The parameters of a topology. The default has 10,000 routers: 100 of transit domains, 9,900 in 300 stubs.

    Widths are those of the squares that things are spread over, in milliseconds of delay.
    """

    transit_domains: int = 10
    transit_routers: int = 10  # of a domain
    stubs: int = 3  # of a transit router
    stub_routers: int = 33  # of a stub
    domain_links: float = 0.3  # probability of a link between two transit domains, besides the tree
    transit_links: float = 0.4  # between two routers of a transit domain
    stub_links: float = 0.08  # between two routers of a stub
    world_width_ms: float = 100.0
    domain_width_ms: float = 20.0
    stub_distance_ms: float = 4.0
    stub_width_ms: float = 2.0

    def __post_init__(self) -> None:
        for name in ("transit_domains", "transit_routers", "stubs", "stub_routers"):
            if getattr(self, name) < 1:
                raise InputError(name, f"{getattr(self, name)} is not positive", "give 1 or more")
        for name in ("domain_links", "transit_links", "stub_links"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(name, f"{getattr(self, name)} is not a probability", "give a value from 0 to 1")

    @property
    def transit_count(self) -> int:
        """Transit routers have the lowest numbers."""
        return self.transit_domains * self.transit_routers

    @property
    def routers(self) -> int:
        return self.transit_count * (1 + self.stubs * self.stub_routers)


class Topology:
    """Routers, links, and the shortest delay between any two routers."""

    def __init__(self, shape: TransitStub, links: Links, stubs: Sequence[Sequence[Router]]) -> None:
        self.shape = shape
        self.links = links
        self.stubs = stubs  # the first router of each is its gateway
        self.stub_of = {router: index for index, stub in enumerate(stubs) for router in stub}
        core = set(range(shape.transit_count))
        self._between = [shortest(links, router, core) for router in range(shape.transit_count)]
        self._way_out: dict[Router, tuple[Router, float]] = {router: (router, 0.0) for router in core}
        for stub in stubs:
            gateway = stub[0]
            [(transit, delay)] = [(router, delay) for router, delay in links[gateway].items() if router in core]
            for router, inside in shortest(links, gateway, set(stub)).items():
                self._way_out[router] = transit, inside + delay
        self._inside: dict[Router, dict[Router, float]] = {}

    def delay(self, one: Router, other: Router) -> float:
        """The shortest, in milliseconds. A stub has one gateway, so what stays in a stub never leaves it."""
        stub = self.stub_of.get(one)
        if stub is not None and stub == self.stub_of.get(other):
            if one not in self._inside:
                self._inside[one] = shortest(self.links, one, set(self.stubs[stub]))
            return self._inside[one][other]
        (transit, out), (other_transit, into) = self._way_out[one], self._way_out[other]
        return out + self._between[transit][other_transit] + into

    def transit_of(self, router: Router) -> Router:
        """The transit router that a router reaches the world by."""
        return self._way_out[router][0]


def shortest(links: Links, start: Router, within: set[Router]) -> dict[Router, float]:
    """Dijkstra: delays from a router to all others of a set, by ways inside the set."""
    found: dict[Router, float] = {}
    heap = [(0.0, start)]
    while heap:
        so_far, router = heappop(heap)
        if router in found:
            continue
        found[router] = so_far
        for neighbour, delay in links[router].items():
            if neighbour in within and neighbour not in found:
                heappush(heap, (so_far + delay, neighbour))
    return found


def transit_stub(seed: int, shape: TransitStub | None = None) -> Topology:
    """A topology; the same one for the same seed."""
    shape = shape or TransitStub()
    random = Random(f"transit-stub {seed}")
    places: dict[Router, Place] = {}
    links: Links = {}

    def around(centre: Place, width: float) -> Place:
        return tuple(at + width * (random.random() - 0.5) for at in centre)  # type: ignore[return-value]

    def join(one: Router, other: Router) -> None:
        (a, b), (c, d) = places[one], places[other]
        links[one][other] = links[other][one] = hypot(a - c, b - d)

    def add(number: Router, place: Place) -> Router:
        places[number] = place
        links[number] = {}
        return number

    domains = []
    for domain in range(shape.transit_domains):
        centre = around((0.0, 0.0), shape.world_width_ms)
        first = domain * shape.transit_routers
        routers = [add(first + each, around(centre, shape.domain_width_ms)) for each in range(shape.transit_routers)]
        for one, other in connected(len(routers), shape.transit_links, random):
            join(routers[one], routers[other])
        domains.append(routers)
    for one, other in connected(len(domains), shape.domain_links, random):
        join(random.choice(domains[one]), random.choice(domains[other]))
    stubs = []
    for transit in range(shape.transit_count):
        for _ in range(shape.stubs):
            centre = around(places[transit], shape.stub_distance_ms)
            stub = [add(len(places), around(centre, shape.stub_width_ms)) for _ in range(shape.stub_routers)]
            for one, other in connected(len(stub), shape.stub_links, random):
                join(stub[one], stub[other])
            join(stub[0], transit)
            stubs.append(stub)
    return Topology(shape, links, stubs)


def connected(count: int, probability: float, random: Random) -> list[tuple[int, int]]:
    """Edges of a random graph in one piece: each one is joined to one before it, then any two with a probability."""
    order = random.sample(range(count), count)
    edges = {tuple(sorted((order[index], random.choice(order[:index])))) for index in range(1, count)}
    for one in range(count):
        edges.update((one, other) for other in range(one + 1, count) if random.random() < probability)
    return sorted(edges)  # type: ignore[arg-type]


def clustered_hosts(topology: Topology, hosts: Sequence[str], cluster: int, random: Random) -> Mapping[str, Router]:
    """The router of each host: `cluster` hosts at a time in the same stub, which is chosen by chance."""
    found: dict[str, Router] = {}
    for start in range(0, len(hosts), cluster):
        stub = random.choice(topology.stubs)
        for host in hosts[start : start + cluster]:
            found[host] = random.choice(stub)
    return found


def length(topology: Topology, way: Sequence[Router]) -> float:
    """How long a way through these routers takes."""
    return sum(topology.delay(one, other) for one, other in pairwise(way))
