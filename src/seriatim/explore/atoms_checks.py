"""What sequencing atoms promise of their logs, and of a world that has come to rest."""

from collections.abc import Mapping, Sequence
from typing import Any

from seriatim.explore.checks import Checks, Stopped, Violation, first_causal_inversion, first_duplicate, first_inversion
from seriatim.model import Address, Notification, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, GraphError, Plan, check
from seriatim.protocols.atoms.messages import Accepted, Changed, Publish, Stray
from seriatim.protocols.atoms.overlaps import Group, Members, topic_of
from seriatim.protocols.machine import Payload


class AtomsChecks(Checks):
    """One order for all, nothing twice, nothing lost to a group's members, topics in the order of publication.

    And nobody waits for ever, the graph keeps its shape, and in causal worlds cause comes before effect. Receivers that
    are forgotten are promised nothing.
    """

    def __init__(
        self, plan: Plan, options: AtomsOptions, readers: Mapping[Address, Address], forgotten: frozenset[Address]
    ) -> None:
        self.plan = plan
        self.options = options
        self.readers = readers
        self.forgotten = forgotten

    def log(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        if address in self.forgotten:
            return None
        stray = next((payload for payload in log if type(payload) is Stray), None)
        if stray is not None:
            return Violation("stray", f"{address} got a message for {stray.atom or 'nobody'} from {stray.source}")
        id = first_duplicate(ids_of(log))
        return None if id is None else Violation("duplicate", f"{address} was notified of {id} twice")

    def pair(
        self, one: Address, log: Sequence[Payload], other: Address, other_log: Sequence[Payload]
    ) -> Violation | None:
        found = first_inversion(ids_of(log), ids_of(other_log))
        if found is None or one in self.forgotten or other in self.forgotten:
            return None
        a, b = found
        return Violation("inversion", f"{one} was notified of {a} before {b}, {other} of {b} before {a}")

    def stopped(self, world: Stopped) -> list[Violation]:
        found = list(self._stuck(world)) or [*self._losses(world), *self._disorder(world)]
        if self.options.causal:
            found += self._effects_before_causes(world)
        if not found:
            found += self._misshapen(world)
        return found

    def _stuck(self, world: Stopped) -> Sequence[Violation]:
        found = []
        for address in world.addresses:
            machine = inner(world.machine(address))
            if machine is None or address in self.forgotten:
                continue
            reasons = "; ".join(machine.explain()) or "nothing that it knows of"
            if (waiting := world.waiting(address)) > 0:
                found.append(Violation("stuck", f"{address} waits for {waiting} answers: {reasons}"))
            elif is_busy(address, machine):
                found.append(Violation("stuck", f"{address} is not done: {reasons}"))
        return found

    def _losses(self, world: Stopped) -> list[Violation]:
        """Who belongs to a group is notified of all that was numbered in it.

        A coordinator that crashed may not have said who belongs to a group: then nobody can tell.
        """
        members = self._members(world)
        found = []
        seen = {address: set(ids_of(world.log(address))) for address in world.addresses}
        for ingress in self.plan.ingresses:
            for payload in world.log(ingress):
                if type(payload) is not Accepted:
                    continue
                for receiver in sorted(members.get(payload.group, frozenset()) - self.forgotten):
                    if world.machine(receiver) is not None and payload.event_id not in seen[receiver]:
                        sentence = f"{receiver} was not notified of {payload.event_id} ({payload.group})"
                        found.append(Violation("loss", sentence))
        return found

    def _members(self, world: Stopped) -> dict[Group, Members]:
        members = {group: route.members for group, route in self.plan.graph.groups.items()}
        for payload in world.log(COORDINATOR):
            if type(payload) is Changed:
                members[payload.group] = payload.members
        return members

    def _disorder(self, world: Stopped) -> list[Violation]:
        """Events of a topic are notified as they were published, over all its incarnations."""
        published: dict[Topic, list[str]] = {}
        for ingress in self.plan.ingresses:
            for payload in world.log(ingress):
                if type(payload) is Accepted:
                    published.setdefault(topic_of(payload.group), []).append(payload.event_id)
        found = []
        for address in set(world.addresses) - self.forgotten:
            seen = ids_of(world.log(address))
            for topic, ids in sorted(published.items()):
                inverted = first_inversion(ids, seen)
                if inverted is not None:
                    a, b = inverted
                    sentence = f"{address} was notified of {b} before {a}, which {topic} has first"
                    found.append(Violation("topic-inversion", sentence))
        return found

    def _effects_before_causes(self, world: Stopped) -> list[Violation]:
        """What a publisher had been notified of when it published comes first, and what comes before that."""
        causes: dict[str, frozenset[str]] = {}
        for address, command, notified in world.issued:
            reader = self.readers.get(address)
            if isinstance(command, Publish) and reader is not None:
                seen = ids_of(world.log(reader)[: notified[reader]])
                known = [causes[id] for id in seen if id in causes]
                causes[command.event.id] = frozenset(seen).union(*known)
        found = []
        for address in set(world.addresses) - self.forgotten:
            inverted = first_causal_inversion(ids_of(world.log(address)), causes)
            if inverted is not None:
                sentence = f"{address} was notified of {inverted[1]} before {inverted[0]}, its cause"
                found.append(Violation("causal-inversion", sentence))
        return found

    def _misshapen(self, world: Stopped) -> list[Violation]:
        coordinator = inner(world.machine(COORDINATOR))
        if coordinator is None:
            return []
        try:
            check(coordinator.state.graph, self.options.threshold)
        except GraphError as error:
            return [Violation("graph", str(error))]
        return []


def ids_of(log: Sequence[Payload]) -> list[str]:
    return [payload.event.id for payload in log if type(payload) is Notification]


def inner(machine: Any) -> Any:
    """The machine inside a node, or the machine itself."""
    return getattr(machine, "inner", machine)


def is_busy(address: Address, machine: Any) -> bool:
    """Whether a machine still waits for something that is not up to a receiver."""
    state = machine.state
    if address == COORDINATOR:
        return state.work is not None or len(state.queue) > 0
    if hasattr(state, "held"):
        return bool(state.held)
    return any(atom.gates for atom in getattr(state, "atoms", {}).values())
