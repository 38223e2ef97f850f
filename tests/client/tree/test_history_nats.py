"""Beginning with the past on a real NATS server, also while processes are killed."""

import asyncio
from pathlib import Path

import pytest

import seriatim
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import data, take


@pytest.mark.parametrize(("mode", "buckets"), [("log", 0), ("log", 3), ("ticket", 0)])
async def test_a_late_subscriber_gets_what_an_early_one_got(tmp_path: Path, mode: str, buckets: int) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.{each}" for each in ("orders", "payments", "stock")]
    async with (
        sequencer(server, cluster, tmp_path, mode=mode, causal=True, streams={"buckets": buckets}),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(*topics) as early,
    ):
        for i in range(100):
            await asyncio.gather(bus.publish_many(topics[i % 3], [b"%d" % i, b"again"]), bus.publish(topics[i % 2], b"x"))
        seen = await take(early, 300)
        async with bus.subscribe(*topics, start="first") as late:
            past = await take(late, 300)
            assert [event.id for event in past] == [event.id for event in seen]
            positions = [event.position or 0 for event in past]
            assert positions == sorted(positions)
            await late.caught_up()
            await bus.publish_many([(topic, b"last") for topic in topics])
            assert [event.id for event in await take(late, 3)] == [event.id for event in await take(early, 3)]
        async with bus.subscribe(*topics, start=positions[150]) as middle:
            first = positions.index(positions[150])
            assert data(await take(middle, 300 - first)) == data(past[first:])
