"""The sequencing tree in a simulated world: its machines, how they are connected, and what they report."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from seriatim.lab.sim.delays import LOCAL_NETWORK, WIDE_NETWORK
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.network import Link, reliable_fifo, reliable_unordered, unreliable
from seriatim.lab.sim.recorder import Recorder
from seriatim.lab.sim.scenario import Changing, Crash, Moving, Publishing, Replacement, Scenario
from seriatim.model import BROKER, Address, Event, Gap, InputError, Node, Notification, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.tree import Publisher, SequencerNode, Subscriber, TreeOptions
from seriatim.protocols.tree.messages import Move
from seriatim.protocols.with_broker import Change, Changed, Delivered, Publish

# Shorter than in production, so that leases run out and questions are asked within a run of a few seconds.
RETRY_MS = 300.0
LEASE_MS = 1_500.0
PATIENCE_MS = 600.0
TIME_TO_LIVE_MS = 1_000.0


class TreeWorld:
    """A scenario of the sequencing tree, ready to run."""

    def __init__(self, scenario: Scenario, record_messages: bool = False) -> None:
        self.scenario = scenario
        self.tree = SequencingTree(scenario.parents, scenario.homes)
        self.options = _options(scenario)
        self.recorder = Recorder()
        self.simulator = Simulator(scenario.seed, self._link, self._notified, record_messages)
        self.broker = Broker(replays=scenario.broker != "unreliable")
        self._random = Random(f"reactions {scenario.seed}")
        self._reactions_left = scenario.reactions
        self._wanted: dict[Address, set[Topic]] = {name: set() for name in scenario.subscribers}
        self._publishers: dict[str, Address] = {}  # the incarnation that now publishes for a name
        self._incarnations = dict.fromkeys(scenario.publishers, 1)
        self._events: dict[Address, int] = {}  # how many each incarnation has published
        self._commands: dict[Address, deque[Callable[[], bool]]] = {}  # wait until their process runs
        self.simulator.add(BROKER, lambda records, epoch: self.broker)
        for node in self.tree.parents:
            self.simulator.add(node, partial(self._node, node))
        for name in scenario.subscribers:
            self.simulator.add(name, partial(self._subscriber, name), observe=partial(self._received, name))
        for name in scenario.publishers:
            self._add_publisher(name, name)

    # ── what the scenario does ────────────────────────────────────────────────────────────────────────────────────

    def publish(self, act: Publishing) -> None:
        """Publish, through whatever process now stands for this publisher."""
        self._command(act.publisher, lambda: self._publish(act.publisher, act.topics))

    def change(self, act: Changing) -> None:
        """Change a subscription; the subscriber's application remembers what it wants."""
        wanted = self._wanted[act.subscriber]
        wanted |= act.add
        wanted -= act.remove
        self._command(act.subscriber, lambda: self._change(act.subscriber, act.add, act.remove))

    def move(self, act: Moving) -> None:
        """The operator asks the root."""
        self._command(self.tree.root, lambda: self._move(act))

    def crash(self, fault: Crash) -> None:
        """Stop a process and plan its restart."""
        address = self._publishers.get(fault.address, fault.address)
        self.simulator.crash(address, fault.doom)
        self.simulator.at(self.simulator.now + fault.down_ms, lambda: self.restart(fault.address))

    def replace(self, fault: Replacement) -> None:
        """Start a second process for a node that still runs."""
        self.simulator.start(fault.address)

    def restart(self, name: str) -> None:
        """Bring a role back: nodes and subscribers from their journals, a publisher as a new one under a new name."""
        if name in self._publishers:
            self.simulator.retire(self._publishers[name])
            self._incarnations[name] += 1
            self._add_publisher(name, f"{name}~{self._incarnations[name]}")
        else:
            self.simulator.start(name)
            if name in self._wanted:
                self._resume(name)
        self._give_commands(name)

    def heal(self) -> None:
        """End all faults and restart whatever is down."""
        down = [name for name in self._roles() if not self.simulator.is_running(self._publishers.get(name, name))]
        for name in down:
            self.restart(name)
        self.simulator.heal()

    # ── what the checkers ask ─────────────────────────────────────────────────────────────────────────────────────

    def numbers(self) -> dict[str, Number]:
        """Which event has which number: the broker's word."""
        numbers = {}
        for topic in self.broker.state.topics.values():
            numbers.update(topic.numbers)
            numbers.update({slot.event.id: slot.number for slot in topic.slots if slot.event is not None})
        return numbers

    def unfinished(self) -> list[str]:
        """Commands that have not been carried out, one sentence each."""
        sentences = []
        for name, wanted in self._wanted.items():
            held = self.recorder.held(name)
            subscriber = self.simulator.machine(name)
            assert isinstance(subscriber, Subscriber)
            if held != wanted or subscriber.state.changing or subscriber.state.waiting:
                sentences.append(f"{name} wants {_names(wanted)} but holds {_names(held)}")
        root = self.simulator.machine(self.tree.root)
        assert isinstance(root, SequencerNode)
        if (move := root.inner.move_under_way) is not None:
            sentences.append(f"{move.topic} is still on its way from {move.home} to {move.to}")
        for name, address in self._publishers.items():
            publisher = self.simulator.machine(address)
            assert isinstance(publisher, Publisher)
            sentences.extend(f"{name}: {line}" for line in publisher.explain())
        return sentences

    def explain(self, subscriber: str) -> list[str]:
        """What a subscriber waits for, in its own words, and what its homes have not finished."""
        machine = self.simulator.machine(subscriber)
        assert isinstance(machine, Subscriber)
        return [f"{wait.topic} {wait.number} is held: {wait.why}" for wait in machine.explain()]

    def explain_nodes(self) -> list[str]:
        """What the nodes have not finished."""
        sentences: list[str] = []
        for node in self.tree.parents:
            machine = self.simulator.machine(node)
            assert isinstance(machine, SequencerNode)
            sentences.extend(f"{node}: {line}" for line in machine.explain())
        return sentences

    # ── machines ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _roles(self) -> list[str]:
        return [*self.tree.parents, *self._wanted, *self._publishers]

    def _node(self, node: Node, records: Sequence[Payload], epoch: int) -> Machine:
        if epoch == 1:
            return SequencerNode(self.tree, node, self.options)
        return SequencerNode.take_over(self.tree, node, self.options, records)

    def _subscriber(self, name: Address, records: Sequence[Payload], epoch: int) -> Machine:
        if epoch == 1:
            return Subscriber(self.tree, name, self.options)
        return Subscriber.resume(self.tree, name, self.options, records)

    def _add_publisher(self, name: str, address: Address) -> None:
        self._publishers[name] = address
        self._events[address] = 0
        self.simulator.add(address, lambda records, epoch: Publisher(self.tree, address, self.options))

    def _link(self, source: Address, target: Address) -> Link:
        """Broker to subscriber as declared. Between broker and node, and to the broker, as a broker's client library
        has it: reliable. Everything else repeats what is not answered, and may be lost."""
        delay = LOCAL_NETWORK if self.scenario.delay == "local" else WIDE_NETWORK
        loss, duplication = self.scenario.loss, self.scenario.duplication
        if source == BROKER and target in self._wanted:
            if self.scenario.broker == "fifo":
                return reliable_fifo(delay)
            if self.scenario.broker == "unordered":
                return reliable_unordered(delay)
            return unreliable(delay, max(loss, 0.02), max(duplication, 0.02), 0.1)
        if BROKER in (source, target) and not {source, target} & self._events.keys():
            return reliable_fifo(delay)
        return unreliable(delay, loss, duplication, reordering=duplication)

    # ── commands, and what the application is told ────────────────────────────────────────────────────────────────

    def _command(self, name: str, give: Callable[[], bool]) -> None:
        self._commands.setdefault(name, deque()).append(give)
        self._give_commands(name)

    def _give_commands(self, name: str) -> None:
        commands = self._commands.get(name)
        while commands and commands[0]():
            commands.popleft()

    def _publish(self, name: str, topics: Sequence[Topic]) -> bool:
        address = self._publishers[name]
        if not self.simulator.is_running(address):
            return False
        events = []
        for topic in topics:
            self._events[address] += 1
            events.append(Event(f"{address}-{self._events[address]}", topic, address))
        client = self._client(name)
        for event in events:
            seen = self.recorder.seen(client) if client in self._wanted else None
            self.recorder.published(event, client if seen is not None else address, self.simulator.now, seen)
        return self.simulator.command(address, Publish(tuple(events)))

    def _client(self, name: str) -> str:
        """The client of a process. With `own_order` the first process of p1 publishes for the client that is also the
        subscriber s1."""
        if not self.scenario.own_order or self._publishers[name] != name:
            return self._publishers[name]
        return f"s{name[1:]}"

    def _change(self, name: Address, add: frozenset[Topic], remove: frozenset[Topic]) -> bool:
        if not self.simulator.is_running(name):
            return False
        self.recorder.joining(name, add)
        return self.simulator.command(name, Change(add, remove))

    def _move(self, act: Moving) -> bool:
        is_running = self.simulator.is_running(self.tree.root)
        return is_running and self.simulator.command(self.tree.root, Move(act.topic, act.to))

    def _resume(self, name: Address) -> None:
        """A restarted application asks for the difference between what it wants and what its subscriber remembers."""
        subscriber = self.simulator.machine(name)
        assert isinstance(subscriber, Subscriber)
        wanted, holds = self._wanted[name], subscriber.topics
        self._commands.pop(name, None)
        self.recorder.joining(name, holds)  # the change that was under way continues
        if wanted != holds:
            self._change(name, frozenset(wanted - holds), holds - wanted)

    def _received(self, name: Address, source: Address, message: Payload, now: float) -> None:
        if type(message) is Delivered and message.event is not None:
            self.recorder.received(name, message.event.id, now)

    def _notified(self, address: Address, notification: Payload, now: float) -> None:
        match notification:
            case Notification():
                self.recorder.notified(address, notification, now)
                self._react(address)
            case Gap():
                self.recorder.gap(address, notification)
            case Changed():
                self.recorder.holds(address, notification.topics, notification.start)

    def _react(self, subscriber: Address) -> None:
        """A notified client sometimes publishes in answer: the stuff of causal order."""
        name = f"p{subscriber[1:]}"
        if self._reactions_left and name in self._publishers and self._random.random() < 0.3:
            self._reactions_left -= 1
            topic = self._random.choice(sorted(self.tree.homes))
            self._command(name, lambda: self._publish(name, (topic,)))


def _options(scenario: Scenario) -> TreeOptions:
    lossy = scenario.broker == "unreliable"
    if scenario.protocol != "tree":
        raise InputError("protocol", f"{scenario.protocol!r} is not the sequencing tree", 'use protocol "tree"')
    return TreeOptions(
        mode=scenario.mode,
        order=scenario.order,
        order_log=not lossy,
        own_order=scenario.own_order,
        full_stamps=lossy,
        retry_ms=RETRY_MS,
        lease_ms=LEASE_MS,
        patience_ms=PATIENCE_MS,
        buffer_max=64 if lossy else None,
        time_to_live_ms=TIME_TO_LIVE_MS if lossy else None,
        durable=scenario.has_crashes,
    )


def _names(topics: set[Topic]) -> str:
    return f"{{{', '.join(sorted(topics))}}}"
