"""A small world of real machines whose wires a test holds in its hand: cut them, lose, repeat and delay messages."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from seriatim.model import APPLICATION, BROKER, Address, Event, Gap, Node, Notification, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree import Publisher, SequencerNode, Subscriber, TreeOptions
from seriatim.protocols.with_broker import Change, Publish

STEPS_MAX = 10_000
TICKS_AT_ONCE_MAX = 50

Wire = tuple[Address, Address]


class Wires:
    """Machines, FIFO wires between them, and a clock. Messages to or from whoever is `away` wait on their wires."""

    def __init__(
        self,
        options: TreeOptions,
        homes: Mapping[Topic, Node],
        parents: Mapping[Node, Node | None] | None = None,
        subscribers: Iterable[str] = (),
        publishers: Iterable[str] = (),
        replays: bool = True,
    ) -> None:
        self.options = options
        self.tree = SequencingTree(parents if parents is not None else {"root": None}, homes)
        self.machines: dict[Address, Any] = {BROKER: Broker(replays)}
        self.machines |= {node: SequencerNode(self.tree, node, options) for node in self.tree.parents}
        self.machines |= {name: Subscriber(self.tree, name, options) for name in subscribers}
        self.machines |= {name: Publisher(self.tree, name, options) for name in publishers}
        self.wires: dict[Wire, deque[Payload]] = {}
        self.away: set[Wire] = set()
        self.told: dict[Address, list[Payload]] = {address: [] for address in self.machines}
        self.journals: dict[Address, list[Payload]] = {address: [] for address in self.machines}
        self.wishes: dict[Address, float] = {}
        self.now = 0.0
        for address in self.machines:
            self.tick(address)
        self.run()

    def tick(self, address: Address) -> None:
        self._carry_out(address, self.machines[address].tick(self.now))

    def step(self, source: Address, target: Address, message: Payload) -> Effects:
        """Hand a message over as it is, whoever may have written it."""
        effects: Effects = self.machines[target].step(source, message, self.now)
        self._carry_out(target, effects)
        return effects

    def change(self, subscriber: Address, add: str = "", remove: str = "") -> None:
        self.step(APPLICATION, subscriber, Change(frozenset(add.split()), frozenset(remove.split())))
        self.run()

    def publish(self, publisher: Address, topic: Topic, *ids: str) -> None:
        self.step(APPLICATION, publisher, Publish(tuple(Event(id, topic, publisher) for id in ids)))
        self.run()

    def run(self) -> None:
        """Deliver until nothing is under way on the wires that are up."""
        for _ in range(STEPS_MAX):
            wire = next((wire for wire, waiting in self.wires.items() if waiting and wire not in self.away), None)
            if wire is None:
                return
            self.step(*wire, self.wires[wire].popleft())
        raise AssertionError(f"still busy after {STEPS_MAX} steps")

    def pass_time(self, duration_ms: float) -> None:
        """Tick whoever wishes it, when it wishes it."""
        end, at_once = self.now + duration_ms, 0
        while self.wishes and min(self.wishes.values()) <= end:
            address = min(self.wishes, key=lambda each: (self.wishes[each], each))
            at_once = at_once + 1 if self.wishes[address] <= self.now else 0
            assert at_once < TICKS_AT_ONCE_MAX, f"{address} wishes to be ticked again and again without time passing"
            self.now = max(self.now, self.wishes[address])
            self.tick(address)
            self.run()
        self.now = end

    def cut(self, *between: Address) -> None:
        """Let messages wait in both directions between the first one and each of the others."""
        self.away |= {pair for other in between[1:] for pair in ((between[0], other), (other, between[0]))}

    def heal(self) -> None:
        self.away.clear()
        self.run()

    def lose(self, source: Address, target: Address) -> list[Payload]:
        """Lose what waits on this wire."""
        lost = list(self.wires.get((source, target), ()))
        self.wires.pop((source, target), None)
        return lost

    def take_over(self, node: Node) -> None:
        """Replace a node by one rebuilt from its journal. What was on its way to it is lost with the old process."""
        for wire in [wire for wire in self.wires if wire[1] == node]:
            del self.wires[wire]
        self.machines[node] = SequencerNode.take_over(self.tree, node, self.options, self.journals[node])
        self.tick(node)
        self.run()

    def resume(self, subscriber: Address) -> None:
        """Replace a subscriber by one rebuilt from its journal."""
        for wire in [wire for wire in self.wires if wire[1] == subscriber]:
            del self.wires[wire]
        journal = self.journals[subscriber]
        self.machines[subscriber] = Subscriber.resume(self.tree, subscriber, self.options, journal)
        self.tick(subscriber)

    def seen(self, subscriber: Address) -> list[str]:
        """Ids of the events it was notified of, in order; late ones are marked."""
        notified = (each for each in self.told[subscriber] if isinstance(each, Notification))
        return [f"late {each.event.id}" if each.out_of_order else each.event.id for each in notified]

    def gaps(self, subscriber: Address) -> list[tuple[Topic, int, int]]:
        return [(each.topic, each.first, each.last) for each in self.told[subscriber] if isinstance(each, Gap)]

    def _carry_out(self, address: Address, effects: Effects) -> None:
        self.journals[address].extend(effects.persist)
        for target, message in effects.send:
            if target not in self.machines:
                continue  # an answer to somebody who only exists in one message
            self.wires.setdefault((address, target), deque()).append(message)
        self.told[address].extend(effects.notify)
        if effects.wake_at is None:
            self.wishes.pop(address, None)
        else:
            self.wishes[address] = effects.wake_at
