"""Headers that no client library would send: a server stores them, so whoever reads a log must live with them."""

import asyncio
from pathlib import Path

import pytest

import seriatim
from seriatim.brokers.nats.server import NatsServer
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.test_nats import sequencer
from tests.client.world import data, take

UNREADABLE = {
    "too short": b"NATS/1.0",
    "not even the version": b"\x00\x01",
    "a status that is not text": b"NATS/1.0 \xff\xfe\xfd\r\n\r\n",
    "a description that is not text": b"NATS/1.0 100 \xff\xff\r\n\r\n",
    "values that are not text": b"NATS/1.0\r\nfoo: \xff\xfe\r\n\r\n",
    "nothing between the lines": b"NATS/1.0\r\n::::\r\n: x\r\n\x00\r\n\r\n",
    "what a server would say": b"NATS/1.0 503\r\nNats-Sequence: 1000\r\n\r\n",
}


async def publish_raw(server: NatsServer, subject: str, headers: bytes, payload: bytes) -> None:
    """Without a client library, which would refuse."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
    writer.write(b"HPUB " + subject.encode() + b" " + sizes + b"\r\n" + headers + payload + b"\r\nPING\r\n")
    async with asyncio.timeout(60.0):
        while not (await reader.readline()).startswith(b"PONG"):
            pass
    writer.close()


@pytest.mark.parametrize("what", UNREADABLE)
async def test_one_message_with_unreadable_headers_stops_nobody(tmp_path: Path, what: str) -> None:
    server, cluster = shared_server(), new_cluster()
    topics = [f"{cluster}.a", f"{cluster}.b"]
    async with (
        sequencer(server, cluster, tmp_path),
        seriatim.connect(server.url, cluster=cluster, timeout_s=60.0) as bus,
        bus.subscribe(*topics) as events,
    ):
        await bus.publish(topics[0], b"before")
        await publish_raw(server, topics[0], UNREADABLE[what], b"nonsense")
        published = [await bus.publish(topic, b"after") for topic in topics]
        assert [each.number for each in published] == [3, 1]
        got = await take(events, 4)
        assert data([each for each in got if each.topic == topics[0]]) == ["before", "nonsense", "after"]
