"""A station as it runs: on links, from a journal, with snapshots.

It adds this to protocols/node.py:

- An input that makes no sense is skipped, in the journal too, so it does not block its link.
- A neighbour that has lost its journal is reported to the operator.
- *Who is behind stops.* A neighbour that has received more than this journal has sent shows that the journal is an
  older copy, or another process runs this station: it says so (`Outdated`), and is mute for ever.
- The link to a forgotten client is dropped.
- Publishers wait while too much is kept (burden.py).
- What gathered while a neighbour was away is sent in portions when it is back.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeAlias

from msgspec import Struct

from seriatim.model import Address, Node, RemoteError
from seriatim.protocols.atoms.burden import REPORT_MS, Burdens
from seriatim.protocols.atoms.live_messages import Alive, Forgotten, Full, Room, Sent
from seriatim.protocols.atoms.messages import Publish
from seriatim.protocols.atoms.station import Station, StationState
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import JournaledNode, NodeState

LinkedState: TypeAlias = NodeState[StationState, Sent]  # a snapshot of a station


class Outdated(Struct, frozen=True, tag=True):
    """To the driver: `source` has seen more of this station than its journal knows. It must stop."""

    source: Address
    reason: str


class StationNode(JournaledNode):
    """The machine that a driver runs."""

    outdated: Outdated | None = None

    passes_over = (RemoteError,)
    inner: Station
    state: LinkedState

    def __init__(self, station: Station, retry_ms: float) -> None:
        super().__init__(station, retry_ms)
        self.burdens = Burdens(station.name, station.neighbours, station.options, station.gated)
        self._reports_due = False  # the set of full stations has changed
        self._report_at: float | None = None
        self._kept_out: set[Address] = set()  # publishers that were told to wait
        self._heard: dict[Address, int] = {}  # what each had acknowledged when it was last repeated
        self._portions: dict[Address, tuple[int, int]] = {}  # who was away: the last one repeated, and up to where to

    @classmethod
    def restore(
        cls, create: Callable[..., Station], retry_ms: float, snapshot: LinkedState | None, records: Iterable[Payload]
    ) -> Self:
        """Rebuild a station under a new epoch, which is recorded before anything leaves it."""
        node = cls.take_over(create, retry_ms, records, snapshot)
        node.burdens.begin(node.state.links)
        node._reports_due = node.burdens.is_full
        return node

    def answer_alive(self, source: Address, message: Alive) -> Forgotten | None:
        """The answer to a sign of life; it changes nothing. None: the client is known."""
        link = self.state.links.get(source)
        received = link.received if link is not None else 0
        return Forgotten() if received < message.acknowledged else None

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if self.outdated is not None:
            return Effects()
        if isinstance(message, Full):
            return self._hear(source, message, now)
        link = self.state.links.get(source)
        if type(message) is not Frame:
            return self._report(super().step(source, message, now), now)
        if link is None and message.number != 1:
            return Effects()  # from a forgotten client; others begin with 1
        if (found := self._behind(source, link, message)) is not None:
            self.outdated = found
            return Effects(notify=[found])
        lost = self._amnesia(source, message)
        if link is not None and message.epoch >= link.peer_epoch:
            self._reports_due |= self.burdens.acknowledged(source, link, message.received)
        why = self._why_not(message, link, now)
        effects = self._keep_out(source, message, why, now) if why else super().step(source, message, now)
        self._reports_due |= self.burdens.gated()
        self._tell_of(lost, source, effects)
        if source in self._portions and link is not None:
            effects.send += [(source, frame) for frame in self._next_portion(source, link, now)]
        return self._report(effects, now)

    def _behind(self, source: Address, link: "Link[Any] | None", frame: "Frame[Any]") -> Outdated | None:
        sent = link.sent if link is not None else 0
        if source not in self.inner.neighbours or frame.received <= sent:
            return None
        return Outdated(source, f"it has received {frame.received} messages; the journal here knows of {sent}")

    def tick(self, now: float) -> Effects:
        if self.outdated is not None:
            return Effects()
        if self._report_at is not None and now >= self._report_at:
            self._reports_due = True
        return self._report(super().tick(now), now)

    def explain(self) -> list[str]:
        return super().explain() + self.burdens.explain()

    def links_of_clients(self, stations: Iterable[Node]) -> list[Address]:
        """The clients that this station has a link to."""
        known = {*stations, "broker"}
        return [address for address in self.state.links if address not in known]

    def _forget(self, whom: Address) -> None:
        """Forget a client. Its name need not be remembered, because nothing that was decided earlier is sent to
        clients."""
        self._drop_link(whom)
        self._kept_out.discard(whom)
        self._heard.pop(whom, None)
        self._portions.pop(whom, None)

    # ── too much ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _why_not(self, frame: "Frame[Any]", link: "Link[Any] | None", now: float) -> str:
        """Why the event in this frame is not taken now. A repeat of what was taken is not taken anyway."""
        if not isinstance(frame.body, Publish) or frame.number != (link.received if link is not None else 0) + 1:
            return ""
        return self.burdens.why_not(frame.body.event.topic, now)

    def _keep_out(self, source: Address, frame: "Frame[Any]", why: str, now: float) -> Effects:
        """Reject an event for which there is no room, as if it had not come, in the journal and on the link. Its
        publisher is told, and sends it again."""
        assert isinstance(frame.body, Publish), "nothing else is kept out"
        self._kept_out.add(source)
        effects = Effects()
        if source in self.state.links:
            effects = super().step(source, Frame(frame.epoch, 0, frame.received), now)
        effects.send.append((source, Full(frozenset({frame.body.event.topic}), why)))
        return effects

    def _hear(self, source: Address, message: Full, now: float) -> Effects:
        effects = Effects()
        if source in self.inner.neighbours:
            self.burdens.hear(source, message, now)
            if not message.topics:
                self._let_in(effects)
        return effects

    def _report(self, effects: Effects, now: float) -> Effects:
        """Tell ingresses who is full, if that has changed or it is time, and publishers that there is room."""
        if self._reports_due:
            self._reports_due = False
            full = self.burdens.report()
            effects.send += [(ingress, full) for ingress in sorted(self.inner.ingresses)]
            self._report_at = now + REPORT_MS if full.topics else None
            if not full.topics:
                self._let_in(effects)
        if self._report_at is not None:
            effects.wake_at = self._report_at if effects.wake_at is None else min(effects.wake_at, self._report_at)
        return effects

    def _let_in(self, effects: Effects) -> None:
        effects.send += [(publisher, Room()) for publisher in sorted(self._kept_out)]
        self._kept_out.clear()

    def _send(self, target: Address, message: Payload, now: float) -> Payload:
        self._reports_due |= self.burdens.sent(target, message)
        return super()._send(target, message, now)

    # ── somebody is back ──────────────────────────────────────────────────────────────────────────────────────────

    def _resend(self, address: Address, link: "Link[Any]", now: float) -> "list[Frame[Any]]":
        """Acknowledged nothing since the last time: it was away. Send what gathered in portions, as it takes them."""
        frames = super()._resend(address, link, now)
        have = link.acknowledged
        if frames and self._heard.get(address, have) == have:
            self._portions[address] = frames[-1].number, link.sent
        self._heard[address] = have
        return frames

    def _next_portion(self, address: Address, link: "Link[Any]", now: float) -> "list[Frame[Any]]":
        last, upto = self._portions[address]
        have = link.acknowledged
        if have < last:
            return []
        if have >= upto:
            del self._portions[address]
            return []
        link.resend_due = now
        frames = link.resend(self.state.epoch, now, self.retry_ms)
        self._plan_resend(address, link)
        self._portions[address] = frames[-1].number, upto
        return frames
