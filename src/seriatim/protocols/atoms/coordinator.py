"""The coordinator: knows who belongs to what, plans every change of the graph, and has it carried out step by step.

A new group opens in two phases. First its atoms are put where its neighbours' messages pass, and every neighbour marks
the place in its own sequence from which on these atoms count; only when all marks have come out does the new group send
anything. A closed group stays until every member was notified of its end. Then its atoms are bypassed, which waits for
machines of the network, never for receivers. One change is carried out at a time; traffic continues meanwhile.
"""

from collections.abc import Callable, Iterable

from seriatim.model import APPLICATION, Address, InputError, Node, RemoteError
from seriatim.protocols.atoms import messages as say
from seriatim.protocols.atoms.changing import Decay, Growth, Turn, plan_decay, plan_growth
from seriatim.protocols.atoms.graph import Atom, Route
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import AtomId, Group, group_of, incarnation_of, topic_of
from seriatim.protocols.atoms.plan import COORDINATOR, Plan, spread
from seriatim.protocols.atoms.state import CoordinatorState, Work
from seriatim.protocols.machine import Effects, Machine, Payload


class Coordinator(Machine):
    """The machine of the coordinator; there is one. It assumes links that neither lose, repeat nor reorder."""

    def __init__(self, plan: Plan, name: Address, options: AtomsOptions, state: CoordinatorState | None = None) -> None:
        self.plan = plan
        self.name = name
        self.options = options
        self.state = state if state is not None else first_state(plan)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        state = self.state
        match message:
            case say.Change():
                self._request(message, effects)
            case say.Forget(receiver):
                if receiver in self._machines():
                    raise InputError("receiver", f"{receiver!r} is not a receiver", "name a receiver")
                state.forgotten.add(receiver)
                effects.send.extend((each, message) for each in (*self.plan.ingresses, *self.plan.hosts))
                for group in sorted(state.unstarted):
                    self._started(group, receiver)
                for group in sorted(state.unfinished):
                    self._finished(group, receiver)
            case say.Started(group):
                self._started(group, source)
            case say.Finished(group, mark):
                if state.last_marks.get(group, "") == mark:
                    self._finished(group, source)
            case say.Done(token):
                self._met(token)
            case say.Drained(token):
                self._met(f"{token} drained")
            case _ if source == APPLICATION:
                raise InputError("command", f"unknown command {message!r}", "see protocols/atoms/messages.py")
            case _:
                raise RemoteError(f"{source} sent the coordinator an unknown message: {message!r}")
        self._go_on(effects)
        return effects

    def explain(self) -> list[str]:
        work = self.state.work
        lines = []
        if work is not None:
            what = "opening" if work.growth is not None else "closing" if work.change is not None else "removing"
            lines.append(f"{what} {work.group}: waits for {', '.join(sorted(work.waits_for))}")
        for group, who in sorted(self.state.unfinished.items()):
            lines.append(f"{group}: closed, but {', '.join(sorted(who))} may not have seen its end")
        return lines

    # ── what is to be done ────────────────────────────────────────────────────────────────────────────────────────

    def _request(self, change: say.Change, effects: Effects) -> None:
        pending = [each for each in self.state.queue if isinstance(each, say.Change) and each.topic == change.topic]
        exists = bool(pending[-1].members) if pending else self._exists(change.topic)
        if not change.members and not exists:
            effects.notify.append(say.Refused(change.topic, "a group needs members; give it one, or leave it out"))
            return
        if wrong := sorted(change.members & self._machines()):
            effects.notify.append(say.Refused(change.topic, f"{wrong[0]!r} is not a receiver; leave it out"))
            return
        self.state.queue.append(change)

    def _machines(self) -> frozenset[Address]:
        """Names that no receiver may have."""
        return frozenset(("", COORDINATOR, *self.plan.ingresses, *self.plan.hosts))

    def _exists(self, topic: str) -> bool:
        work = self.state.work
        if work is not None and work.change is not None and work.change.topic == topic:
            return bool(work.change.members)
        return topic in self.state.current

    def _finished(self, group: Group, receiver: Address) -> None:
        """A closed group stays until all its members were notified of everything in it."""
        owing = self.state.unfinished.get(group)
        if owing is None:
            return
        owing.discard(receiver)
        if not owing:
            del self.state.unfinished[group]
            self.state.graph.groups[group].finished = True
            self.state.ended.add(group)
            self._remove_ended()

    def _started(self, group: Group, receiver: Address) -> None:
        owing = self.state.unstarted.get(group)
        if owing is None:
            return
        owing.discard(receiver)
        if not owing:
            del self.state.unstarted[group]
            self._remove_ended()

    def _remove_ended(self) -> None:
        """A receiver that is told that a group is gone must not find its atoms in the beginning of another one."""
        pairs = [atom.pair for atom in self.state.graph.atoms.values()]
        for group in sorted(self.state.ended):
            neighbours = {other for pair in pairs if group in pair for other in pair}
            if neighbours.isdisjoint(self.state.unstarted):
                self.state.ended.discard(group)
                self.state.queue.append(group)

    def _met(self, token: say.Token) -> None:
        if self.state.work is not None:
            self.state.work.waits_for.discard(token)

    def _go_on(self, effects: Effects) -> None:
        """Stage after stage, as long as there is nothing to wait for."""
        state = self.state
        while True:
            work = state.work
            if work is None:
                if not len(state.queue):
                    return
                work = state.work = self._begin(state.queue.take()[0])
            if work.waits_for:
                return
            work.stage += 1
            stages = self._stages(work)
            if work.stage == len(stages):
                state.work = None
                continue
            stages[work.stage](work, effects)

    def _stages(self, work: Work) -> list[Callable[[Work, Effects], None]]:
        if work.growth is not None:
            return [self._install, self._lead_in, self._mark, self._open, self._confirm]
        if work.change is not None:
            return [self._close, self._confirm]
        return [
            self._drain,
            self._idle,
            self._enter_later,
            self._end_earlier,
            self._flush,
            self._bypass,
            self._uninstall,
        ]

    def _begin(self, what: say.Change | Group) -> Work:
        state = self.state
        if isinstance(what, str):
            return Work(None, what, decay=plan_decay(state.graph, what))
        if not what.members:
            return Work(what, state.current[what.topic])
        state.incarnations[what.topic] = state.incarnations.get(what.topic, 0) + 1
        group = group_of(what.topic, state.incarnations[what.topic])
        growth = plan_growth(state.graph, group, what.members, self.options.threshold, state.current.get(what.topic))
        state.unstarted[group] = {*what.members, ""}  # and whatever is coupled with it stays
        return Work(what, group, growth=growth, hosts=self._place(growth.chain))

    def _place(self, chain: list[AtomId]) -> dict[AtomId, Node]:
        hosts = self.plan.hosts
        if self.options.spread:
            return {atom: spread(atom, hosts) for atom in chain}
        loads = dict.fromkeys(hosts, 0)
        for atom in self.state.graph.atoms.values():
            loads[atom.host] += 1
        return dict.fromkeys(chain, min(hosts, key=lambda host: (loads[host], host)))

    # ── a new group ───────────────────────────────────────────────────────────────────────────────────────────────

    def _install(self, work: Work, effects: Effects) -> None:
        growth = _growth(work)
        graph = self.state.graph
        for name, atom in growth.atoms.items():
            graph.atoms[name] = Atom(atom.pair, atom.next, work.hosts[name])
        for name in growth.chain:
            atom = graph.atoms[name]
            message = say.Install(self._token(), name, atom.pair, atom.next, self._host(atom.next))
            self._ask(work, atom.host, message, effects)

    def _lead_in(self, work: Work, effects: Effects) -> None:
        growth = _growth(work)
        self._turn(work, growth.turns, effects)
        self.state.graph.groups.update(growth.neighbours)
        self.state.graph.groups[work.group] = growth.route

    def _mark(self, work: Work, effects: Effects) -> None:
        """Two phases: each neighbour's messages from its mark on are numbered; only then is the group opened."""
        growth = _growth(work)
        for name in growth.chain:
            one, other = growth.atoms[name].pair
            neighbour = other if one == work.group else one
            common = growth.route.members & growth.neighbours[neighbour].members
            self._send_mark(work, neighbour, effects, name, common)

    def _open(self, work: Work, effects: Effects) -> None:
        growth = _growth(work)
        graph, topic = self.state.graph, topic_of(work.group)
        groups = graph.groups
        pairs = {name: atom.pair for name, atom in growth.atoms.items()}
        overlaps = {name: groups[one].members & groups[other].members for name, (one, other) in pairs.items()}
        way = tuple(graph.path(work.group))
        members = growth.route.members - self.state.forgotten
        notice = say.Notice(opens=True, way=way, members=members, overlaps=overlaps)
        entry_host = self._host(growth.route.entry)
        self._ask(
            work, self.plan.ingress_of(topic), say.Open(self._token(), topic, work.group, notice, entry_host), effects
        )
        self._linger(topic)
        for receiver in ("", *sorted(self.state.forgotten & growth.route.members)):
            self._started(work.group, receiver)

    def _close(self, work: Work, effects: Effects) -> None:
        topic = topic_of(work.group)
        self._ask(work, self.plan.ingress_of(topic), say.Close(self._token(), topic), effects)
        self._linger(topic)

    def _confirm(self, work: Work, effects: Effects) -> None:
        """Announce the members of a group: the ingress has heard of them, so whatever is published from now on goes to
        them."""
        topic = topic_of(work.group)
        self.state.current.pop(topic, None)
        if work.growth is None:
            effects.notify.append(say.Changed(topic, "", frozenset()))
            return
        self.state.current[topic] = work.group
        effects.notify.append(say.Changed(topic, work.group, work.growth.route.members))

    def _linger(self, topic: str) -> None:
        """The topic's group is closed now; it is removed when all its members have said so."""
        group = self.state.current.get(topic)
        if group is None:
            return
        self.state.graph.groups[group].closed = True
        self._await_end(group, "")

    def _await_end(self, group: Group, mark: say.Token) -> None:
        """Wait until all members of a closed group, also those that did before, say that they were notified of its
        end."""
        self.state.graph.groups[group].finished = False
        self.state.ended.discard(group)
        members = self.state.graph.groups[group].members
        self.state.last_marks[group] = mark
        self.state.unfinished[group] = {*members, ""}
        for receiver in ("", *sorted(self.state.forgotten & members)):
            self._finished(group, receiver)

    # ── what a closed group leaves behind ─────────────────────────────────────────────────────────────────────────

    def _drain(self, work: Work, effects: Effects) -> None:
        """Members that were forgotten said nothing: the group's last messages may be on their way to nobody."""
        if self.state.graph.groups[work.group].entry is not None:
            self._send_enter(work, work.group, None, effects)

    def _idle(self, work: Work, effects: Effects) -> None:
        graph, decay = self.state.graph, _decay(work)
        members = graph.groups.pop(work.group).members
        self.state.last_marks.pop(work.group, None)
        for name in decay.idle:
            graph.atoms[name].idle = True
            self._ask(work, graph.atoms[name].host, say.Idle(self._token(), name), effects)
        gone = say.Gone(work.group, frozenset(decay.idle))
        ingress = self.plan.ingress_of(topic_of(work.group))
        everyone = [ingress, *self.plan.hosts, *sorted(members - self.state.forgotten)]
        effects.send.extend((address, gone) for address in everyone)

    def _enter_later(self, work: Work, effects: Effects) -> None:
        graph = self.state.graph
        for group, route in _decay(work).shorter.items():
            if route.entry != graph.groups[group].entry:
                self._send_enter(work, group, route.entry, effects)

    def _end_earlier(self, work: Work, effects: Effects) -> None:
        graph = self.state.graph
        for group, route in _decay(work).shorter.items():
            old = graph.groups[group]
            graph.groups[group] = route
            route.closed, route.finished = old.closed, old.finished  # it may have got there since
            if route.end is None or route.end == old.end:
                continue
            if not route.finished:
                self._send_mark(work, group, effects)
            else:  # its last messages may be on their way to members who are forgotten
                self._send_enter(work, group, None, effects)
                route.entry = route.end = None

    def _flush(self, work: Work, effects: Effects) -> None:
        """Wait, before edges are cut, until whatever went beyond a path's new end has come out."""
        graph = self.state.graph
        ends = {route.end for route in _decay(work).shorter.values()}
        turns = [Turn(end, after) for end in sorted(filter(None, ends)) if (after := graph.atoms[end].next) is not None]
        self._turn(work, turns, effects)

    def _bypass(self, work: Work, effects: Effects) -> None:
        self._turn(work, _decay(work).turns, effects)

    def _uninstall(self, work: Work, effects: Effects) -> None:
        for name in _decay(work).idle:
            atom = self.state.graph.atoms.pop(name)
            self._ask(work, atom.host, say.Uninstall(self._token(), name), effects)

    # ── parts of both ─────────────────────────────────────────────────────────────────────────────────────────────

    def _turn(self, work: Work, turns: Iterable[Turn], effects: Effects) -> None:
        graph = self.state.graph
        for turn in turns:
            atom, token = graph.atoms[turn.atom], self._token()
            if atom.next is not None:
                work.waits_for.add(f"{token} drained")
            message = say.Reroute(token, turn.atom, turn.next, self._host(turn.next), turn.rejoin)
            self._ask(work, atom.host, message, effects)
            atom.next = turn.next

    def _send_mark(
        self, work: Work, group: Group, effects: Effects, atom: AtomId = "", common: frozenset[Address] = frozenset()
    ) -> None:
        route: Route = self.state.graph.groups[group]
        way = tuple(self.state.graph.path(group))
        token = self._token()
        members = route.members - self.state.forgotten
        notice = say.Notice(
            closes=route.closed, mark=token, way=way, members=members, overlaps={atom: common} if atom else {}
        )
        if route.closed:
            self._await_end(group, token)
        work.waits_for.add(token)
        message = say.Mark(group, notice, self._host(route.entry))
        effects.send.append((self.plan.ingress_of(topic_of(group)), message))

    def _send_enter(self, work: Work, group: Group, entry: AtomId | None, effects: Effects) -> None:
        token = self._token()
        work.waits_for.add(f"{token} drained")
        message = say.Enter(token, group, entry, self._host(entry))
        effects.send.append((self.plan.ingress_of(topic_of(group)), message))

    def _ask(
        self,
        work: Work,
        target: Address,
        message: say.Install | say.Open | say.Close | say.Idle | say.Uninstall | say.Reroute,
        effects: Effects,
    ) -> None:
        work.waits_for.add(message.token)
        effects.send.append((target, message))

    def _token(self) -> say.Token:
        self.state.tokens += 1
        return str(self.state.tokens)

    def _host(self, atom: AtomId | None) -> Node:
        return "" if atom is None else self.state.graph.atoms[atom].host


def _growth(work: Work) -> Growth:
    assert work.growth is not None, "only a new group is opened"
    return work.growth


def _decay(work: Work) -> Decay:
    assert work.decay is not None, "only a closed group is removed"
    return work.decay


def first_state(plan: Plan) -> CoordinatorState:
    """What there is when the system begins. The graph is copied: it will change here, not in the plan."""
    graph = plan.graph
    atoms = {name: Atom(atom.pair, atom.next, atom.host) for name, atom in graph.atoms.items()}
    groups = {group: Route(route.members, route.entry, route.end) for group, route in graph.groups.items()}
    state = CoordinatorState(type(graph)(atoms, groups))
    for group in groups:
        state.incarnations[topic_of(group)] = incarnation_of(group)
        state.current[topic_of(group)] = group
    return state
