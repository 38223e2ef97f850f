"""The requirements on every broker behind the seam, as one suite. Thin test files run it for each kind of broker.

A part that does not apply to a kind of broker is skipped, and the reason is in the skip.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import pytest

from seriatim.brokers import Broker, Port
from seriatim.brokers.capabilities import KeptNumbers
from seriatim.model import Address, Closed, Event, InputError, SeriatimError, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Follow,
    Grown,
    Kept,
    Listen,
    Listening,
    Stamped,
    StampedTo,
    Trimmed,
    Unfollow,
    Unlisten,
    Voids,
    Watch,
    Write,
    Written,
)
from tests.brokers.capabilities import Capabilities
from tests.waiting import until

T = TypeVar("T")
WAIT_S = 60.0  # a bound for a busy machine; everything here takes milliseconds
HOME = "root"


class Probe:
    """Stands where a machine would be: sends, keeps what it is given, and can wait for something to come."""

    repeat_s = 15.0  # no machine is so slow: where nothing is lost, nothing is said twice

    def __init__(self, broker: Broker, address: Address) -> None:
        self.got: list[Payload] = []
        self._by_kind: dict[type, list[Any]] = {}
        self.errors: list[tuple[Payload, SeriatimError]] = []
        self._news = asyncio.Event()
        self.broker = broker
        self.port: Port = broker.attach(address, self._deliver, self._on_error)

    def send(self, *messages: Payload) -> None:
        for message in messages:
            self.port.send(message)

    def of(self, kind: type[T]) -> list[T]:
        return self._by_kind.get(kind, [])

    def clear(self) -> None:
        self.got.clear()
        self._by_kind.clear()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition on what has come, or on what others make of it."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {WAIT_S} s for {what}; there were {self.got[-20:]}, {self.errors}")
            await self._news_within(0.05)

    async def first(self, kind: type[T], what: str = "") -> T:
        await self.until(lambda: self.of(kind), what or kind.__name__)
        return self.of(kind)[0]

    async def ask(self, message: Payload, kind: type[T], patience_s: float = WAIT_S) -> T:
        """Send, and wait for the answer of this kind. Repeats, as machines do: requests may be dropped."""
        before = len(self.of(kind))
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            self.send(message)
            repeat_at = time.monotonic() + self.repeat_s
            while time.monotonic() < repeat_at:
                if len(self.of(kind)) > before:
                    return self.of(kind)[-1]
                await self._news_within(0.2)
        raise AssertionError(f"no {kind.__name__} in answer to {message} within {patience_s} s; {self.errors}")

    async def _news_within(self, time_s: float) -> None:
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), time_s)

    async def append(self, topic: Topic, *ids: str) -> list[int]:
        return [(await self.ask(Append(event(topic, each)), Appended)).number for each in ids]

    def numbers(self, topic: Topic) -> list[int]:
        return [message.number for message in self.of(Delivered) if message.topic == topic]

    def ids(self, topic: Topic) -> list[str | None]:
        delivered = [message for message in self.of(Delivered) if message.topic == topic]
        return [message.event.id if message.event is not None else None for message in delivered]

    def _deliver(self, message: Payload) -> None:
        self.got.append(message)
        self._by_kind.setdefault(type(message), []).append(message)
        self._news.set()

    def _on_error(self, message: Payload, error: SeriatimError) -> None:
        self.errors.append((message, error))
        self._news.set()


def event(topic: Topic, event_id: str, payload: bytes = b"payload", subject: Topic | None = None) -> Event:
    return Event(event_id, topic, "tester", payload, None, subject)


class World(ABC):
    """One running broker of some kind, and what can be done to it from outside."""

    @abstractmethod
    async def connect(self) -> Broker:
        """One more connection, opened; it is closed with the world."""

    @abstractmethod
    async def trim(self, topic: Topic, first: int) -> None:
        """Retention passes: numbers below `first` are gone."""

    async def erase(self, topic: Topic, first: int, last: int) -> None:
        """Somebody deletes these positions of a log."""
        pytest.skip("nobody can delete from this broker")

    @abstractmethod
    async def publish_plainly(self, subject: Topic, payload: bytes) -> None:
        """As a client that knows nothing of Seriatim."""


@asynccontextmanager
async def probes(world: World, *addresses: Address) -> AsyncIterator[list[Probe]]:
    """Probes, each on a connection of its own."""
    brokers = [await world.connect() for _ in addresses]
    yield [Probe(broker, address) for broker, address in zip(brokers, addresses, strict=True)]
    for broker in brokers:
        await broker.close()


class Conformance(Capabilities, ABC):
    """Subclass it, say which world, and pytest does the rest."""

    keeps_log = True
    has_slots = True  # ticket mode with slots that only the first writer fills
    replays = True  # what was written can be listened to later

    @abstractmethod
    def world(self) -> AbstractAsyncContextManager[World]:
        """A new broker of this kind."""

    def mode(self) -> str:
        return "log" if self.keeps_log else "ticket"

    def log_only(self) -> None:
        if not self.keeps_log:
            pytest.skip("this broker keeps no log")

    # ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_bad_names_are_refused(self) -> None:
        async with self.world() as world:
            broker = await world.connect()
            for name in ("", "a b", "a.*", ">", "a..b", ".a", "a.", "$SYS.a", "_a", "a\n", "x" * 300, "\ud800"):
                with pytest.raises(InputError, match="topic"):
                    broker.ordered_topic(name)

    # ── log mode ──────────────────────────────────────────────────────────────────────────────────────────────────

    def topic(self, broker: Broker, name: Topic) -> Topic:
        return broker.ordered_topic(name)

    async def test_append_numbers_each_topic_by_itself_and_knows_repeats(self) -> None:
        self.log_only()

        async with self.world() as world:
            broker = await world.connect()
            probe = Probe(broker, "p")
            a, b = self.topic(broker, "a"), self.topic(broker, "b.c")
            assert a != b, "the names are chosen so that they are ordered apart"
            assert await probe.append(a, "a1", "a2", "a3") == [1, 2, 3]
            assert await probe.append(b, "b1", "b2") == [1, 2]
            assert await probe.append(a, "a2", "a1") == [2, 1]
            assert await probe.append(a, "a4") == [4]
            assert probe.got[-1] == Appended(a, "a4", 4)
            assert not probe.errors

    async def test_many_appends_at_once_keep_their_order(self) -> None:
        self.log_only()

        async with self.world() as world:
            broker = await world.connect()
            probe = Probe(broker, "p")
            a = self.topic(broker, "a")
            await probe.append(a, "first")
            probe.send(*[Append(event(a, f"e{index}")) for index in range(500)])
            await probe.until(lambda: len(probe.of(Appended)) == 501, "501 answers")
            numbers = {message.event_id: message.number for message in probe.of(Appended)}
            assert [numbers[f"e{index}"] for index in range(500)] == list(range(2, 502))

    async def test_watch_tells_length_now_and_growth_later(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", HOME) as (publisher, home):
            broker = await world.connect()
            a, b = self.topic(broker, "a"), self.topic(broker, "b.c")
            await publisher.append(a, "a1", "a2")
            home.send(Watch(frozenset({a, b})))
            await home.until(lambda: {Grown(a, 2), Grown(b, 0)} <= set(home.of(Grown)), "both lengths")
            await publisher.append(b, "b1")
            await home.until(lambda: Grown(b, 1) in home.got, "growth of an empty log")
            for number in range(3, 30):
                await publisher.append(a, f"a{number}")
            await home.until(lambda: Grown(a, 29) in home.got, "the last growth")
            lengths = [grown.last for grown in home.of(Grown) if grown.topic == a]
            assert lengths == sorted(lengths)

    async def test_watch_again_is_answered_again(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, HOME) as (home,):
            broker = await world.connect()
            a = self.topic(broker, "a")
            home.send(Watch(frozenset({a})))
            await home.until(lambda: home.of(Grown) == [Grown(a, 0)], "the first answer")
            home.send(Watch(frozenset({a})))
            await home.until(lambda: len(home.of(Grown)) >= 2, "the second answer")

    async def test_stamps_are_kept_once_and_reach_subscribers(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", HOME, "s") as (publisher, home, subscriber):
            broker = await world.connect()
            a, b = self.topic(broker, "a"), self.topic(broker, "b.c")
            subscriber.broker.know({b})
            await publisher.append(a, "a1", "a2", "a3")
            stamps = [Stamped(a, 1, 2, {b: 7}, 1), Stamped(a, 3, 3, {}, 1)]
            for stamp in (*stamps, *stamps):
                assert (await home.ask(stamp, Kept)) == Kept(a, stamp.first)
            await subscriber.ask(Listen(a, 0, 1), Listening)
            await subscriber.until(lambda: len(subscriber.of(Stamped)) >= 2, "both stamps")
            await subscriber.until(lambda: len(subscriber.of(Delivered)) >= 3, "all events")
            await publisher.append(a, "a4")
            last = Stamped(a, 4, 4, {b: 9}, 2)
            await home.ask(last, Kept)
            await subscriber.until(lambda: last in subscriber.got, "the stamp of the new event")
            assert subscriber.of(Stamped) == [*stamps, last]

    async def test_follow_tells_how_far_the_stamps_are_now_and_later(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", HOME, "q") as (publisher, home, other):
            a, b = self.topic(publisher.broker, "a"), self.topic(publisher.broker, "b.c")
            await publisher.append(a, "a1", "a2", "a3")
            await publisher.append(b, "b1")
            await home.ask(Stamped(a, 1, 1, {}, 1), Kept)
            same = Probe(publisher.broker, "another port of the same connection")
            followers = (publisher, other, same)
            for each in followers:
                assert await each.ask(Follow(a), StampedTo) == StampedTo(a, 1)
            assert await other.ask(Follow(b), StampedTo) == StampedTo(b, 0), "nothing is stamped: answered too"
            await home.ask(Stamped(a, 2, 3, {b: 1}, 1), Kept)
            for each in followers:
                await each.until(lambda each=each: StampedTo(a, 3) in each.got, "the stamp is out")  # type: ignore[misc]
            assert await other.ask(Follow(a), StampedTo) == StampedTo(a, 3), "a repeat is answered again"
            other.send(Unfollow(a))
            await same.port.close()
            await publisher.append(a, "a4")
            await home.ask(Stamped(a, 4, 4, {}, 1), Kept)
            await publisher.until(lambda: StampedTo(a, 4) in publisher.got, "one of them still follows")
            assert await other.ask(Follow(b), StampedTo) == StampedTo(b, 0)
            assert not [probe for probe in (other, same) if StampedTo(a, 4) in probe.got]

    async def test_listening_in_the_middle_gives_the_stamp_that_covers_it(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", HOME, "s") as (publisher, home, subscriber):
            broker = await world.connect()
            a, b = self.topic(broker, "a"), self.topic(broker, "b.c")
            await publisher.append(a, *[f"a{number}" for number in range(1, 31)])
            await publisher.append(b, "b1")
            subscriber.broker.know({b})
            for first in range(1, 31, 3):
                await home.ask(Stamped(a, first, first + 2, {b: first}, 1), Kept)
                await home.ask(Stamped(b, 1, 1, {}, 1), Kept)
            await subscriber.ask(Listen(a, 16, 1), Listening)
            await subscriber.until(lambda: 30 in subscriber.numbers(a), "the last event")
            await subscriber.until(lambda: Stamped(a, 28, 30, {b: 28}, 1) in subscriber.got, "the last stamp")
            assert subscriber.numbers(a) == list(range(17, 31))
            firsts = [stamp.first for stamp in subscriber.of(Stamped)]
            assert firsts == [16, 19, 22, 25, 28], "from the one that covers 17 on"

    async def test_headers_and_binary_payloads_survive(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", "s") as (publisher, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "a")
            subject = "a" if a != "a" else None
            payloads = [b"", bytes(range(256)), b"\r\nPUB x 1\r\n\0", b"x" * 200_000]
            events = [
                Event(f"e {index} ü:{index}", a, "pub ü", payload, {"Kind": "größe; a=b", "empty": ""}, subject)
                for index, payload in enumerate(payloads)
            ]
            for each in events:
                await publisher.ask(Append(each), Appended)
            await subscriber.ask(Listen(a, 0, 1), Listening)
            await subscriber.until(lambda: len(subscriber.of(Delivered)) == len(events), "all events")
            assert [message.event for message in subscriber.of(Delivered)] == events

    async def test_plain_clients_are_seen(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, HOME, "s") as (home, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "plain.topic")
            await home.ask(Watch(frozenset({a})), Grown)
            await subscriber.ask(Listen(a, 0, 1), Listening)
            await broker.capture(["plain.topic"])
            await world.publish_plainly("plain.topic", b"hello")
            await home.until(lambda: Grown(a, 1) in home.got, "the growth")
            delivered = await subscriber.first(Delivered)
            assert delivered.number == 1 and delivered.event is not None
            assert (delivered.event.payload, delivered.event.publisher) == (b"hello", "")
            assert delivered.event.id, "everything has an id"
            assert (delivered.event.subject or delivered.event.topic) == "plain.topic"

    async def test_trimmed_logs_say_so(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", HOME, "s") as (publisher, home, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "a")
            await publisher.append(a, *[f"a{number}" for number in range(1, 11)])
            await home.ask(Watch(frozenset({a})), Grown)
            await world.trim(a, 6)
            await home.ask(Watch(frozenset({a})), Grown)
            await home.until(lambda: Trimmed(a, 6) in home.got, "news of the loss at the home")
            await subscriber.ask(Listen(a, 2, 1), Listening)
            await subscriber.until(lambda: 10 in subscriber.numbers(a), "what is left")
            assert Trimmed(a, 6) in subscriber.got
            assert subscriber.numbers(a) == [6, 7, 8, 9, 10]

    # ── listening, in whichever mode ──────────────────────────────────────────────────────────────────────────────

    async def put(self, probe: Probe, topic: Topic, number: int) -> None:
        """Event `number` of a topic, in order."""
        if self.mode() == "log":
            assert await probe.append(topic, f"{topic} {number}") == [number]
        else:
            await probe.ask(Write(topic, number, {}, event(topic, f"{topic} {number}")), Written)

    async def put_many(self, probe: Probe, topic: Topic, numbers: range) -> None:
        """Many events of 1,000 bytes, all at once."""
        kind: type[Appended] | type[Written] = Appended if self.mode() == "log" else Written
        enough = len(probe.of(kind)) + len(numbers)
        for number in numbers:
            each = event(topic, f"{topic} {number}", b"x" * 1_000)
            probe.send(Append(each) if self.mode() == "log" else Write(topic, number, {}, each))
        await probe.until(lambda: len(probe.of(kind)) >= enough, f"the answers for {numbers}")

    async def test_it_says_which_numbers_are_kept(self) -> None:
        async with self.world() as world, probes(world, "p") as (publisher,):
            broker = await world.connect()
            a = self.topic(broker, "a")
            if await broker.kept_numbers(a) is None:
                return  # it has no past
            assert await broker.kept_numbers(a) == KeptNumbers(1, 0)
            for number in range(1, 5):
                await self.put(publisher, a, number)
            assert await broker.kept_numbers(a) == KeptNumbers(1, 4)
            if self.mode() == "ticket":
                return  # a world trims logs; slots in tests/client/tree/test_past_nats.py
            await world.trim(a, 3)

            async def is_gone() -> bool:
                return await broker.kept_numbers(a) == KeptNumbers(3, 4)

            await until(is_gone, "retention to take them")

    async def test_listen_from_now_after_a_number_and_again(self) -> None:
        async with self.world() as world, probes(world, "p", "s", "t") as (publisher, now, later):
            broker = await world.connect()
            a = self.topic(broker, "a")
            await self.put(publisher, a, 1)
            await self.put(publisher, a, 2)
            assert await now.ask(Listen(a, None, 5), Listening) == Listening(a, 5)
            for number in (3, 4, 5):
                await self.put(publisher, a, number)
            await now.until(lambda: now.numbers(a)[-1:] == [5], "number 5")
            assert now.numbers(a) == [3, 4, 5]
            if not self.replays:
                return
            assert await later.ask(Listen(a, 1, 6), Listening) == Listening(a, 6)
            await later.until(lambda: later.numbers(a)[-1:] == [5], "number 5")
            assert later.numbers(a) == [2, 3, 4, 5]
            later.clear()
            await later.ask(Listen(a, 3, 7), Listening)
            await later.until(lambda: later.numbers(a)[-1:] == [5], "number 5 again")
            assert later.numbers(a) == [4, 5]
            await self.put(publisher, a, 6)
            await later.until(lambda: later.numbers(a)[-1:] == [6], "number 6")
            assert later.ids(a) == [f"{a} {number}" for number in (4, 5, 6)]

    async def test_nothing_comes_after_unlisten(self) -> None:
        async with self.world() as world, probes(world, "p", "s") as (publisher, subscriber):
            broker = await world.connect()
            a, b = self.topic(broker, "a"), self.topic(broker, "b.c")
            await subscriber.ask(Listen(a, None, 1), Listening)
            await subscriber.ask(Listen(b, None, 1), Listening)
            await self.put(publisher, a, 1)
            await subscriber.until(lambda: subscriber.numbers(a) == [1], "the first event")
            subscriber.send(Unlisten(a))
            await self.put(publisher, a, 2)
            await self.put(publisher, b, 1)
            await subscriber.until(lambda: subscriber.numbers(b) == [1], "the other topic's event")
            await subscriber.ask(Listen(a, 2 if self.replays else None, 2), Listening)
            await self.put(publisher, a, 3)
            await subscriber.until(lambda: 3 in subscriber.numbers(a), "the third event")
            assert subscriber.numbers(a) == [1, 3]

    async def test_pause_stops_the_flow_and_resume_goes_on(self) -> None:
        async with self.world() as world, probes(world, "p", "s") as (publisher, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "a")
            await subscriber.ask(Listen(a, None, 1), Listening)
            await self.put(publisher, a, 1)
            await subscriber.until(lambda: subscriber.numbers(a) == [1], "the first event")
            subscriber.port.pause()
            count = 6_000
            for first in range(2, count + 1, 500):
                await self.put_many(publisher, a, range(first, min(first + 500, count + 1)))
            little = len(subscriber.numbers(a))
            assert little < count // 2, "a little that is on its way may come, not everything"
            subscriber.port.resume()
            await subscriber.until(lambda: len(subscriber.of(Delivered)) >= count, "the last event")
            assert subscriber.numbers(a) == list(range(1, count + 1))

    async def test_deleted_positions_are_void_ranges(self) -> None:
        self.log_only()

        async with self.world() as world, probes(world, "p", "s") as (publisher, subscriber):
            broker = await world.connect()
            a = self.topic(broker, "a")
            await publisher.append(a, *[f"a{number}" for number in range(1, 11)])
            await world.erase(a, 3, 6)
            await world.erase(a, 8, 8)
            await subscriber.ask(Listen(a, 1, 1), Listening)
            await subscriber.until(lambda: 10 in subscriber.numbers(a), "what is left")
            assert subscriber.numbers(a) == [2, 7, 9, 10]
            assert subscriber.of(Voids) == [Voids(a, 3, 6), Voids(a, 8, 8)]
            assert not subscriber.of(Trimmed)

    # ── everything else ───────────────────────────────────────────────────────────────────────────────────────────

    async def test_too_large_is_refused_and_nothing_else_suffers(self) -> None:
        async with self.world() as world:
            broker = await world.connect()
            probe = Probe(broker, "p")
            a = self.topic(broker, "a")
            large = event(a, "large", b"x" * (broker.payload_bytes_max + 1))
            probe.send(Append(large) if self.mode() == "log" else Write(a, 1, {}, large))
            await probe.until(lambda: probe.errors, "an error")
            assert "large" in str(probe.errors[0][1])
            await self.put(probe, a, 1)

    async def test_close_twice_and_silence_afterwards(self) -> None:
        async with self.world() as world, probes(world, "p") as (publisher,):
            broker = await world.connect()
            a = self.topic(broker, "a")
            probe = Probe(broker, "s")
            await probe.ask(Listen(a, None, 1), Listening)
            await probe.port.close()
            await probe.port.close()
            probe.clear()
            await self.put(publisher, a, 1)
            again = Probe(broker, "again")
            await again.ask(Listen(a, None, 1), Listening)
            await broker.close()
            await broker.close()
            probe.send(Listen(a, None, 2))
            assert not probe.got
            with pytest.raises(Closed):
                await broker.open()
