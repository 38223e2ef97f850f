"""A node that comes back from its journal acts only when those around it confirm that the journal is the last one.

A journal may be an old copy, or another process may go on with another one. Then the node must not act: it would give
numbers a second time, and stamp without what it has forgotten. Nobody can tell that from the journal alone. So whoever
comes back asks first, and takes no other input meanwhile:

- the *broker* (`Begin`), which from then on refuses what earlier epochs of this node stamp and order, and tells how far
  the stamps of the node's topics and the order log go (`Begun`);
- each *neighbour* (a greeting: a frame without number, with a body that nobody takes), which answers how many messages
  it has received and how many of its own it knows to be received.

A neighbour that has just come back itself does not know yet whether its own journal is the newest, and says so
(`doubt`). Its answer can show that our journal is older, but not that it is not. If all come back at once, they confirm
each other up the tree: a child is `READY` when everybody but its parent has confirmed it and the counts of that link
fit; a parent takes that for an answer. The root then acts, and answers without doubt. A root that has begun to hand
over counts as a child of the new root, which does not know yet how far that is.

If somebody has seen more than the journal knows, or a later epoch, the node says so (`Outdated`) and is mute for ever.
Everything that was refused meanwhile is repeated by whoever sent it. The record of the new epoch is written when the
node begins to act: a journal that is behind is never written to. A node that waits to be welcomed into the tree has no
neighbours yet, and does not act before it is welcomed (node.py).

A neighbour may be away for long. After `patience_ms` the node acts without it. The link to it stays *unsure*: nothing
new is sent or taken on it before its other end has answered, and compared it is then.
"""

from typing import Any

from msgspec import Struct

from seriatim.model import BROKER, Address, Node
from seriatim.protocols.link import BLANK, READY, UNCONFIRMED, Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import LinkedNode
from seriatim.protocols.tree.messages import AskToHeal, Summary
from seriatim.protocols.with_broker import Begin, Begun


class Outdated(Struct, frozen=True, tag=True):
    """To the operator: this node must not act. `later`: the epoch of another process that runs it; 0: the journal is
    older than what `source` has seen."""

    source: Address
    reason: str
    later: int = 0


class Resumed(Struct, frozen=True, tag=True):
    """A record: the node has lost its journal, and goes on with its links where the other ends say they are."""

    links: dict[Node, tuple[int, int, int]]  # neighbour → sent to it, received from it, and the epoch it said that in


class Heard(Struct, frozen=True, tag=True):
    """A record: a neighbour that has lost its journal was told how far the link is. What its earlier lives still say,
    of what they had received, is not true any more."""

    source: Node
    epoch: int


class ConfirmedNode(LinkedNode):
    """A linked node that can be told to `confirm` before it acts, or to `begin_blank`."""

    outdated: Outdated | None = None
    heals_if_older = False  # the operator has said that a journal that turns out to be an older copy counts as lost

    def __init__(self, inner: Any, retry_ms: float, state: Any) -> None:
        super().__init__(inner, retry_ms, state)
        self._waits_for: set[Address] = set()  # before it acts
        self._unsure: dict[Node, tuple[int, int]] = {}  # links with what was sent and received according to the journal
        self._patience_ms: float | None = None
        self._acts_at: float | None = None  # without the neighbours that have not answered
        self._ask_due = 0.0
        self._is_blank = False  # it has lost its journal, and asks where its links are
        self._lost: Begun | None = None  # then: what the broker keeps
        self._fits: set[Node] = set()  # whose counts fit, although they are in doubt themselves

    def confirm(self, patience_ms: float | None, *, with_broker: bool) -> None:
        """Ask all neighbours, and the broker if so wished, before anything else. `patience_ms`: how long to wait for
        neighbours that do not answer; None: for ever."""
        self._unsure = {name: (link.sent, link.received) for name, link in self.state.links.items()}
        self._waits_for = {*self._unsure, *([BROKER] if with_broker else [])}
        self._patience_ms = patience_ms

    def begin_blank(self) -> None:
        """The journal is lost: before anything else, ask the broker what it keeps, and all neighbours how far the links
        are. Whoever restarts at the same time does not wait for us."""
        self._is_blank = True
        self._waits_for = {*self.state.links, BROKER}

    @property
    def is_acting(self) -> bool:
        """Whether it takes inputs, and has recorded its epoch."""
        return not self._waits_for and self.outdated is None and not self._to_persist

    @property
    def unconfirmed(self) -> list[Address]:
        """The neighbours that have not answered yet."""
        return sorted(self._waits_for | self._unsure.keys())

    def ask_broker_again(self) -> Begin:
        """What to send the broker to compare with it once more, for example when it was away."""
        return Begin(self.epoch, self._orders(), self._since()[0], self._is_blank)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if self.outdated is not None:
            return Effects()
        if type(message) is Begun:
            if source != BROKER:
                return self._idle_or_asking()
            if self._is_blank and message.epoch == message.latest == self.epoch:
                self._lost = message
                return self._heard_blank(BROKER, now)
            if message.epoch != self.epoch and message.latest <= self.epoch:  # to another life, whose stamps may follow
                return self._idle_or_asking()
            return self._outdate_or(self.compare_broker(message), BROKER, now)
        if type(message) is Frame and source in self.state.links:
            return self._take_frame(source, message, now)
        if self._waits_for:
            return self._idle_or_asking()
        return super().step(source, message, now)

    def tick(self, now: float) -> Effects:
        return self._tick(now)

    def _tick(self, now: float) -> Effects:
        if self.outdated is not None:
            return Effects()
        if self._waits_for and self._patience_ms is not None:
            self._acts_at = self._acts_at if self._acts_at is not None else now + self._patience_ms
            if now >= self._acts_at:
                self._waits_for &= {BROKER}
        return self._ask(now) if self._waits_for else super().tick(now)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, now: float) -> Effects:
        effects = Effects()
        if now >= self._ask_due:
            self._ask_due = now + self.retry_ms
            for name in sorted(self._waits_for):
                effects.send.append((name, self.ask_broker_again() if name == BROKER else self._greeting(name)))
        effects.wake_at = self._ask_due if self._acts_at is None else min(self._ask_due, max(now, self._acts_at))
        return effects

    def _greeting(self, name: Node) -> "Frame[Any]":
        """Every version of the other end answers a body, and takes none without a number."""
        body: Summary | AskToHeal = AskToHeal(self._name(), self.epoch) if self._is_blank else Summary(())
        return Frame(self.epoch, 0, self.state.links[name].received, body)

    def _name(self) -> Node:
        """This node's."""
        raise NotImplementedError

    def _idle_or_asking(self) -> Effects:
        if not self._waits_for:
            return self._wish(self._idle())
        return Effects(wake_at=self._ask_due)

    def _send(self, target: Address, message: Payload, now: float) -> Payload:
        frame = super()._send(target, message, now)
        return self._greeting(target) if target in self._unsure else frame

    def _resend(self, address: Address, link: Link[Any], now: float) -> "list[Frame[Any]]":
        frames = super()._resend(address, link, now)
        return [self._greeting(address)] if frames and address in self._unsure else frames

    # ── comparing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_frame(self, source: Node, frame: "Frame[Any]", now: float) -> Effects:
        is_answer = frame.number == 0 and frame.body is None
        if is_answer and frame.heard > self.epoch:
            return self._outdate_or(Outdated(source, "it has heard of a later epoch", frame.heard), source, now)
        link = self.state.links[source]
        if frame.epoch < link.peer_epoch and source in self._unsure:
            return self._idle_or_asking()  # a process that was replaced: it knows what our lost journal knew
        if self._is_blank:
            return self._take_frame_blank(source, frame, now)
        if source in self._unsure and is_answer and frame.doubt == BLANK:
            return self._outdate_or(None, source, now)
        if source in self._unsure:
            # An answer to a later or an earlier life says nothing; earlier versions do not say which they answer.
            if is_answer and frame.heard in (self.epoch, -1):
                found = self._compare_link(source, frame, *self._unsure[source])
                if found is None and not self._confirms(source, frame):
                    self._fits.add(source)
                    effects = self._idle_or_asking()
                    self._tell_parent(effects)
                    return effects
                if found is None:
                    del self._unsure[source]
                    link.receive(frame)
                    if link.unacknowledged:
                        link.resend_due = now
                        self._plan_resend(source, link)
                return self._outdate_or(found, source, now)
            effects = self._idle_or_asking()
            if frame.number == 0 and frame.body is not None:
                self._answer(source, frame, effects)
                self._prove(source, frame, effects)
            elif not self._waits_for:
                effects.send.append((source, self._greeting(source)))
            return effects
        if self._waits_for:
            effects = self._idle_or_asking()
            if frame.number == 0 and frame.body is not None:
                self._answer(source, frame, effects)
            return effects
        return self._prove(source, frame, super().step(source, frame, now))

    def _take_frame_blank(self, source: Node, frame: "Frame[Any]", now: float) -> Effects:
        """Whoever acts says where the link is; with somebody blank it begins at 0. What comes meanwhile is repeated."""
        link, is_answer = self.state.links[source], frame.number == 0 and frame.body is None
        is_sure = frame.doubt in (0, BLANK) and source in self._waits_for
        if is_answer and frame.heard == self.epoch and is_sure:
            link.sent, link.received, link.peer_epoch = frame.received, frame.acknowledged, frame.epoch
            return self._heard_blank(source, now)
        if frame.epoch > link.peer_epoch and source not in self._waits_for:  # another life than the one that answered
            self._waits_for.add(source)
            link.sent = link.received = 0
        effects = self._idle_or_asking()
        if frame.number == 0 and frame.body is not None:
            effects.send.append((source, Frame(self.epoch, 0, 0, None, frame.epoch, 0, BLANK)))
        return effects

    def _prove(self, source: Node, frame: "Frame[Any]", effects: Effects) -> Effects:
        """A neighbour that is blank takes our counts for true. Only who can still write its journal may tell them."""
        if frame.number == 0 and type(frame.body) is AskToHeal and not self._waits_for:
            effects.persist.append(Heard(source, frame.epoch))
        return effects

    def _heard_blank(self, source: Address, now: float) -> Effects:
        self._waits_for.discard(source)
        if self._waits_for:
            return self._idle_or_asking()
        assert self._lost is not None, "the broker has answered"
        self._is_blank = False
        links = {name: (link.sent, link.received, link.peer_epoch) for name, link in sorted(self.state.links.items())}
        self._to_persist.insert(0, Resumed(links))
        effects = self._begin_healing(self._lost, now)
        effects.add(self._tick(now))
        return effects

    def _was_healed(self) -> bool:
        """Whether an earlier journal of this node was lost."""
        raise NotImplementedError

    def _forget_all(self) -> None:
        """Nothing of the journal counts. The life, and so the epoch, is the same."""
        raise NotImplementedError

    def _begin_healing(self, kept: Begun, now: float) -> Effects:
        """The links are known: go on with an empty state."""
        raise NotImplementedError

    def _replay(self, record: Payload) -> None:
        super()._replay(record)
        if isinstance(record, Heard):
            link = self._link(record.source)
            link.peer_epoch = max(link.peer_epoch, record.epoch)
        elif isinstance(record, Resumed):
            for name, (sent, received, epoch) in record.links.items():
                link = self._link(name)
                link.sent, link.received, link.peer_epoch = sent, received, epoch

    def _answer(self, source: Node, frame: "Frame[Any]", effects: Effects) -> None:
        """To a greeting."""
        link = self.state.links[source]
        if frame.epoch > link.peer_epoch:
            self._fits.discard(source)  # another life, with perhaps another journal
        link.receive(frame)
        effects.send.append((source, link.acknowledgement(self.epoch, self._doubt(source))))

    def _doubt(self, towards: Node) -> int:
        """What to say of ourselves to this neighbour."""
        if not self._waits_for:
            return 0
        is_ready = self._waits_for <= {towards} and towards in self._fits
        return READY if is_ready and towards == self._above() else UNCONFIRMED

    def _confirms(self, source: Node, frame: "Frame[Any]") -> bool:
        """Whether this neighbour may say so: it acts, or it is a child that waits for us only."""
        return frame.doubt == 0 or (frame.doubt == READY and source != self._above())

    def _tell_parent(self, effects: Effects) -> None:
        """If only the parent is missing, it need not ask."""
        parent = self._above()
        if parent is not None and self._doubt(parent) == READY:
            effects.send.append((parent, self.state.links[parent].acknowledgement(self.epoch, READY)))

    def _above(self) -> Node | None:
        """The parent."""
        raise NotImplementedError

    def _compare_link(self, source: Node, frame: "Frame[Any]", sent: int, received: int) -> Outdated | None:
        """Whether the neighbour has seen more of this node than its journal knows. Of what a lost journal had received,
        one that does not act may still believe that it was."""
        if frame.received > sent:
            return Outdated(source, f"it has received {frame.received} messages; the journal knows of {sent}")
        if frame.acknowledged > received and not (frame.doubt and self._was_healed()):
            known = f"the journal knows of {received}"
            return Outdated(source, f"{frame.acknowledged} of its messages were received; {known}")
        return None

    def compare_broker(self, begun: Begun) -> Outdated | None:
        """Whether the broker has seen more of this node than its journal knows."""
        if begun.latest > self.epoch:
            return Outdated(BROKER, "it has heard of a later epoch", begun.latest)
        if begun.since > (latest := self._since()[1]):
            reason = f"another root writes the order log since change {begun.since}; the journal knows of {latest}"
            return Outdated(BROKER, reason)
        for topic, last in sorted(begun.stamped.items()):
            if last > (issued := self._issued(topic)):
                return Outdated(BROKER, f"it keeps stamps of {topic} up to {last}; the journal knows of {issued}")
        if begun.ordered > (position := self._ordered_to()):
            known = f"the journal knows of {position}"
            return Outdated(BROKER, f"its order log has {begun.ordered} positions; {known}")
        return None

    def _since(self) -> tuple[int, int]:
        """The change of shape by which this node became the root, and the latest change that it knows of."""
        raise NotImplementedError

    def _issued(self, topic: str) -> int:
        """The last number of a topic that was given out here."""
        raise NotImplementedError

    def _orders(self) -> bool:
        """Whether this node writes the order log."""
        raise NotImplementedError

    def _ordered_to(self) -> int:
        """How many positions of the order log it has given."""
        raise NotImplementedError

    def _outdate_or(self, found: Outdated | None, source: Address, now: float) -> Effects:
        """Stop, or go on if this was the last answer that was waited for."""
        if found is not None and self.heals_if_older and not found.later:
            self._forget_all()
            return self._ask(now)
        if found is not None:
            self.outdated = found
            self._waits_for.clear()
            self._to_persist.clear()
            return Effects(notify=[found])
        if source not in self._waits_for:
            return self._idle_or_asking() if self._waits_for else self._tick(now)
        self._waits_for.discard(source)
        if self._waits_for:
            effects = self._idle_or_asking()
            self._tell_parent(effects)
            return effects
        effects = self._tick(now)
        for name, link in sorted(self.state.links.items()):  # those in doubt wait for it
            if link.peer_epoch and name not in self._unsure:
                effects.send.append((name, link.acknowledgement(self.epoch)))
        return effects
