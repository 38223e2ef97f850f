"""A station: the roles of a system of atoms that share one process, as one machine.

Any of coordinator, ingress and host, under one name. Messages between them stay inside and are handled in the same
step, so one record in one journal stands for all of them; messages to others travel on one link per station. Each kind
of message is for one role, so the address of a station is enough.

In the explorer the roles hand an item to each member; a station hands it to the broker once: the link to `BROKER` keeps
an item until the broker has it. Each item has its own place there (`slot_of`), so a repeat changes nothing.
"""

from collections import deque
from typing import Any

from msgspec import Struct, field

from seriatim.model import APPLICATION, BROKER, Address, Event, Node, Number, RemoteError, Topic
from seriatim.protocols.atoms import host, ingress
from seriatim.protocols.atoms import messages as say
from seriatim.protocols.atoms.burden import Burden, event_of
from seriatim.protocols.atoms.host import AtomHost
from seriatim.protocols.atoms.ingress import Ingress
from seriatim.protocols.atoms.live_messages import Declined, Join, Leave, Numbered, Out, Place, Withdrawn
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, topic_of
from seriatim.protocols.atoms.plan import COORDINATOR, Plan
from seriatim.protocols.atoms.registrar import Registrar, RegistrarState
from seriatim.protocols.atoms.state import HostedAtom, HostState, IngressState
from seriatim.protocols.machine import Effects, Machine, Payload

FOR_INGRESS = (say.Publish, Withdrawn, say.Open, say.Close, say.Mark, say.Enter, Out)
FOR_HOST = (say.Carry, say.Install, say.Reroute, say.Idle, say.Uninstall)
FOR_COORDINATOR = (say.Done, say.Drained, say.Started, say.Finished, Join, Leave, Place)

IDS_REMEMBERED = 1_024  # of each publisher: far more than it can have tried before it was answered


class Owed(Struct, array_like=True):
    """An answer that waits until the item has left the graph."""

    publisher: Address
    answer: Numbered


class StationIngressState(IngressState, array_like=True):
    """An ingress's, and what its topics' applications know them by."""

    places: dict[Topic, Number] = field(default_factory=dict)  # events so far, over all incarnations
    owed: dict[Group, dict[Number, Owed]] = field(default_factory=dict)
    recent: dict[Address, dict[str, tuple[Topic, Number]]] = field(default_factory=dict)  # ids and places, by publisher


class StationIngress(Ingress):
    """Answers publishers itself, and hands items that meet no atom to the broker."""

    state: StationIngressState

    def __init__(self, plan: Plan, name: Address, options: AtomsOptions, state: StationIngressState | None = None):
        first = ingress.first_state(plan, name)
        super().__init__(plan, name, options, state or StationIngressState(first.topics, first.inlets))

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case say.Publish(event):
                self._take(source, event, effects)
            case Withdrawn():
                pass
            case Out(group, number):
                self._left(group, number, effects)
            case say.Forget(receiver):
                self.state.recent.pop(receiver, None)
                for owed in self.state.owed.values():
                    for number in [number for number, each in owed.items() if each.publisher == receiver]:
                        del owed[number]
                return super().step(source, message, now)
            case _:
                return super().step(source, message, now)
        return effects

    def _take(self, source: Address, event: Event, effects: Effects) -> None:
        known = self.state.recent.get(source, {}).get(event.id)
        if known is not None and known[0] == event.topic:
            if not self._owes(source, event.id):  # else the answer is still to come, and is this one's too
                effects.send.append((source, Numbered(event.id, known[1])))
            return
        group = self.state.topics.get(event.topic)
        if group is None:
            reason = "nobody is subscribed to it"
            effects.send.append((source, Declined(event.id, event.topic, reason)))
            return
        number = self._issue(group, event, None, effects)
        answer = Numbered(event.id, self.state.places[event.topic])
        self._remember(source, event, answer.place)
        if self.options.causal and self.state.inlets[group].entry is not None:
            self.state.owed.setdefault(group, {})[number] = Owed(source, answer)
        else:
            effects.send.append((source, answer))

    def _remember(self, source: Address, event: Event, place: Number) -> None:
        """An id that the application gave can come again, after an unknown outcome. Those a publisher counts cannot."""
        if event.id.startswith(f"{source}-"):
            return
        recent = self.state.recent.setdefault(source, {})
        recent.pop(event.id, None)
        recent[event.id] = (event.topic, place)
        if len(recent) > IDS_REMEMBERED:
            del recent[next(iter(recent))]

    def _owes(self, source: Address, event_id: str) -> bool:
        return any(
            each.publisher == source and each.answer.event_id == event_id
            for owed in self.state.owed.values()
            for each in owed.values()
        )

    def _left(self, group: Group, number: Number, effects: Effects) -> None:
        owed = self.state.owed.get(group, {})
        found = owed.pop(number, None)
        if not owed:
            self.state.owed.pop(group, None)
        if found is not None:
            effects.send.append((found.publisher, found.answer))

    def _place(self, group: Group, event: Event | None) -> int:
        topic = topic_of(group)
        place = self.state.places[topic] = self.state.places.get(topic, 0) + (event is not None)
        return place

    def _distribute(self, item: say.Item, members: Members, effects: Effects) -> None:
        if members:
            effects.send.append((BROKER, item))


class StationHost(AtomHost):
    """Hands items to the broker where their path ends, and counts what waits behind gates."""

    def __init__(self, plan: Plan, name: Node, options: AtomsOptions, state: HostState | None = None) -> None:
        super().__init__(plan, name, options, state or host.first_state(plan, name))
        self.plan = plan
        self.gated = Burden()
        gates = [gate for atom in self.state.atoms.values() for gate in atom.gates.values()]
        for event in (event_of(passing) for gate in gates for passing in gate.held):
            if event is not None:
                self.gated.add(event)

    def _arrive(self, name: AtomId, source: str, passing: say.Passing, effects: Effects) -> None:
        event = event_of(passing)
        if event is not None and self._gate(self.state.atoms[name], source) is not None:
            self.gated.add(event)
        super()._arrive(name, source, passing, effects)

    def _open(self, name: AtomId, atom: HostedAtom, token: say.Token, effects: Effects) -> None:
        gate = next((gate for gate in atom.gates.values() if gate.token == token), None)
        for event in map(event_of, gate.held) if gate is not None else ():
            if event is not None:
                self.gated.remove(event)
        super()._open(name, atom, token, effects)

    def _distribute(self, item: say.Item, members: Members, effects: Effects) -> None:
        if members:
            effects.send.append((BROKER, item))
        if self.options.causal and item.event is not None:
            effects.send.append((self.plan.ingress_of(topic_of(item.group)), Out(item.group, item.number)))


class StationState(Struct, array_like=True):
    """The states of the roles that a station has."""

    coordinator: RegistrarState | None = None
    ingress: StationIngressState | None = None
    host: HostState | None = None


class Station(Machine):
    """The machine of one station. `coordinator`: the station where the coordinator is."""

    def __init__(
        self, plan: Plan, name: Node, coordinator: Node, options: AtomsOptions, state: StationState | None = None
    ) -> None:
        self.name = name
        self.options = options
        self.ingresses = frozenset(plan.ingresses) - {name}
        self.neighbours = frozenset({coordinator, *plan.ingresses, *plan.hosts}) - {name}
        self._coordinator = coordinator
        given = state if state is not None else StationState()
        self.registrar = Registrar(plan, COORDINATOR, options, given.coordinator) if name == coordinator else None
        self.ingress = StationIngress(plan, name, options, given.ingress) if name in plan.ingresses else None
        self.host = StationHost(plan, name, options, given.host) if name in plan.hosts else None
        self.state = StationState(
            self.registrar.state if self.registrar is not None else None,
            self.ingress.state if self.ingress is not None else None,
            self.host.state if self.host is not None else None,
        )

    @property
    def gated(self) -> Burden:
        """The burden of what waits here behind gates."""
        return self.host.gated if self.host is not None else Burden()

    @property
    def roles(self) -> list[str]:
        """The roles that are here."""
        named = (("coordinator", self.registrar), ("ingress", self.ingress), ("host", self.host))
        return [name for name, role in named if role is not None]

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        """Raises RemoteError if no role here takes this message; nothing has changed then."""
        effects = Effects()
        work: deque[tuple[Address, Payload]] = deque()
        self._hand(source, message, now, effects, work)
        while work:
            try:
                self._hand(*work.popleft(), now, effects, work)
            except RemoteError as error:
                raise RuntimeError(f"the roles of {self.name} do not understand each other: {error}") from error
        return effects

    def explain(self) -> list[str]:
        lines = [
            line for role in (self.registrar, self.ingress, self.host) if role is not None for line in role.explain()
        ]
        owed = sum(map(len, self.state.ingress.owed.values())) if self.state.ingress is not None else 0
        if owed:
            lines.append(f"{owed} events are under way through the atoms; their publishers wait")
        return lines

    def _hand(
        self, source: Address, message: Payload, now: float, effects: Effects, work: deque[tuple[Address, Payload]]
    ) -> None:
        for role in self._roles_for(source, message):
            done: Effects = role.step(source, message, now)
            effects.notify += done.notify
            for target, each in done.send:
                if target == COORDINATOR and isinstance(each, FOR_COORDINATOR):  # else a client or a node is called so
                    target = self._coordinator
                if target == self.name:
                    work.append((self.name, each))
                else:
                    effects.send.append((target, each))

    def _roles_for(self, source: Address, message: Payload) -> list[Any]:
        if isinstance(message, say.Gone):
            return [role for role in (self.ingress, self.host) if role is not None]
        if isinstance(message, say.Forget):
            if self.registrar is not None and source in (APPLICATION, message.receiver):
                return [self.registrar]
            if source not in (APPLICATION, message.receiver, self._coordinator):
                raise RemoteError(f"{source} may not have {message.receiver} forgotten, only itself")
            return [role for role in (self.ingress, self.host) if role is not None]
        kinds = ((FOR_INGRESS, self.ingress), (FOR_HOST, self.host), (FOR_COORDINATOR, self.registrar))
        for kind, role in kinds:
            if isinstance(message, kind) and role is not None:
                return [role]
        raise RemoteError(f"{source} sent station {self.name} a {type(message).__name__}, which no role here takes")
