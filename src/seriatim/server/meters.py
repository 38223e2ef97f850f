"""What a node does, counted from outside: the messages that pass by, and now and then a look at its state.

A machine has no counters, and needs none: whatever it does is a message. `NodeMeter` is shown every message of one
node. What is not a message (how many ranges are open, and since when) is found by walking over the node's state in
small slices, so that a node with a million topics goes on serving meanwhile.
"""

import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker, Deliver, OnError, Port
from seriatim.model import Address, Number, Topic
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Finished, Granted, Inquire, Pass, Routed, Stamped, Written
from seriatim.protocols.tree.state import SequencerState
from seriatim.runtime import Switchboard
from seriatim.runtime.switchboard import Outlet

SIZE_SAMPLE = 64  # of so many stamps one is encoded to learn its size
SLICE_TOPICS = 2_000
OPEN_RANGES_KNOWN_MAX = 100_000


class NodeMeter:
    """Counts of one node. `observe_hop` and `observe_stamp` are given single measurements, in seconds and entries."""

    def __init__(
        self,
        observe_hop: Callable[[float], None] | None = None,
        observe_stamp: Callable[[int], None] | None = None,
    ) -> None:
        self.stamps = 0
        self.numbers = 0
        self.entries = 0
        self.sampled_stamps = 0
        self.sampled_bytes = 0
        self.voids = 0
        self.inquiries = 0
        self.hop_s: float | None = None  # the last one
        self._observe_hop = observe_hop
        self._observe_stamp = observe_stamp
        self._climbing: tuple[Topic, Number] | None = None
        self._climbing_since_s = 0.0
        self._encode = msgspec.msgpack.Encoder().encode

    def sent(self, message: Payload) -> None:
        """The node sends this, to whomever."""
        kind = type(message)
        if kind is Stamped or kind is Granted:
            self._stamp(message)
        elif kind is Frame and type(message.body) is Pass and self._climbing is None:
            self._climbing = (message.body.topic, message.body.first)
            self._climbing_since_s = time.monotonic()

    def received(self, message: Payload) -> None:
        """The node is given this."""
        kind = type(message)
        if kind is Frame:
            if self._climbing is not None and type(message.body) is Routed:
                self._returned(message.body)
        elif kind is Written and message.event_id is None:
            self.voids += 1
        elif kind is Inquire:
            self.inquiries += 1

    def _stamp(self, message: Stamped | Granted) -> None:
        self.stamps += 1
        self.numbers += message.last - message.first + 1
        self.entries += len(message.entries)
        if self._observe_stamp is not None:
            self._observe_stamp(len(message.entries))
        if self.stamps % SIZE_SAMPLE == 1:
            self.sampled_stamps += 1
            self.sampled_bytes += len(self._encode(message.entries))

    def _returned(self, routed: Routed) -> None:
        """One stamp at a time is followed on its way up and back. One that never returns is given up after a while."""
        body = routed.body
        elapsed_s = time.monotonic() - self._climbing_since_s
        if type(body) is Finished and (body.topic, body.first) == self._climbing:
            self.hop_s = elapsed_s
            self._climbing = None
            if self._observe_hop is not None:
                self._observe_hop(elapsed_s)
        elif elapsed_s > 10.0:
            self._climbing = None


# ── showing the messages to the meters ────────────────────────────────────────────────────────────────────────────


class MeteredSwitchboard(Switchboard):
    """A switchboard that shows each node's messages to its meter."""

    def __init__(self) -> None:
        super().__init__()
        self.meters: dict[Address, NodeMeter] = {}

    def attach(self, address: Address, deliver: Outlet) -> None:
        meter = self.meters.get(address)
        if meter is None:
            super().attach(address, deliver)
            return
        received = meter.received

        def metered(source: Address, message: Payload) -> None:
            received(message)
            deliver(source, message)

        super().attach(address, metered)

    def send(self, source: Address, target: Address, message: Payload) -> None:
        meter = self.meters.get(source)
        if meter is not None:
            meter.sent(message)
        super().send(source, target, message)


class MeteredPort:
    """A node's port to the broker, with a meter beside it."""

    def __init__(self, port: Port, meter: NodeMeter) -> None:
        self._port = port
        self._sent = meter.sent
        self.pause = port.pause
        self.resume = port.resume
        self.close = port.close

    def send(self, message: Payload) -> None:
        self._sent(message)
        self._port.send(message)


class MeteredBroker:
    """A broker that shows what a node says to it, and hears, to the node's meter. Everything else passes through."""

    def __init__(self, broker: Broker, meter: NodeMeter) -> None:
        self._broker = broker
        self._meter = meter
        self.ordered_topic = broker.ordered_topic
        self.check_slots = broker.check_slots
        self.capture = broker.capture
        self.stamped_epoch = broker.stamped_epoch
        self.know = broker.know
        self.configure = broker.configure
        self.open = broker.open
        self.request = broker.request
        self.answer = broker.answer
        self.close = broker.close

    @property
    def keeps_log(self) -> bool:
        return self._broker.keeps_log

    @property
    def lossy(self) -> bool:
        return self._broker.lossy

    @property
    def payload_bytes_max(self) -> int:
        return self._broker.payload_bytes_max

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> Port:
        received = self._meter.received

        def metered(message: Payload) -> None:
            received(message)
            deliver(message)

        return MeteredPort(self._broker.attach(address, metered, on_error), self._meter)


# ── looking at the state ──────────────────────────────────────────────────────────────────────────────────────────


class Survey(Struct, frozen=True):
    """What a node holds, as it was found."""

    topics: int = 0
    issued: int = 0
    open_ranges: int = 0
    unstamped_ranges: int = 0
    oldest_open_s: float = 0.0
    subscribers: int = 0
    joins: int = 0


class Surveyor:
    """Walks over a node's state again and again. Ages are counted from the first survey that saw a range open."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.last = Survey()
        self._now_s = now_s
        self._seen: dict[tuple[Topic, Number], float] = {}

    def walk(self, state: SequencerState) -> Iterator[None]:
        """One survey, in slices; `last` is replaced when it is complete."""
        now_s = self._now_s()
        seen: dict[tuple[Topic, Number], float] = {}
        open_ranges = unstamped = issued = 0
        topics = list(state.homes)
        for place, topic in enumerate(topics):
            if place % SLICE_TOPICS == SLICE_TOPICS - 1:
                yield
            home = state.homes.get(topic)
            if home is None:
                continue
            issued += home.issued
            for first, range_ in state.ranges.get(topic, {}).items():
                open_ranges += 1
                unstamped += range_.entries is None
                if len(seen) < OPEN_RANGES_KNOWN_MAX:
                    seen[topic, first] = self._seen.get((topic, first), now_s)
        self._seen = seen
        self.last = Survey(
            topics=len(topics),
            issued=issued,
            open_ranges=open_ranges,
            unstamped_ranges=unstamped,
            oldest_open_s=now_s - min(seen.values(), default=now_s),
            subscribers=len(state.couplings.holders),
            joins=sum(join.start is None for joins in state.joins.values() for join in joins.values()),
        )
