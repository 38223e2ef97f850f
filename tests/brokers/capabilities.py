"""What not every broker can do, as a part of the suite: whoever says that it can is held to it."""

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest

from seriatim.brokers.capabilities import Reached, ReplayedEvent
from seriatim.model import JournalError

if TYPE_CHECKING:
    from tests.brokers.conformance import World

WRITTEN_S = 60.0


async def batch(events: list[ReplayedEvent]) -> AsyncIterator[list[ReplayedEvent]]:
    yield events


class Capabilities:
    """A subclass of the suite says what its broker can do."""

    keeps_log = True
    knows_repeats = True
    is_dense = True
    has_requests = True
    has_records = False
    has_journals = False
    has_rows = False
    has_replay = False

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
            assert (broker.requests is not None) == self.has_requests
            assert (broker.records is not None) == self.has_records
            assert (broker.journals("conformance", 1) is not None) == self.has_journals
            assert (broker.row_channel("deliveries", "me") is not None) == self.has_rows
            assert (broker.replay("digest", "replay") is not None) == self.has_replay

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
            events = [ReplayedEvent(f"{place}", "a", f"a{place}", "p", None, b"data") for place in range(5)]
            assert await first.reached() is None
            assert await first.publish(batch(events[:3])) == 3
            assert await second.reached() == Reached("2", 3)
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
