"""A receiver: decides for each message, as it comes, whether to notify it or to hold it.

A message is next if it is the next one of its group and, for every atom that counts here, the next one of that atom. An
atom counts for those who belong to both its groups: they get everything that it numbers, so its numbers have no holes
for them. A held message waits for one number at a time and is found by it; nothing is ever searched.

A subscriber that reads its topics from a broker and bounds what it holds asks which topics are ahead (`topics_ahead`):
reading those can wait.
"""

from collections import deque

from seriatim.model import Address, Notification, Number, RemoteError, Topic, event_bytes
from seriatim.protocols.atoms.messages import Finished, Gone, Item, Started
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import Group, groups_of, incarnation_of, topic_of
from seriatim.protocols.atoms.plan import COORDINATOR, Plan
from seriatim.protocols.atoms.state import HeldItem, ReceiverState
from seriatim.protocols.machine import Effects, Machine, Payload


class Receiver(Machine):
    """The machine of one receiver."""

    def __init__(self, plan: Plan, name: Address, options: AtomsOptions, state: ReceiverState | None = None) -> None:
        self.name = name
        self.options = options
        self.state = state if state is not None else first_state(plan, name)
        self.waiting = 0  # items that are held
        self.waiting_bytes = 0  # of their events
        self._waiting: dict[tuple[str, Number], list[tuple[str, Number]]] = {}
        for group, items in self.state.held.items():
            for number, held in items.items():
                self._count(held.item, 1)
                if held.waits_for is not None:
                    self._waiting.setdefault(held.waits_for, []).append((group, number))

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Item():
                self._take(message, effects)
            case Gone(group, atoms):
                self.state.done.pop(group, None)
                for atom in atoms:
                    self.state.done.pop(atom, None)
            case _:
                raise RemoteError(f"{source} sent receiver {self.name} an unknown message: {message!r}")
        return effects

    def explain(self, most: int | None = None) -> list[str]:
        """What is held, and what each message waits for; of each group at most `most`, and how many there are."""
        lines = []
        for group, items in sorted(self.state.held.items()):
            for number, held in sorted(items.items())[:most]:
                assert held.waits_for is not None
                what = held.item.event.id if held.item.event is not None else "a notice"
                lines.append(f"{what} ({group} {number}): waits for {held.waits_for[0]} {held.waits_for[1]}")
            if most is not None and len(items) > most:
                lines.append(f"{len(items) - most:,} messages of {group}: wait behind it")
        return lines

    def topics_ahead(self) -> frozenset[Topic]:
        """Topics of which nothing more has to be read for now: what comes next in them is here, and waits.

        Reading none of them until something is notified cannot stop for ever. Follow any held item to what it waits
        for, in another group or further back in its own. If that group's next message is here it is held itself, and
        waits for something that is earlier in the one order all messages have. If it is not here, but the group begins
        after the end of an older one of its topic whose next message is here, go on from that: it is earlier, too. So
        this way ends, and it ends at a group whose next message is to be read. The topic of that group is not among
        these, whatever else of it is held: it is read on until the message comes, and then a shorter way is left.
        """
        held, done = self.state.held, self.state.done
        oldest: dict[Topic, int] = {}  # incarnations whose next message is here
        awaited: set[Group] = set()
        ahead: set[Topic] = set()
        for group, items in held.items():
            first = items.get(done.get(group, 0) + 1)
            if first is None or first.waits_for is None:
                awaited.add(group)
                continue
            topic = topic_of(group)
            ahead.add(topic)
            awaited.update(groups_of(first.waits_for[0]) or ())
            if not _is_behind_end(first.item):
                oldest[topic] = min(incarnation_of(group), oldest.get(topic, incarnation_of(group)))
        for group in awaited:
            if done.get(group, 0) + 1 not in held.get(group, ()):
                topic = topic_of(group)
                if topic not in oldest or incarnation_of(group) < oldest[topic]:
                    ahead.discard(topic)
        return frozenset(ahead)

    def let_go(self, group: Group) -> None:
        """Drop what is held of a group that turned out to be for others."""
        for number, held in self.state.held.pop(group, {}).items():
            self._count(held.item, -1)
            if held.waits_for is not None and held.waits_for in self._waiting:
                self._waiting[held.waits_for].remove((group, number))
                if not self._waiting[held.waits_for]:
                    del self._waiting[held.waits_for]

    def _count(self, item: Item, sign: int) -> None:
        self.waiting += sign
        if item.event is not None:
            self.waiting_bytes += sign * event_bytes(item.event.payload, item.event.headers)

    def _take(self, item: Item, effects: Effects) -> None:
        group, number = item.group, item.number
        held = self.state.held
        if number <= self.state.done.get(group, 0) or number in held.get(group, ()):
            return  # a repeat
        held.setdefault(group, {})[number] = HeldItem(item)
        self._count(item, 1)
        work = deque([(group, number)])
        while work:
            group, number = work.popleft()
            here = held[group][number]
            here.waits_for = self._obstacle(here.item)
            if here.waits_for is not None:
                self._waiting.setdefault(here.waits_for, []).append((group, number))
                continue
            del held[group][number]
            if not held[group]:
                del held[group]
            self._count(here.item, -1)
            work.extend(self._notify(here.item, effects))

    def _obstacle(self, item: Item) -> tuple[str, Number] | None:
        """What must be notified first: the group's last message, or an atom's; None: this message is next."""
        done = self.state.done
        if done.get(item.group, 0) < item.number - 1:
            return item.group, item.number - 1
        for atom, number in item.stamp.items():
            if self._counts(atom, item) and done.get(atom, 0) < number - 1:
                return atom, number - 1
        return None

    def _counts(self, atom: str, item: Item) -> bool:
        """Whether this receiver is in both groups of an atom, as far as the messages before this one, or it, tell.

        A mark tells it too, but of an atom whose other group has sent nothing yet: there is nothing to wait for.
        """
        notice = item.notice
        if atom in self.state.done:
            return True
        return notice is not None and notice.opens and self.name in notice.overlaps.get(atom, ())

    def _notify(self, item: Item, effects: Effects) -> list[tuple[str, Number]]:
        """Hand an item to the application and mark it as done. Returns what waited for it."""
        done, notice = self.state.done, item.notice
        counters = [(item.group, item.number)]
        for atom, number in item.stamp.items():
            if atom in done or (notice is not None and self.name in notice.overlaps.get(atom, ())):
                counters.append((atom, number))
        done.update(counters)
        if item.event is not None:
            effects.notify.append(Notification(item.event, item.number, item.stamp))
        elif notice is not None and notice.opens:
            effects.send.append((COORDINATOR, Started(item.group)))
        elif notice is not None and notice.closes:
            effects.send.append((COORDINATOR, Finished(item.group, notice.mark)))
        woken: list[tuple[str, Number]] = []
        for counter in counters:
            woken.extend(self._waiting.pop(counter, ()))
        return woken


def _is_behind_end(item: Item) -> bool:
    """Whether it is a mark behind the last message of its group: the next group of its topic need not wait for it."""
    return item.notice is not None and item.notice.closes and item.notice.mark != ""


def first_state(plan: Plan, name: Address) -> ReceiverState:
    """The groups that this receiver belongs to when the system begins, and the atoms between them."""
    state = ReceiverState()
    state.done = {group: 0 for group, route in plan.graph.groups.items() if name in route.members}
    mine = set(state.done)
    state.done.update({atom: 0 for atom, each in plan.graph.atoms.items() if mine.issuperset(each.pair)})
    return state
