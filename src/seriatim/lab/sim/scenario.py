"""The scenario of a run, as plain data, and how to draw it from a seed.

A scenario is complete: it names every machine, every command and every fault with its time. Everything that the options
do not fix is drawn from the seed, so a seed alone gives a whole world; the same seed and options give the same
scenario.
"""

from random import Random
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from seriatim.lab.sim.process import Doom
from seriatim.model import Address, InputError, Node, Topic

ProtocolName: TypeAlias = Literal["tree", "paper000"]
Mode: TypeAlias = Literal["log", "ticket"]
Order: TypeAlias = Literal["global", "pairwise"]
Reliability: TypeAlias = Literal["fifo", "unordered", "unreliable"]
DelayName: TypeAlias = Literal["local", "wide"]
Value = TypeVar("Value")

MODES: tuple[Mode, ...] = ("log", "ticket")
BROKERS: tuple[Reliability, ...] = ("fifo", "fifo", "unordered", "unreliable")
DELAYS: tuple[DelayName, ...] = ("local", "wide")


class Options(Struct, frozen=True, kw_only=True):
    """How large and how rough a scenario is. None: drawn from the seed."""

    protocol: ProtocolName = "tree"
    mode: Mode | None = None
    order: Order | None = None
    own_order: bool | None = None
    broker: Reliability | None = None
    delay: DelayName | None = None
    nodes: int | None = None
    topics: int | None = None
    subscribers: int | None = None
    publishers: int | None = None
    events: int | None = None
    changes: int | None = None
    moves: int | None = None
    crashes: int | None = None
    partitions: int | None = None
    loss: float | None = None
    duplication: float | None = None
    duration_ms: float = 3_000.0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(name, f"{value} is too small", f"give at least {least}")
        for name in ("loss", "duplication"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < 1.0:
                raise InputError(name, f"{value} is not a probability below 1", "give a value from 0 up to 1")
        if not 0.0 < self.duration_ms < 1e9:
            raise InputError(
                "duration_ms", f"{self.duration_ms} is not a usable time", "give some thousand milliseconds"
            )
        if self.broker == "unreliable" and self.mode == "log":
            raise InputError("broker", "an unreliable broker keeps no log", 'use mode "ticket"')
        if self.own_order and self.mode == "log":
            raise InputError("own_order", "a publisher's own order over topics needs tickets", 'use mode "ticket"')
        if self.own_order and self.order == "pairwise":
            raise InputError("own_order", "pairwise order does not keep it", 'use order "global"')


_LEAST = dict.fromkeys(("nodes", "topics", "subscribers", "publishers"), 1) | dict.fromkeys(
    ("events", "changes", "moves", "crashes", "partitions"), 0
)


class Publishing(Struct, frozen=True, tag=True):
    """An application publishes one event on each of these topics, in this order."""

    at_ms: float
    publisher: str
    topics: tuple[Topic, ...]


class Changing(Struct, frozen=True, tag=True):
    """An application changes its subscription."""

    at_ms: float
    subscriber: str
    add: frozenset[Topic] = frozenset()
    remove: frozenset[Topic] = frozenset()


class Moving(Struct, frozen=True, tag=True):
    """The operator moves a topic to another node."""

    at_ms: float
    topic: Topic
    to: Node


class Crash(Struct, frozen=True, tag=True):
    """A process dies, at once or (doom) in the middle of a step, and starts again after a while."""

    at_ms: float
    address: Address
    down_ms: float
    doom: Doom | None = None


class Replacement(Struct, frozen=True, tag=True):
    """A false death: a new process takes over from one that still runs."""

    at_ms: float
    address: Address


class Partition(Struct, frozen=True, tag=True):
    """Two sides cannot reach each other for a while."""

    at_ms: float
    for_ms: float
    left: tuple[Address, ...]
    right: tuple[Address, ...]


Act: TypeAlias = Publishing | Changing | Moving
Fault: TypeAlias = Crash | Replacement | Partition


class Scenario(Struct, frozen=True, kw_only=True):
    """One run, before it happens."""

    seed: int
    protocol: ProtocolName
    mode: Mode
    order: Order
    own_order: bool
    broker: Reliability
    delay: DelayName
    parents: dict[Node, Node | None]
    homes: dict[Topic, Node]
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    acts: tuple[Act, ...]
    faults: tuple[Fault, ...]
    loss: float
    duplication: float
    reactions: int = 0  # own_order: how many notifications make the notified client publish something
    duration_ms: float = field(default=3_000.0)

    @property
    def has_crashes(self) -> bool:
        return any(not isinstance(fault, Partition) for fault in self.faults)


def draw(seed: int, options: Options | None = None) -> Scenario:
    """The scenario of a seed."""
    return _Draw(seed, options or Options()).scenario()


class _Draw:
    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.random = Random(f"scenario {seed}")
        self.as_printed = options.protocol == "paper000"  # which knows no crashes, loss or unordered brokers

    def scenario(self) -> Scenario:
        random, options = self.random, self.options
        chance = random.random()
        own_order = self._choose(options.own_order, chance < 0.2, when_as_printed=False)
        drawn: Order = "global" if own_order or chance < 0.8 else "pairwise"
        order = self._choose(options.order, drawn, when_as_printed="pairwise")
        broker = self._choose(options.broker, random.choice(BROKERS))
        if options.broker is None and (self.as_printed or (broker == "unreliable" and options.mode == "log")):
            broker = "fifo"
        needs_tickets = own_order or broker == "unreliable"
        mode = self._choose(options.mode, random.choice(MODES), when_as_printed="ticket")
        if options.mode is None and needs_tickets:
            mode = "ticket"
        own_order = own_order and mode == "ticket" and order == "global"
        delay = self._choose(options.delay, random.choice(DELAYS))
        nodes = [f"n{i}" for i in range(1, 1 + self._choose(options.nodes, random.randint(1, 7)))]
        topics = [_topic(i) for i in range(self._choose(options.topics, random.randint(2, 6)))]
        subscribers = [f"s{i}" for i in range(1, 1 + self._choose(options.subscribers, random.randint(2, 6)))]
        publishers = [f"p{i}" for i in range(1, 1 + self._choose(options.publishers, random.randint(1, 4)))]
        parents = {node: random.choice(nodes[:i]) if i else None for i, node in enumerate(nodes)}
        homes = {topic: random.choice(nodes) for topic in topics}
        loss = self._choose(options.loss, random.choice((0.0, 0.0, 0.02, 0.1)), when_as_printed=0.0)
        duplication = self._choose(options.duplication, random.choice((0.0, 0.0, 0.05)), when_as_printed=0.0)
        acts: list[Act] = [*self._changes(topics, subscribers), *self._publications(topics, publishers)]
        acts += self._moves(topics, nodes)
        faults: list[Fault] = [
            *self._crashes(nodes, publishers, subscribers),
            *self._partitions(nodes, publishers, subscribers),
        ]
        return Scenario(
            seed=self.seed,
            protocol=options.protocol,
            mode=mode,
            order=order,
            own_order=own_order,
            broker=broker,
            delay=delay,
            parents=parents,
            homes=homes,
            publishers=tuple(publishers),
            subscribers=tuple(subscribers),
            acts=tuple(sorted(acts, key=_at_ms)),
            faults=tuple(sorted(faults, key=_at_ms)),
            loss=loss,
            duplication=duplication,
            reactions=20 if own_order else 0,
            duration_ms=options.duration_ms,
        )

    def _changes(self, topics: list[Topic], subscribers: list[str]) -> list[Changing]:
        random = self.random
        held: dict[str, set[Topic]] = {}
        acts = []
        for subscriber in subscribers:
            held[subscriber] = set(random.sample(topics, random.randint(1, min(4, len(topics)))))
            acts.append(Changing(random.uniform(0.0, 50.0), subscriber, frozenset(held[subscriber])))
        count = self._choose(self.options.changes, random.randint(0, 12))
        for at_ms in sorted(random.uniform(60.0, self.options.duration_ms) for _ in range(count)):
            subscriber = random.choice(subscribers)
            mine = held[subscriber]
            add = {topic for topic in topics if topic not in mine and random.random() < 0.4}
            remove = {topic for topic in sorted(mine) if random.random() < 0.4}
            if add or remove:
                held[subscriber] = (mine | add) - remove
                acts.append(Changing(at_ms, subscriber, frozenset(add), frozenset(remove)))
        return acts

    def _publications(self, topics: list[Topic], publishers: list[str]) -> list[Publishing]:
        random = self.random
        events_left = self._choose(self.options.events, random.randint(10, 80))
        acts = []
        while events_left > 0:
            batch = min(events_left, random.choice((1, 1, 1, 3)))
            events_left -= batch
            at_ms = random.uniform(0.0, self.options.duration_ms)
            acts.append(Publishing(at_ms, random.choice(publishers), tuple(random.choices(topics, k=batch))))
        return acts

    def _moves(self, topics: list[Topic], nodes: list[Node]) -> list[Moving]:
        """Draw moves of topics from a random generator of their own, so that they do not change the rest of a
        scenario."""
        random = Random(f"moves {self.seed}")
        count = self._choose(self.options.moves, random.choice((0, 1, 3)), when_as_printed=0)
        if len(nodes) == 1:
            return []
        times = (random.uniform(0.0, self.options.duration_ms) for _ in range(count))
        return [Moving(at_ms, random.choice(topics), random.choice(nodes)) for at_ms in times]

    def _crashes(self, nodes: list[Node], publishers: list[str], subscribers: list[str]) -> list[Fault]:
        random = self.random
        count = self._choose(self.options.crashes, random.choice((0, 0, 1, 2, 4)), when_as_printed=0)
        faults: list[Fault] = []
        for _ in range(count):
            at_ms = random.uniform(0.0, self.options.duration_ms)
            address = random.choice(random.choice((nodes, nodes, publishers, subscribers)))
            doom = random.choice((None, Doom(False, 0), Doom(True, 0), Doom(True, 1)))
            if address in subscribers:
                doom = None  # see docs/simulator.md: what a subscriber persists and what it notifies are one act
            if address in nodes and random.random() < 0.25:
                faults.append(Replacement(at_ms, address))
            else:
                faults.append(Crash(at_ms, address, random.uniform(1.0, 500.0), doom))
        return faults

    def _partitions(self, nodes: list[Node], publishers: list[str], subscribers: list[str]) -> list[Partition]:
        random = self.random
        count = self._choose(self.options.partitions, random.choice((0, 0, 1, 2)), when_as_printed=0)
        everybody = [*nodes, *publishers, *subscribers]
        faults = []
        for _ in range(count):
            at_ms, for_ms = random.uniform(0.0, self.options.duration_ms), random.uniform(10.0, 800.0)
            left = [address for address in everybody if random.random() < 0.5]
            right = [address for address in everybody if address not in left]
            faults.append(Partition(at_ms, for_ms, tuple(left), tuple(right)))
        return faults

    def _choose(self, option: Value | None, drawn: Value, when_as_printed: Value | None = None) -> Value:
        if option is not None:
            return option
        return when_as_printed if self.as_printed and when_as_printed is not None else drawn


def _topic(index: int) -> Topic:
    return chr(ord("A") + index) if index < 26 else f"T{index}"


def _at_ms(what: Act | Fault) -> float:
    return what.at_ms
