"""An atom host: numbers what passes its atoms, hands it on, and gives it to the members where a path ends.

One input is handled at a time, through all atoms that live here, so whatever passes two atoms of a host one after the
other does so in one step. Each rule is one small method, so that the checkers can be checked by replacing it.
"""

from collections import deque

from msgspec import structs

from seriatim.model import Address, Node, RemoteError
from seriatim.protocols.atoms import messages as say
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import AtomId, Members
from seriatim.protocols.atoms.plan import COORDINATOR, Plan
from seriatim.protocols.atoms.state import Gate, HostedAtom, HostState
from seriatim.protocols.machine import Effects, Machine, Payload


class AtomHost(Machine):
    """The machine of one host. It assumes links that neither lose, repeat nor reorder; `node.py` makes them."""

    def __init__(self, plan: Plan, name: Node, options: AtomsOptions, state: HostState | None = None) -> None:
        self.name = name
        self.options = options
        self.state = state if state is not None else first_state(plan, name)
        self._work: deque[tuple[AtomId, str, say.Passing]] = deque()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case say.Carry(atom, origin, passing):
                if atom not in self.state.atoms:
                    self._keep_stray(message, effects)
                else:
                    self._pass(atom, origin, passing, effects)
            case say.Install(token, name, pair, after, next_host):
                self.state.atoms[name] = HostedAtom(pair, after, next_host)
                self._done(token, effects)
                self._retry_strays(name, effects)
            case say.Reroute():
                self._reroute(message, effects)
            case say.Idle(token, name):
                self._atom(name).idle = True
                self._done(token, effects)
            case say.Uninstall(token, name):
                self.state.atoms.pop(name, None)
                self._done(token, effects)
            case say.Gone(group):
                for each in self.state.atoms.values():
                    each.ends.pop(group, None)
                    each.previous.pop(group, None)
            case say.Forget(receiver):
                for each in self.state.atoms.values():
                    each.ends = {group: members - {receiver} for group, members in each.ends.items()}
            case _:
                raise RemoteError(f"{source} sent host {self.name} an unknown message: {message!r}")
        return effects

    def explain(self) -> list[str]:
        lines = []
        for name, atom in sorted(self.state.atoms.items()):
            for source, gate in sorted(atom.gates.items()):
                lines.append(f"{len(gate.held)} messages from {source} to {name}: wait until the old way is empty")
        lines += [f"a message for {stray.atom}, which is not here" for stray in self.state.strays]
        return lines

    # ── passing atoms ─────────────────────────────────────────────────────────────────────────────────────────────

    def _pass(self, atom: AtomId, source: str, passing: say.Passing, effects: Effects) -> None:
        """Through all atoms that live here, in order. What is numbered belongs to this host until it leaves."""
        if isinstance(passing, say.Item):
            passing = structs.replace(passing, stamp=dict(passing.stamp))
        self._work.append((atom, source, passing))
        while self._work:
            self._arrive(*self._work.popleft(), effects)

    def _arrive(self, name: AtomId, source: str, passing: say.Passing, effects: Effects) -> None:
        atom = self.state.atoms[name]
        gate = self._gate(atom, source)
        if gate is not None:
            gate.held.append(passing)
        elif isinstance(passing, say.Begin):
            if passing.rejoin != name:
                self._forward(name, atom, passing, effects)
            elif passing.token in atom.drained:
                atom.drained.discard(passing.token)
                effects.send.append((COORDINATOR, say.Drained(passing.token)))
            else:
                atom.gates[source] = Gate(passing.token)
        elif isinstance(passing, say.Drain):
            if passing.rejoin != name and atom.next is not None:
                self._forward(name, atom, passing, effects)
            elif passing.rejoin is None:
                effects.send.append((COORDINATOR, say.Drained(passing.token)))
            else:
                self._open(name, atom, passing.token, effects)
        else:
            self._sequence(name, atom, source, passing, effects)

    def _sequence(self, name: AtomId, atom: HostedAtom, source: str, item: say.Item, effects: Effects) -> None:
        """One message of a group passes an atom: it is numbered, and leaves or goes on."""
        atom.previous[item.group] = source
        if not atom.idle and item.group in atom.pair:
            atom.count += 1
            item.stamp[name] = atom.count
        notice = item.notice
        if notice is not None and notice.way:
            if notice.end == name:
                atom.ends[item.group] = notice.members
            else:  # the path continues from here, even if it ended here so far
                atom.ends.pop(item.group, None)
        members = atom.ends.get(item.group)
        if members is None:
            self._forward(name, atom, item, effects)
            return
        self._distribute(item, members, effects)
        if notice is not None and notice.mark:
            self._done(notice.mark, effects)

    def _forward(self, name: AtomId, atom: HostedAtom, passing: say.Passing, effects: Effects) -> None:
        self._hand(self._next(name, atom, passing), name, passing, effects)

    def _next(self, name: AtomId, atom: HostedAtom, passing: say.Passing) -> tuple[AtomId | None, Node]:
        """One direction: whatever leaves an atom leaves it for the same next one."""
        return atom.next, atom.next_host

    def _hand(self, to: tuple[AtomId | None, Node], source: AtomId, passing: say.Passing, effects: Effects) -> None:
        after, host = to
        if after is None:
            self._keep_stray(say.Carry("", source, passing), effects)
        elif after in self.state.atoms:
            self._work.append((after, source, passing))
        else:
            effects.send.append((host, say.Carry(after, source, passing)))

    def _distribute(self, item: say.Item, members: Members, effects: Effects) -> None:
        effects.send.extend((member, item) for member in sorted(members))

    # ── another way ───────────────────────────────────────────────────────────────────────────────────────────────

    def _reroute(self, message: say.Reroute, effects: Effects) -> None:
        """Let an atom lead elsewhere. A drain marker on the old way shows when everything on it has passed."""
        name, token, rejoin = message.atom, message.token, message.rejoin
        atom = self._atom(name)
        old = atom.next, atom.next_host
        atom.next, atom.next_host = message.next, message.next_host
        self._done(token, effects)
        if old[0] is None:
            return
        self._hand(old, name, say.Drain(token, rejoin), effects)
        if rejoin is not None:
            self._forward(name, atom, say.Begin(token, rejoin), effects)
        while self._work:
            self._arrive(*self._work.popleft(), effects)

    def _gate(self, atom: HostedAtom, source: str) -> Gate | None:
        """The gate for messages from `source`, which holds what comes on a new way until the old one is empty."""
        return atom.gates.get(source)

    def _open(self, name: AtomId, atom: HostedAtom, token: say.Token, effects: Effects) -> None:
        """The old way is empty. It is told when the new one is in use too: then neither marker is on its way."""
        for source, gate in atom.gates.items():
            if gate.token == token:
                del atom.gates[source]
                self._work.extendleft((name, source, passing) for passing in reversed(gate.held))
                effects.send.append((COORDINATOR, say.Drained(token)))
                return
        atom.drained.add(token)

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _done(self, token: str, effects: Effects) -> None:
        effects.send.append((COORDINATOR, say.Done(token)))

    def _atom(self, name: AtomId) -> HostedAtom:
        atom = self.state.atoms.get(name)
        if atom is None:
            raise RemoteError(f"host {self.name} has no atom {name}")
        return atom

    def _keep_stray(self, message: say.Carry, effects: Effects) -> None:
        self.state.strays.append(message)
        effects.notify.append(say.Stray(message.atom, message.source, message.passing))

    def _retry_strays(self, name: AtomId, effects: Effects) -> None:
        found = [stray for stray in self.state.strays if stray.atom == name]
        self.state.strays = [stray for stray in self.state.strays if stray.atom != name]
        for stray in found:
            self._pass(name, stray.source, stray.passing, effects)


def first_state(plan: Plan, name: Node) -> HostState:
    """The atoms that live here when the system begins."""
    state = HostState()
    for atom_name, atom in plan.graph.atoms.items():
        if atom.host == name:
            state.atoms[atom_name] = HostedAtom(atom.pair, atom.next, plan.host_of(atom.next))
    for group, route in plan.graph.groups.items():
        if route.end in state.atoms:
            state.atoms[route.end].ends[group] = route.members
    return state
