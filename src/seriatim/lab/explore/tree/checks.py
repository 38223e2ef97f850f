"""What the sequencing tree promises of its logs, its answers, and of a world that has come to rest."""

from collections.abc import Mapping, Sequence
from typing import Any

from seriatim.lab.explore.engine.checks import Fact, OrderChecks, Stopped, Violation, ids_of, inner, stuck
from seriatim.lab.explore.tree.order_checks import history_violations, order_violations
from seriatim.lab.explore.tree.shape_checks import shape_violations
from seriatim.model import BROKER, Address, Gap, Node, Notification, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import Subscriber, TreeOptions
from seriatim.protocols.tree.messages import Granted
from seriatim.protocols.tree.receiving import LOST
from seriatim.protocols.with_broker import Change, EventPlaced, Publish, Staged, Stamped


def _has_stopped_in_past(machine: object) -> bool:
    """Changes wait for the end of the past, and this waits for a decision of the application (order_checks.py)."""
    if not isinstance(machine, Subscriber) or machine.state.reading is None:
        return False
    return machine.state.reading.stopped is not None


class TreeChecks(OrderChecks):
    """Everything the sequencing tree promises of its logs and of a world that has come to rest."""

    def __init__(
        self,
        tree: SequencingTree,
        nodes: Sequence[Node],
        options: TreeOptions,
        readers: Mapping[Address, Address],
        one_at_a_time: frozenset[Address] = frozenset(),
        is_timeless: bool = False,
        pasts: Mapping[Address, Change] | None = None,
        may_lose_order: bool = False,
    ) -> None:
        self.tree = tree
        self.nodes = nodes  # also those that come later
        self.options = options
        self.readers = readers
        self.one_at_a_time = one_at_a_time
        self.is_acyclic = options.order == "global"
        self._awaits_places = options.follows_stamps or options.mode == "ticket"
        self.is_timeless = is_timeless
        self.may_lose_order = may_lose_order
        self.pasts = pasts or {}  # who begins with the past, and with which of its topics it stays

    def facts(self, target: Address, message: Payload) -> Sequence[Fact]:
        """A request gets the same numbers however often it is repeated; a number belongs to one, with one stamp."""
        if type(message) is Granted:
            question = f"{message.topic} for request {message.request} of {target}"
            # Then a home may forget the request; if the topic moves, it has several, with clocks of their own.
            request = Fact(question, message.first, self.options.lease_ms, tuple(self.nodes))
            return request, Fact(f"grant of {message.topic} {message.first}", (target, message.last, message.entries))
        if type(message) is Stamped and not message.is_lost:  # of what was lost, stages may have told another stamp
            stamp = f"{message.topic} {message.first}"
            position = Fact(f"position of {stamp}", message.position)
            return Fact(f"stamp of {stamp}", (message.last, message.entries)), position
        if type(message) is Staged:
            where = "" if message.final else f" at {message.node}"
            return (Fact(f"stamp of {message.topic} {message.first}{where}", (message.last, message.entries)),)
        return ()

    def stopped(self, world: Stopped) -> list[Violation]:
        found = []
        for address in world.addresses:
            machine = world.machine(address)
            if machine is None:
                continue
            if (waiting := world.waiting(address)) > 0 and not _has_stopped_in_past(machine):
                found.append(stuck(address, f"waits for {waiting} answers", explained(machine)))
            if isinstance(machine, Subscriber):
                found.extend(self._owed(world, address, machine))
        found += self._lost_in_vain(world)
        if self.options.order == "global":
            found += self._causal(world)
        if not found:
            found += shape_violations(world, self.nodes)
        if self.options.keeps_order_log and not found:
            found += order_violations(world, self.nodes, is_timeless=self.is_timeless, may_lose=self.may_lose_order)
            found += history_violations(world, self.pasts)
        return found

    def _owed(self, world: Stopped, address: Address, machine: Subscriber) -> list[Violation]:
        found = []
        if machine.state.ready:
            found.append(
                Violation("stuck", f"{address} keeps back {len(machine.state.ready)} events that are in order")
            )
        notified: dict[Topic, set[Number]] = {}
        for payload in world.log(address):
            if type(payload) is Notification:
                notified.setdefault(payload.event.topic, set()).add(payload.number)
            elif type(payload) is Gap and payload.reason == LOST:
                notified.setdefault(payload.topic, set()).update(range(payload.first, payload.last + 1))
        for topic, holding in sorted(machine.state.holdings.items()):
            lane = machine.state.lanes[topic]
            events, last = self._on_broker(world, topic)
            if lane.open and lane.done < last:
                reasons = "; ".join(explained(machine)) or "it has not arrived"
                found.append(Violation("stuck", f"{address} was not notified of {topic} {lane.done + 1}: {reasons}"))
            told = notified.get(topic, set())
            lost = sorted(n for n in events if holding.start < n <= lane.done and n not in told)
            if lane.open and lost:
                found.append(Violation("loss", f"{address} passed over {topic} {lost[0]} without notifying it"))
        return found

    def _lost_in_vain(self, world: Stopped) -> list[Violation]:
        """What a publisher was told to have its place is not lost with a journal."""
        lost: dict[Topic, list[tuple[Number, Number]]] = {}
        for address in world.addresses:
            machine = world.machine(address)
            for topic, kept in machine.state.topics.items() if isinstance(machine, Broker) else ():
                stretches = [(stamp.first, stamp.last) for stamp in kept.stamps if stamp.is_lost]
                if stretches:
                    lost[topic] = stretches
        return [
            Violation("loss", f"{address} was told that {each.topic} {each.number} has its place, and it was lost")
            for address in world.addresses
            for each in world.log(address)
            if type(each) is EventPlaced
            and any(first <= each.number <= last for first, last in lost.get(each.topic, ()))
        ]

    def _causal(self, world: Stopped) -> list[Violation]:
        """A reaction comes after what its publisher had been notified of, and after its own events.

        With `own_order` that is everything it published before; otherwise the commands it awaited until they had their
        place.
        """
        causes: dict[str, frozenset[str]] = {}
        own: dict[Address, frozenset[str]] = {}
        for address, command, notified in world.issued:
            if not isinstance(command, Publish):
                continue
            reader = self.readers.get(address, "")
            seen = ids_of(world.log(reader)[: notified[reader]]) if reader else []
            before = frozenset(seen).union(*(causes.get(id, frozenset()) for id in seen))
            awaited = before | own.get(address, frozenset())
            for event in command.events:
                causes[event.id] = awaited
                if self.options.own_order:
                    awaited = awaited | {event.id}
            if self.options.own_order or (address in self.one_at_a_time and self._awaits_places):
                own[address] = awaited.union(event.id for event in command.events)
        # On more than one node the order log places events of topics that nobody holds together as it hears of them.
        is_free = self.pasts.keys() if len(self.nodes) > 1 else frozenset()
        return self.causal_inversions(world, causes, is_free)

    def _on_broker(self, world: Stopped, topic: Topic) -> tuple[list[Number], Number]:
        """The numbers of the topic's events, and the last number that was given out."""
        broker = world.machine(f"{BROKER} {topic}" if BROKER not in world.addresses else BROKER)
        nodes = [inner(world.machine(node)) for node in self.nodes]
        homes = [node.state.homes[topic].issued for node in nodes if node is not None and topic in node.state.homes]
        issued = max(homes, default=0)
        kept = broker.state.topics.get(topic) if broker is not None else None
        if kept is None:
            return [], issued
        events = [number for number, event in enumerate(kept.log, 1) if event is not None]
        events += [slot.number for slot in kept.slots if slot.event is not None]
        return events, max(len(kept.log), issued)


def explained(machine: Any) -> list[str]:
    """What a machine says it is waiting for."""
    if isinstance(machine, Subscriber):
        lines = [
            f"{wait.event_id or 'a void'} ({wait.topic} {wait.number}) waits: {wait.why}" for wait in machine.explain()
        ]
        changing = machine.state.changing
        if changing is not None:
            doors = sorted(changing.join | changing.listen | changing.update)
            lines.append(f"the change to {', '.join(sorted(machine.topics)) or 'nothing'} waits for {', '.join(doors)}")
        return lines
    return list(machine.explain())
