"""What a scenario needs to know about a protocol: how to build its machines, talk to them and read them."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from seriatim.lab.papers import paper000
from seriatim.lab.papers.paper000.messages import EnsNotify
from seriatim.model import BROKER, Address, Event, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols import with_broker
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.tree.node import SequencerNode
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.publisher import Publisher
from seriatim.protocols.tree.subscriber import Subscriber
from seriatim.protocols.with_broker import Delivered


@dataclass
class Declaration:
    """The first block of a scenario."""

    protocol: str = ""
    topics: list[Topic] = field(default_factory=list)
    nodes: dict[Address, Address | None] = field(default_factory=dict)
    homes: dict[Topic, Address] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    subscribers: dict[Address, list[Topic]] = field(default_factory=dict)
    publishers: list[Address] = field(default_factory=list)

    def read(self, line: str) -> None:
        match line.split():
            case ["protocol", name]:
                self.protocol = name
            case ["topics", *topics]:
                self.topics += topics
            case ["node", name, "under", parent]:
                self.nodes[name] = parent
            case ["node", name]:
                self.nodes[name] = None
            case ["home", node, *topics]:
                self.homes |= dict.fromkeys(topics, node)
            case ["option", name, value]:
                self.options[name] = int(value) if value.isdigit() else value
            case ["option", name]:
                self.options[name] = True
            case ["subscriber", name, *topics]:
                self.subscribers[name] = topics
            case ["publisher", *names]:
                self.publishers += names
            case _:
                raise AssertionError(f"{line!r} does not describe a world")


class System(Protocol):
    """One protocol, set up."""

    machines: dict[Address, Machine]
    setup: dict[Address, list[Topic]]  # subscriptions that are to be taken before the story begins

    def publish(self, events: tuple[Event, ...]) -> list[Payload]:
        """The commands that publish these events."""

    def change(self, add: list[Topic], remove: list[Topic]) -> list[Payload]:
        """The commands that change a subscription."""

    def held(self, subscriber: Address) -> frozenset[Topic]:
        """What the subscriber holds now."""

    def started(self, subscriber: Address, answer: Payload) -> dict[Topic, Number]:
        """After which number topics begin, if this answer to the application says that they do."""

    def notified(self, message: Payload) -> tuple[Event, Number] | None:
        """The event, if the broker hands one out with this message."""

    def explain(self, address: Address) -> dict[str, str]:
        """What is held, and why."""

    def restore(self, address: Address, journal: list[Payload]) -> Machine:
        """The machine as it comes back after a crash."""


class Paper000:
    """The published algorithm. Its processes never crash, so nothing is restored."""

    def __init__(self, world: Declaration) -> None:
        self.setup: dict[Address, list[Topic]] = {}  # they are there from the start
        self.machines = paper000.deploy(world.topics, world.subscribers, world.publishers, **world.options)

    def publish(self, events: tuple[Event, ...]) -> list[Payload]:
        return [paper000.Publish(event) for event in events]

    def change(self, add: list[Topic], remove: list[Topic]) -> list[Payload]:
        return [*map(paper000.Unsubscribe, remove), *map(paper000.Subscribe, add)]

    def _subscriber(self, address: Address) -> paper000.Subscriber:
        machine = self.machines[address]
        assert isinstance(machine, paper000.Subscriber)
        return machine

    def held(self, subscriber: Address) -> frozenset[Topic]:
        return frozenset(self._subscriber(subscriber).state.topics)

    def started(self, subscriber: Address, answer: Payload) -> dict[Topic, Number]:
        machine = self._subscriber(subscriber)
        return {answer.topic: machine.state.clock[answer.topic]} if isinstance(answer, paper000.Subscribed) else {}

    def notified(self, message: Payload) -> tuple[Event, Number] | None:
        if isinstance(message, EnsNotify) and message.event is not None:
            return message.event, message.timestamp[message.topic]
        return None

    def explain(self, address: Address) -> dict[str, str]:
        held = self._subscriber(address).explain()
        return {f"{_name(each)} ({each.topic} {each.number})": _reason(each) for each in held}

    def restore(self, address: Address, journal: list[Payload]) -> Machine:
        raise AssertionError(f"{address}: the paper says nothing about coming back")


def _name(held: paper000.Held) -> str:
    return "a dummy" if held.event is None else held.event.id


def _reason(held: paper000.Held) -> str:
    if held.reached < 0:
        return f"waits for the subscription to {held.waits_for}"
    if held.reached < held.wanted:
        return f"waits for {held.waits_for} {held.reached + 1}"
    if held.waits_for == held.topic:
        return f"stuck for ever: {held.topic} is already at {held.reached}"
    return f"stuck for ever: it wants {held.waits_for} at {held.wanted}, which is already at {held.reached}"


class Tree:
    """The sequencing tree, on a broker that keeps what it is given."""

    def __init__(self, world: Declaration) -> None:
        self.tree = SequencingTree(world.nodes, world.homes)
        self.options = TreeOptions(**world.options)
        self.machines: dict[Address, Machine] = {BROKER: Broker(replays="time_to_live_ms" not in world.options)}
        self.machines |= {node: SequencerNode(self.tree, node, self.options) for node in world.nodes}
        self.machines |= {name: Publisher(self.tree, name, self.options) for name in world.publishers}
        self.machines |= {name: Subscriber(self.tree, name, self.options) for name in world.subscribers}
        self.setup = {name: topics for name, topics in world.subscribers.items() if topics}

    def publish(self, events: tuple[Event, ...]) -> list[Payload]:
        return [with_broker.Publish(events)]

    def change(self, add: list[Topic], remove: list[Topic]) -> list[Payload]:
        return [with_broker.Change(frozenset(add), frozenset(remove))]

    def held(self, subscriber: Address) -> frozenset[Topic]:
        machine = self.machines[subscriber]
        assert isinstance(machine, Subscriber)
        return machine.topics

    def started(self, subscriber: Address, answer: Payload) -> dict[Topic, Number]:
        return answer.start if isinstance(answer, with_broker.Changed) else {}

    def notified(self, message: Payload) -> tuple[Event, Number] | None:
        if isinstance(message, Delivered) and message.event is not None:
            return message.event, message.number
        return None

    def explain(self, address: Address) -> dict[str, str]:
        machine = self.machines[address]
        if isinstance(machine, Subscriber):
            return {f"{each.event_id or 'void'} ({each.topic} {each.number})": each.why for each in machine.explain()}
        assert isinstance(machine, SequencerNode | Publisher)
        return dict(line.split(": ", 1) for line in machine.explain())

    def restore(self, address: Address, journal: list[Payload]) -> Machine:
        if address in self.tree.parents:
            return SequencerNode.take_over(self.tree, address, self.options, journal)
        if isinstance(self.machines[address], Subscriber):
            return Subscriber.resume(self.tree, address, self.options, journal)
        raise AssertionError(f"{address}: a publisher that comes back takes a new name")


def build(world: Declaration) -> System:
    systems: dict[str, type[Paper000] | type[Tree]] = {"paper000": Paper000, "tree": Tree}
    assert world.protocol in systems, f"protocol {world.protocol!r} is not one of {', '.join(systems)}"
    return systems[world.protocol](world)
