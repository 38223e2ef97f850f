"""Publications: their source numbers them and gives them a barrier, and every member notifies them after those that
they depend on.

A publication waits for the previous one of the same source, and for those that its barrier names. Nothing else delays
it.
"""

from abc import abstractmethod
from collections.abc import Iterable

from seriatim.model import Notification, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube.casting import Casting
from seriatim.protocols.vcube.cube import Life, name_of
from seriatim.protocols.vcube.messages import Counts, EventReceived, Pub, Publish
from seriatim.protocols.vcube.state import Flow, Group

NEVER = 1 << 62  # a number that no publication has


class Flowing(Casting):
    """The part of a peer that publishes and notifies."""

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, topic: Topic, group: Group, command: Publish, now: float, effects: Effects) -> None:
        """Number it, notify it here, and send it down our tree."""
        flow = group.flows.setdefault(self.life, Flow())
        flow.delivered += 1
        number, event = flow.delivered, command.event
        pub = Pub(topic, self.life, number, dict(group.barrier), flow.stable, event, self.obituary())
        flow.pubs[number] = pub
        group.unacknowledged.append(number)
        if self.options.pruning == "direct":
            group.barrier = {}  # our own publication implies it all
        self._notify(pub, effects)
        task, _ = self.cast(pub, effects, self.cube.height)
        self.close_if_done(task, now, effects)

    def published(self, pub: Pub, now: float, effects: Effects) -> None:
        """Called when everybody has received a publication of our own."""
        group = self.group(pub.topic)
        if pub.number not in group.unacknowledged:
            return
        group.unacknowledged.remove(pub.number)
        flow = group.flows[self.life]
        done = min(group.unacknowledged, default=flow.delivered + 1) - 1
        for number in range(flow.stable + 1, done + 1):
            effects.notify.append(EventReceived(flow.pubs[number].event.id))
        self._stabilise(group, flow, done)
        self.pump(pub.topic, now, effects)

    @abstractmethod
    def pump(self, topic: Topic, now: float, effects: Effects) -> None:
        """Carry out the commands that can be."""

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, pub: Pub, now: float, effects: Effects) -> None:
        """Take a publication, from wherever it came and however often."""
        group = self.group(pub.topic)
        if group.part in ("announcing", "opening"):
            group.early.setdefault(pub.source, {})[pub.number] = pub
            self.open_if_complete(pub.topic, group, now, effects)
            return
        if group.part != "in":
            return
        flow = group.flows.get(pub.source)
        if flow is None:
            flow = group.flows[pub.source] = Flow()
        self._stabilise(group, flow, pub.stable)
        if pub.number in flow.pubs or (pub.number <= flow.delivered and not self.is_wanted(flow, pub.number)):
            return
        flow.pubs[pub.number] = pub
        flow.awaited.discard(pub.number)
        if self.is_dead(pub.source):
            self.entrust(pub.topic, pub, now, effects)
        self.advance(pub.topic, group, [pub.source], effects)

    def is_wanted(self, flow: Flow, number: int) -> bool:
        """Whether we keep this although it counts as notified: we may be handing it on, and an answer to a census names
        it until everybody has it."""
        return number > flow.stable and number not in flow.settled

    @abstractmethod
    def open_if_complete(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        """Something came before we knew our start: begin, if it was the last thing we waited for."""

    def advance(self, topic: Topic, group: Group, sources: Iterable[Life], effects: Effects) -> None:
        """Notify what can be, beginning with these sources."""
        pending = list(sources)
        while pending:
            source = pending.pop()
            flow = group.flows.get(source)
            if flow is None:
                continue
            moved = False
            while (pub := flow.pubs.get(self._next(flow))) is not None:
                missing = self._missing(group, pub.barrier)
                if missing is not None:
                    waiting = group.waiting.setdefault(missing, [])
                    if source not in waiting:
                        waiting.append(source)
                    break
                self._deliver(group, flow, pub, effects)
                moved = True
            if moved:
                pending.extend(group.waiting.pop(source, ()))

    def _next(self, flow: Flow) -> int:
        """The number to be notified next. Some publications of a dead source never come, and at some point none do."""
        following = flow.delivered + 1
        if not flow.resolved or following in flow.pubs:
            return following
        left = [number for number in (*flow.pubs, *flow.awaited) if number > flow.delivered]
        return min(left, default=NEVER)

    def _missing(self, group: Group, barrier: Counts) -> Life | None:
        """A source whose publication must come first. None: there is no such source."""
        for source, count in barrier.items():
            flow = group.flows.get(source)
            if flow is None:
                return source
            if flow.delivered < count and (not flow.resolved or self._next(flow) <= count):
                return source
        return None

    def _deliver(self, group: Group, flow: Flow, pub: Pub, effects: Effects) -> None:
        flow.delivered = pub.number
        group.barrier[pub.source] = max(pub.number, group.barrier.get(pub.source, 0))
        if self.options.pruning == "direct":
            _prune(group.barrier, pub.barrier)
        self._notify(pub, effects)
        self.forget_settled(group, flow)

    def _notify(self, pub: Pub, effects: Effects) -> None:
        entries = {name_of(source): count for source, count in pub.barrier.items()}
        effects.notify.append(Notification(pub.event, pub.number, entries))

    # ── forgetting ────────────────────────────────────────────────────────────────────────────────────────────────

    def _stabilise(self, group: Group, flow: Flow, stable: int) -> None:
        if stable > flow.stable:
            flow.stable = stable
            self.forget_settled(group, flow)

    def forget_settled(self, group: Group, flow: Flow) -> None:
        """Drop what is notified here and received everywhere. Our barrier need not name its dependencies again:
        every member has this publication, and each one that has it waits for them."""
        pubs, upto = flow.pubs, min(flow.delivered, flow.stable)
        if flow.settled:
            settled = flow.settled
            numbers = [each for each in pubs if each <= flow.delivered and (each <= upto or each in settled)]
        elif upto - flow.forgotten <= len(pubs):  # mostly one, or none: what is not stable yet is not looked at
            numbers = [each for each in range(flow.forgotten + 1, upto + 1) if each in pubs]
        else:
            numbers = [each for each in pubs if each <= upto]
        flow.forgotten = upto
        for number in numbers:
            _prune(group.barrier, pubs.pop(number).barrier)

    # ── what happens when a source is dead ────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def entrust(self, topic: Topic, pub: Pub, now: float, effects: Effects) -> None:
        """We have a publication of a dead source: others must get it too."""


def _prune(barrier: Counts, implied: Counts) -> None:
    """Leave out of a barrier what another publication, named or implied by it, brings with it."""
    for source, count in implied.items():
        if barrier.get(source, count + 1) <= count:
            del barrier[source]
