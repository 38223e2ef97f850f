"""A journal in a stream is read without taking it, and filled from a copy: whole, or not to be opened."""

from pathlib import Path

import pytest

from seriatim.brokers.nats.api import Api
from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.brokers.nats.journal.stream import JournalStream
from seriatim.model import Fenced, JournalError, RequestRefused
from seriatim.runtime.journal.interface import Recovered
from tests.brokers.nats.journal.journals import opened, read, server_and_client, settled
from tests.brokers.nats.servers import Connection

LARGE = [bytes([i]) * 1_700 for i in range(7)]


def journal_of(client: Connection) -> NatsJournal:
    return NatsJournal(client.link, "J")


async def test_reading_takes_nothing_from_the_writer(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        assert await journal_of(client).read() is None
        journal, _ = await opened(client)
        await journal.append([b"one"])
        assert await journal_of(client).read() == Recovered(None, [b"one"])
        await journal.append([b"two"])
        await journal.snapshot(b"both")
        await settled(journal)
        await journal.append([b"three"])
        assert await journal_of(client).read() == Recovered(b"both", [b"three"])
        await journal.append([b"four"])
        await journal.close()


@pytest.mark.parametrize(
    "recovered",
    [Recovered(None, [b"a", b""]), Recovered(b"state", []), Recovered(b"x" * 9_000, LARGE)],
    ids=["records", "state", "large"],
)
async def test_a_journal_that_was_filled_goes_on(tmp_path: Path, recovered: Recovered) -> None:
    async with server_and_client(tmp_path, "max_payload: 3000") as (_, client):
        await journal_of(client).fill(recovered)
        assert await journal_of(client).read() == recovered
        journal, found = await opened(client)
        assert found == recovered
        await journal.append([b"more"])
        await journal.close()
        assert (await read(client)).records == [*recovered.records, b"more"]
        with pytest.raises(RequestRefused, match="stream J is there already"):
            await journal_of(client).fill(recovered)


@pytest.mark.parametrize("ends_after", [0, 1, 3, 9, 11])
async def test_one_that_was_not_filled_to_the_end_is_not_opened(
    tmp_path: Path, ends_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered, publish, published = Recovered(b"x" * 5_000, LARGE), JournalStream.publish, 0

    async def publish_or_end(stream: JournalStream, *arguments: object, **more: object) -> None:
        nonlocal published
        if published == ends_after:
            raise JournalError("the cable was pulled")
        published += 1
        await publish(stream, *arguments, **more)  # type: ignore[arg-type]

    async with server_and_client(tmp_path, "max_payload: 3000") as (_, client):
        with monkeypatch.context() as patch, pytest.raises(JournalError, match="the cable was pulled"):
            patch.setattr(JournalStream, "publish", publish_or_end)
            await journal_of(client).fill(recovered)
        for attempt in (journal_of(client).open, journal_of(client).read):
            with pytest.raises(JournalError, match="a copy is being put back; if that was ended, do it again"):
                await attempt()
        await journal_of(client).fill(recovered)
        assert await read(client) == recovered


async def test_two_that_fill_one_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one takes over; nothing of both is mixed."""
    begin, is_second = JournalStream.begin_filling, False
    first, second = Recovered(None, [b"first"] * 3), Recovered(None, [b"second"])

    async with server_and_client(tmp_path) as (_, client):

        async def begin_twice(stream: JournalStream) -> None:
            nonlocal is_second
            await begin(stream)
            if not is_second:
                is_second = True
                await journal_of(client).fill(second)

        monkeypatch.setattr(JournalStream, "begin_filling", begin_twice)
        with pytest.raises(Fenced):
            await journal_of(client).fill(first)
        assert await read(client) == second
        assert (await Api(client.link).info("J")).state.messages > 0
