"""A sequencer as it runs: its journal, its epoch and its links to the neighbouring nodes.

The inner sequencer assumes perfect links. This machine makes them: messages to neighbours travel in numbered,
acknowledged frames (protocols/link.py). It also turns a journal back into a running node: every input that changed the
sequencer was recorded before its effects left, so stepping through the records rebuilds the sequencer and, because it
is deterministic, also every message it had not yet got acknowledged.

Taking over a node means: read the journal, add one to the epoch, append `TookOver`. The journal accepts appends from
one process only (each append names the last record it has seen), so whoever was running the node before is refused at
its next append and stops before it can send anything.
"""

from collections import deque
from collections.abc import Iterable

from msgspec import Struct, field

from seriatim.model import Address, Node
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree.messages import Announce, Cut, Pass, Routed, Stepped, TookOver
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.sequencer import Sequencer
from seriatim.protocols.tree.state import SequencerState

BetweenNodes = Pass | Announce | Cut | Routed


class NodeState(Struct, array_like=True):
    """A sequencer's state and the state of its links."""

    sequencer: SequencerState = field(default_factory=SequencerState)
    links: dict[Node, Link[BetweenNodes]] = field(default_factory=dict)


class SequencerNode:
    """The machine a driver runs for one node of the tree."""

    sequencer_type: type[Sequencer] = Sequencer

    def __init__(self, tree: SequencingTree, node: Node, options: TreeOptions, state: NodeState | None = None) -> None:
        self.options = options
        self.state = state if state is not None else NodeState()
        self.sequencer = self.sequencer_type(tree, node, options, self.state.sequencer)
        for neighbour in tree.neighbours(node):
            self.state.links.setdefault(neighbour, Link())
        self._to_persist: list[Payload] = []
        # When links want to repeat themselves, in order of time: all retries are of one length. What is no longer true
        # is left out when it comes to the front, so that a step does not look at every neighbour.
        self._resends: deque[tuple[float, Node]] = deque()
        self._plan_resends()

    @classmethod
    def take_over(
        cls,
        tree: SequencingTree,
        node: Node,
        options: TreeOptions,
        journal: Iterable[Stepped | TookOver],
        snapshot: NodeState | None = None,
    ) -> "SequencerNode":
        """Rebuild the node from its journal under a new epoch, which is recorded before anything leaves it.

        `snapshot`: the state that stands for everything before the journal's first record.
        """
        machine = cls(tree, node, options, snapshot)
        for record in journal:
            machine._replay(record)
        state = machine.state.sequencer
        state.epoch += 1
        machine._to_persist.append(TookOver(state.epoch))
        for link in machine.state.links.values():
            link.resend_due = 0.0 if link.unacknowledged else None
        machine._plan_resends()
        return machine

    @property
    def epoch(self) -> int:
        """Grows by one with each process that takes over."""
        return self.state.sequencer.epoch

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        link = self.state.links.get(source)
        if type(message) is not Frame and link is None:
            return self._framed(self.sequencer.step(source, message, now), now)
        if type(message) is not Frame or link is None:  # neighbours send frames, and nobody else does
            return self._framed(self.sequencer.idle(), now)
        body = link.receive(message)
        effects = self.sequencer.step(source, body, now) if body is not None else self.sequencer.idle()
        effects = self._framed(effects, now)
        if message.body is not None and not any(target == source for target, _ in effects.send):
            effects.send.append((source, link.acknowledgement(self.epoch)))
        return effects

    def tick(self, now: float) -> Effects:
        """Let the sequencer do what is due, and send again what neighbours have not acknowledged."""
        effects = self._framed(self.sequencer.tick(now), now)
        while (due := self._next_resend()) is not None and due <= now:
            _, neighbour = self._resends.popleft()
            link = self.state.links[neighbour]
            for frame in link.resend(self.epoch, now, self.options.retry_ms):
                effects.send.append((neighbour, frame))
            if link.resend_due is not None:
                self._resends.append((link.resend_due, neighbour))
        self._wish(effects)
        return effects

    def explain(self) -> list[str]:
        """What is unfinished here, and what each of it waits for."""
        lines = self.sequencer.explain()
        for neighbour, link in sorted(self.state.links.items()):
            if link.unacknowledged:
                lines.append(f"{len(link.unacknowledged)} messages to {neighbour}: wait for its acknowledgement")
        return lines

    def _replay(self, record: Stepped | TookOver) -> None:
        if isinstance(record, TookOver):
            self.state.sequencer.epoch = record.epoch
            return
        link = self.state.links.get(record.source)
        if link is not None:
            link.received += 1
        self._framed(self.sequencer.step(record.source, record.message, record.now), record.now)

    def _framed(self, effects: Effects, now: float) -> Effects:
        if self._to_persist:
            effects.persist[:0] = self._to_persist
            self._to_persist.clear()
        links = self.state.links
        if links:
            for index, (target, message) in enumerate(effects.send):
                if (link := links.get(target)) is not None:
                    was_due = link.resend_due
                    effects.send[index] = (target, link.send(message, self.epoch, now, self.options.retry_ms))
                    if was_due is None and link.resend_due is not None:
                        self._resends.append((link.resend_due, target))
            self._wish(effects)
        return effects

    def _plan_resends(self) -> None:
        links = self.state.links.items()
        self._resends = deque(sorted((link.resend_due, name) for name, link in links if link.resend_due is not None))

    def _next_resend(self) -> float | None:
        while self._resends:
            due, neighbour = self._resends[0]
            if self.state.links[neighbour].resend_due == due:
                return due
            self._resends.popleft()
        return None

    def _wish(self, effects: Effects) -> None:
        due = self._next_resend()
        if due is not None and (effects.wake_at is None or due < effects.wake_at):
            effects.wake_at = due
