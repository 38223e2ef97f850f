"""Trees: something goes down over the cube, hop by hop, and acknowledgements come back up.

A task reaches, in each of its clusters, one peer that hands on within that cluster: of all peers the nearest living
one, of a topic's members the nearest that relays. A branch whose peer dies, or says that it does not relay, is reached
past that peer: any other one of the same cluster can hand on to the rest of it.
"""

from abc import abstractmethod
from collections.abc import Sequence

from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube.cube import id_of, nearest, within
from seriatim.protocols.vcube.messages import Ack, Answer, Cast, Census, Content, Entry, Past, Statuses, Sub
from seriatim.protocols.vcube.presence import Presence
from seriatim.protocols.vcube.state import NOBODY, Hop, Task


class Casting(Presence):
    """The part of a peer that hands on."""

    def cast(
        self, content: Content, effects: Effects, height: int, parent: int = NOBODY, hop: int = 0
    ) -> tuple[int, Task]:
        """Send something down our clusters 1 … height. `finish` follows when all have it, perhaps at once."""
        number = self.next_count()
        task = self.state.tasks[number] = Task(content, parent, hop)
        task.answer.skipped = self.dead_ids()
        for s in range(1, height + 1):
            self._reach(number, task, s, effects)
        return number, task

    def _reach(self, number: int, task: Task, s: int, effects: Effects) -> None:
        """Send it to a peer of cluster s that hands it on there."""
        leaves: Sequence[int] = ()
        if isinstance(task.content, Sub | Census):
            relay = nearest(self.living(), self.id, s)
        else:
            relaying, receiving = self.members(task.content.topic)
            relay = nearest(relaying, self.id, s)
            if relay is None:
                leaves = within(receiving, self.id, s)
        if relay is not None:
            self._hop(number, task, relay, s, False, effects)
        for id in leaves:
            self._hop(number, task, id, s, True, effects)

    def _hop(self, number: int, task: Task, id: int, s: int, is_leaf: bool, effects: Effects) -> None:
        target = self.life_now(id)
        assert target is not None, "only the living are chosen"
        if is_leaf and (target in task.reached or any(self.state.hops[hop].target == target for hop in task.hops)):
            return
        hop = self.next_count()
        self.state.hops[hop] = Hop(number, target, s, is_leaf)
        task.hops.add(hop)
        self.send(target, Cast(hop, 0 if is_leaf else s - 1, task.content), effects)

    def close_if_done(self, number: int, now: float, effects: Effects) -> None:
        """End a task when all its branches are acknowledged, and acknowledge it to the peer that asked for it."""
        task = self.state.tasks.get(number)
        if task is None or task.hops:
            return
        del self.state.tasks[number]
        if task.parent == NOBODY:
            self.finish(number, task, now, effects)
        elif not self.is_dead(task.parent):
            task.answer.dead = self.known_by(task.content)
            self.send(task.parent, Ack(task.parent_hop, task.answer), effects)

    def known_by(self, content: Content) -> Statuses:
        """The dead that an answer names. For a census also the reborn: a new life answers that it has nothing,
        but a peer that has not heard of it may still take what the old life sent. The asker then asks again."""
        return dict(self.state.statuses) if isinstance(content, Census) else self.obituary()

    @abstractmethod
    def finish(self, number: int, task: Task, now: float, effects: Effects) -> None:
        """Something of our own has reached everybody."""

    def acknowledged(self, hop_number: int, answer: Answer | None, now: float, effects: Effects) -> None:
        hop = self.state.hops.pop(hop_number, None)
        if hop is None:
            return
        task = self.state.tasks[hop.task]
        task.hops.discard(hop_number)
        if hop.is_leaf:
            task.reached.add(hop.target)
        if answer is not None:
            task.answer.add(answer)
        self.close_if_done(hop.task, now, effects)

    def reach_past(self, hop_number: int, entry: Entry | None, now: float, effects: Effects) -> None:
        """The peer does not hand on: choose another. Its answer keeps us from choosing it again."""
        hop = self.state.hops.pop(hop_number, None)
        if hop is None:
            return
        task = self.state.tasks[hop.task]
        task.hops.discard(hop_number)
        task.reached.add(hop.target)
        topic = task.content.topic
        if entry is not None:
            self.note(topic, entry)
        else:  # it does not know the topic at all, so what we heard of it is from before it forgot
            self.group(topic).view.pop(id_of(hop.target), None)
            self._members.pop(topic, None)
        self._reach(hop.task, task, hop.cluster, effects)
        self.close_if_done(hop.task, now, effects)

    def note(self, topic: str, entry: Entry) -> None:
        """Record what a peer says about its membership. The latest statement counts."""
        if entry.life == self.life:
            return
        view, id = self.group(topic).view, id_of(entry.life)
        known = view.get(id)
        if known is None or (known.life, known.version) < (entry.life, entry.version):
            view[id] = entry
            self._members.pop(topic, None)

    def mourn(self, now: float, effects: Effects) -> None:
        """Reach past a dead peer: it hands nothing on any more."""
        for task in self.state.tasks.values():
            if isinstance(task.content, Sub):
                task.answer.add(Answer(skipped=self.dead_ids()))
        self.reach_again([each for each in self.state.hops.items() if self.is_dead(each[1].target)], now, effects)

    def reach_again(self, lost: list[tuple[int, Hop]], now: float, effects: Effects) -> None:
        """These branches end at peers that died: reach past them."""
        for number, hop in lost:
            del self.state.hops[number]
            self.state.tasks[hop.task].hops.discard(number)
        for _, hop in lost:
            self._reach(hop.task, self.state.tasks[hop.task], hop.cluster, effects)
        for _, hop in lost:
            self.close_if_done(hop.task, now, effects)

    def decline(self, source: int, hop: int, topic: str, effects: Effects) -> None:
        group = self.state.groups.get(topic)
        self.send(source, Past(hop, None if group is None else group.entry), effects)
