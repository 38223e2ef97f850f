"""Brokers under load (paper 003 §V): a chain of core brokers, five edge brokers on each, clients at the edges.

The brokers are the protocol's own machines, in the simulator; each handles one message at a time and takes its time for
it. Clients are not machines here: they publish at given times, and their notifications are recorded. Setting up takes
no time: everybody has advertised and subscribed, and is acknowledged, before the first publication.

Subscribers and publishers are spread evenly over the edges. Everything at an edge is about one group; an edge conflicts
with the edges of its own group. One group is the paper's 100 %, two are 50 %, four are 25 %. Or the edges of each core
are a group (`near`). Or all are separate: each publisher is its own group, with subscribers at any edges, and there are
no conflicts.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from random import Random

from msgspec import Struct

from seriatim.filters import headers_of
from seriatim.lab.experiments.paper003.overlay_paper import FastBroker, FastOrder, PlainBroker, ProgressiveBroker
from seriatim.lab.sim import Simulator
from seriatim.lab.sim.delays import Constant
from seriatim.lab.sim.network import Link
from seriatim.lab.sim.process import always
from seriatim.model import Address, Event
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay import Broker, Overlay, OverlayOptions, Place
from seriatim.protocols.overlay import messages as say

PLAIN, PROGRESSIVE, FAST = "paper, unoptimised", "paper, progressive", "paper, fast detection"
FIFO, SEQUENCER = "per publisher", "central sequencer"
ROOTED, RESOLUTION, CENTRAL = "rooted", "resolution", "central root"

PAPERS: dict[str, type[FastBroker]] = {PLAIN: PlainBroker, PROGRESSIVE: ProgressiveBroker, FAST: FastBroker}
OPTIONS = {
    FIFO: OverlayOptions(order="fifo"),
    SEQUENCER: OverlayOptions(order="fifo"),
    ROOTED: OverlayOptions(order="rooted"),
    RESOLUTION: OverlayOptions(order="resolution"),
    CENTRAL: OverlayOptions(order="central"),
}
EDGES_PER_CORE = 5


class Costs(Struct, frozen=True, kw_only=True):
    """Durations, in milliseconds. A broker does one thing at a time; links are not shared."""

    handle_ms: float = 0.2  # a message, whatever it is
    send_ms: float = 0.02  # each copy that leaves
    row_ms: float = 0.0  # each row that detection looks at (the paper's orders)
    link_ms: float = 0.2
    sequencer_ms: float = 4_000.0 / 130.0  # a number, from the paper's central sequencer


class OverlayLoad(Struct, frozen=True, kw_only=True):
    """The brokers and clients of a world, their actions, and the costs."""

    system: str
    cores: int = 4
    subscriptions: int = 150
    advertisements: int = 150
    groups: int = 1
    near: bool = False
    apart: bool = False
    interval_ms: float = 4_000.0  # from one publication of a publisher to its next
    seconds: float = 20.0
    covers: bool = False  # whether brokers of the paper keep to themselves what another subscription covers
    seed: int = 1
    costs: Costs = Costs()


class FromClient(Struct, frozen=True):
    """A command of a client, as the simulator hands it to a broker."""

    client: Address
    message: Payload


class Seen(Struct):
    """The work of one broker."""

    handled: int = 0
    sent: int = 0  # to brokers and, with an event, to clients
    publications: int = 0
    busy_ms: float = 0.0
    rows: int = 0
    detection_ms: float = 0.0  # waiting for it included, over all publications
    detection_ms_max: float = 0.0


class BusyBroker:
    """A broker that takes its time. What a message leads to leaves when the broker is done with it."""

    def __init__(self, broker: Broker, costs: Costs, deliver: Callable[[Address, Event, float], None]) -> None:
        self.broker = broker
        self.seen = Seen()
        self._costs = costs
        self._deliver = deliver
        self._inbox: deque[tuple[float, Address, Payload]] = deque()
        self._sends: list[tuple[Address, Payload]] = []
        self._done_at: float | None = None

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if type(message) is FromClient:
            source, message = message.client, message.message
        self._inbox.append((now, source, message))
        effects = Effects()
        if self._done_at is None:
            self._begin(now)
        effects.wake_at = self._done_at
        return effects

    def tick(self, now: float) -> Effects:
        effects = Effects()
        if self._done_at is not None and now >= self._done_at:
            self._done_at = None
            self._leave(now, effects)
            if self._inbox:
                self._begin(now)
        effects.wake_at = self._done_at
        return effects

    @property
    def waiting(self) -> int:
        """Messages that have come and are not handled yet."""
        return len(self._inbox)

    def _begin(self, now: float) -> None:
        arrived, source, message = self._inbox.popleft()
        self._sends = self.broker.step(source, message, now).send
        copies = sum(_counts(sent) for _, sent in self._sends)
        rows = _rows(self.broker) - self.seen.rows
        costs = self._costs
        took = costs.handle_ms + costs.send_ms * copies + costs.row_ms * rows
        seen = self.seen
        seen.handled += 1
        seen.sent += copies
        seen.busy_ms += took
        seen.rows += rows
        if isinstance(message, say.Publish) or hasattr(message, "publication"):
            seen.publications += 1
            detection_ms = now - arrived + costs.row_ms * rows
            seen.detection_ms += detection_ms
            seen.detection_ms_max = max(seen.detection_ms_max, detection_ms)
        self._done_at = now + took

    def _leave(self, now: float, effects: Effects) -> None:
        neighbours = self.broker.place.neighbours
        for target, message in self._sends:
            if target in neighbours:
                effects.send.append((target, message))
            elif type(message) is say.Deliver and message.event is not None:
                self._deliver(target, message.event, now)


def _counts(message: Payload) -> bool:
    """Answers to commands travel without being counted: they are the same in every system."""
    return not isinstance(message, say.EventTaken | say.Refused)


def _rows(broker: Broker) -> int:
    ordering = broker.ordering
    return ordering.rows if isinstance(ordering, FastOrder) else 0


class CentralSequencer:
    """The paper's baseline: a publisher asks for a number before it publishes, and is turned away if too many wait."""

    def __init__(self, service_ms: float, waiting_max: int = 3) -> None:
        self._service_ms = service_ms
        self._waiting_max = waiting_max
        self._busy_until = 0.0

    def ask(self, now: float) -> float | None:
        """When the number is there; None: the request is discarded."""
        start = max(now, self._busy_until)
        if start - now > self._waiting_max * self._service_ms:
            return None
        self._busy_until = start + self._service_ms
        return self._busy_until


class OverlayWorld:
    """An overlay under load, ready to run."""

    def __init__(self, load: OverlayLoad, keep: Callable[[Address], bool] = lambda subscriber: False) -> None:
        self.load = load
        self.random = Random(f"003 {load.seed} {load.advertisements} {load.subscriptions}")
        self.overlay = chain_of_cores(load.cores)
        self.edges = [name for name in self.overlay.parents if name.startswith("edge")]
        self.at: dict[Address, Address] = {}
        self.group: dict[Address, int] = {}
        self.simulator = Simulator(load.seed, Link(Constant(load.costs.link_ms)))
        self.brokers: dict[Address, BusyBroker] = {}
        self.published: dict[str, tuple[float, Address]] = {}  # when, at which broker
        self.refused: set[Address] = set()  # publishers that were turned away
        self.latencies: list[float] = []
        self.latencies_local: list[float] = []
        self.kept: dict[Address, list[str]] = {}
        self._keep = keep
        self._held: dict[Address, dict[int, tuple[Event, float]]] = {}
        self._next: Counter[Address] = Counter()
        self._numbers: dict[str, int] = {}
        self._sequencer = CentralSequencer(load.costs.sequencer_ms) if load.system == SEQUENCER else None
        for name, place in self.overlay.places.items():
            busy = BusyBroker(self._broker(place), load.costs, self._notify)
            self.brokers[name] = busy
        self._settle()
        for name, busy in self.brokers.items():
            self.simulator.add(name, always(busy))
        self._plan()

    def run(self, drain_ms: float = 0.0) -> None:
        """Let everything happen that happens within the time, and for a while after the last publication."""
        self.simulator.run(self.load.seconds * 1_000.0 + drain_ms)

    @property
    def publishers(self) -> list[Address]:
        return [f"publisher {number}" for number in range(self.load.advertisements)]

    @property
    def subscribers(self) -> list[Address]:
        return [f"subscriber {number}" for number in range(self.load.subscriptions)]

    def owed(self) -> int:
        """How many notifications all publications so far are worth."""
        wanting = Counter(self.group[subscriber] for subscriber in self.subscribers)
        return sum(wanting[self.group[id.rpartition(" ")[0]]] for id in self.published)

    def on(self, kind: str) -> list[Seen]:
        """What the brokers of a kind did: core or edge."""
        return [busy.seen for name, busy in self.brokers.items() if name.startswith(kind)]

    # ── setting up ────────────────────────────────────────────────────────────────────────────────────────────────

    def _broker(self, place: Place) -> Broker:
        paper = PAPERS.get(self.load.system)
        if paper is None:
            return Broker(place, OPTIONS[self.load.system])
        return paper(place, OPTIONS[RESOLUTION], self.load.covers)

    def _settle(self) -> None:
        """Everybody advertises, then everybody subscribes, in random order; messages arrive at once."""
        for name, where in self._clients(self.publishers):
            self.tell(name, say.Advertise("a", where))
        for name, where in self._clients(self.subscribers):
            self.tell(name, say.Subscribe("s", where))

    def _clients(self, names: list[Address]) -> Iterator[tuple[Address, str]]:
        for number, name in enumerate(names):
            edge = self.random.randrange(len(self.edges)) if self.load.apart else number % len(self.edges)
            self.at[name] = self.edges[edge]
            self.group[name] = self._group(number, edge)
        for name in self.random.sample(names, len(names)):
            yield name, f"group = {self.group[name]}"

    def _group(self, number: int, edge: int) -> int:
        if self.load.apart:
            return number % self.load.advertisements
        return edge // EDGES_PER_CORE if self.load.near else edge % self.load.groups

    def tell(self, client: Address, command: Payload) -> None:
        """A command of a client and everything it leads to, without any time passing."""
        waiting = deque([(client, self.at[client], command)])
        while waiting:
            source, target, message = waiting.popleft()
            for following, sent in self.brokers[target].broker.step(source, message, 0.0).send:
                if following in self.brokers:
                    waiting.append((target, following, sent))

    def _plan(self) -> None:
        """Everybody publishes every `interval_ms`, after a random beginning."""
        load, end = self.load, self.load.seconds * 1_000.0
        for name in self.publishers:
            at, number = self.random.uniform(0.0, load.interval_ms), 0
            while at < end:
                self.simulator.at(at, self._publishing(name, number))
                at, number = at + load.interval_ms, number + 1

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _publishing(self, name: Address, number: int) -> Callable[[], None]:
        broker = self.at[name]
        id = f"{name} {number}"
        event = Event(id, "", name, headers=headers_of({"group": self.group[name]}))

        def publish() -> None:
            self.simulator.command(broker, FromClient(name, say.Publish(event)))

        def ask() -> None:
            now = self.simulator.now
            if self._sequencer is None:
                self.published[id] = now, broker
                publish()
                return
            there = self._sequencer.ask(now)
            if there is None:
                self.refused.add(name)
                return
            self.published[id] = now, broker
            self._numbers[id] = len(self._numbers)
            self.simulator.at(there, publish)

        return ask

    def _notify(self, client: Address, event: Event, now: float) -> None:
        now += self.load.costs.link_ms
        if self._sequencer is None:
            self._notified(client, event, now)
            return
        held = self._held.setdefault(client, {})  # in the order of the sequencer's numbers
        held[self._numbers[event.id]] = event, now
        while (following := held.pop(self._next[client], None)) is not None:
            self._next[client] += 1
            self._notified(client, following[0], now)

    def _notified(self, client: Address, event: Event, now: float) -> None:
        at, broker = self.published[event.id]
        self.latencies.append(now - at)
        if self.at[client] == broker:
            self.latencies_local.append(now - at)
        if self._keep(client):
            self.kept.setdefault(client, []).append(event.id)


def chain_of_cores(cores: int) -> Overlay:
    """The paper's topology, rooted in the middle of the chain."""
    middle = cores // 2
    parents: dict[Address, Address | None] = {}
    for core in range(cores):
        towards = core + 1 if core < middle else core - 1
        parents[f"core {core}"] = None if core == middle else f"core {towards}"
        for edge in range(EDGES_PER_CORE):
            parents[f"edge {core}.{edge}"] = f"core {core}"
    return Overlay(parents)
