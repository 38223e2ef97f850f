"""The journal in a stream, on a real NATS server: one writer, snapshots, standbys."""

import asyncio
import zlib
from pathlib import Path

import pytest
from nats.js import api

from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.brokers.nats.journal.messages import Chunk, Opened, Records, Snapshot, encode
from seriatim.brokers.nats.link import NatsLink
from seriatim.model import Closed, Fenced, InputError, JournalError
from seriatim.runtime.journal.interface import Recovered
from tests.brokers.nats.journal.journals import kinds, messages, opened, read, server_and_client, settled
from tests.brokers.nats.servers import Connection, connected, running_server, until

# ── in the ordinary ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        expected: list[bytes] = []
        for round_ in range(3):
            journal, recovered = await opened(client)
            assert recovered == Recovered(None, expected)
            for i in range(70):
                records = [b"%d %d" % (round_, i), b""]
                await journal.append(records)
                expected += records
            await journal.append([])
            assert journal.bytes_since_snapshot > 0
            with pytest.raises(JournalError, match="open already"):
                await journal.open()
            await journal.close()
            await journal.close()
            with pytest.raises(Closed):
                await journal.append([b"x"])
        assert (await journal.open()).records == expected
        await journal.close()


async def test_large_appends_are_split_and_stay_whole(tmp_path: Path) -> None:
    async with server_and_client(tmp_path, "max_payload: 3000") as (_, client):
        journal, _ = await opened(client)
        large = [bytes([i]) * 1700 for i in range(7)]
        await journal.append(large)
        await journal.append([b"small"])
        found = await messages(client)
        assert kinds(found) == "ORRRRRRRR" and all(len(encode(message)) < 3000 for message in found.values())
        assert (await read(client)).records == [*large, b"small"]
        # A writer that died between two parts: the append never happened.
        jetstream = client.jetstream()
        await jetstream.publish("seriatim.journal.J.log", encode(Opened("w")))
        await jetstream.publish("seriatim.journal.J.log", encode(Records("w", 2, 1, 2, b"half")))
        journal, recovered = await opened(client)
        assert recovered.records == [*large, b"small"]
        await journal.append([b"goes on"])
        await journal.close()
        assert (await read(client)).records == [*large, b"small", b"goes on"]


async def test_a_server_that_takes_too_little(tmp_path: Path) -> None:
    async with server_and_client(tmp_path, "max_payload: 1500") as (_, client):
        journal, _ = await opened(client)
        with pytest.raises(JournalError, match="set its max_payload to at least 2048"):
            await journal.append([b"x"])
        await journal.close()


async def test_another_stream_is_not_taken(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        jetstream = client.jetstream()
        await jetstream.add_stream(name="J", subjects=["orders.*"])
        with pytest.raises(JournalError, match=r"stream J: is not a journal on .*; name another stream"):
            await opened(client)
        await jetstream.delete_stream("J")
        subjects = ["seriatim.journal.J.*"]
        await jetstream.add_stream(name="J", subjects=subjects, metadata={"seriatim-journal": "2"})
        with pytest.raises(JournalError, match="journal format 2, this program reads and writes format 1"):
            await opened(client)
        await jetstream.delete_stream("J")
        await jetstream.add_stream(name="other", subjects=["seriatim.journal.>"])
        with pytest.raises(JournalError, match="cannot make it: subjects overlap"):
            await opened(client)


async def test_wrong_values_are_refused(tmp_path: Path) -> None:
    link = NatsLink(["nats://127.0.0.1"])
    for stream, more in (("a.b", {}), ("", {}), ("a b", {}), ("J", {"beat_s": 0}), ("J", {"patience_s": -1})):
        with pytest.raises(InputError):
            NatsJournal(link, stream, **more)  # type: ignore[arg-type]


async def test_a_stream_that_is_full_says_so(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        journal, _ = await opened(client)
        jetstream = client.jetstream()
        config = (await jetstream.stream_info("J")).config
        await jetstream.update_stream(config.evolve(max_bytes=4000))
        kept = 0
        with pytest.raises(JournalError, match="does not take an append: maximum bytes exceeded; check the limits"):
            for _ in range(100):
                await journal.append([b"x" * 500])
                kept += 1
        with pytest.raises(JournalError, match="accepts nothing more"):
            await journal.append([b"x"])
        assert journal.failed.done()
        await journal.close()
        await jetstream.update_stream(config)
        assert len((await read(client)).records) == kept > 0


async def test_what_somebody_removed_is_missed(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        journal, _ = await opened(client)
        for i in range(5):
            await journal.append([b"%d" % i])
        await journal.close()
        await client.jetstream().purge_stream("J", seq=4)
        with pytest.raises(JournalError, match=r"stream J, message 4: is number 4 of writer .*, after the beginning"):
            await opened(client)
        assert (await client.jetstream().stream_info("J")).state.last_seq == 6, "it was not claimed"


# ── one writer ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_new_writer_fences_the_old_one(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (url, client), connected(url) as other:
        first, _ = await opened(client)
        await first.append([b"a"])
        second, recovered = await opened(other)
        assert recovered.records == [b"a"]
        for _ in range(2):
            with pytest.raises(Fenced, match=r"stream J: writer .* has taken over at message 3"):
                await first.append([b"b"])
        assert isinstance(first.failed.result(), Fenced)
        await second.append([b"c"])
        with pytest.raises(Fenced):
            await first.snapshot(b"s")
        await first.close()
        await second.close()
        assert (await read(client)).records == [b"a", b"c"]


async def test_a_busy_writer_is_fenced_too(tmp_path: Path) -> None:
    """It is quicker than whoever opens, most of the time."""
    async with server_and_client(tmp_path) as (url, client), connected(url) as other:
        first, _ = await opened(client)
        acknowledged: list[bytes] = []

        async def write() -> None:
            for i in range(100_000):
                await first.append([b"%d" % i])
                acknowledged.append(b"%d" % i)

        writing = asyncio.ensure_future(write())
        await until(lambda: len(acknowledged) > 50, "some appends")
        second, recovered = await opened(other)
        with pytest.raises(Fenced):
            await asyncio.wait_for(writing, 60)
        assert recovered.records == acknowledged
        await first.close()
        await second.close()


async def test_of_many_who_open_at_once_one_stays(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        journals = [NatsJournal(client.link, "J") for _ in range(5)]
        await asyncio.gather(*(journal.open() for journal in journals))
        outcomes = await asyncio.gather(
            *(journal.append([b"%d" % i]) for i, journal in enumerate(journals)), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in outcomes) == ["Fenced"] * 4 + ["NoneType"]
        for journal in journals:
            await journal.close()
        assert (await read(client)).records == [b"%d" % outcomes.index(None)]


async def test_a_claim_that_comes_twice_changes_nothing(tmp_path: Path) -> None:
    """A claim was sent again because nobody answered, and both arrived, the second one late."""
    async with server_and_client(tmp_path) as (_, client):
        journal, _ = await opened(client)
        await journal.append([b"a"])
        await client.jetstream().publish("seriatim.journal.J.log", encode(Opened(journal._writer)))
        await journal.append([b"b"])
        await journal.close()
        assert (await read(client)).records == [b"a", b"b"]


async def test_an_idle_writer_notices_by_its_beat(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        first, _ = await opened(client, beat_s=0.02)
        opened_at = first._stream.written_at
        await until(lambda: first._stream.written_at > opened_at, "a beat")
        assert not first.failed.done()
        second, _ = await opened(client)
        await until(first.failed.done, "the beat to be refused")
        assert isinstance(first.failed.result(), Fenced)
        await first.close()
        await second.close()


async def test_beats_do_not_pile_up_and_do_not_count(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        journal, _ = await opened(client, beat_s=0.005)
        for i in range(5):
            await journal.append([b"%d" % i])
            beats = journal._beats + 3
            await until(lambda beats=beats: journal._beats >= beats, "some beats")
        await journal.close()
        found = await messages(client)
        assert kinds(found).count("B") <= 1 and max(found) > 12
        assert (await read(client)).records == [b"0", b"1", b"2", b"3", b"4"]


# ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_snapshot_stands_for_what_was_before_it(tmp_path: Path) -> None:
    async with server_and_client(tmp_path, "max_payload: 4000") as (_, client):
        journal, _ = await opened(client)
        for i in range(1, 4):
            await journal.append([b"%d" % i])
            await journal.snapshot(b"%d" % i * 10_000)
            assert journal.bytes_since_snapshot == 0
            await journal.append([b"after %d" % i])  # between the pieces
        await settled(journal)
        state = (await client.jetstream().stream_info("J")).state
        found = await messages(client)
        assert sorted(kinds(found)) == sorted("CRCCCS"), "all else is purged"
        assert state.messages == len(found)
        await journal.close()
        assert await read(client) == Recovered(b"3" * 10_000, [b"after 3"])


async def test_a_crash_at_any_point_of_a_snapshot(tmp_path: Path) -> None:
    """The stream as it is after each single message of a snapshot, and before and after the purge."""
    async with server_and_client(tmp_path, "max_payload: 4000") as (_, client):
        journal, _ = await opened(client)
        for i in range(2):
            await journal.append([b"%d" % i])
            await journal.snapshot(b"%d" % i * 10_000)
            await settled(journal)
        await journal.append([b"2"])
        jetstream = client.jetstream()
        for count in range(6):  # four pieces, the marker, then the purge
            journal, recovered = await opened(client)
            assert recovered == Recovered(b"1" * 10_000, [b"2"]), f"after {count} messages"
            await journal.close()
            writer, number, until_ = journal._writer, 1, journal._stream.last
            for i in range(min(count, 4)):
                chunk = Chunk(writer, 2 + i, 2, (b"2" * 10_000)[i * 2500 : i * 2500 + 2500])
                await jetstream.publish("seriatim.journal.J.log", encode(chunk))
            if count == 5:
                marker = Snapshot(writer, 6, 2, 4, zlib.crc32(b"2" * 10_000), until_, number)
                await jetstream.publish("seriatim.journal.J.snapshot", encode(marker))
        assert await read(client) == Recovered(b"2" * 10_000, [])
        await jetstream.purge_stream("J", seq=until_ + 1)
        assert await read(client) == Recovered(b"2" * 10_000, [])


async def test_opening_while_the_writer_takes_snapshots_all_the_time(tmp_path: Path) -> None:
    """It purges what the opening journal is just reading."""
    async with server_and_client(tmp_path) as (url, client), connected(url) as other:
        first, _ = await opened(client)
        count = 0

        async def write() -> None:
            nonlocal count
            while True:
                await first.append([b"%d" % count])
                count += 1
                if count % 3 == 0:
                    await first.snapshot(b"%d" % count)

        writing = asyncio.ensure_future(write())
        await until(lambda: count > 30, "some appends")
        second, recovered = await opened(other)
        with pytest.raises(Fenced):
            await asyncio.wait_for(writing, 60)
        before = int(recovered.snapshot or b"0")
        assert [int(record) for record in recovered.records] == list(range(before, count))
        await first.close()
        await second.close()


async def test_a_snapshot_is_completed_after_a_reader_has_looked_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it replaces is purged. Nobody writes after that, so reading the same again does not help."""
    async with server_and_client(tmp_path) as (_, client):
        first, _ = await opened(client)
        await first.append([b"1"])
        await first.close()
        writer, number, last = first._writer, first._number, first._stream.last
        jetstream, prefix = client.jetstream(), "seriatim.journal.J"
        await jetstream.publish(f"{prefix}.log", encode(Chunk(writer, number + 1, number + 1, b"up to 1")))
        await jetstream.publish(f"{prefix}.log", encode(Records(writer, number + 2, 1, 1, encode([b"2"]))))
        second = NatsJournal(client.link, "J")
        look = second._stream.last_sequence

        async def last_sequence() -> int:
            found = await look()
            if found == last + 2:
                marker = Snapshot(writer, number + 3, number + 1, 1, zlib.crc32(b"up to 1"), last, number)
                await jetstream.publish(f"{prefix}.snapshot", encode(marker))
                await jetstream.purge_stream("J", seq=last + 1)
            return found

        monkeypatch.setattr(second._stream, "last_sequence", last_sequence)
        assert await second.open() == Recovered(b"up to 1", [b"2"])
        await second.close()


# ── standby ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Watch:
    """A standby that waits for a second of silence, by a clock that only the test moves: no machine is too slow."""

    def __init__(self, client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.standby = NatsJournal(client.link, "J", timeout_s=0.2)
        self.now = 0.0
        self.answers: list[int | None] = []
        self._look = self.standby._stream.look
        monkeypatch.setattr(self.standby._stream, "look", self._look_and_note)
        self.waiting = asyncio.ensure_future(self.standby.wait_until_silent(1.0, lambda: self.now))

    async def _look_and_note(self) -> int | None:
        answer = await self._look()
        self.answers.append(answer)
        return answer

    async def looks(self) -> list[int | None]:
        """What it sees from now on. The first answer may be to an older question, so there are two."""
        before = len(self.answers)
        await until(lambda: self.waiting.done() or len(self.answers) >= before + 2, "two looks at the stream")
        return self.answers[before:]

    async def is_still_waiting_after(self, seconds: float) -> bool:
        await self.looks()
        self.now += seconds
        await self.looks()
        return not self.waiting.done()


async def test_a_standby_waits_for_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        watch = Watch(client, monkeypatch)
        assert await watch.is_still_waiting_after(0.9)
        assert not await watch.is_still_waiting_after(0.2), "there is no stream yet: that is silence, too"
        assert set(watch.answers) == {0}

        active, _ = await opened(client, beat_s=0.02, timeout_s=0.2, patience_s=120.0)

        async def beats() -> None:
            """Two, because the first one may have been in the stream already."""
            for _ in range(2):
                before = active._stream.written_at
                await until(lambda: active._stream.written_at > before or active.failed.done(), "a beat")  # noqa: B023
                assert not active.failed.done(), active.failed.result()

        watch = Watch(client, monkeypatch)
        for _ in range(3):
            await beats()
            assert await watch.is_still_waiting_after(0.9), "it beats"
        server.kill()
        await until(lambda: watch.answers[-1] is None, "the standby to miss the server")
        assert await watch.is_still_waiting_after(10.0), "nobody can say that the stream is silent"
        assert watch.answers[-1] is None
        await server.start()
        for _ in range(3):
            await beats()
            assert await watch.is_still_waiting_after(0.9), "it beats again"
        await beats()
        await active.close()
        assert await watch.is_still_waiting_after(0.9), "silent for too short a time"
        async with asyncio.timeout(60.0):
            while await watch.is_still_waiting_after(0.2):  # the last beat may come late
                pass
        await watch.waiting
        await watch.standby.open()
        await watch.standby.close()


async def test_replicas_that_one_server_cannot_have(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        with pytest.raises(JournalError, match="cannot make it: replicas > 1 not supported in non-clustered mode"):
            await NatsJournal(client.link, "J", replicas=3).open()
        journal, _ = await opened(client)
        assert (await client.jetstream().stream_info("J")).config.storage == api.StorageType.FILE
        await journal.close()


async def test_closing_ends_the_beat_whatever_comes_at_the_same_moment(tmp_path: Path) -> None:
    """A beat's answer and the cancellation in one turn of the loop: a beat that went on would keep standbys away."""
    async with server_and_client(tmp_path) as (_, client):
        for i in range(40):
            journal = NatsJournal(client.link, "J", beat_s=0.001)
            await journal.open()
            await asyncio.sleep(0.0005 * i)
            async with asyncio.timeout(60.0):
                await journal.close()


async def test_a_cancellation_that_comes_with_the_answer_is_heeded() -> None:
    """Else a standby that is stopped while it looks at the stream would go on."""
    for turns in range(5):
        asking = asyncio.ensure_future(
            NatsLink(["nats://127.0.0.1"]).call("anything", b"")
        )  # answered at once: no server
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.cancel():
            await asyncio.wait([asking], timeout=60.0)
            assert asking.cancelled()
        else:
            assert await asking is None
