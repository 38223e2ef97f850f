"""Worlds on a real NATS server, shared by the tests of both NATS brokers. One server per process of tests."""

import atexit
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Literal

import nats
from nats.aio.client import Client

from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.server import NatsServer
from seriatim.brokers.nats.streams import StreamOptions
from seriatim.brokers.seam import Mode
from seriatim.model import Topic
from tests.brokers.conformance import HOME, World

_clusters = count(1)


def new_cluster() -> str:
    """A name that no other test uses."""
    return f"test{next(_clusters)}"


@functools.cache
def shared_server() -> NatsServer:
    server = NatsServer()
    server.launch()
    atexit.register(server.terminate)
    return server


class JetStreamWorld(World):
    """A cluster of its own on a server; what it leaves there is deleted at the end."""

    def __init__(self, server: NatsServer, streams: Literal["topic"] | int, mode: Mode) -> None:
        self.server = server
        self.streams = streams
        self.mode = mode
        self.cluster = new_cluster()
        self.brokers: list[JetStreamBroker] = []

    async def connect(self) -> JetStreamBroker:
        broker = JetStreamBroker(self.server.url, cluster=self.cluster, streams=self.streams)
        await broker.open()
        broker.configure(self.mode, lambda topic: HOME)
        self.brokers.append(broker)
        return broker

    def options(self, replicas: int) -> StreamOptions:
        return StreamOptions(replicas=replicas)

    async def plain_client(self) -> Client:
        """A client that knows nothing of Seriatim."""
        return await nats.connect(self.server.url, connect_timeout=60)

    async def trim(self, topic: Topic, first: int) -> None:
        connection = await self.plain_client()
        await connection.jetstream().purge_stream(self.brokers[0].names.log_stream(topic), seq=first)
        await connection.close()

    async def erase(self, topic: Topic, first: int, last: int) -> None:
        connection = await self.plain_client()
        for position in range(first, last + 1):
            await connection.jetstream().delete_msg(self.brokers[0].names.log_stream(topic), position)
        await connection.close()

    async def publish_plainly(self, subject: Topic, payload: bytes) -> None:
        connection = await self.plain_client()
        await connection.publish(subject, payload)
        await connection.flush()
        await connection.close()

    async def clear(self) -> None:
        for broker in self.brokers:
            await broker.close()
        connection = await self.plain_client()
        manager = connection.jsm()
        for info in await manager.streams_info():
            if info.config.name is not None:
                await manager.delete_stream(info.config.name)
        await connection.close()


@asynccontextmanager
async def jetstream_world(
    streams: Literal["topic"] | int = "topic", mode: Mode = "log", server: NatsServer | None = None
) -> AsyncIterator[JetStreamWorld]:
    world = JetStreamWorld(server if server is not None else shared_server(), streams, mode)
    try:
        yield world
    finally:
        await world.clear()
