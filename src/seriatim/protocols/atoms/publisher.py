"""A publisher on a live cluster: it sends each event to the ingress of its topic, and gets the event's number.

The link to the ingress loses and repeats nothing. The publisher takes the commands of the tree's publisher and gives
its notices, so the client's outbox works with either.
"""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from seriatim.model import APPLICATION, Address, Event, Node, RemoteError, Topic
from seriatim.protocols.atoms.live_messages import Alive, Declined, Forgotten, Full, Numbered, Room, Withdrawn
from seriatim.protocols.atoms.messages import Publish as Number
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.node import JournaledNode
from seriatim.protocols.with_broker import EventStored, NotTaken, Publish, Withdraw


class Awaited(Machine):
    """The events that no ingress has answered yet. The links of this inner machine are perfect."""

    def __init__(self, ingresses: Sequence[Node]) -> None:
        self.state: None = None
        self.events: dict[str, Event] = {}
        self._ingresses = ingresses

    def ingress_of(self, topic: Topic) -> Node:
        """The ingress of a topic, computed as in `Plan.ingress_of`."""
        return self._ingresses[crc32(topic.encode()) % len(self._ingresses)]

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Publish(events) if source == APPLICATION:
                for event in events:
                    self.events[event.id] = event
                    effects.send.append((self.ingress_of(event.topic), Number(event)))
            case Withdraw() if source == APPLICATION:
                self.events.pop(message.event_id, None)
            case Numbered(event_id, place) if source in self._ingresses:
                known = self.events.pop(event_id, None)
                if known is not None:
                    effects.notify.append(EventStored(known, place, {}))
            case Declined() if source in self._ingresses:
                if self.events.pop(message.event_id, None) is not None:
                    effects.notify.append(NotTaken(message.event_id, f"topic {message.topic}: {message.reason}"))
            case _:
                raise RemoteError(f"{source} sent a publisher an unknown message: {message!r}")
        return effects

    def explain(self) -> list[str]:
        by_topic: dict[Topic, int] = {}
        for event in self.events.values():
            by_topic[event.topic] = by_topic.get(event.topic, 0) + 1
        return [
            f"{count} messages of {topic}: node {self.ingress_of(topic)} has not answered"
            for topic, count in sorted(by_topic.items())
        ]


class ClientNode(JournaledNode):
    """A client of a served cluster. It remembers nothing beyond its process.

    Every `alive_ms` it shows each node that has acknowledged something that it is still there.
    """

    def __init__(self, inner: Any, retry_ms: float, alive_ms: float) -> None:
        super().__init__(inner, retry_ms, journals=False)
        self._alive_ms = alive_ms
        self._alive_due = 0.0

    def tick(self, now: float) -> Effects:
        effects = super().tick(now)
        if now >= self._alive_due:
            self._alive_due = now + self._alive_ms
            counts = {address: link.acknowledged for address, link in self.state.links.items()}
            effects.send.extend((address, Alive(count)) for address, count in counts.items() if count)
        return effects

    def _wishing(self, effects: Effects, *dues: float | None) -> Effects:
        """Wake it for the next sign of life, at these times too, and at the time that the effects wish for."""
        effects.wake_at = min(due for due in (self._alive_due, effects.wake_at, *dues) if due is not None)
        return effects


class AtomsPublisher(ClientNode):
    """The machine that a driver runs for a publisher."""

    inner: Awaited

    def __init__(self, ingresses: Sequence[Node], retry_ms: float, alive_ms: float) -> None:
        super().__init__(Awaited(ingresses), retry_ms, alive_ms)
        self._given_up: set[tuple[Address, int]] = set()  # places on links
        self._full: dict[Node, str] = {}  # ingresses that took nothing when they were last heard of, and why
        self._repeated: dict[Node, int] = {}  # the last number sent again, if there is more behind it

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if isinstance(message, Forgotten):
            self._drop_link(source)  # what was under way gets no answer, and times out
            return Effects()
        if isinstance(message, Full):
            self._full[source] = message.why
            return self._wishing(Effects())
        if isinstance(message, Room):
            self._full.pop(source, None)
            return self._try_again(source, now)
        if isinstance(message, Withdraw):
            self._give_up(message)
        link = self.state.links.get(source)
        before = link.acknowledged if link is not None else 0
        effects = super().step(source, message, now)
        if link is not None and link.acknowledged > before:  # what is behind something kept out is answered too
            self._full.pop(source, None)
            if source in self._repeated:
                effects.send += self._next_portion(source, link, now)
        return self._wishing(effects)

    def tick(self, now: float) -> Effects:
        return self._wishing(super().tick(now))

    def explain(self) -> list[str]:
        return self.inner.explain() + [
            f"node {node} takes no events: {why}" for node, why in sorted(self._full.items())
        ]

    def why_not(self, topic: Topic) -> str:
        """Why events of this topic are not taken; empty: no reason is known."""
        ingress = self.inner.ingress_of(topic)
        return f"node {ingress} does not take it: {self._full[ingress]}" if ingress in self._full else ""

    def _try_again(self, ingress: Address, now: float) -> Effects:
        """Send what was not taken again at once, because the ingress has room now."""
        effects = Effects()
        link = self.state.links.get(ingress)
        if link is not None and link.unacknowledged:
            effects.send += self._send_again(ingress, link, now)
        self._wish(effects)
        return self._wishing(effects)

    def _next_portion(self, ingress: Address, link: Link[Any], now: float) -> list[tuple[Address, Frame[Any]]]:
        """The last portion was acknowledged: send the next one now, not at its next retry."""
        if link.acknowledged < self._repeated[ingress]:
            return []
        del self._repeated[ingress]
        return self._send_again(ingress, link, now) if link.unacknowledged else []

    def _send_again(self, ingress: Address, link: Link[Any], now: float) -> list[tuple[Address, Frame[Any]]]:
        link.resend_due = now
        frames = self._resend(ingress, link, now)
        self._plan_resend(ingress, link)
        if frames[-1].number < link.sent:
            self._repeated[ingress] = frames[-1].number
        return [(ingress, frame) for frame in frames]

    def given_up(self) -> int:
        """How many messages were given up and still have a place on their links."""
        if self._given_up:
            links = self.state.links
            self._given_up = {
                (address, number)
                for address, number in self._given_up
                if address in links and number in links[address].unacknowledged
            }
        return len(self._given_up)

    def _give_up(self, message: Withdraw) -> None:
        """Do not send it again. If the ingress has it, it drops the `Withdrawn` in its place as a repeat."""
        ingress = self.inner.ingress_of(message.topic)
        waiting = self.state.links[ingress].unacknowledged if ingress in self.state.links else {}
        for number, body in waiting.items():
            if isinstance(body, Number) and body.event.id == message.event_id:
                waiting[number] = Withdrawn()
                self._given_up.add((ingress, number))
                return
