"""Publications whose source is dead: everybody who lives gets them, or nobody does.

A peer that holds one that may not have reached everybody entrusts it to the member with the lowest id, which sends it
down its own tree; if that member dies or leaves, to the next. A member that waits for one too long takes a census: a
publication that nobody has will never come, so nobody waits for it any longer.
"""

from collections.abc import Mapping, Sequence

from seriatim.model import Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube.cube import Life, births_of, id_of
from seriatim.protocols.vcube.flowing import Flowing
from seriatim.protocols.vcube.messages import Ack, Answer, Census, Entry, Orphan, Pub
from seriatim.protocols.vcube.state import Flow, Group, Submission, Task


class Orphans(Flowing):
    """The part of a peer that looks after publications of the dead."""

    def mourn(self, now: float, effects: Effects) -> None:
        for group in self.state.groups.values():  # first, because a death can make other things complete
            group.overtaken = group.census is not None
            for source, flow in group.flows.items():
                if self.is_dead(source):
                    flow.resolved = False
                    flow.awaited.clear()
        super().mourn(now, effects)
        lost = [(hop, each) for hop, each in self.state.submissions.items() if self.is_dead(each.target)]
        for hop, submission in lost:
            del self.state.submissions[hop]
            self._entrust_again(submission, now, effects)
        for topic, group in list(self.state.groups.items()):
            self.entrust_all(topic, group, now, effects)

    # ── custody ───────────────────────────────────────────────────────────────────────────────────────────────────

    def entrust_all(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        for source, flow in list(group.flows.items()) if group.part == "in" else ():
            if self.is_dead(source):
                for pub in list(flow.pubs.values()):
                    if group.flows.get(source) is flow:  # a member that is alone settles at once, and may then leave
                        self.entrust(topic, pub, now, effects)

    def entrust(self, topic: Topic, pub: Pub, now: float, effects: Effects) -> None:
        flow = self.group(topic).flows[pub.source]
        if pub.number <= flow.stable or pub.number in flow.entrusted:
            return
        flow.entrusted.add(pub.number)
        guardian = min(self.members(topic)[0], default=self.id)
        if self.id <= guardian:
            self._take_custody(pub, now, effects)
            return
        target = self.life_now(guardian)
        assert target is not None, "members that relay live"
        hop = self.next_count()
        self.state.submissions[hop] = Submission(target, topic, pub.source, pub.number)
        self.send(target, Orphan(hop, pub), effects)

    def _entrust_again(self, submission: Submission, now: float, effects: Effects) -> None:
        flow = self.group(submission.topic).flows.get(submission.source)
        if flow is not None and submission.number in flow.pubs:
            flow.entrusted.discard(submission.number)
            self.entrust(submission.topic, flow.pubs[submission.number], now, effects)
        self.pump(submission.topic, now, effects)  # if it was settled otherwise: an application may wait to leave

    def _take_custody(self, pub: Pub, now: float, effects: Effects) -> int:
        number, _ = self.cast(pub, effects, self.cube.height)
        self.state.custody[number] = []
        self.close_if_done(number, now, effects)
        return number

    def on_orphan(self, sender: Life, message: Orphan, now: float, effects: Effects) -> None:
        """Send this to everybody, then report it."""
        pub, life = message.pub, self.life
        self.learn({id_of(pub.source): 2 * births_of(pub.source) + 1}, now, effects)
        if self.life != life:
            return
        group = self.group(pub.topic)
        if not self.may_relay(group):
            self.decline(sender, message.hop, pub.topic, effects)
            return
        flow = group.flows.setdefault(pub.source, Flow())
        if pub.number <= flow.stable or pub.number in flow.settled:
            self.send(sender, Ack(message.hop, Answer(dead=self.obituary())), effects)
            return
        task = self._custody_of(pub)
        if task is None:
            flow.entrusted.add(pub.number)
            task = self.cast(pub, effects, self.cube.height)[0]
            self.state.custody[task] = []
        self.state.custody[task].append((sender, message.hop))
        self.receive(pub, now, effects)
        self.close_if_done(task, now, effects)

    def _custody_of(self, pub: Pub) -> int | None:
        wanted = (pub.topic, pub.source, pub.number)
        for task in self.state.custody:
            content = self.state.tasks[task].content
            if isinstance(content, Pub) and (content.topic, content.source, content.number) == wanted:
                return task
        return None

    def relinquish(self, number: int, task: Task, now: float, effects: Effects) -> None:
        """Tell the peers that entrusted a publication to us that everybody has it."""
        pub = task.content
        assert isinstance(pub, Pub)
        for sender, hop in self.state.custody.pop(number, ()):
            if not self.is_dead(sender):
                self.send(sender, Ack(hop, Answer(dead=self.obituary())), effects)
        self.settle(pub.topic, pub.source, pub.number, now, effects)

    def settle(self, topic: Topic, source: Life, number: int, now: float, effects: Effects) -> None:
        group = self.group(topic)
        flow = group.flows.get(source)
        if flow is not None:
            flow.settled.add(number)
            self.forget_settled(group, flow)
        self.pump(topic, now, effects)  # an application may wait to leave

    def on_submission(self, hop: int, entry: Entry | None, is_done: bool, now: float, effects: Effects) -> None:
        submission = self.state.submissions.pop(hop)
        if is_done:
            self.settle(submission.topic, submission.source, submission.number, now, effects)
            return
        if entry is not None:
            self.note(submission.topic, entry)
        self._entrust_again(submission, now, effects)

    def has_custody(self, topic: Topic) -> bool:
        """Whether we have custody of a publication, or another peer has custody of one of ours."""
        return any(each.topic == topic for each in self.state.submissions.values()) or any(
            self.state.tasks[task].content.topic == topic for task in self.state.custody
        )

    # ── what never comes ──────────────────────────────────────────────────────────────────────────────────────────

    def look_for_lost(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        """Take a census if something waits for a publication of a dead source that may never come. If its source lives
        and is not a member, begin a new life."""
        if group.part != "in" or self.state.groups.get(topic) is not group:
            return
        if any(self.never_comes(group, source) for source in group.waiting):
            self.begin_anew(births_of(self.life) + 1, now, effects)
        elif group.census is None and self._may_be_lost(group):
            self.take_census(topic, group, now, effects)

    def never_comes(self, group: Group, source: Life) -> bool:
        """Whether what we wait for was published for others: its source lives and is no member, so all members it knew
        have it. It did not know us, because each presumed the other dead. Only a new frontier lets us continue."""
        if source == self.life or self.life_now(id_of(source)) != source:
            return False
        flow = group.flows.get(source)
        if flow is not None and flow.delivered + 1 in flow.pubs:
            return False
        known = group.view.get(id_of(source))
        return known is None or known.life != source or known.stage == "left"

    def _may_be_lost(self, group: Group) -> bool:
        """Whether a barrier names a dead source, or a publication of one waits for its predecessor."""
        for source in group.waiting:
            flow = group.flows.get(source)
            if self.is_dead(source) and (flow is None or not flow.resolved):
                return True
        for source, flow in group.flows.items():
            if flow.resolved or flow.delivered + 1 in flow.pubs or not self.is_dead(source):
                continue
            if max(flow.pubs, default=0) > flow.delivered:
                return True
        return False

    def take_census(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        have = {source: flow.delivered for source, flow in group.flows.items() if self.is_dead(source)}
        assert group.entry is not None, "who asks is a member, or becomes one"
        group.overtaken = False
        census = Census(topic, group.entry, dict(self.state.statuses), have)
        number, _ = self.cast(census, effects, self.cube.height)
        group.census = number
        self.close_if_done(number, now, effects)

    def resolve(self, topic: Topic, group: Group, held: Mapping[Life, Sequence[int]], effects: Effects) -> None:
        """The census is complete: of dead sources only this will still come."""
        dead = {source for source in (*group.flows, *group.waiting, *held) if self.is_dead(source)}
        for source in sorted(dead):
            flow = group.flows.setdefault(source, Flow())
            flow.resolved = True
            flow.awaited = {each for each in held.get(source, ()) if each > flow.delivered and each not in flow.pubs}
        freed = [waiter for source in sorted(dead) for waiter in group.waiting.pop(source, ())]
        self.advance(topic, group, [*freed, *sorted(dead)], effects)
