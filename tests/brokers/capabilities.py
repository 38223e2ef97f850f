"""The capabilities that only some brokers have, as a part of the suite: a broker that declares one must pass its
tests."""

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import OrderBounds, Reached, ReplayedEvent, ReplayPlace
from seriatim.brokers.lives import new_life, refuse_if_taken
from seriatim.model import Address, Closed, Fenced, InputError, JournalError, Taken
from seriatim.order import OrderedRange, from_position
from seriatim.protocols.with_broker import (
    Attend,
    Listen,
    Listening,
    Ordered,
    OrderKept,
    OrderRead,
    ReadOrder,
    Staged,
    Unlisten,
)

if TYPE_CHECKING:
    from tests.brokers.conformance import Probe, World

WRITTEN_S = 60.0


async def batch(events: list[ReplayedEvent]) -> AsyncIterator[list[ReplayedEvent]]:
    yield events


def probe_at(broker: Broker, address: Address) -> "Probe":
    from tests.brokers.conformance import Probe

    return Probe(broker, address)


class Capabilities:
    """A subclass of the suite says what its broker can do."""

    keeps_log = True
    knows_repeats = True
    is_dense = True
    has_stages = True
    has_requests = True
    has_records = False
    has_journals = False
    has_rows = False
    has_replay = False
    has_order_log = False
    has_lives = False

    @abstractmethod
    def world(self) -> "AbstractAsyncContextManager[World]":
        """A new broker of this kind."""

    def needs(self, capability: bool, why_not: str) -> None:
        if not capability:
            pytest.skip(f"this broker {why_not}")

    async def test_it_can_do_what_it_says(self) -> None:
        async with self.world() as world:
            broker = await world.connect()
            assert (broker.keeps_log, broker.knows_repeats) == (self.keeps_log, self.knows_repeats)
            assert broker.is_dense == self.is_dense
            assert broker.has_stages == (self.has_stages and self.keeps_log)
            assert (broker.requests is not None) == self.has_requests
            assert (broker.records is not None) == self.has_records
            assert (broker.journals("conformance", 1) is not None) == self.has_journals
            assert (broker.row_channel("deliveries", "me") is not None) == self.has_rows
            assert (broker.replay("digest", "replay") is not None) == self.has_replay
            assert (broker.order_log() is not None) == self.has_order_log
            assert (broker.lives is not None) == self.has_lives

    async def test_the_order_log_is_kept_once_and_read_from_any_position(self) -> None:
        self.needs(self.has_order_log, "keeps no order log")

        async with self.world() as world:
            broker = await world.connect()
            log, root, reader = broker.order_log(), probe_at(broker, "root"), probe_at(broker, "reader")
            assert log is not None and await log.bounds() is None
            with pytest.raises(InputError, match="order log: it is empty, or was deleted"):
                await log.read(0)
            assert not await log.wait(0, 0.01)
            reader.send(ReadOrder(0, 7))
            some = (OrderedRange("a", 1, 3), OrderedRange("b.c", 9, 9))
            assert await root.ask(Ordered(0, some, 1), OrderKept) == OrderKept(4)
            assert await root.ask(Ordered(0, some, 1), OrderKept) == OrderKept(4)
            between = datetime.now(UTC)
            more = tuple(OrderedRange("ab"[n % 2], 10 + n, 10 + n) for n in range(30))
            assert await root.ask(Ordered(4, (), 1), OrderKept) == OrderKept(4), "nothing is lost"
            assert await root.ask(Ordered(4, more, 1), OrderKept) == OrderKept(34)
            answer = await reader.first(OrderRead)
            assert (answer.after, answer.ranges[:2], answer.version) == (0, some, 7)
            assert await log.bounds() == OrderBounds(1, 34)
            assert await log.wait(33, 5.0) and not await log.wait(34, 0.01)
            for after in (0, 1, 3, 4, 20, 33):
                assert await log.read(after) == OrderRead(after, from_position((*some, *more), 0, after))
            assert await log.read(2, 2) == OrderRead(2, (OrderedRange("a", 3, 3), OrderedRange("b.c", 9, 9)))
            assert await log.read(34) == OrderRead(34, ())
            for bad, said in ((35, "35 is beyond the end of the order log; it ends with 34"), (-1, "-1 is negative")):
                with pytest.raises(InputError, match=f"position: {said}"):
                    await log.read(bad)
            assert await log.position_at(between - timedelta(days=1)) == 0
            assert await log.position_at(between) == 4
            assert await log.position_at(between + timedelta(days=1)) == 34
            root.clear()
            root.send(Ordered(40, (), 1))
            await root.until(lambda: root.of(OrderKept) == [OrderKept(34), OrderKept(40)], "what is lost, and noted")
            assert await log.read(34) == OrderRead(40, ())

    async def test_of_two_lives_one_has_the_name_and_the_other_is_told(self) -> None:
        self.needs(self.has_lives, "registers no lives")

        async with self.world() as world:
            one, two = (await world.connect()).lives, (await world.connect()).lives
            assert one is not None and two is not None
            first, second, third = one.claim("node", "eu.1"), two.claim("node", "eu.1"), two.claim("durable", "eu.1")
            assert [await each.look() for each in (first, second, third)] == [None, None, None]
            assert not await first.answers()
            mine = new_life(1, "journal a")
            await first.register(mine)
            with pytest.raises(Fenced, match=r"another process has taken over node eu.1: process .*, journal a, epoch"):
                await second.register(new_life(1, "journal b"))
            with pytest.raises(Closed, match="no life is registered"):
                await second.say({})
            await third.register(new_life(1, "another kind"))
            await first.say({"orders": 17, "prices.eu": 4})
            assert await second.look() == structs.replace(mine, numbers={"orders": 17, "prices.eu": 4})
            with pytest.raises(Taken, match=r"node eu.1 is run by another process .*, which answers; stop it first"):
                await refuse_if_taken(second, "node eu.1", "stop it first")
            with pytest.raises(Fenced):
                await second.register(new_life(1, "an epoch that is not later"))
            await second.look()
            await second.register(later := new_life(2, "journal b"))
            assert isinstance(await asyncio.wait_for(first.lost, WRITTEN_S), Fenced)
            for refused in (first.say({"orders": 18}), first.check()):
                with pytest.raises(Fenced, match="journal b, epoch 2"):
                    await refused
            await second.check()
            assert await third.look() is not None and not third.lost.done()
            fourth = one.claim("node", "eu.1")
            assert await fourth.look() == later and await fourth.answers()
            await second.say({"orders": 20}, is_ended=True)
            await second.close()
            await second.close()
            ended = await fourth.look()
            assert ended is not None and ended.is_ended and ended.numbers == {"orders": 20}
            assert not await fourth.answers(0.5)
            await refuse_if_taken(fourth, "node eu.1", "stop it first")
            await fourth.register(new_life(7, "journal c"))
            for each in (first, third, fourth):
                await each.close()

    async def test_records_are_read_by_everybody_and_replaced(self) -> None:
        self.needs(self.has_records, "keeps no records")

        async with self.world() as world:
            one, two = (await world.connect()).records, (await world.connect()).records
            assert one is not None and two is not None
            assert await one.kept("_test.describe") is None
            for data in (b"first", b"second"):
                await one.keep("_test.describe", data)
                assert await two.kept("_test.describe") == data

    async def test_a_journal_is_recovered_by_the_next_and_fences_the_last(self) -> None:
        self.needs(self.has_journals, "has no journals")

        async with self.world() as world:
            broker = await world.connect()
            journals = broker.journals("conformance", 1)
            assert journals is not None
            await journals.open()
            try:
                first, second = journals.journal("root"), journals.journal("root")
                await first.open()
                await first.append([b"one", b"two"])
                assert (await second.open()).records == [b"one", b"two"]
                with pytest.raises(JournalError):
                    await first.append([b"three"])
                await second.append([b"four"])
                await second.close()
                await first.close()
            finally:
                await journals.close()

    async def test_rows_are_read_back_in_order(self) -> None:
        self.needs(self.has_rows, "keeps no logs of clients")

        async with self.world() as world:
            channel = (await world.connect()).row_channel("deliveries", "me")
            again = (await world.connect()).row_channel("deliveries", "me")
            assert channel is not None and again is not None
            for line in (b"1\n", b"2\n", b"3\n"):
                channel.send(line)
                await channel.written(WRITTEN_S)
            assert b"".join(await again.read()) == b"1\n2\n3\n"
            channel.close()

    async def test_a_replay_goes_on_where_it_ended(self) -> None:
        self.needs(self.has_replay, "cannot take a replay")

        async with self.world() as world:
            broker = await world.connect()
            first, second = broker.replay("digest", "replay"), broker.replay("digest", "replay")
            assert first is not None and second is not None
            places = [ReplayPlace(at, "a", at, 0) for at in range(8, 13)]
            events = [ReplayedEvent(place, "a", f"a{place.number}", "p", None, b"data") for place in places]
            assert await first.reached() is None
            assert await first.publish(batch(events[:3])) == 3
            assert await second.reached() == Reached(places[2], 3)
            assert await second.publish(batch(events[3:])) == 2

    async def test_questions_find_whoever_answers(self) -> None:
        self.needs(self.has_requests, "has no request and reply")

        async with self.world() as world:
            broker, other = await world.connect(), await world.connect()
            one, two = broker.requests, other.requests
            assert one is not None and two is not None
            assert await one.request("_test.describe", b"who", 5.0) is None
            await two.answer("_test.describe", lambda data: b"me: " + data)
            assert await one.request("_test.describe", b"who", 5.0) == b"me: who"
            await other.close()
            assert await one.request("_test.describe", b"who", 0.5) is None

    async def test_stages_reach_whoever_attends_to_their_node(self) -> None:
        self.needs(self.has_stages and self.keeps_log, "does not hand on stages")
        from tests.brokers.conformance import probes

        async with self.world() as world, probes(world, "eu", "one", "two") as (node, one, two):
            broker = await world.connect()
            a, b = broker.ordered_topic("a"), broker.ordered_topic("b.c")
            for each in (one, two):
                each.broker.know({b})
                await each.ask(Listen(a, 0, 1), Listening)
            one.send(Attend(a, "eu"))
            two.send(Attend(a, "root"))
            told = [Staged(a, n, n, {b: n}, where, 3, where == "root") for n in range(1, 4) for where in ("eu", "root")]

            async def tell(who: "Probe", expected: list[Staged]) -> None:
                """Until all have come: nothing is kept for one who is not there yet, and some of it may get lost."""
                deadline = time.monotonic() + WRITTEN_S
                while not set(map(repr, expected)) <= set(map(repr, who.of(Staged))):
                    assert time.monotonic() < deadline, who.got
                    node.send(*told)
                    await who._news_within(0.02)

            await tell(one, [each for each in told if each.node == "eu"])
            await tell(two, [each for each in told if each.node == "root"])
            assert {each.node for each in one.of(Staged)} == {"eu"}
            one.send(Attend(a, "root"))
            await tell(one, told)
            one.send(Attend(a, ""))
            two.send(Unlisten(a), Listen(a, 0, 2))
            await two.until(lambda: Listening(a, 2) in two.got, "it listens again")
            await one.ask(Listen(a, 0, 2), Listening)
            one.clear()
            two.clear()
            node.send(*told)
            for each in (one, two):  # whatever was sent before has come by now
                await each.ask(Listen(a, 0, 3), Listening)
                assert not each.of(Staged)
