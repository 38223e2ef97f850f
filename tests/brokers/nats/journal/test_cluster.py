"""The journal on three NATS servers: the one that leads the stream is killed in the middle of appends."""

import asyncio
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
import pytest

from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.model import Fenced, TimedOut
from tests.brokers.nats.servers import Connection, OwnServer, until
from tests.ports import free_port
from tests.waiting import a_moment


async def start_cluster(folder: Path) -> dict[str, OwnServer]:
    routes = [free_port() for _ in range(3)]
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers = {}
    for index, port in enumerate(routes):
        name = f"n{index}"
        cluster = f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{urls}] }}'
        servers[name] = OwnServer(folder / name, f"server_name: {name}\n{cluster}")
    await asyncio.gather(*(server.start() for server in servers.values()))
    return servers


async def opened_when_ready(journal: NatsJournal) -> None:
    """A new cluster needs a moment until it has a leader; the journal's own patience covers it."""
    await asyncio.wait_for(journal.open(), 120)


async def test_the_leader_is_killed_in_the_middle_of_appends(tmp_path: Path) -> None:
    servers = await start_cluster(tmp_path)
    urls = [server.url for server in servers.values()]

    client = Connection()
    await client.open(urls)
    try:
        journal = NatsJournal(client.link, "J", replicas=3, timeout_s=1.0, patience_s=120.0)
        await opened_when_ready(journal)
        acknowledged = 0
        is_over = False

        async def write() -> None:
            nonlocal acknowledged
            while not is_over:
                await journal.append([b"%d" % acknowledged])
                acknowledged += 1

        writing = asyncio.ensure_future(write())
        await until(lambda: acknowledged >= 100 or writing.done(), "appends", 120.0)
        leader = await leader_of(client)
        servers[leader].kill()
        reached = acknowledged + 100
        await until(lambda: acknowledged >= reached or writing.done(), "appends without the leader", 120.0)
        await servers[leader].start()
        is_over = True
        await asyncio.wait_for(writing, 120)
        other = NatsJournal(client.link, "J", replicas=3, timeout_s=1.0, patience_s=120.0)
        recovered = await asyncio.wait_for(other.open(), 120)
        assert recovered.records == [b"%d" % i for i in range(acknowledged)]
        with pytest.raises(Fenced):
            await asyncio.wait_for(journal.append([b"too late"]), 120)
        await journal.close()
        await other.close()
    finally:
        await client.close()
        for server in servers.values():
            server.kill()


async def leader_of(client: Connection) -> str:
    for _ in range(200):
        try:
            info = await client.jetstream().stream_info("J")
        except (nats.errors.TimeoutError, nats.js.errors.ServiceUnavailableError):
            continue
        if info.cluster is not None and info.cluster.leader:
            return str(info.cluster.leader)
        await a_moment(0.05)
    raise TimedOut("the stream has had no leader for 10 s")
