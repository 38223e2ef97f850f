"""A sequencer as it runs: with links to the neighbouring nodes, and its journal (protocols/node.py).

Clients are answered without a link: they repeat what was not answered. The sequencer records its inputs itself, since
it knows which of them change it; so a record need not say that it came on a link.
"""

from collections.abc import Container, Iterable
from typing import Any

from msgspec import Struct, field

from seriatim.model import Address, InputError, Node, Number, Position, Topic
from seriatim.model.topics import check_topic
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.tree.confirming import ConfirmedNode, Outdated
from seriatim.protocols.tree.messages import (
    Arrived,
    BetweenNodes,
    JournalLost,
    NodeLeft,
    Refused,
    Subscribe,
    Summary,
    Ticket,
    Update,
    Welcome,
)
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.sequencer import Sequencer
from seriatim.protocols.tree.state import SequencerState, new_state, state_of_newcomer
from seriatim.protocols.with_broker import Begun

WITHOUT_LINK = frozenset({Welcome, Arrived})  # their link begins when the tree has the new node
LAG = 64  # messages that the parent has not acknowledged, from which on it is told less often what passed here


class SequencerNodeState(Struct, array_like=True):
    """A sequencer's state, which has the epoch, and the state of its links: what a snapshot holds."""

    sequencer: SequencerState = field(default_factory=SequencerState)
    links: dict[Node, Link[BetweenNodes]] = field(default_factory=dict)
    inputs: int = 0  # how many records the journal has had: one with fewer is an older one
    former: dict[Node, Link[BetweenNodes]] = field(default_factory=dict)  # of leaves that have left


def newcomer_state(options: TreeOptions) -> SequencerNodeState:
    """A node that waits until it is welcomed into a tree that runs. Until then it does nothing."""
    return SequencerNodeState(state_of_newcomer(options))


class SequencerNode(ConfirmedNode):
    """The machine a driver runs for one node of the tree."""

    sequencer_type: type[Sequencer] = Sequencer
    links_everybody = False
    inner: Sequencer
    state: SequencerNodeState

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerNodeState | None = None
    ) -> None:
        state = state if state is not None else SequencerNodeState(new_state(options))
        super().__init__(self.sequencer_type(tree, node, options, state.sequencer), options.retry_ms, state)
        self.options = options
        self._tree = tree
        self._strangers: dict[Node, int] = {}  # epochs of those that may become neighbours
        self._shape_version = 0
        self._follow_shape()
        self._said_left = False
        self._hosts = frozenset(tree.neighbours(node))  # of a node that waits to be welcomed
        self._greet_due = 0.0
        self._resends.extend(
            sorted((link.resend_due, name) for name, link in state.links.items() if link.resend_due is not None)
        )

    @classmethod
    def take_over(
        cls,
        tree: SequencingTree,
        node: Node,
        options: TreeOptions,
        journal: Iterable[Payload],
        snapshot: SequencerNodeState | None = None,
        epoch: int = 0,
    ) -> "SequencerNode":
        """Rebuild the node from its journal under a new epoch, which is at least `epoch`.

        `snapshot` stands for everything before the journal's first record.
        """
        machine = cls(tree, node, options, snapshot)
        machine.replay(journal, epoch)
        return machine

    @classmethod
    def come_back(
        cls,
        tree: SequencingTree,
        node: Node,
        options: TreeOptions,
        journal: Iterable[Payload],
        epoch: int = 0,
        snapshot: SequencerNodeState | None = None,
    ) -> "SequencerNode":
        """Take over, and act when everybody has confirmed that the journal is the last one."""
        machine = cls.take_over(tree, node, options, journal, snapshot, epoch)
        machine.confirm_all(None)
        return machine

    @classmethod
    def heal(cls, tree: SequencingTree, node: Node, options: TreeOptions, epoch: int) -> "SequencerNode":
        """The journal is lost: come back under an epoch that is later than all before, and ask for a new era."""
        machine = cls(tree, node, options)
        machine.begin_epoch(epoch)
        machine.begin_blank()
        return machine

    def _was_healed(self) -> bool:
        return bool(self.state.sequencer.healing.life)

    def _forget_all(self) -> None:
        epoch = self.epoch
        vars(self).update(vars(SequencerNode.heal(self._tree, self.inner.node, self.options, epoch)))
        self._to_persist[:] = [TookOver(epoch)]
        self.epoch = epoch

    def _begin_healing(self, kept: Begun, now: float) -> Effects:
        lost = JournalLost(kept.kept, kept.named, kept.holes, kept.ordered, kept.placed, kept.lost, kept.ahead)
        return self._wish(self._framed(self.inner.step(self.inner.node, lost, now), now))

    def confirm_all(self, patience_ms: float | None, *, with_broker: bool = True) -> None:
        """See `confirm`. The broker keeps what was stamped (log mode) and the root's order log."""
        is_kept = self.options.mode == "log" or self._orders()
        self.confirm(patience_ms, with_broker=with_broker and is_kept)

    @property
    def neighbours(self) -> frozenset[Node]:
        """The nodes that it has links with now."""
        return frozenset(self.state.links)

    @property
    def epoch(self) -> int:
        """Grows by one with each process that takes over. Part of the sequencer's state, which tells it to clients."""
        return self.state.sequencer.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.state.sequencer.epoch = epoch

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = self._take_input(source, message, now)
        self.state.inputs += len(effects.persist)
        self._say_left(effects)
        return effects

    def _take_input(self, source: Address, message: Payload, now: float) -> Effects:
        links = self.state.links
        if self._waits_for or self.outdated is not None or type(message) is Begun:
            return super().step(source, message, now)
        if type(message) is Frame:
            return self._take_frame_or_greeting(source, message, now)
        if self._is_out_of_place(source, message):
            effects = self.inner.idle()
        elif (refused := refusal(message, self.state.sequencer.homes)) is not None:
            effects = self.inner.idle()
            effects.send.append((source, refused))
        else:
            effects = self.inner.step(source, message, now)
        is_plain = not links and not self._to_persist and self.inner.is_welcomed
        if not is_plain or self._shape_version != self.inner.shape_version:
            return self._wish(self._framed(effects, now))
        return effects

    def tick(self, now: float) -> Effects:
        effects = self._tick(now)
        self.state.inputs += len(effects.persist)
        self._say_left(effects)
        return effects

    # ── the tree changes ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_acting(self) -> bool:
        return super().is_acting and self.inner.is_welcomed

    @property
    def _awaits_welcome(self) -> bool:
        """It does nothing but greet. Its journal may be an older copy, from before it was welcomed, and only those that
        it greets can tell. So it records its new epoch with the welcome, and not before."""
        return not self.inner.is_welcomed and not self._waits_for and self.outdated is None

    def _framed(self, effects: Effects, now: float) -> Effects:
        if self._shape_version != self.inner.shape_version:
            self._follow_shape()
        if self._epoch_must_wait(effects):
            return effects
        return super()._framed(effects, now)

    def _epoch_must_wait(self, effects: Effects) -> bool:
        return not self.inner.is_welcomed and not effects.persist

    def _send(self, target: Address, message: Payload, now: float) -> Payload:
        return message if type(message) in WITHOUT_LINK else super()._send(target, message, now)

    def _follow_shape(self) -> None:
        """Have links with the neighbours, and with nobody else."""
        links, neighbours = self.state.links, self.inner.neighbours()
        self._shape_version = self.inner.shape_version
        for name in sorted(neighbours - links.keys()):
            links[name] = Link(peer_epoch=self._strangers.pop(name, 0))
        for name in sorted(links.keys() - neighbours):
            self.state.former[name] = links[name]
            self._drop_link(name)

    def _take_frame_or_greeting(self, source: Address, frame: Frame[Any], now: float) -> Effects:
        """Take a frame. A node that greets may have been welcomed before and lost its journal since, so it is welcomed
        again."""
        link = self.state.links.get(source)
        effects = super().step(source, frame, now) if link is not None else self._take_from_stranger(source, frame, now)
        is_greeting = frame.number == 0 and frame.body is not None
        if is_greeting and source not in self.state.former and (link is None or link.received + link.acknowledged == 0):
            self.inner.welcome_again(source, effects)
        return effects

    def _take_from_stranger(self, source: Address, frame: Frame[Any], now: float) -> Effects:
        """A leaf that has left is told that its last word was heard. A greeting is answered: whoever greets may wait
        until it is in the tree. Who has heard something of this node, or said more than one thing to it, tells that
        this journal is an older one."""
        effects = self._idle_or_asking()
        link = self.state.former.get(source)
        if link is None and (frame.received or frame.acknowledged or frame.number > 1):
            reason = "it has a link with this node that the journal does not know of"
            return self._outdate_or(Outdated(source, reason), source, now)
        if frame.body is None or (link is None and frame.number):
            return effects
        self._strangers[source] = max(frame.epoch, self._strangers.get(source, 0))
        link = link if link is not None else Link()
        link.peer_epoch = max(link.peer_epoch, frame.epoch)
        effects.send.append((source, link.acknowledgement(self.epoch, self._doubt(source))))
        return effects

    def _is_out_of_place(self, source: Address, message: Payload) -> bool:
        """Neighbours send frames. Those that are to be neighbours do not yet; a later life of one may have greeted."""
        if type(message) is not Arrived:
            return source in self.state.links and type(message) is not Welcome
        latest = self._strangers.get(source, 0)
        self._strangers[source] = max(latest, message.epoch)
        return message.epoch < latest

    def _greet(self, effects: Effects, now: float) -> None:
        """A node that waits to be welcomed asks whether it was in the tree already: then its journal is an older one.
        So its neighbours hear of its epoch, too, and refuse earlier ones."""
        if now >= self._greet_due:
            self._greet_due = now + self.retry_ms
            greeting: Frame[Any] = Frame(self.epoch, 0, 0, Summary(()))
            effects.send.extend((name, greeting) for name in sorted(self._hosts))

    def _wish(self, effects: Effects) -> Effects:
        effects = super()._wish(effects)
        if self._awaits_welcome:
            due = self._greet_due
            effects.wake_at = due if effects.wake_at is None else min(effects.wake_at, due)
        return effects

    def _say_left(self, effects: Effects) -> None:
        """To the driver: the process may end, once all that it owes was heard."""
        if not self.inner.has_left or self._said_left or not self.is_acting:
            return
        if not any(link.unacknowledged for link in self.state.links.values()):
            self._said_left = True
            effects.notify.append(NodeLeft(self.state.sequencer.moving.gone_since))

    def _tick(self, now: float) -> Effects:
        parent = self.inner.tree.parents[self.inner.node]
        if parent is not None and parent in self.state.links:
            self.inner.parent_lags = len(self.state.links[parent].unacknowledged) >= LAG
        effects = super()._tick(now)
        if self._awaits_welcome:
            self._greet(effects, now)
            self._wish(effects)
        return effects

    def _issued(self, topic: Topic) -> Number:
        """The highest number of a topic that was given out here or has passed here. That holds for a topic that has
        moved, too."""
        state = self.state.sequencer
        home, passage = state.homes.get(topic), state.passages.passages.get(topic)
        found = state.healing.found.stamped.get(topic, 0) if state.healing.found is not None else 0
        return max(home.issued if home is not None else 0, passage.passed if passage is not None else 0, found)

    def _name(self) -> Node:
        return self.inner.node

    def _above(self) -> Node | None:
        """Also of a root that has begun to hand over: the new root takes itself for its parent."""
        return self.inner.tree.parents[self.inner.node] or self.inner.successor

    def _orders(self) -> bool:
        is_root = self.inner.tree.parents[self.inner.node] is None
        return self.options.keeps_order_log and self.inner.is_member and is_root

    def _since(self) -> tuple[int, int]:
        """The change that made this node the root, and the latest change that it knows. `ceded_at` counts, because a
        node that has told the broker of a new root is linked with it, and asks it, too."""
        return self.state.sequencer.moving.since, max(self.inner.tree.moves.number, self.inner.ceded_at)

    def _ordered_to(self) -> Position:
        return self.state.sequencer.order.end

    def _replay(self, record: Payload) -> None:
        super()._replay(record)
        self.state.inputs += 1

    def _idle(self) -> Effects:
        return self.inner.idle()

    def _was_framed(self, record: Stepped[Any]) -> bool:
        return record.source in self.state.links and type(record.message) not in WITHOUT_LINK


def refusal(message: Payload, known: Container[Topic]) -> Refused | None:
    """The answer to a client's message with a topic name that not every broker accepts; None: every name is fine.

    It is refused before it reaches the journal: it would be asked for on the broker for ever. What is in a journal was
    accepted when it came, so replaying does not ask again. `known`: accepted before.
    """
    if type(message) is Ticket:
        if message.topic in known:  # nearly always
            return None
        named, request = frozenset({message.topic}), message.request
    elif type(message) is Subscribe:
        named, request = message.topics | message.left | {message.topic}, message.version
    elif type(message) is Update:
        named, request = message.topics, message.version
    else:
        return None
    for topic in named:
        try:
            check_topic(topic)
        except InputError as error:
            return Refused(request, topic, str(error))
    return None
