"""An ingress: gives each event its number in its group and sends it to the group's first atom.

All incarnations of a topic enter at the same ingress, so the end of one is sent before the beginning of the next.
"""

from seriatim.model import APPLICATION, Address, Event, InputError, RemoteError
from seriatim.protocols.atoms import messages as say
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import Group, Members, topic_of
from seriatim.protocols.atoms.plan import COORDINATOR, Plan
from seriatim.protocols.atoms.state import IngressState, Inlet
from seriatim.protocols.machine import Effects, Machine, Payload


class Ingress(Machine):
    """The machine of one ingress. It assumes links that neither lose, repeat nor reorder."""

    def __init__(self, plan: Plan, name: Address, options: AtomsOptions, state: IngressState | None = None) -> None:
        self.name = name
        self.options = options
        self.state = state if state is not None else first_state(plan, name)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case say.Publish(event, request):
                self._publish(event, request, effects)
            case say.Open(token, topic, group, notice, entry_host):
                self._close(topic, effects)
                self.state.topics[topic] = group
                entry = notice.way[0] if notice.way else None
                self.state.inlets[group] = Inlet(notice.members, entry, entry_host)
                self._issue(group, None, notice, effects)
                effects.send.append((COORDINATOR, say.Done(token)))
            case say.Close(token, topic):
                self._close(topic, effects)
                effects.send.append((COORDINATOR, say.Done(token)))
            case say.Mark(group, notice, entry_host):
                inlet = self.state.inlets[group]
                if inlet.entry is None:
                    inlet.entry, inlet.entry_host = notice.way[0], entry_host
                self._issue(group, None, notice, effects)
            case say.Enter():
                self._enter(message, effects)
            case say.Gone(group):
                self.state.inlets.pop(group, None)
            case say.Forget(receiver):
                for inlet in self.state.inlets.values():
                    inlet.members -= {receiver}
            case _ if source == APPLICATION:
                raise InputError("command", f"unknown command {message!r}", "see protocols/atoms/messages.py")
            case _:
                raise RemoteError(f"{source} sent ingress {self.name} an unknown message: {message!r}")
        return effects

    def explain(self) -> list[str]:
        return []

    def _publish(self, event: Event, request: int, effects: Effects) -> None:
        known = self.state.answers.get(event.publisher)
        if request and known is not None and (known[0], known[1].event_id) == (request, event.id):
            effects.notify.append(known[1])
            return
        group = self.state.topics.get(event.topic)
        if group is None:
            reason = f"nobody is subscribed to it, as far as ingress {self.name} was told"
            effects.notify.append(say.Refused(event.topic, reason))
            return
        answer = say.Accepted(event.id, group, self._issue(group, event, None, effects))
        if request:
            self.state.answers[event.publisher] = request, answer
        effects.notify.append(answer)

    def _close(self, topic: str, effects: Effects) -> None:
        """The last message of the topic's group, if it has one. It may still be marked."""
        group = self.state.topics.pop(topic, None)
        if group is not None:
            self.state.inlets[group].closed = True
            self._issue(group, None, say.Notice(closes=True), effects)

    def _issue(self, group: Group, event: Event | None, notice: say.Notice | None, effects: Effects) -> int:
        inlet = self.state.inlets[group]
        inlet.issued += 1
        item = say.Item(group, inlet.issued, {}, event, notice, self._place(group, event))
        if inlet.entry is None:
            self._distribute(item, inlet.members, effects)
        else:
            effects.send.append((inlet.entry_host, say.Carry(inlet.entry, group, item)))
        return inlet.issued

    def _place(self, group: Group, event: Event | None) -> int:
        """Where it is among its topic's events; 0: nobody counts them."""
        return 0

    def _distribute(self, item: say.Item, members: Members, effects: Effects) -> None:
        effects.send.extend((member, item) for member in sorted(members))

    def _enter(self, message: say.Enter, effects: Effects) -> None:
        """Skip atoms that do not number this group. What is still on its way through them comes first."""
        inlet = self.state.inlets[message.group]
        if inlet.entry is not None:
            drain = say.Drain(message.token, message.entry)
            effects.send.append((inlet.entry_host, say.Carry(inlet.entry, message.group, drain)))
        inlet.entry, inlet.entry_host = message.entry, message.entry_host
        if message.entry is not None:
            begin = say.Begin(message.token, message.entry)
            effects.send.append((message.entry_host, say.Carry(message.entry, message.group, begin)))


def first_state(plan: Plan, name: Address) -> IngressState:
    """The topics that enter here when the system begins."""
    state = IngressState()
    for group, route in plan.graph.groups.items():
        topic = topic_of(group)
        if plan.ingress_of(topic) == name:
            state.topics[topic] = group
            state.inlets[group] = Inlet(route.members, route.entry, plan.host_of(route.entry))
    return state
