"""Machines of the atoms that are broken on purpose, one rule each: a checker that does not catch them is no checker.

Each variant replaces the one method that holds the rule. The names are what the rule is called in the protocol's
README, with `no-` in front.
"""

from dataclasses import replace
from typing import Any

from msgspec import structs

from seriatim.explore.atoms import PROPER_ATOMS, AtomsCast
from seriatim.model import InputError, Node
from seriatim.protocols.atoms import AtomHost, AtomsOptions, Coordinator, Ingress, Receiver
from seriatim.protocols.atoms.messages import Begin, Carry, Enter, Item, Passing, Token
from seriatim.protocols.atoms.overlaps import AtomId, Group
from seriatim.protocols.atoms.state import Gate, HostedAtom, Work
from seriatim.protocols.machine import Effects


class EitherWayHost(AtomHost):
    """Some groups walk their path backwards, as C1 and C2 allow. (Only as long as nobody changes the graph.)"""

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


class OvertakingHost(AtomHost):
    """What comes on a new way does not wait until the old one is empty."""

    def _gate(self, atom: HostedAtom, source: str) -> Gate | None:
        return None


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


class CarelessReceiver(Receiver):
    """Only a group's own numbers are looked at."""

    def _counts(self, atom: str, item: Item) -> bool:
        return False


class UnopenedReceiver(Receiver):
    """The first message of a group does not wait for what its atoms numbered before it."""

    def _counts(self, atom: str, item: Item) -> bool:
        return atom in self.state.done


class ShortReceiver(Receiver):
    """Marks are overlooked: a new atom counts from wherever the new group begins."""

    def _notify(self, item: Item, effects: Effects) -> list[tuple[str, int]]:
        notice = item.notice
        if notice is not None and not notice.opens and notice.overlaps:
            item = structs.replace(item, notice=structs.replace(notice, overlaps={}))
        return super()._notify(item, effects)


class OnePhaseCoordinator(Coordinator):
    """A new group sends at once; its neighbours mark meanwhile."""

    def _mark(self, work: Work, effects: Effects) -> None:
        before = set(work.waits_for)
        super()._mark(work, effects)
        work.waits_for = before


class PromisingCoordinator(Coordinator):
    """A change is confirmed when the ingress was told of it, not when it has heard."""

    def _open(self, work: Work, effects: Effects) -> None:
        super()._open(work, effects)
        work.waits_for.clear()

    def _close(self, work: Work, effects: Effects) -> None:
        super()._close(work, effects)
        work.waits_for.clear()


class HurriedCoordinator(Coordinator):
    """A closed group is removed when its end was sent, not when everybody was notified of it."""

    def _await_end(self, group: Group, mark: Token) -> None:
        super()._await_end(group, mark)
        for receiver in sorted(self.state.unfinished.get(group, ())):
            self._finished(group, receiver)


class ForgetfulCoordinator(Coordinator):
    """A closed group is not coupled with a new one, although its last messages are still on their way."""

    def _begin(self, what: Any) -> Work:
        closed = [route for route in self.state.graph.groups.values() if route.closed and not route.finished]
        for route in closed:
            route.finished = True
        work = super()._begin(what)
        for route in closed:
            route.finished = False
        return work


class ImpatientCoordinator(Coordinator):
    """A group is gone for its members before its neighbours' beginnings have reached them."""

    def _remove_ended(self) -> None:
        for group in sorted(self.state.ended):
            self.state.ended.discard(group)
            self.state.queue.append(group)


class FlushlessCoordinator(Coordinator):
    """Edges are cut while messages from before are still on their way to them."""

    def _flush(self, work: Work, effects: Effects) -> None:
        return


class DrylessCoordinator(Coordinator):
    """Nobody waits until an old way is empty before its atoms are taken away."""

    def _turn(self, work: Work, turns: Any, effects: Effects) -> None:
        before = set(work.waits_for)
        super()._turn(work, turns, effects)
        work.waits_for = {token for token in work.waits_for if token in before or not token.endswith("drained")}


class ShortcutCoordinator(Coordinator):
    """A topic's new group enters at its own first atom, not where the old one does."""

    def _begin(self, what: Any) -> Work:
        work = super()._begin(what)
        if work.growth is not None and work.growth.chain:
            work.growth.route.entry = work.growth.chain[0]
        return work


class LeapingIngress(Ingress):
    """A group enters further on at once, past its own messages that took the longer way."""

    def _enter(self, message: Enter, effects: Effects) -> None:
        super()._enter(message, effects)
        for place, (host, carry) in enumerate(effects.send):
            if isinstance(carry.passing, Begin):  # as if from elsewhere: it keeps nothing of this group back
                effects.send[place] = host, Carry(carry.atom, "", carry.passing)


ATOMS_VARIANTS: dict[str, tuple[str, AtomsCast]] = {
    "no-direction": (
        "some groups walk their path backwards",
        replace(PROPER_ATOMS, host=EitherWayHost, ingress=EitherWayIngress),
    ),
    "no-forest": ("messages skip atoms that do not number them", replace(PROPER_ATOMS, host=LoopingHost)),
    "no-drain-marker": ("a new way is used while the old one is not empty", replace(PROPER_ATOMS, host=OvertakingHost)),
    "no-later-entry-drain": (
        "a group overtakes itself when it enters later",
        replace(PROPER_ATOMS, ingress=LeapingIngress),
    ),
    "no-atom-numbers": ("receivers look at group numbers only", replace(PROPER_ATOMS, receiver=CarelessReceiver)),
    "no-opening": ("a group's first message waits for nothing", replace(PROPER_ATOMS, receiver=UnopenedReceiver)),
    "no-marks": ("receivers overlook marks", replace(PROPER_ATOMS, receiver=ShortReceiver)),
    "no-two-phases": (
        "a group opens before its neighbours marked",
        replace(PROPER_ATOMS, coordinator=OnePhaseCoordinator),
    ),
    "no-confirmation": (
        "a change is confirmed before its ingress has heard of it",
        replace(PROPER_ATOMS, coordinator=PromisingCoordinator),
    ),
    "no-lingering": ("a closed group is removed at once", replace(PROPER_ATOMS, coordinator=HurriedCoordinator)),
    "no-coupling-with-closed": (
        "a new group is not ordered after closed ones",
        replace(PROPER_ATOMS, coordinator=ForgetfulCoordinator),
    ),
    "no-started-neighbours": (
        "a group is gone before its neighbours have begun everywhere",
        replace(PROPER_ATOMS, coordinator=ImpatientCoordinator),
    ),
    "no-flush": ("edges are cut while messages go over them", replace(PROPER_ATOMS, coordinator=FlushlessCoordinator)),
    "no-drain-report": (
        "atoms vanish while messages go through them",
        replace(PROPER_ATOMS, coordinator=DrylessCoordinator),
    ),
    "no-inherited-entry": (
        "a topic's new group enters where the old one does not",
        replace(PROPER_ATOMS, coordinator=ShortcutCoordinator),
    ),
}


def atoms_cast_of(variant: str | None) -> AtomsCast:
    """The cast of this variant; without a name, the proper one."""
    if variant is None:
        return PROPER_ATOMS
    if variant not in ATOMS_VARIANTS:
        raise InputError("variant", f"there is none called {variant!r}", f"use one of {', '.join(ATOMS_VARIANTS)}")
    return ATOMS_VARIANTS[variant][1]
