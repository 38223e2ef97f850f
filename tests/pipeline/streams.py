"""Streams on a real NATS server as a cluster's clients would fill them, and what a reader must find in them."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import nats
from msgspec import Struct
from nats.aio.client import Client

from seriatim.brokers.naming import Names
from seriatim.brokers.nats.server import NatsServer
from seriatim.brokers.packs import BATCH_HEADER, BATCH_VERSION, pack
from seriatim.brokers.urls import kind_of, open_broker

T = TypeVar("T")
WAIT_S = 60.0

_clusters = count(1)


class Row(Struct, frozen=True, order=True):
    """What matters of an event."""

    log: str
    number: int
    index: int
    topic: str
    event_id: str
    data: bytes


def run(work: Coroutine[Any, Any, T]) -> T:
    """A test's own loop; bounded."""
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


async def order_log_has(url: str, cluster: str, numbers: int) -> None:
    """Wait until the order log has so many positions: the root writes it now and then, and nobody waits for it."""
    broker = open_broker(url, **kind_of(url).cluster_options(cluster, None, {}))
    await broker.open()
    try:
        log = broker.order_log()
        assert log is not None and await log.wait(numbers - 1, WAIT_S), "the order log does not come this far"
    finally:
        await broker.close()


class Streams:
    """One cluster's streams on a server. Every message is acknowledged before the next call returns."""

    def __init__(self, server: NatsServer, cluster: str | None = None) -> None:
        self.server = server
        self.url = server.url
        self.cluster = cluster if cluster is not None else f"archive{next(_clusters)}"
        self.names = Names(self.cluster)
        self.expected: list[Row] = []
        self.length: dict[str, int] = {}

    def topic(self, name: str) -> str:
        """Topics of different tests must not meet on one server."""
        return f"{self.cluster}.{name}"

    def make(self, name: str, **options: Any) -> str:
        """The stream of a topic's log."""
        topic = self.topic(name)
        run(self._make(self.names.log_stream(topic), topic, options))
        self.length.setdefault(topic, 0)
        return topic

    def publish(self, topic: str, messages: int, events: int = 1) -> None:
        """Messages with so many events each; ids are derived as clients derive them."""
        run(self._publish(topic, messages, events))

    def client(self, work: Any) -> Any:
        """Something else, with a plain client: `work(client)`."""
        return run(self._with_client(work))

    async def _with_client(self, work: Any) -> Any:
        client = await nats.connect(self.url)
        try:
            return await work(client)
        finally:
            await client.close()

    async def _make(self, stream: str, subject: str, options: dict[str, Any]) -> None:
        async def create(client: Client) -> None:
            import json

            config = {"name": stream, "subjects": [subject], "retention": "limits", "storage": "file", **options}
            config.setdefault("allow_direct", True)
            reply = await client.request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(config).encode(), timeout=20)
            assert "error" not in json.loads(reply.data), reply.data

        await self._with_client(create)

    async def _publish(self, topic: str, messages: int, events: int) -> None:
        async def publish(client: Client) -> None:
            stream = client.jetstream(timeout=20)
            for _ in range(messages):
                number = self.length[topic] = self.length[topic] + 1
                publisher, first = f"p~{topic}", number * 10_000
                ids = [f"{publisher}-{first + index}" for index in range(events)]
                data = [f"{topic} {number} {index}".encode() for index in range(events)]
                headers = {"Nats-Msg-Id": ids[0], "Seriatim-Publisher": publisher}
                body = data[0]
                if events > 1:
                    headers[BATCH_HEADER] = BATCH_VERSION
                    body = pack(first, data)
                await stream.publish(topic, body, headers=headers)
                self.expected += [Row(topic, number, at, topic, ids[at], data[at]) for at in range(events)]

        await self._with_client(publish)


@contextmanager
def streams() -> Iterator[Streams]:
    """A server of its own: a test may kill it."""
    with NatsServer() as server:
        yield Streams(server)
