"""A machine as it runs: its journal, its epoch and its links to the machines it talks to.

Machines that assume links that neither lose, repeat nor reorder get them from these wrappers: every message travels in
a numbered frame and stays in an output buffer until it is acknowledged (link.py). A journal is turned back into a
running machine: every input was recorded before its effects left, so stepping through the records rebuilds the machine
and, because it is deterministic, every message that may still be unacknowledged.

Taking over a machine means: read the journal, add one to the epoch, append `TookOver`. The journal accepts appends from
one process only, so the process that ran the machine before is refused at its next append, and stops before it sends
anything.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar

from msgspec import Struct, field

from seriatim.model import Address
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload

Message = TypeVar("Message")
Inner = TypeVar("Inner")


class Stepped(Struct, Generic[Message], frozen=True, tag=True, omit_defaults=True):
    """A machine took this input. `framed`: it came on a link."""

    source: Address
    message: Message
    now: float
    framed: bool = False


class TookOver(Struct, frozen=True, tag=True):
    """Another process runs this machine from here on."""

    epoch: int


class NodeState(Struct, Generic[Inner, Message], array_like=True):
    """The machine's own state and that of its links: what a snapshot holds."""

    inner: Inner
    links: dict[Address, Link[Message]] = field(default_factory=dict)
    epoch: int = 1
    gone: set[Address] = field(default_factory=set)  # nothing is sent to them, even what was decided before
    inputs: int = 0  # how many the journal has had: one with fewer is an older one


class Forgetting(Struct, frozen=True):
    """A message that says somebody is gone for good: nothing is sent to it, or kept for it, any more."""

    @property
    def whom(self) -> Address:
        raise NotImplementedError


class Nonsense(Struct, frozen=True, tag=True):
    """To the operator: an input made no sense and was skipped."""

    source: Address
    reason: str


class Amnesia(Struct, frozen=True, tag=True):
    """To the operator: a neighbour knows less than it had acknowledged, so it has lost its journal."""

    source: Address
    acknowledged: int
    known: int


def is_current(epochs: dict[Address, int], node: Address, epoch: int) -> bool:
    """Whether `node` has not spoken in a later epoch before; remembers the latest.

    Clients have no links. They refuse what a node said before it was taken over: they repeat the request and get the
    same answer.
    """
    if epoch < epochs.get(node, 0):
        return False
    epochs[node] = epoch
    return True


class LinkedNode:
    """Links, epoch and take-over around a machine. `state` has the links; the machine keeps its own journal."""

    links_everybody: ClassVar[bool] = True  # else only those that `state` has a link to; others get plain messages

    def __init__(self, inner: Any, retry_ms: float, state: Any) -> None:
        self.inner = inner
        self.retry_ms = retry_ms
        self.state = state
        self._to_persist: list[Payload] = []
        # When links repeat themselves, in order of time: all retries take equally long. Entries that are no longer true
        # are dropped when they come to the front, so that a step does not look at every link.
        self._resends: deque[tuple[float, Address]] = deque()

    @property
    def epoch(self) -> int:
        """Grows by one with each process that takes over."""
        epoch: int = self.state.epoch
        return epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.state.epoch = epoch

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if type(message) is not Frame:
            return self._wish(self._framed(self._step(source, message, now, framed=False), now))
        link = self._link(source)
        body = link.receive(message)
        effects = self._step(source, body, now, framed=True) if body is not None else self._idle()
        effects = self._framed(effects, now)
        if message.body is not None and not any(target == source for target, _ in effects.send):
            effects.send.append((source, link.acknowledgement(self.epoch)))
        return self._wish(effects)

    def tick(self, now: float) -> Effects:
        """Let the machine do what is due, and send again what was not acknowledged."""
        effects = self._framed(self.inner.tick(now), now)
        while self._resends and self._resends[0][0] <= now:
            due, address = self._resends.popleft()
            link = self.state.links.get(address)  # a link may be forgotten meanwhile
            if link is not None and link.resend_due == due:
                effects.send.extend((address, frame) for frame in self._resend(address, link, now))
                self._plan_resend(address, link)
        return self._wish(effects)

    def explain(self) -> list[str]:
        """The unfinished work here, and what each part waits for."""
        lines: list[str] = self.inner.explain()
        for address, link in sorted(self.state.links.items()):
            if link.unacknowledged:
                lines.append(f"{len(link.unacknowledged)} messages to {address}: wait for its acknowledgement")
        return lines

    def replay(self, journal: Iterable[Payload], at_least: int = 0) -> None:
        """Step through a journal and begin a new epoch, which is recorded before anything leaves."""
        for record in journal:
            self._replay(record)
        self.epoch = max(self.epoch + 1, at_least)
        self._to_persist.append(TookOver(self.epoch))
        self._resends.clear()
        for address, link in self.state.links.items():
            link.resend_due = 0.0 if link.unacknowledged else None
            self._plan_resend(address, link)

    def begin_epoch(self, epoch: int) -> None:
        """Begin this epoch, unless the node is in a later one already. Call it before the first step."""
        if epoch > self.epoch:
            self.epoch = epoch
            self._to_persist[:] = [TookOver(epoch)]

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        effects: Effects = self.inner.step(source, message, now)
        return effects

    def _idle(self) -> Effects:
        """The effects of a step in which nothing happened."""
        return Effects()

    def _replay(self, record: Payload) -> None:
        if isinstance(record, TookOver):
            self.epoch = record.epoch
        elif isinstance(record, Stepped):
            framed = self._was_framed(record)
            if framed:
                self._link(record.source).received += 1
            self._framed(self._step(record.source, record.message, record.now, framed), record.now)

    def _was_framed(self, record: Stepped[Any]) -> bool:
        return record.framed

    def _framed(self, effects: Effects, now: float) -> Effects:
        if self._to_persist:
            effects.persist[:0] = self._to_persist
            self._to_persist.clear()
        links, sends = self.state.links, effects.send
        for index, (target, message) in enumerate(sends):
            if self.links_everybody or target in links:
                sends[index] = (target, self._send(target, message, now))
        return effects

    def _send(self, target: Address, message: Payload, now: float) -> Payload:
        link = self._link(target)
        waits = link.resend_due is not None
        frame = link.send(message, self.epoch, now, self.retry_ms)
        if not waits:
            self._plan_resend(target, link)
        return frame

    def _resend(self, address: Address, link: Link[Any], now: float) -> list[Frame[Any]]:
        return link.resend(self.epoch, now, self.retry_ms)

    def _plan_resend(self, address: Address, link: Link[Any]) -> None:
        if link.resend_due is not None:
            self._resends.append((link.resend_due, address))

    def _link(self, address: Address) -> Link[Any]:
        link: Link[Any] | None = self.state.links.get(address)
        if link is None:
            link = self.state.links[address] = Link()
        return link

    def _drop_link(self, address: Address) -> None:
        """Forget a link. If the other end comes back, it begins at 1. Looks at every planned resend."""
        if self.state.links.pop(address, None) is not None:
            self._resends = deque(each for each in self._resends if each[1] != address)

    def _wish(self, effects: Effects) -> Effects:
        resends = self._resends
        if not resends:
            return effects
        links = self.state.links
        while resends and ((link := links.get(resends[0][1])) is None or link.resend_due != resends[0][0]):
            resends.popleft()
        if resends and (effects.wake_at is None or resends[0][0] < effects.wake_at):
            effects.wake_at = resends[0][0]
        return effects


class JournaledNode(LinkedNode):
    """A node that records every input, around a machine that has no journal of its own and links to everybody.

    Without `journals` nothing is recorded: the machine remembers nothing beyond its process.
    """

    passes_over: ClassVar[tuple[type[Exception], ...]] = ()  # these errors do not block the link that the input came on
    state: NodeState[Any, Any]

    def __init__(self, inner: Any, retry_ms: float, journals: bool = True) -> None:
        super().__init__(inner, retry_ms, NodeState(inner.state))
        self.journals = journals
        self.amnesiacs: dict[Address, Amnesia] = {}

    @classmethod
    def take_over(
        cls,
        create: Callable[..., Any],
        retry_ms: float,
        journal: Iterable[Payload],
        snapshot: NodeState[Any, Any] | None = None,
    ) -> Self:
        """Rebuild the machine from its journal under a new epoch.

        `snapshot` stands for everything before the journal's first record; `create` is given its inner state.
        """
        node = cls(create() if snapshot is None else create(state=snapshot.inner), retry_ms)
        if snapshot is not None:
            node.state.links, node.state.epoch, node.state.gone = snapshot.links, snapshot.epoch, snapshot.gone
            node.state.inputs = snapshot.inputs
        node.replay(journal)
        return node

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        try:
            effects: Effects = self.inner.step(source, message, now)
            if isinstance(message, Forgetting):
                self._forget(message.whom)
        except self.passes_over as error:
            effects = Effects()
            effects.notify.append(Nonsense(source, str(error)))
        if self.journals:
            effects.persist.append(Stepped(source, message, now, framed))
            self.state.inputs += 1
        return effects

    def _forget(self, whom: Address) -> None:
        self.state.gone.add(whom)
        if (link := self.state.links.get(whom)) is not None:
            link.unacknowledged.clear()
            link.resend_due = None

    def _framed(self, effects: Effects, now: float) -> Effects:
        if gone := self.state.gone:
            effects.send = [(target, message) for target, message in effects.send if target not in gone]
        return super()._framed(effects, now)

    def explain(self) -> list[str]:
        return super().explain() + [
            f"{source} has lost its journal: it knows {each.known} of the {each.acknowledged} messages it had; "
            "messages for it are kept here until its journal is restored"
            for source, each in sorted(self.amnesiacs.items())
        ]

    def _amnesia(self, source: Address, frame: Frame[Any]) -> Amnesia | None:
        """The messages that the sender of this frame has forgotten. To be asked before the frame is taken."""
        link = self.state.links.get(source)
        if link is None or frame.epoch < link.peer_epoch:
            return None
        return Amnesia(source, link.acknowledged, frame.received) if frame.received < link.acknowledged else None

    def _tell_of(self, lost: Amnesia | None, source: Address, effects: Effects) -> None:
        """Notify once of what somebody has forgotten, until it knows it again."""
        if lost is None:
            self.amnesiacs.pop(source, None)
        elif source not in self.amnesiacs:
            self.amnesiacs[source] = lost
            effects.notify.append(lost)
