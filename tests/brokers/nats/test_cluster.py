"""Three NATS servers with replicated streams: one after the other is killed while events flow."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import nats
import nats.errors
import pytest

from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.nats.server import NatsServer
from seriatim.brokers.nats.streams import StreamOptions
from seriatim.protocols.with_broker import Delivered, Listen, Stamped
from tests.brokers.conformance import HOME, Probe
from tests.brokers.nats.test_outages import Home, Insistent, Publisher
from tests.ports import free_ports
from tests.waiting import a_moment, until


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[list[NatsServer]]:
    ports = free_ports(3)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = []
    for index, port in enumerate(ports):
        config = f'server_name: n{index}\ncluster {{ name: "c", listen: "127.0.0.1:{port}", routes: [{routes}] }}'
        servers.append(NatsServer(folder / f"n{index}", config=config))
    try:
        await asyncio.gather(*[asyncio.to_thread(server.launch) for server in servers])
        yield servers
    finally:
        for server in servers:
            server.kill()


@pytest.mark.long
async def test_servers_die_one_after_the_other_and_nothing_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        urls = ",".join(server.url for server in servers)
        brokers = [JetStreamBroker(urls, options=StreamOptions(replicas=3)) for _ in range(3)]
        for broker in brokers:
            await broker.open()
            broker.configure("log", lambda topic: HOME)
        publisher = Publisher(Insistent(brokers[0], "p"), "a", patience_s=120.0)
        home = Home(Insistent(brokers[1], HOME), "a")
        subscriber = Probe(brokers[2], "s")
        tasks = [asyncio.create_task(publisher.run()), asyncio.create_task(home.run())]
        subscriber.send(Listen("a", 0, 1))
        for server in servers[:2]:
            await twenty_more(publisher)
            await asyncio.to_thread(server.kill)
            await twenty_more(publisher)  # two of three are enough
            await server.restart()
            await all_current(urls)  # else the next kill could leave one of three, which is not enough
        await twenty_more(publisher)
        publisher.stopped = True
        await tasks[0]
        last = max(publisher.numbers.values())
        await wait_for(lambda: subscriber.numbers("a")[-1:] == [last])
        await wait_for(lambda: home.issued == last and not home.open)
        await wait_for(lambda: subscriber.of(Stamped) and subscriber.of(Stamped)[-1].last == last)
        tasks[1].cancel()
        assert subscriber.numbers("a") == list(range(1, last + 1))
        got = {each.event.id: each.number for each in subscriber.of(Delivered) if each.event is not None}
        assert got == publisher.numbers
        ranges = [(stamp.first, stamp.last) for stamp in subscriber.of(Stamped)]
        assert [first for first, _ in ranges] == [1] + [last + 1 for _, last in ranges[:-1]]
        for broker in brokers:
            await broker.close()


async def twenty_more(publisher: Publisher) -> None:
    enough = len(publisher.numbers) + 20
    await wait_for(lambda: len(publisher.numbers) >= enough)


async def all_current(urls: str) -> None:
    """Every stream has a leader, and all its replicas have what the leader has."""
    connection = await nats.connect(urls.split(","))
    try:
        while True:
            with contextlib.suppress(nats.errors.Error):  # while leaders are chosen, nobody answers
                infos = await connection.jetstream().streams_info()
                clusters = [info.cluster for info in infos]
                if all(
                    each and each.leader and all(peer.current and not peer.offline for peer in each.replicas or [])
                    for each in clusters
                ):
                    return
            await a_moment()  # nobody tells when replicas have caught up: the server must be asked again
    finally:
        await connection.close()


async def wait_for(condition: Callable[[], object]) -> None:
    """A cluster may take seconds to choose a leader."""
    await until(condition, "the cluster goes on")
