"""The coordinator as receivers see it: each joins and leaves topics for itself, and does not know the others.

Wishes are gathered: while the graph is being changed, all wishes about one topic become one change. A receiver that is
forgotten leaves everything.
"""

from msgspec import field

from seriatim.model import APPLICATION, Address, Node, Topic
from seriatim.protocols.atoms.coordinator import Coordinator
from seriatim.protocols.atoms.live_messages import Join, Joined, Leave, Left, Place
from seriatim.protocols.atoms.messages import Change, Changed, Forget
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import Group, Members, topic_of
from seriatim.protocols.atoms.plan import Plan
from seriatim.protocols.atoms.state import CoordinatorState, Work
from seriatim.protocols.machine import Effects, Payload


class RegistrarState(CoordinatorState, array_like=True):
    """The coordinator's, and what receivers wish."""

    wanted: dict[Topic, set[Address]] = field(default_factory=dict)
    joining: dict[Topic, set[Address]] = field(default_factory=dict)  # who waits to hear that it is a member
    leaving: dict[Topic, set[Address]] = field(default_factory=dict)  # … that it no longer is one
    placement: dict[str, Node] = field(default_factory=dict)  # by two topics: where their atom belongs


class Registrar(Coordinator):
    """The machine. `Join`, `Leave` and `Forget` come from receivers, the rest from stations."""

    state: RegistrarState

    def __init__(self, plan: Plan, name: Address, options: AtomsOptions, state: RegistrarState | None = None) -> None:
        super().__init__(plan, name, options, state)
        if state is None:
            first = self.state
            wanted = {topic: set(first.graph.groups[group].members) for topic, group in first.current.items()}
            self.state = RegistrarState(
                first.graph, incarnations=first.incarnations, current=first.current, wanted=wanted
            )

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        match message:
            case Join(topic):
                effects = self._wish(source, topic, True, now)
            case Leave(topic):
                effects = self._wish(source, topic, False, now)
            case Place(placement) if source == APPLICATION:
                self.state.placement = placement
                effects = Effects()
            case Forget():
                effects = self._forget(message, now)
            case _:
                effects = super().step(source, message, now)
        self._answer(effects)
        if self.state.forgotten and self.state.work is None:
            self._forget_the_forgotten()
        return effects

    def members(self, topic: Topic) -> Members:
        """The members of the topic's open group."""
        group = self.state.current.get(topic)
        return self.state.graph.groups[group].members if group is not None else frozenset()

    def knows(self, receiver: Address) -> bool:
        """Whether a receiver is a member of a group, or wants to be."""
        return any(receiver in each for each in self.state.wanted.values())

    def _begin(self, what: Change | Group) -> Work:
        """New atoms live where it was planned, if it was."""
        work = super()._begin(what)
        for name, atom in work.growth.atoms.items() if work.growth is not None else ():
            pair = pair_name(*map(topic_of, atom.pair))
            work.hosts[name] = self.state.placement.get(pair, work.hosts[name])
        return work

    # ── wishes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wish(self, receiver: Address, topic: Topic, joins: bool, now: float) -> Effects:
        state = self.state
        if joins:
            state.wanted.setdefault(topic, set()).add(receiver)
        else:
            _discard(state.wanted, topic, receiver)
        asked, dropped = (state.joining, state.leaving) if joins else (state.leaving, state.joining)
        _discard(dropped, topic, receiver)
        asked.setdefault(topic, set()).add(receiver)
        effects = Effects()
        self._settle(topic, now, effects)
        self._tell_if_settled(topic, effects)
        return effects

    def _forget(self, message: Forget, now: float) -> Effects:
        state, receiver = self.state, message.receiver
        topics = sorted(topic for topic, each in state.wanted.items() if receiver in each)
        for table in (state.wanted, state.joining, state.leaving):
            for topic in list(table):
                _discard(table, topic, receiver)
        effects = super().step(APPLICATION, message, now)
        for topic in topics:
            self._settle(topic, now, effects)
        return effects

    def _settle(self, topic: Topic, now: float, effects: Effects) -> None:
        """Ask for the change that makes members of those who want to be. An earlier wish that waits is replaced."""
        state = self.state
        waiting = [place for place, each in enumerate(state.queue) if isinstance(each, Change) and each.topic == topic]
        for place in reversed(waiting):
            state.queue.remove(place)
        under_way = self._under_way(topic)
        coming = under_way.members if under_way is not None else self.members(topic)
        wanted = frozenset(state.wanted.get(topic, ()))
        if wanted != coming:
            effects.add(super().step(APPLICATION, Change(topic, wanted), now))

    def _under_way(self, topic: Topic) -> Change | None:
        change = self.state.work.change if self.state.work is not None else None
        return change if change is not None and change.topic == topic else None

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, effects: Effects) -> None:
        """A change is made: tell those that wait for it."""
        changed = [each for each in effects.notify if isinstance(each, Changed)]
        effects.notify = [each for each in effects.notify if not isinstance(each, Changed)]
        for each in changed:
            self._tell(each.topic, effects)

    def _tell_if_settled(self, topic: Topic, effects: Effects) -> None:
        """Answer a wish that needs no change of the graph. If a change of the topic is under way, wait: its group may
        be closed already."""
        waits = any(isinstance(each, Change) and each.topic == topic for each in self.state.queue)
        if not waits and self._under_way(topic) is None:
            self._tell(topic, effects)

    def _tell(self, topic: Topic, effects: Effects) -> None:
        members, group = self.members(topic), self.state.current.get(topic, "")
        for receiver in sorted(self.state.joining.get(topic, set()) & members):
            effects.send.append((receiver, Joined(topic, group)))
            _discard(self.state.joining, topic, receiver)
        for receiver in sorted(self.state.leaving.get(topic, set()) - members):
            effects.send.append((receiver, Left(topic)))
            _discard(self.state.leaving, topic, receiver)

    def _forget_the_forgotten(self) -> None:
        """Drop names of forgotten receivers that are in no group any more."""
        state = self.state
        present: set[Address] = set()
        for route in state.graph.groups.values():
            present |= route.members
        for each in state.queue:
            present |= each.members if isinstance(each, Change) else set()
        state.forgotten &= present


def pair_name(one: Topic, other: Topic) -> str:
    """The name of two topics, in either order. No topic holds a blank."""
    return " ".join(sorted((one, other)))


def _discard(table: dict[Topic, set[Address]], topic: Topic, receiver: Address) -> None:
    found = table.get(topic)
    if found is not None:
        found.discard(receiver)
        if not found:
            del table[topic]
