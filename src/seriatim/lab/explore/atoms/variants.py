"""Machines of the atoms that are broken on purpose, one rule each: a checker that does not catch them proves nothing.

Each variant replaces the one method that holds the rule. The names are what the rule is called in the protocol's
README, with `no-` in front.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from seriatim.lab.explore.atoms.cast import PROPER, Cast
from seriatim.lab.explore.engine.plan import cast_with, gives
from seriatim.model import Node
from seriatim.protocols.atoms import AtomHost, AtomsOptions, Coordinator, Ingress, Receiver
from seriatim.protocols.atoms.messages import Begin, Carry, Enter, Item, Passing, Token
from seriatim.protocols.atoms.overlaps import AtomId, Group
from seriatim.protocols.atoms.state import HostedAtom, Work
from seriatim.protocols.machine import Effects

VARIANTS: dict[str, tuple[str, Cast]] = {}


def breaks(name: str, text: str, role: str, **methods: Callable[..., Any]) -> None:
    """The machine of this role, with these methods in place of its own."""
    VARIANTS[name] = text, cast_with(PROPER, role, **methods)


# ── hosts and ingresses ───────────────────────────────────────────────────────────────────────────────────────────


class EitherWayHost(AtomHost):
    """A host at which some groups walk their path backwards, as C1 and C2 allow while nobody changes the graph."""

    def __init__(self, plan: Any, name: Node, options: AtomsOptions, state: Any = None) -> None:
        super().__init__(plan, name, options, state)
        self._ways = {group: backwards(plan, group) for group in plan.graph.groups if walks_backwards(plan, group)}
        self._hosts = {atom: plan.host_of(atom) for atom in plan.graph.atoms}
        for group, way in self._ways.items():
            for atom_name, atom in self.state.atoms.items():
                atom.ends.pop(group, None)
                if way[-1] == atom_name:
                    atom.ends[group] = plan.graph.groups[group].members

    def _next(self, name: AtomId, atom: HostedAtom, passing: Passing) -> tuple[AtomId | None, Node]:
        way = self._ways.get(passing.group, []) if isinstance(passing, Item) and passing.notice is None else []
        if name not in way[:-1]:
            return super()._next(name, atom, passing)
        after = way[way.index(name) + 1]
        return after, self._hosts[after]


class EitherWayIngress(Ingress):
    """Enters those groups at what should be their end."""

    def __init__(self, plan: Any, name: str, options: AtomsOptions, state: Any = None) -> None:
        super().__init__(plan, name, options, state)
        for group, inlet in self.state.inlets.items():
            if group in plan.graph.groups and walks_backwards(plan, group):
                inlet.entry = plan.graph.groups[group].end
                inlet.entry_host = plan.host_of(inlet.entry)


def walks_backwards(plan: Any, group: Group) -> bool:
    """Every second group with two atoms and more."""
    route = plan.graph.groups[group]
    return route.entry != route.end and sorted(plan.graph.groups).index(group) % 2 == 0


def backwards(plan: Any, group: Group) -> list[AtomId]:
    return list(reversed(plan.graph.path(group)))


class LoopingHost(AtomHost):
    """A message that some atoms on its path do not number goes past them: the graph is no longer a forest (C2)."""

    def __init__(self, plan: Any, name: Node, options: AtomsOptions, state: Any = None) -> None:
        super().__init__(plan, name, options, state)
        self._atoms = {atom: (each.pair, each.next, each.host) for atom, each in plan.graph.atoms.items()}

    def _next(self, name: AtomId, atom: HostedAtom, passing: Passing) -> tuple[AtomId | None, Node]:
        after, host = super()._next(name, atom, passing)
        if not isinstance(passing, Item) or passing.notice is not None:
            return after, host
        while after in self._atoms and passing.group not in self._atoms[after][0]:
            _, further, _ = self._atoms[after]
            if further is None or further not in self._atoms:
                break
            after, host = further, self._atoms[further][2]
        return after, host


def enter_past_its_own(self: Ingress, message: Enter, effects: Effects) -> None:
    """A group's messages that took the longer way are as if from elsewhere: it keeps nothing of this group back."""
    Ingress._enter(self, message, effects)
    for place, (host, carry) in enumerate(effects.send):
        if isinstance(carry, Carry) and isinstance(carry.passing, Begin):
            effects.send[place] = host, Carry(carry.atom, "", carry.passing)


EITHER_WAY = Cast(host=EitherWayHost, ingress=EitherWayIngress)
VARIANTS["no-direction"] = "some groups walk their path backwards", EITHER_WAY
VARIANTS["no-forest"] = "messages skip atoms that do not number them", Cast(host=LoopingHost)
breaks("no-drain-marker", "a new way is used while the old one is not empty", "host", _gate=gives(None))
breaks("no-later-entry-drain", "a group overtakes itself when it enters later", "ingress", _enter=enter_past_its_own)

# ── receivers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def notify_without_overlaps(self: Receiver, item: Item, effects: Effects) -> list[tuple[str, int]]:
    """A new atom counts from wherever the new group begins."""
    notice = item.notice
    if notice is not None and not notice.opens and notice.overlaps:
        item = structs.replace(item, notice=structs.replace(notice, overlaps={}))
    return Receiver._notify(self, item, effects)


breaks("no-atom-numbers", "receivers look at group numbers only", "receiver", _counts=gives(False))
breaks(
    "no-opening",
    "a group's first message waits for nothing",
    "receiver",
    _counts=lambda self, atom, item: atom in self.state.done,
)
breaks("no-marks", "receivers overlook marks", "receiver", _notify=notify_without_overlaps)

# ── the coordinator ───────────────────────────────────────────────────────────────────────────────────────────────


def mark_meanwhile(self: Coordinator, work: Work, effects: Effects) -> None:
    before = set(work.waits_for)
    Coordinator._mark(self, work, effects)
    work.waits_for = before


def open_unheard(self: Coordinator, work: Work, effects: Effects) -> None:
    Coordinator._open(self, work, effects)
    work.waits_for.clear()


def close_unheard(self: Coordinator, work: Work, effects: Effects) -> None:
    Coordinator._close(self, work, effects)
    work.waits_for.clear()


def finish_when_sent(self: Coordinator, group: Group, mark: Token) -> None:
    """Finish a group when its last message was sent, without waiting until everybody was notified of it."""
    Coordinator._await_end(self, group, mark)
    for receiver in sorted(self.state.unfinished.get(group, ())):
        self._finished(group, receiver)


def begin_past_closed(self: Coordinator, what: Any) -> Work:
    """Begin a change although the last messages of a closed group are still on their way."""
    closed = [route for route in self.state.graph.groups.values() if route.closed and not route.finished]
    for route in closed:
        route.finished = True
    work = Coordinator._begin(self, what)
    for route in closed:
        route.finished = False
    return work


def remove_ended_at_once(self: Coordinator) -> None:
    for group in sorted(self.state.ended):
        self.state.ended.discard(group)
        self.state.queue.append(group)


def turn_undrained(self: Coordinator, work: Work, turns: Any, effects: Effects) -> None:
    """Nobody waits until an old way is empty before its atoms are taken away."""
    before = set(work.waits_for)
    Coordinator._turn(self, work, turns, effects)
    work.waits_for = {token for token in work.waits_for if token in before or not token.endswith("drained")}


def begin_at_own(self: Coordinator, what: Any) -> Work:
    work = Coordinator._begin(self, what)
    if work.growth is not None and work.growth.chain:
        work.growth.route.entry = work.growth.chain[0]
    return work


def coordinator_breaks(name: str, text: str, **methods: Callable[..., Any]) -> None:
    breaks(name, text, "coordinator", **methods)


coordinator_breaks("no-two-phases", "a group opens before its neighbours marked", _mark=mark_meanwhile)
coordinator_breaks(
    "no-confirmation",
    "a change is confirmed before its ingress has heard of it",
    _open=open_unheard,
    _close=close_unheard,
)
coordinator_breaks("no-lingering", "a closed group is removed at once", _await_end=finish_when_sent)
coordinator_breaks("no-coupling-with-closed", "a new group is not ordered after closed ones", _begin=begin_past_closed)
coordinator_breaks(
    "no-started-neighbours",
    "a group is gone before its neighbours have begun everywhere",
    _remove_ended=remove_ended_at_once,
)
coordinator_breaks("no-flush", "edges are cut while messages go over them", _flush=gives(None))
coordinator_breaks("no-drain-report", "atoms vanish while messages go through them", _turn=turn_undrained)
coordinator_breaks("no-inherited-entry", "a topic's new group enters where the old one does not", _begin=begin_at_own)
