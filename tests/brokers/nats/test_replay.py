"""Publishing a replay to a real server: in order, each event once, whatever interrupts it."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import nats
import pytest

from seriatim.brokers.capabilities import Reached, ReplayedEvent, ReplayPlace, paced
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.replay import NatsReplay
from seriatim.model import InputError, RequestRefused, TimedOut
from tests.brokers.nats.servers import OwnServer, running_server

TOPICS = ("orders", "payments", "audit.eu")


def events(count: int, after: int = 0) -> list[ReplayedEvent]:
    return [
        ReplayedEvent(
            ReplayPlace(n, TOPICS[n % 3], n, 0),
            TOPICS[n % 3],
            f"e{n}",
            "shop",
            {"kind": "test"},
            f"data {n}".encode(),
            float(n),
        )
        for n in range(after + 1, after + count + 1)
    ]


async def batches(chosen: Sequence[ReplayedEvent], size: int = 50) -> AsyncIterator[Sequence[ReplayedEvent]]:
    for at in range(0, len(chosen), size):
        yield chosen[at : at + size]


async def stored(server: OwnServer, stream: str, count: int) -> list[tuple[str, bytes, dict[str, str]]]:
    """The first messages of a stream; there must be exactly so many."""
    client = await nats.connect(server.url)
    try:
        api = client.jetstream()
        state = (await api.stream_info(stream)).state
        assert (state.messages, state.last_seq) == (count, count)
        messages = [await api.get_msg(stream, seq) for seq in range(1, count + 1)]
        return [(each.subject or "", each.data or b"", each.headers or {}) for each in messages]
    finally:
        await client.close()


def expected(chosen: Iterable[ReplayedEvent], prefix: str = "replay.") -> list[tuple[str, bytes]]:
    return [(f"{prefix}{event.topic}", event.data) for event in chosen]


async def test_a_replay_is_the_order_of_its_stream(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        broker = JetStreamBroker(server.url)
        await broker.open()
        told: list[tuple[ReplayPlace, int]] = []
        publisher = NatsReplay(broker.api, "abc", in_flight=64, on_stored=lambda key, count: told.append((key, count)))
        assert await publisher.reached() is None
        sent = events(300)
        assert await publisher.publish(batches(sent)) == 300
        assert told[-1] == (sent[-1].place, 300)
        found = await stored(server, "replay-replay", 300)
        assert [(subject, data) for subject, data, _ in found] == expected(sent)
        assert found[6][2] == {
            "kind": "test",
            "Seriatim-Publisher": "shop",
            "Nats-Msg-Id": f"abc {sent[6].place}",
            "Nats-Expected-Last-Sequence": "6",
            "Seriatim-Replayed": "abc",
            "Seriatim-Order-Key": "7 payments 7 0",
            "Seriatim-Event-Id": "e7",
        }
        again = NatsReplay(broker.api, "abc")  # another process, later: it knows where to go on
        assert await again.reached() == Reached(sent[-1].place, 300)
        assert await again.publish(batches(events(20, after=300))) == 20
        assert len(await stored(server, "replay-replay", 320)) == 320
        other = NatsReplay(broker.api, "another")
        with pytest.raises(InputError, match=r"prefix replay: the stream replay-replay holds other messages; choose"):
            await other.reached()
        within = NatsReplay(broker.api, "abc", "replay.orders")
        with pytest.raises(InputError, match=r"the subjects replay\.orders\.> are captured by replay-replay already"):
            await within.reached()
        await broker.close()


async def test_a_server_that_goes_away_in_between_changes_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        broker = JetStreamBroker(server.url)
        await broker.open()
        sent = events(900)

        async def interrupted() -> AsyncIterator[Sequence[ReplayedEvent]]:
            async for batch in batches(sent, size=100):
                yield batch
                if batch[0].event_id in ("e201", "e601"):
                    server.kill()
                    await server.start()

        publisher = NatsReplay(broker.api, "abc", in_flight=500)
        assert await publisher.reached() is None
        assert await publisher.publish(interrupted()) == 900
        found = await stored(server, "replay-replay", 900)
        assert [(subject, data) for subject, data, _ in found] == expected(sent)
        await broker.close()


async def test_a_replay_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        sent = events(400)
        first = JetStreamBroker(server.url)
        await first.open()

        async def cut_off() -> AsyncIterator[Sequence[ReplayedEvent]]:
            async for batch in batches(sent):
                yield batch
                if batch[-1].event_id == "e250":
                    raise KeyError("the process ends here")

        publisher = NatsReplay(first.api, "abc", in_flight=100)
        await publisher.reached()
        with pytest.raises(KeyError):
            await publisher.publish(cut_off())
        await first.close()
        second = JetStreamBroker(server.url)
        await second.open()
        publisher = NatsReplay(second.api, "abc")
        reached = await publisher.reached()
        assert reached is not None and 0 < reached.count <= 250
        await publisher.publish(batches([event for event in sent if event.place > reached.place]))
        found = await stored(server, "replay-replay", 400)
        assert [(subject, data) for subject, data, _ in found] == expected(sent)
        await second.close()


async def test_a_stream_that_is_removed_in_between_is_not_made_again(tmp_path: Path) -> None:
    """It would hold the second half only."""
    async with running_server(tmp_path) as server:
        client = await nats.connect(server.url)
        broker = JetStreamBroker(server.url)
        await broker.open()

        async def removed() -> AsyncIterator[Sequence[ReplayedEvent]]:
            async for batch in batches(events(200)):
                yield batch
                if batch[-1].event_id == "e100":
                    await client.jetstream().delete_stream("replay-replay")

        publisher = NatsReplay(broker.api, "abc", in_flight=10)
        await publisher.reached()
        with pytest.raises(RequestRefused, match="the stream replay-replay was removed during the replay; start"):
            await publisher.publish(removed())
        await broker.close()
        await client.close()


async def test_onto_the_topics_themselves(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="all", subjects=["orders", "payments", "audit.>"])
        broker = JetStreamBroker(server.url)
        await broker.open()
        publisher = NatsReplay(broker.api, "abc", None)
        assert await publisher.reached() is None
        sent = events(30)
        assert await publisher.publish(batches(sent)) == 30
        assert await NatsReplay(broker.api, "abc", None).publish(batches(sent)) == 30  # the server knows repeats
        found = await stored(server, "all", 30)  # every event was stored before the next one of another topic was sent
        assert [(subject, data) for subject, data, _ in found] == expected(sent, "")
        stray = NatsReplay(broker.api, "abc", None)
        nowhere = ReplayedEvent(ReplayPlace(1, "nowhere", 1, 0), "nowhere", "e", None, None, b"")
        with pytest.raises(RequestRefused, match="no stream captures the subject nowhere; make a stream for it"):
            await stray.publish(batches([nowhere]))
        await broker.close()
        await client.close()


async def test_waits_are_bounded(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        broker = JetStreamBroker(server.url)
        await broker.open()
        publisher = NatsReplay(broker.api, "abc", patience_s=0.2)
        await publisher.reached()
        server.kill()
        with pytest.raises(
            TimedOut, match=r"has stored nothing for 0\.2 s; payments e1 was next; start the replay again"
        ):
            await publisher.publish(batches(events(3)))
        await broker.close()


async def test_pace() -> None:
    chosen = events(30)

    async def times(factor: float | None) -> tuple[list[ReplayedEvent], float]:
        clock = asyncio.get_running_loop().time
        begin = clock()
        seen = [event async for batch in paced(batches(chosen), factor) for event in batch]
        return seen, clock() - begin

    seen, elapsed_s = await times(0.1)
    assert seen == chosen and elapsed_s >= 0.29  # 29 ms apart, ten times as slow
    assert (await times(None))[0] == chosen
