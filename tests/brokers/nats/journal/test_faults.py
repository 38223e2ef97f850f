"""The journal in a stream when nobody answers: lost acknowledgements, killed servers, replaced meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim.brokers.nats.api import Api, Stored
from seriatim.model import Fenced, JournalError
from seriatim.runtime.journal.interface import Recovered
from tests.brokers.nats.journal.journals import (
    kinds,
    last_is,
    messages,
    opened,
    port_of,
    read,
    server_and_client,
    settled,
)
from tests.brokers.nats.servers import Proxy, connected, running_server, until


async def test_a_lost_acknowledgement(tmp_path: Path) -> None:
    """The server has taken it, and nobody says so: it is found, and not written twice."""
    async with server_and_client(tmp_path) as (_, direct):
        proxy = Proxy(port_of(direct))
        await proxy.start()
        async with connected(proxy.url) as client:
            journal, _ = await opened(client, timeout_s=0.3, patience_s=120.0)
            await journal.append([b"before"])
            proxy.deaf = True
            append = asyncio.ensure_future(journal.append([b"lost"]))
            await last_is(direct, 3)
            proxy.deaf = False
            proxy.cut()
            await asyncio.wait_for(append, 60)
            await journal.append([b"after"])
            await journal.close()
        await proxy.stop()
        assert kinds(await messages(direct)) == "ORRR"
        assert (await read(direct)).records == [b"before", b"lost", b"after"]


async def test_a_lost_request(tmp_path: Path) -> None:
    """The server has never seen it: it is sent again."""
    async with server_and_client(tmp_path) as (_, direct):
        proxy = Proxy(port_of(direct))
        await proxy.start()
        async with connected(proxy.url) as client:
            journal, _ = await opened(client, timeout_s=0.3, patience_s=120.0)
            proxy.mute = True
            append = asyncio.ensure_future(journal.append([b"lost"]))
            await until(lambda: b"lost" in proxy.lost, "the request to be lost")
            assert not append.done()
            proxy.mute = False
            proxy.cut()
            await asyncio.wait_for(append, 60)
            await journal.close()
        await proxy.stop()
        assert (await read(direct)).records == [b"lost"]


async def test_an_append_that_arrives_while_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there, then it arrives, then the stream is longer than we know: that is no reason to feel replaced."""
    async with server_and_client(tmp_path) as (_, direct):
        proxy = Proxy(port_of(direct))
        await proxy.start()
        async with connected(proxy.url) as client:
            journal, _ = await opened(client, timeout_s=0.3, patience_s=120.0)
            stream = journal._stream
            questions = Api(direct.link)  # which are not held

            async def look_and_let_it_arrive(name: str, question: dict[str, Any]) -> Stored | None:
                found = await questions.message(name, question)
                if proxy.hold:
                    assert found is None
                    proxy.release()
                    await last_is(direct, question["seq"])
                return found

            monkeypatch.setattr(stream._api, "info", questions.info)
            monkeypatch.setattr(stream._api, "message", look_and_let_it_arrive)
            proxy.hold = True
            await journal.append([b"late"])
            await journal.append([b"after"])
            assert not proxy.hold and not journal.failed.done()
            await journal.close()
        await proxy.stop()
        assert kinds(await messages(direct)) == "ORR"
        assert (await read(direct)).records == [b"late", b"after"]


async def test_replaced_while_nobody_answered(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, direct):
        proxy = Proxy(port_of(direct))
        await proxy.start()
        async with connected(proxy.url) as client:
            first, _ = await opened(client, timeout_s=0.3, patience_s=120.0)
            proxy.mute = True
            append = asyncio.ensure_future(first.append([b"too late"]))
            await until(lambda: b"too late" in proxy.lost, "the request to be lost")
            second, _ = await opened(direct)
            proxy.mute = False
            proxy.cut()
            with pytest.raises(Fenced):
                await asyncio.wait_for(append, 60)
            await first.close()
            await second.close()
        await proxy.stop()
        assert (await read(direct)).records == []


async def test_replaced_and_purged_while_nobody_answered(tmp_path: Path) -> None:
    """Nothing is left at the place where our message would be: that is somebody else's doing, too."""
    async with server_and_client(tmp_path) as (_, direct):
        first, _ = await opened(direct)
        second, _ = await opened(direct)
        await second.append([b"a"])
        await second.snapshot(b"state")
        await settled(second)
        with pytest.raises(Fenced, match="is at message"):
            await first.append([b"too late"])
        await first.close()
        await second.close()
        assert await read(direct) == Recovered(b"state", [])


async def test_nobody_answers_for_too_long(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        journal, _ = await opened(client, timeout_s=0.2, patience_s=120.0)
        await journal.append([b"a"])
        journal._stream._patience_s = 1.0
        server.kill()
        with pytest.raises(
            JournalError, match=r"cannot append to it: no answer from NATS for 1 s .*; check the servers"
        ):
            await asyncio.wait_for(journal.append([b"b"]), 60)
        with pytest.raises(JournalError, match="accepts nothing more after an earlier failure"):
            await journal.append([b"c"])
        with pytest.raises(JournalError, match="no answer from NATS"):
            await opened(client, timeout_s=0.1, patience_s=0.3)
        await journal.close()
        await server.start()
        await until(lambda: client.is_connected, "the client to connect again")
        assert (await read(client)).records in ([b"a"], [b"a", b"b"])


async def test_a_closed_connection(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server.url) as client:
        journal, _ = await opened(client)
        await client.close()
        with pytest.raises(JournalError, match="the connection to NATS is closed; connect again"):
            await journal.append([b"a"])
        await journal.close()
        with pytest.raises(JournalError, match="the connection to NATS is closed; connect again"):
            await journal.open()
        with pytest.raises(JournalError, match="the connection to NATS is closed; connect again"):
            await journal.wait_until_silent(1.0)


async def test_a_connection_that_is_closed_while_an_append_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also then the journal ends with its own error: an error of the client library would end a beat unseen."""
    async with running_server(tmp_path) as server, connected(server.url) as client:
        journal, _ = await opened(client)

        async def close_and_say_nothing(kind: str, data: bytes, expected: int | None) -> tuple[int | None, str]:
            await client.close()
            return None, "nats: timeout"

        monkeypatch.setattr(journal._stream, "_request", close_and_say_nothing)
        with pytest.raises(JournalError, match="the connection to NATS is closed; connect again"):
            await journal.append([b"a"])
        assert journal.failed.done()
        await journal.close()


async def test_the_server_is_killed_again_and_again(tmp_path: Path) -> None:
    """Whatever happens to the server in the middle of an append: every record is there once, in order."""
    async with running_server(tmp_path) as server, connected(server.url) as client:
        journal, _ = await opened(client, timeout_s=0.3, patience_s=120.0)
        acknowledged = 0
        is_over = False

        async def write() -> None:
            nonlocal acknowledged
            while not is_over:
                await journal.append([b"%d" % acknowledged])
                acknowledged += 1

        writing = asyncio.ensure_future(write())
        for _ in range(4):
            reached = acknowledged + 100
            await until(lambda reached=reached: acknowledged >= reached or writing.done(), "appends")
            server.kill()
            await server.start()
        is_over = True
        await asyncio.wait_for(writing, 60)
        await journal.close()
        assert (await read(client)).records == [b"%d" % i for i in range(acknowledged)]


async def test_an_interrupted_append_ends_the_journal(tmp_path: Path) -> None:
    async with server_and_client(tmp_path) as (_, client):
        journal, _ = await opened(client)
        append = asyncio.ensure_future(journal.append([b"a"]))
        await asyncio.sleep(0)
        append.cancel()
        await asyncio.wait([append])
        with pytest.raises(JournalError, match="an append was interrupted; open the journal again"):
            await journal.append([b"b"])
        await journal.close()
        assert (await read(client)).records in ([], [b"a"])
