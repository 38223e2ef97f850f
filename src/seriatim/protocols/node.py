"""A machine as it runs: its journal, its epoch and its links to all machines it talks to.

Machines that assume links that neither lose, repeat nor reorder get them from this wrapper: every message travels in a
numbered frame and stays in an output buffer until it is acknowledged (link.py). It also turns a journal back into a
running machine: every input was recorded before its effects left, so stepping through the records rebuilds the
machine and every message that may still be unacknowledged.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

from msgspec import Struct, field

from seriatim.model import Address
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload


class Stepped(Struct, frozen=True, tag=True):
    """A machine took this input; framed: it came on a link."""

    source: Address
    message: Payload
    now: float
    framed: bool


class TookOver(Struct, frozen=True, tag=True):
    """Another process runs this machine now."""

    epoch: int


class NodeState(Struct, array_like=True):
    """The machine's own state and that of its links."""

    inner: Any
    links: dict[Address, Link[Any]] = field(default_factory=dict)
    epoch: int = 1
    gone: set[Address] = field(default_factory=set)  # nothing is sent to them, also what was decided before


class Node:
    """The machine that a driver runs, around the one that orders."""

    stepped: ClassVar[Any] = Stepped  # a protocol may have records of its own, which say what an input can be

    def __init__(self, inner: Any, retry_ms: float, journals: bool = True) -> None:
        self.inner = inner
        self.retry_ms = retry_ms
        self.journals = journals
        self.state = NodeState(inner.state)
        self._to_persist: list[Payload] = []
        # When links want to repeat themselves, in order of time: all retries are of one length. What is no longer true
        # is left out when it comes to the front, so that a step does not look at every link.
        self._resends: deque[tuple[float, Address]] = deque()

    @classmethod
    def take_over(
        cls, create: Callable[..., Any], retry_ms: float, journal: Iterable[Any], snapshot: NodeState | None = None
    ) -> Self:
        """Rebuild the machine from its journal under a new epoch, which is recorded before anything leaves it.

        `snapshot`: the state that stands for everything before the journal's first record; `create` is given its inner
        state.
        """
        node = cls(create() if snapshot is None else create(state=snapshot.inner), retry_ms)
        if snapshot is not None:
            node.state.links, node.state.epoch, node.state.gone = snapshot.links, snapshot.epoch, snapshot.gone
        for record in journal:
            node._replay(record)
        node.state.epoch += 1
        node._to_persist.append(TookOver(node.state.epoch))
        node._resends.clear()
        for address, link in node.state.links.items():
            link.resend_due = 0.0 if link.unacknowledged else None
            node._plan_resend(address, link)
        return node

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if type(message) is not Frame:
            return self._framed(self._step(source, message, now, framed=False), now)
        link = self._link(source)
        body = link.receive(message)
        effects = self._framed(self._step(source, body, now, framed=True) if body is not None else Effects(), now)
        if message.body is not None and not any(target == source for target, _ in effects.send):
            effects.send.append((source, link.acknowledgement(self.state.epoch)))
        return effects

    def tick(self, now: float) -> Effects:
        """Send again what was not acknowledged."""
        effects = self._framed(self.inner.tick(now), now)
        while self._resends and self._resends[0][0] <= now:
            due, address = self._resends.popleft()
            link = self.state.links.get(address)  # a link may be forgotten meanwhile
            if link is not None and link.resend_due == due:
                effects.send.extend((address, frame) for frame in self._resend(address, link, now))
                self._plan_resend(address, link)
        self._wish(effects)
        return effects

    def explain(self) -> list[str]:
        """What is unfinished here, and what each of it waits for."""
        lines: list[str] = self.inner.explain()
        for address, link in sorted(self.state.links.items()):
            if link.unacknowledged:
                lines.append(f"{len(link.unacknowledged)} messages to {address}: wait for its acknowledgement")
        return lines

    def _gone(self, message: Payload) -> Address | None:
        """Whoever this message says is gone for ever: nothing is sent to it, or kept for it, any more."""
        return None

    def _step(self, source: Address, message: Payload, now: float, framed: bool) -> Effects:
        effects: Effects = self.inner.step(source, message, now)
        if self.journals:
            effects.persist.append(self.stepped(source, message, now, framed))
        if (gone := self._gone(message)) is not None:
            self.state.gone.add(gone)
            if (link := self.state.links.get(gone)) is not None:
                link.unacknowledged.clear()
                link.resend_due = None
        return effects

    def _replay(self, record: Any) -> None:
        if isinstance(record, TookOver):
            self.state.epoch = record.epoch
            return
        if record.framed:
            self._link(record.source).received += 1
        self._framed(self._step(record.source, record.message, record.now, record.framed), record.now)

    def _framed(self, effects: Effects, now: float) -> Effects:
        if self._to_persist:
            effects.persist[:0] = self._to_persist
            self._to_persist.clear()
        effects.send = [
            (target, self._send(target, message, now))
            for target, message in effects.send
            if target not in self.state.gone
        ]
        self._wish(effects)
        return effects

    def _send(self, target: Address, message: Payload, now: float) -> Frame[Any]:
        link = self._link(target)
        waits = link.resend_due is not None
        frame = link.send(message, self.state.epoch, now, self.retry_ms)
        if not waits:
            self._plan_resend(target, link)
        return frame

    def _resend(self, address: Address, link: Link[Any], now: float) -> list[Frame[Any]]:
        """What to send again, now that it is time."""
        return link.resend(self.state.epoch, now, self.retry_ms)

    def _plan_resend(self, address: Address, link: Link[Any]) -> None:
        if link.resend_due is not None:
            self._resends.append((link.resend_due, address))

    def _link(self, address: Address) -> Link[Any]:
        link = self.state.links.get(address)
        if link is None:
            link = self.state.links[address] = Link()
        return link

    def _drop_link(self, address: Address) -> None:
        """Whoever is there begins anew, if it ever comes back. Seldom: all that is to be repeated is looked at."""
        if self.state.links.pop(address, None) is not None:
            self._resends = deque(each for each in self._resends if each[1] != address)

    def _wish(self, effects: Effects) -> None:
        resends, links = self._resends, self.state.links
        while resends and ((link := links.get(resends[0][1])) is None or link.resend_due != resends[0][0]):
            resends.popleft()
        effects.wake_at = resends[0][0] if resends else None
