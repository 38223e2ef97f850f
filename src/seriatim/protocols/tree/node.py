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
from seriatim.protocols.tree.confirming import ConfirmedNode
from seriatim.protocols.tree.messages import BetweenNodes, JournalLost, Refused, Subscribe, Ticket, Update
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.sequencer import Sequencer
from seriatim.protocols.tree.state import SequencerState, new_state
from seriatim.protocols.with_broker import Begun

LAG = 64  # messages that the parent has not acknowledged, from which on it is told less often what passed here


class SequencerNodeState(Struct, array_like=True):
    """A sequencer's state, which has the epoch, and the state of its links: what a snapshot holds."""

    sequencer: SequencerState = field(default_factory=SequencerState)
    links: dict[Node, Link[BetweenNodes]] = field(default_factory=dict)
    inputs: int = 0  # how many records the journal has had: one with fewer is an older one


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
        for neighbour in tree.neighbours(node):
            state.links.setdefault(neighbour, Link())
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
        cls, tree: SequencingTree, node: Node, options: TreeOptions, journal: Iterable[Payload], epoch: int = 0
    ) -> "SequencerNode":
        """Take over, and act when everybody has confirmed that the journal is the last one."""
        machine = cls.take_over(tree, node, options, journal, None, epoch)
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
        lost = JournalLost(kept.kept, kept.named, kept.holes, kept.ordered, kept.placed, kept.lost)
        return self._wish(self._framed(self.inner.step(self.inner.node, lost, now), now))

    def confirm_all(self, patience_ms: float | None, *, with_broker: bool = True) -> None:
        """See `confirm`. The broker keeps what was stamped (log mode) and the root's order log."""
        is_kept = self.options.mode == "log" or self._orders()
        self.confirm(patience_ms, with_broker=with_broker and is_kept)

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
        return effects

    def _take_input(self, source: Address, message: Payload, now: float) -> Effects:
        links = self.state.links
        if self._waits_for or self.outdated is not None or type(message) is Begun:
            return super().step(source, message, now)
        if type(message) is Frame and source in links:
            return super().step(source, message, now)
        if type(message) is Frame or source in links:  # neighbours send frames, and nobody else does
            effects = self.inner.idle()
        elif (refused := refusal(message, self.state.sequencer.homes)) is not None:
            effects = self.inner.idle()
            effects.send.append((source, refused))
        else:
            effects = self.inner.step(source, message, now)
        return self._wish(self._framed(effects, now)) if links or self._to_persist else effects

    def tick(self, now: float) -> Effects:
        effects = self._tick(now)
        self.state.inputs += len(effects.persist)
        return effects

    def _tick(self, now: float) -> Effects:
        parent = self.inner.tree.parents[self.inner.node]
        if parent is not None:
            self.inner.parent_lags = len(self.state.links[parent].unacknowledged) >= LAG
        return super()._tick(now)

    def _issued(self, topic: Topic) -> Number:
        """Also of one that has moved: what was given out for it anywhere before it left, or came, has passed here."""
        state = self.state.sequencer
        home, passage = state.homes.get(topic), state.passages.passages.get(topic)
        found = state.healing.found.stamped.get(topic, 0) if state.healing.found is not None else 0
        return max(home.issued if home is not None else 0, passage.passed if passage is not None else 0, found)

    def _name(self) -> Node:
        return self.inner.node

    def _above(self) -> Node | None:
        return self.inner.tree.parents[self.inner.node]

    def _orders(self) -> bool:
        return self.options.keeps_order_log and self.inner.tree.parents[self.inner.node] is None

    def _ordered_to(self) -> Position:
        return self.state.sequencer.order.end

    def _replay(self, record: Payload) -> None:
        super()._replay(record)
        self.state.inputs += 1

    def _idle(self) -> Effects:
        return self.inner.idle()

    def _was_framed(self, record: Stepped[Any]) -> bool:
        return record.source in self.state.links


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
