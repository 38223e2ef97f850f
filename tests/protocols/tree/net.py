"""Machines joined by links that keep order and lose nothing, unless a test says otherwise. Time moves when told to."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from seriatim.model import APPLICATION, BROKER, Address, Event, Notification, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.tree import Publisher, SequencerNode, Subscriber, TreeOptions
from seriatim.protocols.with_broker import Change, EventStored, Publish

STEPS_MAX = 10_000

Kind = TypeVar("Kind")
Sent = tuple[Address, Address, Payload]


def event(id: str, topic: Topic = "A", publisher: Address = "p") -> Event:
    return Event(id, topic, publisher)


def publish(*ids: str, topic: Topic = "A", publisher: Address = "p") -> Publish:
    return Publish(tuple(event(id, topic, publisher) for id in ids))


def change(add: str = "", remove: str = "") -> Change:
    """Topics of one letter each: change("AB") adds A and B."""
    return Change(frozenset(add), frozenset(remove))


def messages(effects: Effects, kind: type[Kind]) -> list[Kind]:
    """What one step sent of one kind, whoever it is for."""
    bodies = [message.body if isinstance(message, Frame) else message for _, message in effects.send]
    return [message for message in bodies if isinstance(message, kind)]


class Net:
    """All roles of one system and what is on its way between them."""

    def __init__(self, tree: SequencingTree, options: TreeOptions) -> None:
        self.tree, self.options = tree, options
        self.now = 0.0
        self.broker = Broker()
        self.machines: dict[Address, Machine] = {BROKER: self.broker}
        self.journals: dict[Address, list[Any]] = {}
        self.told: dict[Address, list[Payload]] = {}
        self.on_the_way: deque[Sent] = deque()
        self.sent: list[Sent] = []
        self.held_back: list[Sent] = []
        self.holds_back: Callable[[Address, Address, Payload], bool] = lambda source, target, message: False
        self._wishes: dict[Address, float | None] = {}
        for node in tree.parents:
            self.add(node, SequencerNode(tree, node, options))

    def add(self, name: Address, machine: Machine) -> None:
        self.machines[name] = machine
        self.journals.setdefault(name, [])
        self.told.setdefault(name, [])
        self._take(name, machine.tick(self.now))

    def node(self, name: Address = "root") -> SequencerNode:
        machine = self.machines[name]
        assert isinstance(machine, SequencerNode)
        return machine

    def subscriber(self, name: Address) -> Subscriber:
        if name not in self.machines:
            self.add(name, Subscriber(self.tree, name, self.options))
        machine = self.machines[name]
        assert isinstance(machine, Subscriber)
        return machine

    def publisher(self, name: Address) -> Publisher:
        if name not in self.machines:
            self.add(name, Publisher(self.tree, name, self.options))
        machine = self.machines[name]
        assert isinstance(machine, Publisher)
        return machine

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, source: Address, target: Address, message: Payload) -> None:
        """Hand one message to one machine, now; its answers wait for `run`."""
        self._take(target, self.machines[target].step(source, message, self.now))

    def publish(self, publisher: Address, topic: Topic, *ids: str) -> None:
        self.publisher(publisher)
        self.step(APPLICATION, publisher, publish(*ids, topic=topic, publisher=publisher))
        self.run()

    def change(self, subscriber: Address, add: str = "", remove: str = "") -> None:
        self.subscriber(subscriber)
        self.step(APPLICATION, subscriber, change(add, remove))
        self.run()

    def run(self) -> None:
        """Deliver until nothing is on its way, except what `holds_back` keeps."""
        for _ in range(STEPS_MAX):
            if not self.on_the_way:
                return
            source, target, message = self.on_the_way.popleft()
            if self.holds_back(source, target, message):
                self.held_back.append((source, target, message))
            elif target in self.machines:
                self.step(source, target, message)
        raise AssertionError(f"still busy after {STEPS_MAX} messages: {self.on_the_way[0]}")

    def hold_back(self, *kinds: type, target: Address | None = None) -> None:
        """From now on messages of these kinds (to this target) stay where they are."""
        self.holds_back = lambda source, to, message: (
            isinstance(message.body if isinstance(message, Frame) else message, kinds) and target in (None, to)
        )

    def release(self) -> None:
        """What was held back goes on, in its order."""
        self.holds_back = lambda source, target, message: False
        self.on_the_way.extend(self.held_back)
        self.held_back.clear()
        self.run()

    def lose(self) -> None:
        """What was held back is gone; later messages get through."""
        self.held_back.clear()
        self.holds_back = lambda source, target, message: False

    def wait(self, milliseconds: float) -> None:
        """Let time pass: every machine is woken when it wishes, and messages take no time."""
        end = self.now + milliseconds
        for _ in range(STEPS_MAX):
            due = [(at, name) for name, at in self._wishes.items() if at is not None and at <= end]
            if not due:
                self.now = end
                return
            at, name = min(due)
            self.now = max(self.now, at)
            self._take(name, self.machines[name].tick(self.now))
            self.run()
        raise AssertionError(f"still restless after {STEPS_MAX} ticks: {due}")

    def crash(self, name: Address) -> None:
        """The machine is gone; what is sent to it is lost."""
        del self.machines[name]
        self._wishes.pop(name, None)

    def take_over(self, node: Address) -> SequencerNode:
        machine = SequencerNode.take_over(self.tree, node, self.options, self.journals[node])
        self.add(node, machine)
        self.run()
        return machine

    def _take(self, name: Address, effects: Effects) -> None:
        self.journals.setdefault(name, []).extend(effects.persist)
        for target, message in effects.send:
            body = message.body if isinstance(message, Frame) else message
            if body is not None:
                self.sent.append((name, target, body))
            self.on_the_way.append((name, target, message))
        self.told.setdefault(name, []).extend(effects.notify)
        self._wishes[name] = effects.wake_at

    # ── what was seen ─────────────────────────────────────────────────────────────────────────────────────────────

    def all_sent(self, kind: type[Kind]) -> list[Kind]:
        return [message for _, _, message in self.sent if isinstance(message, kind)]

    def all_told(self, name: Address, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.told[name] if isinstance(each, kind)]

    def notified(self, subscriber: Address) -> list[str]:
        """The ids of the events, in order."""
        return [each.event.id for each in self.all_told(subscriber, Notification)]

    def published(self, publisher: Address) -> list[tuple[str, Number]]:
        return [(each.event.id, each.number) for each in self.all_told(publisher, EventStored)]


def single(mode: str = "ticket", topics: Sequence[Topic] = "ABCD", **options: Any) -> Net:
    """One node; short times, so that tests name small numbers."""
    return Net(SequencingTree.single(topics), options_for(mode, **options))


def options_for(mode: str = "ticket", **options: Any) -> TreeOptions:
    times = {"retry_ms": 10.0, "lease_ms": 100.0, "patience_ms": 50.0}
    return TreeOptions(**{"mode": mode, "order_log": False} | times | options)  # type: ignore[arg-type]
