"""The promises of sequencing atoms about their logs, and about a world that has come to rest."""

from collections.abc import Mapping, Sequence
from typing import Any

from seriatim.lab.explore.engine.checks import OrderChecks, Stopped, Violation, first_inversion, ids_of, inner, stuck
from seriatim.model import Address, Topic
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, GraphError, Plan, check
from seriatim.protocols.atoms.messages import Accepted, Change, Changed, Publish, Refused, Stray
from seriatim.protocols.atoms.overlaps import Group, Members, incarnation_of, topic_of
from seriatim.protocols.machine import Payload


class AtomsChecks(OrderChecks):
    """One order for all, nothing twice, nothing lost to a group's members, topics in the order of publication.

    What is published after a change was confirmed is published in the new group. And nobody waits forever, nothing is
    left behind, the graph keeps its shape, and in causal worlds cause comes before effect. Receivers that are forgotten
    are promised nothing.
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
        return super().log(address, log)

    def stopped(self, world: Stopped) -> list[Violation]:
        found = list(self._stuck(world)) or [*self._losses(world), *self._disorder(world), *self._unconfirmed(world)]
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
            if (waiting := world.waiting(address)) > 0:
                found.append(stuck(address, f"waits for {waiting} answers", machine.explain()))
            elif is_busy(address, machine):
                found.append(stuck(address, "is not done", machine.explain()))
            elif kept := _kept_for_nobody(world, address):
                found.append(Violation("stuck", f"{address} keeps messages for {kept}, which is forgotten"))
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

    def _unconfirmed(self, world: Stopped) -> list[Violation]:
        """An event that was published after a change of its topic had been confirmed is not the old group's.

        Nor is it refused, unless another change was under way. (Of one that was lost with a crash nobody knows.)
        """
        groups = {
            payload.event_id: payload.group
            for ingress in self.plan.ingresses
            for payload in world.log(ingress)
            if type(payload) is Accepted
        }
        asked: dict[Topic, int] = {}
        found = []
        for _, command, notified in world.issued:
            if isinstance(command, Change):
                asked[command.topic] = asked.get(command.topic, 0) + 1
            if not isinstance(command, Publish):
                continue
            topic, group = command.event.topic, groups.get(command.event.id)
            told = world.log(COORDINATOR)[: notified[COORDINATOR]]
            answers = [each for each in told if isinstance(each, Changed | Refused) and each.topic == topic]
            current = [each.group for each in answers if isinstance(each, Changed)]
            opened = [each for each in current if each]
            if group is not None and opened:
                is_wrong = incarnation_of(group) < incarnation_of(opened[-1]) + (current[-1] == "")
            else:
                is_wrong = group is None and opened != [] and current[-1] != "" and len(answers) == asked.get(topic, 0)
            if is_wrong:
                confirmed = current[-1] or "its end"
                sentence = f"{command.event.id} went to {group or 'nobody'} after {confirmed} had been confirmed"
                found.append(Violation("unconfirmed", sentence))
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
        return self.causal_inversions(world, causes)

    def _misshapen(self, world: Stopped) -> list[Violation]:
        coordinator = inner(world.machine(COORDINATOR))
        if coordinator is None:
            return []
        try:
            check(coordinator.state.graph, self.options.threshold)
        except GraphError as error:
            return [Violation("graph", str(error))]
        return []


def _kept_for_nobody(world: Stopped, address: Address) -> Address | None:
    """A receiver that the coordinator was told to forget, and for which this machine keeps messages all the same."""
    coordinator = inner(world.machine(COORDINATOR))
    forgotten = sorted(coordinator.state.forgotten) if coordinator is not None else []
    links = getattr(world.machine(address).state, "links", {})
    return next((each for each in forgotten if each in links and links[each].unacknowledged), None)


def is_busy(address: Address, machine: Any) -> bool:
    """Whether a machine still waits for something that is not up to a receiver."""
    state = machine.state
    if address == COORDINATOR:
        return state.work is not None or len(state.queue) > 0
    if hasattr(state, "held"):
        return bool(state.held)
    return any(atom.gates or atom.drained for atom in getattr(state, "atoms", {}).values())
