"""A subscriber on a served cluster: listens to its topics at the broker, and joins them at the coordinator.

The receiver inside (receiver.py) decides for each item whether to notify it or to hold it back. This file decides which
groups are ours. The subscriber listens to a topic before it joins it, so it misses nothing of its first group. Items
that come earlier wait until the coordinator names the first group. The first item of each later group lists its
members.

The subscriber takes the commands of the tree's subscriber and gives its notices, so the client's feed works with
either. It keeps nothing over a restart: a restarted process is another receiver, under a new name.
"""

from msgspec import Struct, field

from seriatim.model import (
    APPLICATION,
    BROKER,
    Address,
    InputError,
    Node,
    Notification,
    Number,
    RemoteError,
    Topic,
    event_bytes,
)
from seriatim.protocols import with_broker as say
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, Plan, Receiver, SequencingGraph
from seriatim.protocols.atoms import live_messages as live
from seriatim.protocols.atoms.live_messages import decode_item, slot_of
from seriatim.protocols.atoms.messages import Forget, Gone, Item
from seriatim.protocols.atoms.overlaps import Group, group_of, incarnation_of, topic_of
from seriatim.protocols.atoms.publisher import ClientNode
from seriatim.protocols.machine import Effects, Machine, Payload


class Depart(Struct, frozen=True):
    """Command: this subscriber ends, and the cluster need not wait for it."""


class Begun(Struct, frozen=True):
    """A group of ours has begun. `place`: how many events its topic had had."""

    group: Group
    place: Number


class Placed(Notification, frozen=True):
    """An event with its place in its topic, and the slot it had on the broker, by which its arrival is known."""

    slot: Number = 0


class PlacedReceiver(Receiver):
    """Tells applications the place of an event in its topic, over all groups, instead of its number in its group."""

    def __init__(self, name: Address, coordinator: Node, options: AtomsOptions) -> None:
        super().__init__(Plan(SequencingGraph(), (coordinator,), (coordinator,)), name, options)
        self.places: dict[Topic, Number] = {}  # how far each topic is

    def _notify(self, item: Item, effects: Effects) -> list[tuple[str, Number]]:
        woken = super()._notify(item, effects)
        self.places[topic_of(item.group)] = item.place
        if item.event is not None:
            effects.notify[-1] = Placed(item.event, item.place, item.stamp, slot=slot_of(item))
        elif item.notice is not None and item.notice.opens:
            effects.notify.append(Begun(item.group, item.place))
        return woken


class Holding(Struct):
    """One topic: whether it is heard, from which incarnation on, and what came before that was known."""

    version: int
    is_heard: bool = False
    since: int | None = None  # nothing before this incarnation is ours, or can still be
    begins: int | None = None  # the incarnation with which it begins for the application; None: not known yet
    start: Number | None = None  # how many events the topic had had then; None: it has not begun
    ours: set[int] = field(default_factory=set)  # incarnations that are not gone
    gone: set[int] = field(default_factory=set)  # from `since` on; an earlier one may linger behind a later one
    early: list[Item] = field(default_factory=list)
    is_left: bool = False  # the application has left it; the end of its last group is still to come


class Membership(Machine):
    """The machine inside, to which links are perfect."""

    def __init__(self, name: Address, coordinator: Node, options: AtomsOptions) -> None:
        self.name = name
        self.receiver = PlacedReceiver(name, coordinator, options)
        self.state = self.receiver.state
        self.holdings: dict[Topic, Holding] = {}
        self.leaving: set[Topic] = set()
        self.version = 0
        self._coordinator = coordinator
        self._foreign: set[Group] = set()  # groups that this receiver is not a member of
        self._changing = False
        self._has_departed = False
        self._early = 0  # items that came before their topic was joined
        self._early_bytes = 0

    @property
    def topics(self) -> frozenset[Topic]:
        """What is held, or being joined."""
        return frozenset(topic for topic, each in self.holdings.items() if not each.is_left)

    @property
    def waiting(self) -> int:
        """Items that are here and cannot be notified yet."""
        return self.receiver.waiting + self._early

    @property
    def waiting_bytes(self) -> int:
        """The size of the events that wait."""
        return self.receiver.waiting_bytes + self._early_bytes

    def blocked_topics(self) -> frozenset[Topic]:
        """Topics of which more would not help: they are ahead, or wait for the coordinator's word, not the broker's."""
        unjoined = (topic for topic, each in self.holdings.items() if each.is_heard and each.early)
        return self.receiver.topics_ahead().union(unjoined)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if self._has_departed:
            return effects
        match message:
            case say.Delivered() if source == BROKER:
                self._on_delivered(message, now, effects)
            case say.Change(add, remove) if source == APPLICATION:
                self._on_change(add, remove, effects)
            case Depart() if source == APPLICATION:
                self._has_departed = True
                effects.send.append((self._coordinator, Forget(self.name)))
            case say.Listening(topic, version) if source == BROKER:
                holding = self.holdings.get(topic)
                if holding is not None and holding.version == version and not holding.is_heard:
                    holding.is_heard = True
                    if not holding.is_left:
                        effects.send.append((self._coordinator, live.Join(topic)))
            case live.Joined(topic, group) if source == self._coordinator:
                self._on_joined(topic, group, now, effects)
            case live.Left(topic) if source == self._coordinator:
                self.leaving.discard(topic)
                self._let_go(topic, effects)
                self._finish(effects)
            case Gone() if source == self._coordinator:
                self._on_gone(message, now, effects)
            case say.Voids() if source == BROKER:
                pass  # atoms count their own items: a position without one says nothing
            case say.Trimmed(topic) if source == BROKER:
                if topic in self.holdings:  # whether what is gone was for us cannot be known: it ends
                    lost = f"the broker has dropped items of {topic} before this subscriber had read them"
                    effects.notify.append(
                        say.Ended(f"{lost}; read faster, or keep them for longer, and subscribe again")
                    )
            case _:
                raise RemoteError(f"{source} sent a subscriber an unknown message: {message!r}")
        return effects

    def unheard(self) -> list[tuple[Topic, int]]:
        """What the broker has not confirmed: topics, and the version of the request."""
        return [(topic, each.version) for topic, each in sorted(self.holdings.items()) if not each.is_heard]

    def explain(self) -> list[str]:
        lines = self.receiver.explain(most=1)
        for topic, each in sorted(self.holdings.items()):
            if not each.is_heard:
                lines.append(f"{topic}: the broker has not confirmed that it delivers it")
            elif each.begins is None and not each.is_left:
                lines.append(f"{topic}: node {self._coordinator} has not made us a member")
            elif each.start is None and not each.is_left:
                lines.append(f"{topic}: the beginning of {topic}.{each.begins} has not come")
        return lines + [f"{topic}: node {self._coordinator} has not let us go" for topic in sorted(self.leaving)]

    # ── what is held ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_change(self, add: frozenset[Topic], remove: frozenset[Topic], effects: Effects) -> None:
        if not add and not remove:
            raise InputError("change", "it neither adds nor removes a topic", "name at least one topic")
        self.version += 1
        self._changing = True
        for topic in sorted(remove & self.topics):
            holding = self.holdings[topic]
            holding.is_left = True
            if holding.is_heard:
                self.leaving.add(topic)
                effects.send.append((self._coordinator, live.Leave(topic)))
            else:
                self._take_early(holding)
                del self.holdings[topic]
                effects.send.append((BROKER, say.Unlisten(topic)))
        for topic in sorted(add - self.topics):
            old = self.holdings.get(topic)
            if old is not None:  # still heard, for the end of the group we left
                old.is_left, old.begins, old.start = False, None, None
                effects.send.append((self._coordinator, live.Join(topic)))
            else:
                self.holdings[topic] = Holding(self.version)
                effects.send.append((BROKER, say.Listen(topic, None, self.version, tells_losses=True)))
        self._finish(effects)

    def _on_joined(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        holding, incarnation = self.holdings.get(topic), incarnation_of(group)
        if holding is None:
            return
        if holding.begins is None:
            holding.begins = incarnation
            if group in self.state.done:  # we had not been released: it continues
                holding.start = self.receiver.places[topic]
        holding.ours.add(incarnation)
        if holding.since is None:
            holding.since = incarnation
            for item in self._take_early(holding):
                self._take(item, now, effects)
        self._finish(effects)

    def _finish(self, effects: Effects) -> None:
        """The change is complete if all topics have begun, and the coordinator knows of all that were left."""
        held = {topic: each for topic, each in self.holdings.items() if not each.is_left}
        starts = {topic: each.start for topic, each in held.items() if each.start is not None}
        if self._changing and len(starts) == len(held) and not self.leaving:
            self._changing = False
            effects.notify.append(say.Changed(self.version, self.topics, starts))

    def _on_gone(self, message: Gone, now: float, effects: Effects) -> None:
        topic, incarnation = topic_of(message.group), incarnation_of(message.group)
        self.receiver.step(COORDINATOR, message, now)
        if (holding := self.holdings.get(topic)) is not None:
            holding.ours.discard(incarnation)
            holding.gone.add(incarnation)
            self._forget_the_first(topic, holding)
            self._let_go(topic, effects)

    def _forget_the_first(self, topic: Topic, holding: Holding) -> None:
        """Forget incarnations of which nothing more is taken, from the first one on."""
        while holding.since is not None:
            group = group_of(topic, holding.since)
            if holding.since not in holding.gone and group not in self._foreign:
                return
            holding.gone.discard(holding.since)
            self._foreign.discard(group)
            holding.since += 1

    def _let_go(self, topic: Topic, effects: Effects) -> None:
        """A topic that was left is heard until all its groups are gone: closed ones can still be marked."""
        holding = self.holdings.get(topic)
        if holding is not None and holding.is_left and not holding.ours and topic not in self.leaving:
            self._take_early(holding)
            del self.holdings[topic]
            self._foreign = {group for group in self._foreign if topic_of(group) != topic}
            effects.send.append((BROKER, say.Unlisten(topic)))

    # ── items ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_delivered(self, message: say.Delivered, now: float, effects: Effects) -> None:
        holding = self.holdings.get(message.topic)
        if holding is None or message.event is None:
            return
        try:
            item = decode_item(message.event.payload)
            if topic_of(item.group) != message.topic:
                raise RemoteError(f"an item of {topic_of(item.group)} was written to {message.topic}")
        except RemoteError as error:
            effects.notify.append(say.Rejected(message.topic, message.number, message.event.publisher, str(error)))
            return
        if holding.since is None:
            holding.early.append(item)
            self._early += 1
            self._early_bytes += _bytes_of(item)
        else:
            self._take(item, now, effects)

    def _take_early(self, holding: Holding) -> list[Item]:
        """What came before it was known which groups are ours. It is handed over once."""
        early, holding.early = holding.early, []
        self._early -= len(early)
        self._early_bytes -= sum(map(_bytes_of, early))
        return early

    def _take(self, item: Item, now: float, effects: Effects) -> None:
        """Give an item to the receiver if it belongs to a group that we are in."""
        group, topic, incarnation = item.group, topic_of(item.group), incarnation_of(item.group)
        holding = self.holdings[topic]
        if incarnation < (holding.since or 0) or incarnation in holding.gone or group in self._foreign:
            return
        notice = item.notice
        if notice is not None and notice.opens and self.name not in notice.members:
            self._foreign.add(group)
            self.receiver.let_go(group)
            return
        done = self.receiver.step(BROKER, item, now)
        effects.send += [(self._coordinator, message) for _, message in done.send]
        for each in done.notify:
            if isinstance(each, Begun):
                self._on_begun(each)
                self._finish(effects)
            else:
                effects.notify.append(each)

    def _on_begun(self, begun: Begun) -> None:
        holding, incarnation = self.holdings[topic_of(begun.group)], incarnation_of(begun.group)
        holding.ours.add(incarnation)
        if incarnation == holding.begins:
            holding.start = begun.place


def _bytes_of(item: Item) -> int:
    return event_bytes(item.event.payload, item.event.headers) if item.event is not None else 0


class AtomsSubscriber(ClientNode):
    """The machine that a driver runs for a subscriber."""

    inner: Membership

    def __init__(self, name: Address, coordinator: Node, options: AtomsOptions, *, alive_ms: float) -> None:
        super().__init__(Membership(name, coordinator, options), options.retry_ms, alive_ms)
        self._listen_due: float | None = None

    @property
    def is_heard(self) -> bool:
        """Whether the coordinator has everything that was sent to it."""
        return not any(link.unacknowledged for link in self.state.links.values())

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if isinstance(message, live.Forgotten):
            effects = Effects()
            reason = "this subscriber was silent for too long, and the coordinator has forgotten it"
            effects.notify.append(say.Ended(f"{reason}; subscribe again"))
            return effects
        return self._wishing_to_listen(super().step(source, message, now), now)

    def tick(self, now: float) -> Effects:
        effects = super().tick(now)
        if self._listen_due is not None and now >= self._listen_due:
            self._listen_due = None
            unheard = self.inner.unheard()
            effects.send.extend(
                (BROKER, say.Listen(topic, None, version, tells_losses=True)) for topic, version in unheard
            )
        return self._wishing_to_listen(effects, now)

    def _send(self, target: Address, message: Payload, now: float) -> Payload:
        """Only the coordinator is at the other end of a link."""
        return message if target == BROKER else super()._send(target, message, now)

    def _wishing_to_listen(self, effects: Effects, now: float) -> Effects:
        if not self.inner.unheard():
            self._listen_due = None
        elif self._listen_due is None:
            self._listen_due = now + self.retry_ms
        return self._wishing(effects, self._listen_due)
