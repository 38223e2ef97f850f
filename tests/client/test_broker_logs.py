"""Logs on the broker: the same rows as in files, and nothing that a sick log does to events."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from msgspec import structs
from nats.js.errors import NotFoundError

import seriatim
from seriatim.audit import audit
from seriatim.brokers.naming import Names
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.rows import WAITING_BYTES_MAX, NatsRowChannel
from seriatim.client.tables import BrokerTable, padded
from seriatim.model import Delivery, History, InputError, LogError, Publication, Subscription
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import take, world

KEYS: dict[type[Any], Any] = {
    Delivery: lambda row: (row.subscriber, row.position),
    Subscription: lambda row: (row.subscriber, row.topic, row.since),
    Publication: lambda row: (row.publisher, row.event_id),
}


async def stored(url: str, stream: str) -> list[bytes]:
    """The lines of a stream, in order."""
    client = await nats.connect(url)
    try:
        manager = client.jetstream()
        try:
            state = (await manager.stream_info(stream)).state
        except NotFoundError:
            return []
        messages = [await manager.get_msg(stream, place) for place in range(1, state.last_seq + 1)]
        return [line for message in messages for line in (message.data or b"").splitlines()]
    finally:
        await client.close()


def last_rows(lines: Iterable[bytes], kind: type[Any]) -> list[Any]:
    """What holds: the last row of each key, unless it was withdrawn."""
    found: dict[Any, Any] = {}
    for line in lines:
        row = msgspec.json.decode(line.removeprefix(b"-"), type=kind)
        found[KEYS[kind](row)] = None if line.startswith(b"-") else row
    return [row for row in found.values() if row is not None]


async def history(url: str, cluster: str) -> History:
    names = Names(cluster)

    async def rows(table: str, kind: type[Any]) -> list[Any]:
        return last_rows(await stored(url, names.logs_stream(table)), kind)

    return History(
        await rows("deliveries", Delivery),
        await rows("publications", Publication),
        await rows("subscriptions", Subscription),
    )


async def test_logs_on_the_broker_are_audited_valid(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.{each}" for each in "abc"]
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, publication_log="broker:") as one,
        seriatim.connect(server.url, cluster=cluster, publication_log="broker:") as two,
        one.subscribe(*topics[:2], log="broker:") as first,
        two.subscribe(*topics, log="broker:") as second,
    ):
        for place in range(30):
            await asyncio.gather(one.publish_many(topics[place % 3], [b"x"] * 3), two.publish(topics[0], b"y"))
        await second.remove(topics[0])
        await take(first, 90)
        await first.add(topics[2])
    found = await history(server.url, cluster)
    assert len(found.publications) == 120 and all(row.number for row in found.publications)
    assert all(row.until is not None for row in found.subscriptions)
    report = audit(found)
    for name in ("fifo", "per-topic", "tno", "integrity"):
        assert report.verdicts[name].answer == "valid", report.verdicts[name].reason


async def test_a_durable_subscriber_goes_on_counting(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    topic = f"{cluster}.a"
    async with sequencer(server, cluster, tmp_path), seriatim.connect(server.url, cluster=cluster) as bus:
        for _ in range(2):
            async with bus.subscribe(topic, durable="reader", log="broker:") as events:
                await bus.publish_many(topic, [b"x"] * 5)
                await take(events, 5)
                await events.acknowledge()
    found = await history(server.url, cluster)
    assert [row.position for row in found.deliveries] == list(range(10))
    assert [(row.since, row.until) for row in found.subscriptions] == [(0, None)]


async def test_rows_that_change_are_written_again_and_the_last_one_holds() -> None:
    server, cluster = shared_server(), new_cluster()
    broker = JetStreamBroker(server.url, cluster=cluster)
    await broker.open()
    table = BrokerTable(broker, "publications", "p")
    first, second = Publication("e", "t", "p"), Publication("f", "t", "p")
    offset = table.append(padded(first) + padded(second))
    table.change(offset, [structs.replace(first, number=7)], [0])
    table.withdraw(offset, [second], [0])
    await table.written(60.0)
    lines = await stored(server.url, Names(cluster).logs_stream("publications"))
    assert len(lines) == 4
    assert last_rows(lines, Publication) == [structs.replace(first, number=7)]
    table.close()
    await broker.close()


async def test_what_waits_is_bounded_and_a_log_that_is_not_taken_is_said(tmp_path: Path) -> None:
    server, cluster = shared_server(), new_cluster()
    broker = JetStreamBroker(server.url, cluster=cluster)
    await broker.open()
    client = await nats.connect(server.url)
    names = Names(cluster)
    await client.jetstream().add_stream(
        name=names.logs_stream("deliveries"),
        subjects=[names.logs_subject("deliveries")],
        max_bytes=1_000,
        discard="new",
    )
    channel = NatsRowChannel(broker.streams, "deliveries", "somebody", broker.payload_bytes_max)
    channel.send(b"{}\n" * 1_000)
    with pytest.raises(LogError, match="maximum bytes exceeded"):
        await channel.written(1.0)
    with pytest.raises(LogError, match="wait already"):
        channel.send(b"x" * WAITING_BYTES_MAX)
    await client.jetstream().delete_stream(names.logs_stream("deliveries"))
    await channel.written(60.0)
    assert await stored(server.url, names.logs_stream("deliveries")) == [b"{}"] * 1_000
    channel.close()
    await client.close()
    await broker.close()


async def test_other_brokers_keep_no_logs() -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(InputError, match="this broker keeps no logs of clients"):
            async with bus.subscribe("a", log="broker:"):
                pass
