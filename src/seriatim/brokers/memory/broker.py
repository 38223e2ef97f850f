"""The broker inside this process: for users' own tests, for demos, and for trying things out.

It hosts the reference broker of the protocol (protocols/broker.py). Requests to it are reliable. On the way to
subscribers deliveries can be lost, repeated, overtaken and delayed, at random from a given seed. The same seed makes
the same choices for the same deliveries; when they arrive depends on the event loop.

    broker = MemoryBroker(seed=7, reordering=0.3, delay_ms=2)
    twin = broker.twin()          # a second connection to the same broker

Everything is gone when the last connection is closed.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count

from seriatim.brokers.capabilities import KeptNumbers, OrderBounds, Requests, check_after
from seriatim.brokers.memory.lives import MemoryLives
from seriatim.brokers.naming import check_buckets, ordered_topic
from seriatim.brokers.seam import Broker, BufferingPort, Deliver, OnError
from seriatim.model import (
    APPLICATION,
    Address,
    Closed,
    InputError,
    Position,
    RemoteError,
    RequestRefused,
    SeriatimError,
    Topic,
)
from seriatim.protocols.broker import Broker as BrokerMachine
from seriatim.protocols.broker import Erase, KeepOrder, OrderLogState, Trim
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import (
    Append,
    Delivered,
    Fetch,
    Follow,
    Listen,
    Ordered,
    OrderRead,
    ReadOrder,
    Staged,
    Stamped,
    Unfollow,
    Unlisten,
    Voids,
    Write,
)

PAYLOAD_BYTES_MAX = 8 * 1024 * 1024
OVERTAKEN_MS = 5.0  # how long a delivery is held back at most so that others overtake it, beyond the usual delay


class MemoryBroker(Broker):
    """One connection to a broker in this process.

    `loss`, `duplication`, `reordering`: the probability of each for a delivery, from 0 to 1. `delay_ms`: how long a
    delivery takes on average. `keeps_log` False: plain publish-subscribe, which forgets what it has delivered.
    `buckets`: how many logs topics share; 0: each has its own. `markers`: how many positions without an event follow
    each event in a log.
    """

    knows_repeats = True
    tells_lives = True
    removes_topics = True
    payload_bytes_max = PAYLOAD_BYTES_MAX

    def __init__(
        self,
        seed: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        delay_ms: float = 0.0,
        keeps_log: bool = True,
        buckets: int = 0,
        markers: int = 0,
    ) -> None:
        for name, value in (("loss", loss), ("duplication", duplication), ("reordering", reordering)):
            if not 0.0 <= value <= 1.0:
                raise InputError(name, f"{value} is not a probability", "give a number from 0 to 1")
        if not 0.0 <= delay_ms <= 60_000.0:
            raise InputError("delay_ms", f"{delay_ms} is not from 0 to 60000", "give milliseconds")
        if not 0 <= markers <= 1_000:
            raise InputError("markers", f"{markers} is not from 0 to 1000", "give a count")
        check_buckets(buckets)
        self._buckets = buckets
        self.keeps_log = keeps_log
        self.lossy = loss > 0.0
        self.is_dense = not markers
        self.has_stages = keeps_log
        machine = BrokerMachine(replays=keeps_log, markers=markers)
        self._hub = _Hub(machine, random.Random(seed), loss, duplication, reordering, delay_ms)
        self._ports: set[MemoryPort] = set()
        self._answering: list[tuple[str, Callable[[bytes], bytes | None]]] = []
        self._closed = False

    def twin(self) -> "MemoryBroker":
        """Another connection to the same broker."""
        twin = MemoryBroker()
        twin.connect_to(self)
        return twin

    def connect_to(self, other: "MemoryBroker") -> None:
        """Become a connection to the other one's broker, before anything is attached here."""
        self._hub, self._buckets = other._hub, other._buckets
        self.keeps_log, self.lossy, self.is_dense = other.keeps_log, other.lossy, other.is_dense
        self.has_stages = other.has_stages

    @property
    def requests(self) -> Requests:
        return self

    def ordered_topic(self, name: Topic) -> Topic:
        return ordered_topic(name, self._buckets)

    @property
    def lives(self) -> MemoryLives:
        return self._hub.lives

    def order_log(self) -> "MemoryOrderLog | None":
        return MemoryOrderLog(self._hub) if self.keeps_log and not self.lossy else None

    async def kept_numbers(self, topic: Topic) -> KeptNumbers | None:
        return self._hub.kept(topic) if self.keeps_log and not self.lossy else None

    async def open(self) -> None:
        if self._closed:
            raise Closed("this connection to a memory broker was closed; make a new one")

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> "MemoryPort":
        if self._closed:
            raise Closed("this connection to a memory broker was closed; make a new one")
        port = MemoryPort(self, address, deliver, on_error)
        self._ports.add(port)
        self._hub.ports[address] = port
        return port

    def trim(self, topic: Topic, first: int) -> None:
        """Simulates retention on a real server: numbers below `first` are no longer replayed."""
        self._hub.send(None, Trim(topic, first))

    def erase(self, topic: Topic, first: int, last: int) -> None:
        """Simulates deletion or compaction on a real server: these positions of a log no longer hold events."""
        self._hub.send(None, Erase(topic, first, last))

    def keep_order(self, first: Position, last: Position) -> None:
        """Keep only these positions of the order log, as retention does, or somebody who deletes it (0, 0) or restores
        an older copy."""
        self._hub.send(None, KeepOrder(first, last))

    @property
    def under_way(self) -> int:
        """Deliveries that have not arrived yet: 0 means that all is quiet."""
        return len(self._hub.requests) + len(self._hub.deliveries)

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        for reply in list(self._hub.answers.get(subject, ())):
            if (said := reply(data)) is not None:
                return said
        return None

    async def request_all(
        self, subject: str, data: bytes, timeout_s: float, enough: Callable[[list[bytes]], bool]
    ) -> list[bytes]:
        said = [reply(data) for reply in list(self._hub.answers.get(subject, ()))]
        return [each for each in said if each is not None]

    async def answer(self, subject: str, reply: Callable[[bytes], bytes | None]) -> None:
        self._hub.answers.setdefault(subject, []).append(reply)
        self._answering.append((subject, reply))

    async def close(self) -> None:
        self._closed = True
        for port in list(self._ports):
            await port.close()
        for subject, reply in self._answering:
            self._hub.answers[subject].remove(reply)
        self._answering.clear()


class MemoryPort(BufferingPort):
    """The broker as one machine sees it."""

    def __init__(self, broker: MemoryBroker, address: Address, deliver: Deliver, on_error: OnError | None) -> None:
        super().__init__(address, deliver, on_error)
        self._broker = broker
        self._hub = broker._hub
        self._topics: set[Topic] = set()
        self._followed: set[Topic] = set()
        self._fetches: dict[Topic, Fetch] = {}  # those that came while it was paused

    def send(self, message: Payload) -> None:
        if self._closed:
            return
        if problem := self._problem_with(message):
            self._refuse_soon(message, problem)
            return
        if isinstance(message, Listen):
            self._topics.add(message.topic)
        elif isinstance(message, Unlisten):
            self._topics.discard(message.topic)
            self._fetches.pop(message.topic, None)
        elif isinstance(message, Follow):
            self._followed.add(message.topic)
        elif isinstance(message, Unfollow):
            self._followed.discard(message.topic)
        elif isinstance(message, Fetch) and self._paused:
            earlier = self._fetches.get(message.topic, message)
            first, last = min(earlier.first, message.first), max(earlier.last, message.last)
            self._fetches[message.topic] = Fetch(message.topic, first, last)
            return
        self._hub.send(self.address, message)

    def resume(self, topic: Topic | None = None) -> None:
        super().resume(topic)
        if topic is None:
            fetches, self._fetches = self._fetches, {}
            for fetch in fetches.values():
                self._hub.send(self.address, fetch)

    async def close(self) -> None:
        if self._closed:
            return
        await super().close()
        self._broker._ports.discard(self)
        if self._hub.ports.get(self.address) is self:
            del self._hub.ports[self.address]
            for topic in self._topics:
                self._hub.send(self.address, Unlisten(topic))
            for topic in self._followed:
                self._hub.send(self.address, Unfollow(topic))

    def receive(self, message: Payload) -> None:
        """Take a message from the broker, in a separate turn of the loop. Answers do not wait while paused."""
        if isinstance(message, Delivered | Staged | Stamped | Voids):
            super().receive(message)
        else:
            self._deliver(message)

    def _problem_with(self, message: Payload) -> SeriatimError | None:
        if isinstance(message, Append) and not self._broker.keeps_log:
            return RequestRefused(
                "this memory broker keeps no log; order in ticket mode, or open it with keeps_log=True"
            )
        event = message.event if isinstance(message, Append | Write) else None
        if event is not None and len(event.payload) > PAYLOAD_BYTES_MAX:
            return RequestRefused(f"{event.id} has {len(event.payload)} bytes; at most {PAYLOAD_BYTES_MAX} are taken")
        return None


class MemoryOrderLog:
    """Reads the order log of a memory broker."""

    def __init__(self, hub: "_Hub") -> None:
        self._hub = hub

    async def bounds(self) -> OrderBounds | None:
        order = self._hub.order
        return OrderBounds(order.first, order.end) if order.end else None

    async def read(self, after: Position, ranges_max: int = 1_000) -> OrderRead:
        bounds = check_after(after, await self.bounds())
        if after == bounds.end:
            return OrderRead(after, ())
        found = self._hub.order.read(ReadOrder(after))
        return OrderRead(found.after, found.ranges[:ranges_max])

    async def position_at(self, moment: datetime) -> Position:
        check_after(0, await self.bounds())
        return max((end for at, end in self._hub.order_ends if at < moment), default=0)

    async def wait(self, after: Position, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while self._hub.order.end <= after:
                    await self._hub.order_growth.wait()
        except TimeoutError:
            return False
        return True


class _Hub:
    """The state that all connections share: the broker machine, the attached machines, and the random generator."""

    def __init__(
        self,
        machine: BrokerMachine,
        dice: random.Random,
        loss: float,
        duplication: float,
        reordering: float,
        delay_ms: float,
    ) -> None:
        self.ports: dict[Address, MemoryPort] = {}
        self.answers: dict[str, list[Callable[[bytes], bytes | None]]] = {}
        self._machine = machine
        self._dice = dice
        self._loss = loss
        self._duplication = duplication
        self._reordering = reordering
        self._delay_ms = delay_ms
        self._reliable = loss == duplication == reordering == delay_ms == 0.0
        self.requests: deque[tuple[Address, Payload]] = deque()
        self._draining = False
        # Deliveries on their way, by arrival; the serial keeps the order of those that arrive together.
        self.deliveries: list[tuple[float, int, Address, Payload]] = []
        self._serials = count()
        self._last_arrival: dict[Address, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.order_ends: list[tuple[datetime, Position]] = []  # when the order log came how far
        self.order_growth = asyncio.Event()
        self.lives = MemoryLives()

    @property
    def order(self) -> OrderLogState:
        return self._machine.state.order

    def kept(self, topic: Topic) -> KeptNumbers:
        state = self._machine.state.topics.get(topic)
        if state is None:
            return KeptNumbers()
        return KeptNumbers(state.first_available, max(len(state.log), max((s.number for s in state.slots), default=0)))

    def order_grew(self) -> None:
        """Remember when the order log came how far, and wake those that wait for it."""
        ends = self.order_ends
        if self.order.end > (ends[-1][1] if ends else 0):
            ends.append((datetime.now(UTC), self.order.end))
            self.order_growth.set()
            self.order_growth = asyncio.Event()

    def send(self, source: Address | None, message: Payload) -> None:
        self.requests.append((source if source is not None else APPLICATION, message))
        if not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        """Handle the messages that are here now. Messages caused by them wait for the next turn of the loop."""
        for _ in range(len(self.requests)):
            source, message = self.requests.popleft()
            try:
                effects = self._machine.step(source, message, 0.0)
            except RemoteError as error:
                if (port := self.ports.get(source)) is not None:
                    port._refuse(message, error)
                continue
            for target, answer in effects.send:
                self._hand_over(target, answer)
            if type(message) is Ordered:
                self.order_grew()
            elif type(message) is KeepOrder:
                self.order_ends = [each for each in self.order_ends if each[1] <= self.order.end]
        if self.requests:
            asyncio.get_running_loop().call_soon(self._drain)
        else:
            self._draining = False

    def _hand_over(self, target: Address, message: Payload) -> None:
        if self._reliable or not isinstance(message, Delivered | Staged | Stamped | Voids):
            if (port := self.ports.get(target)) is not None:
                port.receive(message)
            return
        if self._dice.random() < self._loss:
            return
        self._dispatch(target, message)
        if self._dice.random() < self._duplication:
            self._dispatch(target, message)

    def _dispatch(self, target: Address, message: Payload) -> None:
        now = asyncio.get_running_loop().time()
        due = now + self._dice.uniform(0.0, 2.0 * self._delay_ms) / 1000.0
        if self._dice.random() < self._reordering:
            due += self._dice.uniform(0.0, OVERTAKEN_MS + 4.0 * self._delay_ms) / 1000.0
        else:
            due = self._last_arrival[target] = max(due, self._last_arrival.get(target, 0.0))
        heapq.heappush(self.deliveries, (due, next(self._serials), target, message))
        self._set_timer()

    def _set_timer(self) -> None:
        if not self.deliveries:
            return
        due = self.deliveries[0][0]
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self.deliveries and self.deliveries[0][0] <= now:
            _, _, target, message = heapq.heappop(self.deliveries)
            if (port := self.ports.get(target)) is not None:
                port.receive(message)
        self._set_timer()
