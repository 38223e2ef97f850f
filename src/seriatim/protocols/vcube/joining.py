"""Coming and going: how a peer becomes a member of a topic, and how it leaves.

Joining takes two rounds over all peers. After `Sub`, every present and future member knows us and sends us its
publications, and we know all of them. The answers to `Census` add up to the frontier, the place where we begin.
Publications below it count as notified; publications above it reach us. From then on we relay.
"""

from collections.abc import Iterable, Iterator

from seriatim.model import Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube import messages as say
from seriatim.protocols.vcube.cube import Id, Life, births_of, id_of
from seriatim.protocols.vcube.orphans import Orphans
from seriatim.protocols.vcube.state import Flow, Group, Task

JOINING = ("announcing", "opening")


class Joining(Orphans):
    """The part of a peer that subscribes and unsubscribes."""

    def pump(self, topic: Topic, now: float, effects: Effects) -> None:
        """Carry out the commands of a topic in their order, each when it can be."""
        group = self.group(topic)
        while group.queue:
            match group.queue.first, group.part:
                case (say.Publish() as command, "in") if len(group.unacknowledged) < self.options.window:
                    group.queue.take()
                    self.publish(topic, group, command, now, effects)
                case (say.Subscribe(), "in"):
                    group.queue.take()
                    effects.notify.append(say.Subscribed(topic))
                case (say.Unsubscribe(), "in") if not group.unacknowledged and not self.has_custody(topic):
                    group.queue.take()
                    self._leave(topic, group, now, effects)
                case (say.Unsubscribe(), "out"):
                    group.queue.take()
                    effects.notify.append(say.Unsubscribed(topic))
                case (say.Publish() | say.Subscribe(), "out"):
                    self.join(topic, group, now, effects)
                    return
                case _:
                    return

    # ── joining ───────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        """First round: everybody hears that we come, and tells us who else is there."""
        group.part = "announcing"
        group.skipped, group.census, group.counted = [], None, None
        group.entry = self._next_entry(group, "joining")
        announcement = say.Sub(topic, group.entry, dict(self.state.statuses))
        task, _ = self.cast(announcement, effects, self.cube.height)
        self.close_if_done(task, now, effects)

    def on_announced(self, task: Task, now: float, effects: Effects) -> None:
        """Begin the second round: all peers know us, so from here on we know every member, also those to come."""
        assert isinstance(task.content, say.Sub)
        topic = task.content.topic
        group = self.group(topic)
        if group.part != "announcing" or group.entry != task.content.entry:
            return
        life = self.life
        for entry in task.answer.entries:
            self.hear(entry.life, now, effects)
            if self.life != life:
                return
            self.note(topic, entry)
        group.skipped = task.answer.skipped
        if self.overlooked(group):
            self.join(topic, group, now, effects)
            return
        group.part = "opening"
        self.take_census(topic, group, now, effects)

    def mourn(self, now: float, effects: Effects) -> None:
        """A peer that we presumed dead when we joined may have joined too, and presumed us dead: then neither knows of
        the other. While we are joining we begin again; later we ask that peer."""
        super().mourn(now, effects)
        for topic, group in list(self.state.groups.items()):
            found = self.overlooked(group)
            if found and group.part == "opening":
                self.join(topic, group, now, effects)
            elif group.counted is not None:  # what it named may be lost: its sender may have died
                group.counted = None
                self.take_census(topic, group, now, effects)
            elif found and group.part == "in":
                group.skipped = [id for id in group.skipped if id not in found]
                for id in found:
                    life = self.life_now(id)
                    assert life is not None and group.entry is not None
                    self.send(life, say.Greet(topic, group.entry), effects)

    def overlooked(self, group: Group) -> list[Id]:
        """The living peers that were presumed dead when we announced that we join."""
        return [id for id in group.skipped if id != self.id and self.life_now(id) is not None]

    def on_greet(self, sender: Life, message: say.Greet, effects: Effects) -> None:
        group = self.state.groups.get(message.topic)
        if group is not None and group.part in ("opening", "in"):
            known = group.view.get(id_of(sender))
            if known is None or known.life != sender:
                self.send(sender, say.Stranger(message.topic), effects)

    def on_stranger(self, message: say.Stranger, now: float, effects: Effects) -> None:
        """A member does not know us: join again, which gives us a new frontier."""
        if self.group(message.topic).part == "in":
            self.begin_anew(births_of(self.life) + 1, now, effects)

    def on_counted(self, number: int, task: Task, now: float, effects: Effects) -> None:
        """A census is complete."""
        assert isinstance(task.content, say.Census)
        topic = task.content.topic
        group = self.group(topic)
        if number != group.census:
            return
        group.census = None
        if group.overtaken and group.part in ("opening", "in"):
            self.take_census(topic, group, now, effects)
        elif group.part == "opening":
            group.counted = self.with_own(topic, group, task.answer)
            self.open_if_complete(topic, group, now, effects)
        elif group.part == "in":
            self.resolve(topic, group, task.answer.held, effects)

    def with_own(self, topic: Topic, group: Group, answer: say.Answer) -> say.Answer:
        """The asker answers too: what we still hand on since an earlier stay, and what was left of that."""
        for source, pubs in self.kept(topic, group).items():
            group.early.setdefault(source, {}).update(pubs)
            answer.add(say.Answer(held={source: sorted(pubs)}))
        return answer

    def open_if_complete(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        """Begin once we have every publication of dead sources that a member has. If we did not wait, and all holders
        died, we might have the effect and another peer the cause, and nobody would know which comes first."""
        answer = group.counted
        if answer is not None and not any(self.not_come(group, answer)):
            group.counted = None
            self._open(topic, group, answer, now, effects)

    def not_come(self, group: Group, answer: say.Answer) -> Iterator[tuple[Life, int]]:
        """The publications of dead sources that members have and we have not received yet."""
        frontier = self.start(answer, group.past)
        for source, numbers in answer.held.items():
            come, start = group.early.get(source, {}), frontier.get(source, 0)
            yield from ((source, number) for number in numbers if number > start and number not in come)

    def _open(self, topic: Topic, group: Group, answer: say.Answer, now: float, effects: Effects) -> None:
        """We know where we begin. Take what came meanwhile, but from dead sources only what some member has too: that
        member also has, or is past, everything that all peers that died since had received."""
        frontier = self.start(answer, group.past)
        group.flows = {source: Flow(delivered=count) for source, count in frontier.items()}
        if self.life in group.flows:  # we waited for everybody before we left
            group.flows[self.life].stable = group.flows[self.life].delivered
        self.take_up(group)
        group.waiting.clear()
        group.part = "in"
        self.say_ready(topic, group, now, effects)
        group.barrier = self.full_counts(frontier, answer)
        self.resolve(topic, group, answer.held, effects)
        early, group.early = group.early, {}
        for source, pubs in early.items():
            for number in sorted(self.witnessed(source, pubs, answer)):
                self.receive(pubs[number], now, effects)
        self.entrust_all(topic, group, now, effects)
        if group.rejoining:
            group.rejoining = False
            effects.notify.append(say.Rejoined(topic))
        self.pump(topic, now, effects)

    def take_up(self, group: Group) -> None:
        """What remained of our last stay is ours again: below our start it counts as notified, and we forget it when
        everybody has it. What is above came with the census, like what others have."""
        for source, pubs in group.remains.items():
            flow = group.flows.get(source, Flow())
            flow.pubs.update((number, pub) for number, pub in pubs.items() if number <= flow.delivered)
        group.remains = {}

    def say_ready(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        """Only a member relays. A peer that does not know where it begins may lack the causes of what it hands on. If
        all peers that have a cause died, this peer would spread the effect without it."""
        group.entry = self._next_entry(group, "ready")
        task, _ = self.cast(say.Ready(topic, group.entry), effects, self.cube.height)
        self.close_if_done(task, now, effects)

    def witnessed(self, source: Life, numbers: Iterable[int], answer: say.Answer) -> set[int]:
        """Keep, of a dead source, only what some member has."""
        return set(numbers) & set(answer.held.get(source, ())) if self.is_dead(source) else set(numbers)

    def start(self, answer: say.Answer, past: say.Counts) -> say.Counts:
        """The frontier: for each source, the furthest that any peer is. It is closed: a peer that notified an event had
        notified all that it depends on, so below the frontier nothing depends on anything above it."""
        whole = say.Answer(frontier=dict(answer.frontier))
        whole.add(say.Answer(frontier=past))
        return whole.frontier

    def full_counts(self, frontier: say.Counts, answer: say.Answer) -> say.Counts:
        """Our first publication comes after all that an earlier stay or life of ours may have notified: that is what
        lies below the frontier, and whatever there still is of the dead."""
        whole = say.Answer(frontier=dict(frontier))
        whole.add(say.Answer(frontier={source: max(numbers) for source, numbers in answer.held.items() if numbers}))
        return {source: count for source, count in whole.frontier.items() if source != self.life}

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _leave(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        group.part = "leaving"
        group.past = self.progress(group)
        group.remains = self.what_remains(group)
        group.flows, group.waiting, group.barrier = {}, {}, {}
        group.census = None
        group.entry = self._next_entry(group, "left")
        task, _ = self.cast(say.Uns(topic, group.entry), effects, self.cube.height)
        self.close_if_done(task, now, effects)

    def on_left(self, task: Task, now: float, effects: Effects) -> None:
        assert isinstance(task.content, say.Uns)
        topic = task.content.topic
        group = self.group(topic)
        if group.part == "leaving":
            group.part = "out"  # the view stays: we may still have to reach past a peer that dies
            effects.notify.append(say.Unsubscribed(topic))
            self.pump(topic, now, effects)

    def _next_entry(self, group: Group, stage: say.Stage) -> say.Entry:
        return say.Entry(self.life, 1 if group.entry is None else group.entry.version + 1, stage)

    # ── answering others ──────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, group: Group) -> say.Counts:
        """How far we are with each source, or were when we left."""
        counts = dict(group.past)
        for source, flow in group.flows.items():
            counts[source] = max(flow.delivered, counts.get(source, 0))
        return counts

    def answer_sub(self, message: say.Sub) -> say.Answer:
        group = self.state.groups.get(message.topic)
        if group is None or group.entry is None or group.part in ("out", "leaving"):
            return say.Answer()
        self.note(message.topic, message.entry)
        return say.Answer(entries=[group.entry])

    def answer_census(self, message: say.Census, effects: Effects) -> say.Answer:
        """How far we are; and what we have of dead sources, which the asker is sent if it lacks it."""
        group = self.state.groups.get(message.topic)
        if group is None:
            return say.Answer()
        if group.part not in ("out", "leaving"):
            self.note(message.topic, message.entry)
        progress = self.progress(group)
        kept = self.kept(message.topic, group)
        has = progress if message.entry.stage == "joining" else message.have  # a joining peer begins above our counts
        for source, pubs in kept.items():
            for number in sorted(pubs):
                if number > has.get(source, 0):
                    self.send(message.entry.life, say.Spare(pubs[number]), effects)
        return say.Answer(frontier=progress, held={source: sorted(pubs) for source, pubs in kept.items()})

    def kept(self, topic: Topic, group: Group) -> dict[Life, dict[int, say.Pub]]:
        """What we have of the dead, or had when we left, or are just handing on."""
        kept = in_hand(group)
        for pub in self.handed_on(topic):
            kept.setdefault(pub.source, {})[pub.number] = pub
        for source, pubs in group.remains.items():
            kept.setdefault(source, {}).update(pubs)
        return {source: pubs for source, pubs in kept.items() if self.is_dead(source)}

    def handed_on(self, topic: Topic) -> list[say.Pub]:
        """What we send down a tree, for ourselves or for others, and not all below us have acknowledged."""
        contents = [task.content for task in self.state.tasks.values()]
        return [content for content in contents if isinstance(content, say.Pub) and content.topic == topic]

    def what_remains(self, group: Group) -> dict[Life, dict[int, say.Pub]]:
        """What we still name after leaving, until we die or return: what may not have reached everybody. We may have
        sent it to a peer that answered the census before it arrived, and answer ourselves afterwards. If neither of
        us named it, the asker would presume it lost, and then get it."""
        return in_hand(group)


def in_hand(group: Group) -> dict[Life, dict[int, say.Pub]]:
    """The publications that a member has not forgotten yet."""
    return {source: dict(flow.pubs) for source, flow in group.flows.items() if flow.pubs}
