"""The common part of the tests of the journal in a stream. The journal is always in stream J."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from seriatim.brokers.nats.journal.journal import NatsJournal
from seriatim.brokers.nats.journal.messages import JournalMessage, decode
from seriatim.runtime.journal.interface import Recovered
from tests.brokers.nats.servers import Connection, connected, running_server
from tests.waiting import until


@contextlib.asynccontextmanager
async def server_and_client(folder: Path, config: str = "") -> AsyncIterator[tuple[str, Connection]]:
    async with running_server(folder, config) as server, connected(server.url) as client:
        yield server.url, client


async def opened(client: Connection, **more: float) -> tuple[NatsJournal, Recovered]:
    journal = NatsJournal(client.link, "J", **more)  # type: ignore[arg-type]
    return journal, await journal.open()


async def read(client: Connection) -> Recovered:
    journal, recovered = await opened(client)
    await journal.close()
    return recovered


async def messages(client: Connection) -> dict[int, JournalMessage]:
    """Everything that is in the stream."""
    jetstream = client.jetstream()
    state = (await jetstream.stream_info("J")).state
    found: dict[int, JournalMessage] = {}
    for sequence in range(max(1, state.first_seq), state.last_seq + 1):
        with contextlib.suppress(Exception):  # a beat that a later one has replaced
            found[sequence] = decode("J", sequence, (await jetstream.get_msg("J", sequence)).data)
    return found


def kinds(found: dict[int, JournalMessage]) -> str:
    return "".join(type(message).__name__[0] for _, message in sorted(found.items()))


def port_of(client: Connection) -> int:
    assert client.connected_url is not None and client.connected_url.port is not None
    return client.connected_url.port


async def last_is(client: Connection, sequence: int) -> None:
    async def is_there() -> bool:
        return (await client.jetstream().stream_info("J")).state.last_seq == sequence

    await until(is_there, f"{sequence} is the last")


async def settled(journal: NatsJournal) -> None:
    """Until its snapshot is written and purged."""
    assert journal._snapshotting is not None
    await asyncio.wait([journal._snapshotting], timeout=60)
