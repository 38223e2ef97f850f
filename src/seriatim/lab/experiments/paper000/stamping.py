"""Stamps under load: five servers that take time for every stamp they handle, and clients that wait for answers.

Runs on the simulator's engine. The tree's nodes are the protocol's own machines; the paper's stages are modelled by the
way its algorithm takes through the servers (`PaperServer`; a test compares it with the printed algorithm).

Two choices that the paper leaves open, and the facts they rest on (docs/figures.md):

- A client has one request under way. Otherwise 10,000 requests per second to a system that makes little more than 4,000
  stamps would let latency grow without end, and the paper reports less than 300 ms.
- A server takes `SERVICE_MS` for each stamp it handles. This is the one number that is calibrated: on "more than 4,000
  stamps per second at 5,000 requests per second", in the median over seeds. A time per entry instead gives the same
  curves up to the number of subscriptions that the paper states (experiment `000-service`).
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper000.sites import NAMES, SERVERS, Population, populate, site_of_topic, tree_of
from seriatim.lab.sim import LOCAL_NETWORK, WIDE_NETWORK, Link, Simulator
from seriatim.lab.sim.process import always
from seriatim.model import Address, Node, Topic
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.tree import Sequencer, TreeOptions
from seriatim.protocols.tree.messages import Finished, Granted, Pass, Routed, Settled, Ticket, Update

SERVICE_MS = 0.90
CLIENTS = 1_000
WARM_UP_MS = 3_000.0
MEASURED_MS = 3_000.0
LEASE_MS = 1e9  # nobody dies here

INDEX = {topic: index for index, topic in enumerate(NAMES)}


class Request(Struct, frozen=True):
    """The paper's layout, client → server of the topic: a stamp, please."""

    number: int
    topic: Topic


class Stage(Struct, frozen=True):
    """The paper's layout, server → server: a half-filled stamp, and the servers it has still to visit."""

    client: Address
    number: int
    topic: Topic
    route: tuple[Node, ...]


class Stamp(Struct, frozen=True):
    """The paper's layout, last server → client: it is complete."""

    number: int
    topic: Topic


class Answered(Struct, frozen=True):
    """From a client to its application: the stamp is there, asked for so long ago."""

    latency_ms: float


class Load(Struct, frozen=True, kw_only=True):
    """The requests to the servers, and what they cost. The defaults are the choices above."""

    layout: str
    rate: float
    seed: int
    entry_ms: float | None = (
        None  # of each entry of a stamp (paper's layout only), in place of SERVICE_MS for the stamp
    )
    waits: bool = True  # a client asks for nothing while it waits for an answer


class Traffic(Struct):
    """What one server handled and forwarded to other servers, in entries of stamps (all entries are of one size)."""

    stamps: int = 0
    handled: int = 0
    forwarded: int = 0


class Server:
    """A machine that takes its time: stamps are handled one after the other, everything else at once.

    Nothing is persisted: nobody crashes here, and journals would only grow.
    """

    def __init__(
        self, machine: Machine, stamp_entries: Callable[[Payload], int | None], entry_ms: float | None = None
    ) -> None:
        self.machine = machine
        self.traffic = Traffic()
        self._entries = stamp_entries
        self._entry_ms = entry_ms
        self._waiting: deque[tuple[float, Address, Payload]] = deque()
        self._busy_until = 0.0

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if type(message) in _TAKES_TIME:
            self._busy_until = max(now, self._busy_until) + self._service_ms(message)
            self._waiting.append((self._busy_until, source, message))
            effects = Effects()
        else:
            effects = self._handle(source, message, now)
        return self._with_wish(effects)

    def tick(self, now: float) -> Effects:
        effects = Effects()
        while self._waiting and self._waiting[0][0] <= now:
            _, source, message = self._waiting.popleft()
            effects.send += self._handle(source, message, now).send
        return self._with_wish(effects)

    def _service_ms(self, message: Payload) -> float:
        return SERVICE_MS if self._entry_ms is None else self._entry_ms * (self._entries(message) or 0)

    def _handle(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        effects.send = self.machine.step(source, message, now).send
        for target, sent in effects.send:
            entries = self._entries(sent)
            if entries is not None:
                self.traffic.stamps += 1
                self.traffic.handled += entries
                self.traffic.forwarded += entries if target in SERVERS else 0
        return effects

    def _with_wish(self, effects: Effects) -> Effects:
        effects.wake_at = self._waiting[0][0] if self._waiting else None
        return effects


_TAKES_TIME = frozenset({Ticket, Pass, Routed, Request, Stage})


class PaperServer:
    """200 topic managers on one server. A request climbs to the managers above it that are in its group; those on one
    server hand it on among themselves, so what counts is the servers it visits (paper 000 §3.3, Fig. 16)."""

    def __init__(self, site: int, routes: dict[Topic, tuple[Node, ...]]) -> None:
        self.node = SERVERS[site]
        self._routes = routes

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Request(number, topic):
                self._pass_on(Stage(source, number, topic, self._routes[topic]), effects)
            case Stage():
                self._pass_on(message, effects)
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()

    def _pass_on(self, stage: Stage, effects: Effects) -> None:
        if stage.route:
            following = Stage(stage.client, stage.number, stage.topic, stage.route[1:])
            effects.send.append((stage.route[0], following))
        else:
            effects.send.append((stage.client, Stamp(stage.number, stage.topic)))


def paper_route(topic: int, group: list[int]) -> tuple[Node, ...]:
    """The servers, after its own, that a stamp of this topic visits: those of higher managers of its group."""
    home = site_of_topic(topic)
    higher = {site_of_topic(other) for other in group if other < topic} - {home}
    return tuple(SERVERS[site] for site in sorted(higher, reverse=True))


class Client:
    """Asks for stamps at its own pace. One that `waits` asks for what fell due in the meantime afterwards."""

    def __init__(
        self, interval_ms: float, waits: bool, random: Random, ask: Callable[[int], tuple[Node, Payload]]
    ) -> None:
        self._interval_ms = interval_ms
        self._waits = waits
        self._random = random
        self._ask = ask
        self._due = random.random() * interval_ms
        self._asked_at: dict[int, float] = {}  # requests without an answer
        self._requests = 0

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Granted(request, topic, first):
                effects.send.append((source, Settled(topic, first)))
                effects.notify.append(Answered(now - self._asked_at.pop(request)))
            case Stamp(number):
                effects.notify.append(Answered(now - self._asked_at.pop(number)))
        return self._ask_if_due(now, effects)

    def tick(self, now: float) -> Effects:
        return self._ask_if_due(now, Effects())

    def _ask_if_due(self, now: float, effects: Effects) -> Effects:
        while self._due <= now and not (self._waits and self._asked_at):
            self._requests += 1
            self._asked_at[self._requests] = now
            self._due += self._random.expovariate(1.0 / self._interval_ms)
            effects.send.append(self._ask(self._requests))
        effects.wake_at = None if self._waits and self._asked_at else self._due
        return effects


class StampingWorld:
    """A layout under load, ready to run."""

    def __init__(self, population: Population, load: Load) -> None:
        self.population = population
        self.servers: dict[Node, Server] = {}
        self.latencies_ms: list[float] = []
        self.simulator = Simulator(load.seed, self._link, self._notified)
        self._measured_from = float("inf")
        self._ask: Callable[[int, int], tuple[Node, Payload]]  # topic, number of the request → to whom, what
        if load.layout == "paper":
            self._add_stages(load)
        else:
            self._add_nodes(load)
        for client in population.sites:
            self._add_client(client, load)

    def run(self, warm_up_ms: float, measured_ms: float) -> Measures:
        """Let the load settle, then measure."""
        self.simulator.run(warm_up_ms)
        before = {node: Traffic(**_fields(server.traffic)) for node, server in self.servers.items()}
        self._measured_from = warm_up_ms
        self.simulator.run(warm_up_ms + measured_ms)
        measures = {
            "latency_ms": sum(self.latencies_ms) / max(1, len(self.latencies_ms)),
            "stamps_per_s": len(self.latencies_ms) * 1_000.0 / measured_ms,
            "clients_outside": self.population.outside,
        }
        visits = 0
        for site, node in enumerate(SERVERS):
            if node in self.servers:
                now, then = self.servers[node].traffic, before[node]
                handled = now.handled - then.handled
                visits += now.stamps - then.stamps
                measures[f"forwarded[{site + 1}]"] = (now.forwarded - then.forwarded) / handled if handled else 0.0
        measures["servers_per_stamp"] = visits / max(1, len(self.latencies_ms))
        return measures

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_stages(self, load: Load) -> None:
        coupled = self.population.coupled
        routes = {NAMES[topic]: paper_route(topic, group) for topic, group in enumerate(coupled)}

        def entries(message: Payload) -> int | None:
            assert isinstance(message, Request | Stage | Stamp), "every message of this layout is about one stamp"
            return len(coupled[INDEX[message.topic]]) + 1

        for site, node in enumerate(SERVERS):
            self._add_server(node, Server(PaperServer(site, routes), entries, load.entry_ms))
        self._ask = lambda topic, number: (SERVERS[site_of_topic(topic)], Request(number, NAMES[topic]))

    def _add_nodes(self, load: Load) -> None:
        tree = tree_of(load.layout)
        options = TreeOptions(mode="ticket", order="pairwise", lease_ms=LEASE_MS)  # as the paper
        subscriptions = {
            client: frozenset(NAMES[topic] for topic in topics)
            for client, topics in self.population.subscriptions.items()
        }
        for node in tree.parents:
            sequencer = Sequencer(tree, node, options)
            for client, topics in subscriptions.items():
                sequencer.step(client, Update(1, topics), 0.0)
            self._add_server(node, Server(sequencer, _tree_entries))
        self._ask = lambda topic, number: (tree.home(NAMES[topic]), Ticket(number, NAMES[topic], 1))

    def _add_server(self, node: Node, server: Server) -> None:
        self.servers[node] = server
        self.simulator.add(node, always(server))

    def _add_client(self, client: Address, load: Load) -> None:
        def ask(number: int) -> tuple[Node, Payload]:
            return self._ask(self.population.draw(client), number)

        interval_ms = 1_000.0 * len(self.population.sites) / load.rate
        machine = Client(interval_ms, load.waits, Random(f"{client} {load.seed}"), ask)
        self.simulator.add(client, always(machine))

    def _link(self, source: Address, target: Address) -> Link:
        return Link(LOCAL_NETWORK if self._site(source) == self._site(target) else WIDE_NETWORK)

    def _site(self, address: Address) -> int:
        return SERVERS.index(address) if address in self.servers else self.population.sites[address]

    def _notified(self, address: Address, notification: Any, now: float) -> None:
        if now >= self._measured_from:
            self.latencies_ms.append(notification.latency_ms)


def _tree_entries(message: Payload) -> int | None:
    """How many entries the stamp in this message has, its own number counted; None if it carries none."""
    match message:
        case Pass() | Granted():
            return len(message.entries) + 1
        case Routed(_, Finished() as finished):
            return len(finished.entries) + 1
    return None


def _fields(traffic: Traffic) -> dict[str, int]:
    return {"stamps": traffic.stamps, "handled": traffic.handled, "forwarded": traffic.forwarded}


def run_stamping(parameters: Parameters, seed: int) -> Measures:
    """One layout and pattern at one rate; `subscriptions` in all, shared equally by 1,000 clients."""
    topics_each = int(parameters["subscriptions"]) // CLIENTS
    population = populate(str(parameters["pattern"]), CLIENTS, topics_each, seed)
    load = Load(layout=str(parameters["layout"]), rate=float(parameters["rate"]), seed=seed)
    return StampingWorld(population, load).run(WARM_UP_MS, MEASURED_MS)
