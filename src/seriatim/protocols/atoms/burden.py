"""How much a station keeps for others, and when that is too much.

A station keeps every message to the broker or to another station until the receiver has it. It also keeps what waits at
a gate until the old way is empty. While a receiver is away or slow, this grows with every event that enters. So it is
bounded for each receiver. A station at the bound names the topics to all ingresses, and they accept no more events of
these until half of the kept messages are gone.

Only events without a number are refused. An event with a number is never refused on its way. So it gets through as soon
as the receiver is back, and no two stations wait for each other.
"""

from dataclasses import dataclass, field
from typing import Any

from seriatim.model import BROKER, Address, Event, Node, Number, Topic, event_bytes
from seriatim.protocols.atoms.live_messages import Full
from seriatim.protocols.atoms.messages import Carry, Item
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.link import Link
from seriatim.protocols.machine import Payload

REPORT_MS = 200.0  # how often a full station says so again: topics may have come
GATES = ""  # nobody's address
BELIEVED_MS = 5 * REPORT_MS  # a station that was full and says nothing for this long may be gone


@dataclass(slots=True, eq=False)
class Burden:
    """The events that are kept for one address. `closed`: topics of which no more may come, as long as it is full."""

    events: int = 0
    bytes: int = 0
    topics: dict[Topic, int] = field(default_factory=dict)
    closed: set[Topic] = field(default_factory=set)
    is_full: bool = False
    _told: int = 0  # closed topics

    def add(self, event: Event) -> None:
        self.events += 1
        self.bytes += event_bytes(event.payload, event.headers)
        self.topics[event.topic] = self.topics.get(event.topic, 0) + 1
        if self.is_full:
            self.closed.add(event.topic)

    def remove(self, event: Event) -> None:
        self.events -= 1
        self.bytes -= event_bytes(event.payload, event.headers)
        self.topics[event.topic] -= 1
        if not self.topics[event.topic]:
            del self.topics[event.topic]

    def weigh(self, options: AtomsOptions) -> bool:
        """Whether others must be told: it is full now, or half empty again, or a topic was added."""
        events, size = options.kept_events_max, options.kept_bytes_max
        if self.is_full:
            self.is_full = self.events > events // 2 or self.bytes > size // 2
            if not self.is_full:
                self.closed.clear()
        elif self.events >= events or self.bytes >= size:
            self.is_full = True
            self.closed.update(self.topics)
        before, self._told = self._told, len(self.closed)
        return self._told != before


class Burdens:
    """The burden of one station: what it keeps for the broker, for other stations and behind gates, and what other
    stations report.

    `gated` is counted by whoever has the gates.
    """

    def __init__(self, name: Node, neighbours: frozenset[Node], options: AtomsOptions, gated: Burden) -> None:
        self.name = name
        self.kept: dict[Address, Burden] = {address: Burden() for address in (BROKER, *sorted(neighbours))}
        self.kept[GATES] = gated
        self._options = options
        self._said: dict[Node, tuple[Full, float]] = {}  # by others, and until when it is believed

    def begin(self, links: dict[Address, Link[Any]]) -> None:
        """Count again, from the links that a journal gave."""
        for address, burden in self.kept.items():
            if address == GATES:
                burden.weigh(self._options)
                continue
            burden = self.kept[address] = Burden()
            for body in links[address].unacknowledged.values() if address in links else ():
                if (event := event_of(body)) is not None:
                    burden.add(event)
            burden.weigh(self._options)

    def gated(self) -> bool:
        """Something may have come to a gate, or a gate was opened. Whether that changes who is full."""
        return self.kept[GATES].weigh(self._options)

    def sent(self, target: Address, body: Payload) -> bool:
        """Count a message that is kept until it is acknowledged. Returns whether that changes who is full."""
        burden, event = self.kept.get(target), event_of(body)
        if burden is None or event is None:
            return False
        burden.add(event)
        return burden.weigh(self._options)

    def acknowledged(self, source: Address, link: Link[Any], received: Number) -> bool:
        """Subtract what is about to be forgotten, up to this number. Returns whether that changes who is full."""
        burden = self.kept.get(source)
        if burden is None:
            return False
        for number, body in link.unacknowledged.items():
            if number > received:
                break
            if (event := event_of(body)) is not None:
                burden.remove(event)
        return burden.weigh(self._options)

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached, for any receiver."""
        return any(burden.is_full for burden in self.kept.values())

    def report(self) -> Full:
        """What to tell others: topics of which no more may come, and why. No topic: there is room."""
        full = {address: burden for address, burden in self.kept.items() if burden.is_full}
        topics = frozenset(topic for burden in full.values() for topic in burden.closed)
        whys = [
            f"node {self.name} keeps {burden.events:,} events of {burden.bytes:,} bytes {reason(address)}"
            for address, burden in full.items()
        ]
        return Full(topics, "; ".join(whys))

    def hear(self, source: Node, full: Full, now: float) -> None:
        """Note which topics another station cannot take."""
        if full.topics:
            self._said[source] = full, now + BELIEVED_MS
        else:
            self._said.pop(source, None)

    def why_not(self, topic: Topic, now: float) -> str:
        """Why no event of this topic is taken now; empty: events are taken."""
        if any(topic in burden.closed for burden in self.kept.values()):
            return self.report().why
        for source, (full, until) in list(self._said.items()):
            if now >= until:
                del self._said[source]
            elif topic in full.topics:
                return full.why
        return ""

    def explain(self) -> list[str]:
        said = [full for full, _ in self._said.values()]
        return [
            f"no events of {', '.join(sorted(full.topics))} are taken: {full.why}"
            for full in (self.report(), *said)
            if full.topics
        ]


def reason(address: Address) -> str:
    """Why messages for this address are kept, as a part of a sentence."""
    if address == GATES:
        return "that wait until an old way is empty: a node on it is away, or slow"
    return f"for {'the broker' if address == BROKER else f'node {address}'}, which is away, or slow"


def event_of(body: Payload) -> Event | None:
    """The event in what is sent to the broker or to a station. Notices are few: they are not counted."""
    if isinstance(body, Carry):
        body = body.passing
    return body.event if isinstance(body, Item) else None
