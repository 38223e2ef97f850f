"""Where a past may begin, on a real NATS server: the order log lags or was deleted, and retention took events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats
import pytest

import seriatim
from seriatim import GapPolicy
from seriatim.brokers.naming import Names, ordered_topic
from seriatim.brokers.nats.order import OrderChannel
from seriatim.client.history import Start
from seriatim.model import Gap, InputError
from seriatim.protocols.with_broker import Ordered
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import data, take, until

MODES = pytest.mark.parametrize(("mode", "buckets"), [("log", 0), ("log", 3), ("ticket", 0)])


@asynccontextmanager
async def four_events(folder: Path, mode: str, buckets: int) -> AsyncIterator[tuple[seriatim.Bus, str]]:
    """A bus, and a topic that has four events, all of them in the order log."""
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.orders"
    async with (
        sequencer(server, cluster, folder, mode=mode, streams={"buckets": buckets}),
        seriatim.connect(server.url, cluster=cluster, timeout_s=30.0) as bus,
    ):
        async with bus.subscribe(topic) as early:
            for number in range(1, 5):
                await bus.publish(topic, b"%d" % number)
            (*_, last) = await take(early, 4)
            assert last.position == 4
        async with bus.subscribe(topic, start=4) as events:
            assert data(await take(events, 1)) == ["4"], "the order log has all of it"
        yield bus, topic


async def purge(topic: str, mode: str, buckets: int, keep_from: int) -> None:
    """Retention removes the first messages of a topic's log, or of its slots."""
    cluster = topic.partition(".")[0]
    names = Names(cluster, buckets)
    ordered = ordered_topic(topic, buckets)
    client = await nats.connect(shared_server().url)
    try:
        stream = names.slots_stream(ordered) if mode == "ticket" else names.log_stream(ordered)
        await client.jsm().purge_stream(stream, seq=keep_from)
    finally:
        await client.close()


@MODES
async def test_an_order_log_that_lags_is_waited_for(
    tmp_path: Path, mode: str, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with four_events(tmp_path, mode, buckets) as (bus, topic):
        send, held = OrderChannel.send, list[tuple[OrderChannel, Ordered]]()
        monkeypatch.setattr(OrderChannel, "send", lambda self, ordered: held.append((self, ordered)))
        quiet = datetime.now(UTC)
        await bus.publish(topic, b"5")
        beginning = asyncio.create_task(bus.subscribe(topic, start=6).__aenter__())
        await until("it waits", lambda: "position 6 of the order log, which ends with 4" in str(bus.explain()))
        await until("the root writes", lambda: bool(held))
        monkeypatch.setattr(OrderChannel, "send", send)
        for channel, ordered in held:
            channel.send(ordered)
        events = await beginning
        await events.caught_up()
        await bus.publish(topic, b"6")
        assert data(await take(events, 1)) == ["6"]
        async with bus.subscribe(topic, start=quiet) as since:
            assert data(await take(since, 2)) == ["5", "6"]
        async with bus.subscribe(topic, start=datetime.now(UTC)) as new:
            await new.caught_up()
            await bus.publish(topic, b"7")
            assert data(await take(new, 1)) == ["7"]
        with pytest.raises(InputError, match="is in the future"):
            await events.seek(datetime.now(UTC) + timedelta(minutes=1))


async def test_a_position_that_does_not_come_is_refused_when_the_time_is_over(tmp_path: Path) -> None:
    async with four_events(tmp_path, "log", 0) as (bus, topic):
        cluster = topic.partition(".")[0]
        async with seriatim.connect(shared_server().url, cluster=cluster, timeout_s=0.5) as hasty:
            with pytest.raises(InputError, match=r"the order log ends with 4, and waited 0\.5 s for it"):
                await hasty.subscribe(topic, start=6).__aenter__()
        async with bus.subscribe(topic, start=5) as events:
            await events.caught_up()
            await bus.publish(topic, b"5")
            assert data(await take(events, 1)) == ["5"]


@MODES
async def test_a_named_place_that_retention_took_is_refused(tmp_path: Path, mode: str, buckets: int) -> None:
    async with four_events(tmp_path, mode, buckets) as (bus, topic):
        await purge(topic, mode, buckets, keep_from=3)
        shared = ordered_topic(topic, buckets)
        lost = f"{shared} 1 to 2 is no longer kept"
        refused: list[tuple[Start, str]] = [
            ({topic: 1}, f"{shared} 1 is no longer kept; it begins with 3"),
            (1, f"behind position 1, {lost}; position 3 is the first behind which all is kept"),
            (datetime(2026, 1, 1, tzinfo=UTC), f"behind what was published at 2026-01-01.*, {lost}"),
        ]
        for start, problem in refused:
            with pytest.raises(InputError, match=problem):
                await bus.subscribe(topic, start=start).__aenter__()
        for options in ({"start": "first"}, {"start": {topic: 1}, "gaps": GapPolicy.skip()}):
            async with bus.subscribe(topic, show_gaps=True, **options) as events:
                got = [await anext(events)]
                while not (isinstance(got[-1], seriatim.Event) and got[-1].data == b"4"):
                    got.append(await anext(events))
                gone = [number for each in got if isinstance(each, Gap) for number in range(each.first, each.last + 1)]
                assert gone == [1, 2]
        async with bus.subscribe(topic, start={topic: 3}) as events:
            assert data(await take(events, 2)) == ["3", "4"]


async def test_a_number_that_a_deleted_order_log_had_is_refused(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.orders"
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=2.0) as bus,
    ):
        for number in range(1, 5):
            await bus.publish(topic, b"%d" % number)
        async with bus.subscribe(topic, start={topic: 4}) as events:
            assert data(await take(events, 1)) == ["4"]
        client = await nats.connect(server.url)
        await client.jsm().delete_stream(f"{cluster}-order")
        await client.close()
        problem = f"the order log does not have {topic} 3, and waited 2 s for it"
        with pytest.raises(InputError, match=problem):
            await bus.subscribe(topic, start={topic: 3}).__aenter__()
        await bus.publish(topic, b"5")
        async with bus.subscribe(topic, start={topic: 5}) as events:
            assert data(await take(events, 1)) == ["5"]
        with pytest.raises(InputError, match=f"the order log has {topic} only from number 5 on"):
            await bus.subscribe(topic, start={topic: 3}).__aenter__()
