"""Ranges of a stream, read whole and once: holes, lost connections, and what publishers write into headers."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest

from seriatim.brokers.nats_catalogue import connect, read_catalogue
from seriatim.brokers.nats_ranges import Messages, read_range
from seriatim.brokers.nats_server import NatsServer, ServerTls
from seriatim.brokers.nats_socket import NatsSocket
from seriatim.brokers.urls import NatsPlace, nats_place
from seriatim.model import ConnectionFailed, InputError, TimedOut
from tests.brokers.nats_world import new_cluster, shared_server
from tests.certificates import Certificates
from tests.proxy import TO_CLIENT, FaultProxy

COUNT = 500


@pytest.fixture
def place() -> NatsPlace:
    return nats_place(shared_server().url, cluster=new_cluster())


def fill(place: NatsPlace, stream: str, count: int, **options: Any) -> None:
    """Messages 1 … count, and what is deleted of them."""
    deleted = options.pop("deleted", ())
    kept_from = options.pop("kept_from", 1)
    headers = options.pop("headers", None)

    async def work() -> None:
        client = await nats.connect(place.servers[0])
        jetstream = client.jetstream(timeout=30)
        await jetstream.add_stream(name=stream, subjects=[stream], **{"allow_direct": True, **options})
        for number in range(1, count + 1):
            await jetstream.publish(stream, str(number).encode(), headers=headers)
        for number in deleted:
            await jetstream.delete_msg(stream, number)
        await jetstream.purge_stream(stream, seq=kept_from)
        await client.close()

    asyncio.run(work())


def read(place: NatsPlace, stream: str, first: int, last: int, **options: Any) -> Messages:
    whole = Messages()
    for part in read_range(partial(connect, place), stream, first, last, **options):
        for name in whole.__struct_fields__:
            getattr(whole, name).extend(getattr(part, name))
    return whole


@pytest.mark.parametrize("direct", [True, False])
def test_every_message_once_and_every_hole(place: NatsPlace, direct: bool) -> None:
    stream = f"{place.cluster}.s".replace(".", "-")
    fill(place, stream, COUNT, deleted=(40, 41, 60, COUNT), kept_from=11, headers={"Who": "me"}, allow_direct=direct)
    found = read(place, stream, 1, COUNT, direct=direct, batch=64)
    missing = {*range(1, 11), 40, 41, 60, COUNT}
    assert found.positions == [number for number in range(1, COUNT + 1) if number not in missing]
    assert found.bodies == [str(number).encode() for number in found.positions]
    assert set(found.headers) == {b"Who: me\r\n"} and set(found.subjects) == {stream.encode()}
    assert sorted(number for first, last in found.holes for number in range(first, last + 1)) == sorted(missing)
    part = read(place, stream, 38, 43, direct=direct)
    assert part.positions == [38, 39, 42, 43] and part.holes == [(40, 41)]


def test_a_range_beyond_the_end_is_a_hole(place: NatsPlace) -> None:
    fill(place, place.cluster, 5)
    assert read(place, place.cluster, 4, 9).holes == [(6, 9)]


def test_headers_that_pretend_to_be_the_servers(place: NatsPlace) -> None:
    forged = {"Nats-Stream": "x", "Nats-Subject": "forged", "Nats-Sequence": "99", "Nats-Last-Sequence": "7"}
    fill(place, place.cluster, 3, headers=forged)
    found = read(place, place.cluster, 1, 3)
    assert found.positions == [1, 2, 3] and set(found.subjects) == {place.cluster.encode()}


def test_a_large_message_has_room(place: NatsPlace) -> None:
    async def work() -> None:
        client = await nats.connect(place.servers[0])
        jetstream = client.jetstream(timeout=30)
        await jetstream.add_stream(name=place.cluster, subjects=[place.cluster], allow_direct=True)
        for _ in range(20):
            await jetstream.publish(place.cluster, b"x" * 1_000_000)
        await client.close()

    asyncio.run(work())
    found = read(place, place.cluster, 1, 20)
    assert found.positions == list(range(1, 21)) and {len(body) for body in found.bodies} == {1_000_000}


def test_a_lost_connection_is_made_anew_and_nothing_comes_twice(place: NatsPlace) -> None:
    fill(place, place.cluster, COUNT)

    async def test() -> list[int]:
        async with FaultProxy.before(place.servers[0].removeprefix("nats://")) as proxy:
            loop = asyncio.get_running_loop()
            through = place._replace(servers=[f"nats://{proxy.address}"])

            def read_and_cut() -> list[int]:
                positions: list[int] = []
                for part in read_range(partial(connect, through), place.cluster, 1, COUNT, batch=50):
                    positions += part.positions
                    loop.call_soon_threadsafe(proxy.cut_after.__setitem__, TO_CLIENT, 5_000)
                return positions

            positions = await asyncio.to_thread(read_and_cut)
            assert proxy.connections > 2
            return positions

    assert asyncio.run(test()) == list(range(1, COUNT + 1))


def test_a_server_that_is_away_is_waited_for_but_not_for_ever() -> None:
    with NatsServer() as server:
        place = nats_place(server.url, cluster="away")
        fill(place, "away", 3)
    with pytest.raises(TimedOut, match="position 1 of stream away"):
        read(place, "away", 1, 3, patience_s=0.2)
    with pytest.raises(ConnectionFailed, match="no NATS server can be read"):
        NatsSocket(place.servers)


def test_who_we_are(tmp_path: Any) -> None:
    with NatsServer(tmp_path, token="secret") as server:
        with NatsSocket([server.url], nats_place(server.url, token="secret").credentials) as connection:
            assert connection.request("$JS.API.INFO").body.startswith(b"{")
        with pytest.raises(ConnectionFailed, match="Authorization"):
            NatsSocket([server.url], nats_place(server.url, token="wrong").credentials)


def test_the_catalogue_knows_ours_from_others(place: NatsPlace) -> None:
    from seriatim.brokers.naming import Names

    names = Names(place.cluster)

    async def work() -> None:
        client = await nats.connect(place.servers[0])
        jetstream = client.jetstream(timeout=30)
        topics = {
            f"{place.cluster}.own": names.log_stream(f"{place.cluster}.own"),
            f"{place.cluster}.alien": f"X{place.cluster}",
        }
        for topic, stream in topics.items():
            await jetstream.add_stream(name=stream, subjects=[topic])
        await jetstream.add_stream(name=names.stamps_stream("root"), subjects=[names.stamps_subject("root")])
        await jetstream.publish(names.stamps_subject("root", f"{place.cluster}.alien"), b"x")
        await client.close()

    asyncio.run(work())
    with connect(place) as connection:
        found = read_catalogue(connection, place)
        logs = {each.holds: (each.name, each.direct) for each in found.of("log")}
        assert logs == {
            f"{place.cluster}.own": (names.log_stream(f"{place.cluster}.own"), False),
            f"{place.cluster}.alien": (f"X{place.cluster}", False),
        }
        assert [each.holds for each in found.of("stamps")] == ["root"]
        assert [each.holds for each in found.of("log", "*.own")] == [f"{place.cluster}.own"]
        with pytest.raises(InputError, match="no stream of cluster"):
            read_catalogue(connection, place, "nothing.like.this")


def test_encrypted_or_not_at_all(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = ServerTls(certificates.server, certificates.server_key, certificates.authority)
    ours = {"ca": str(certificates.authority), "cert": str(certificates.client), "key": str(certificates.client_key)}
    with NatsServer(tmp_path / "nats", tls=tls) as server:
        url = server.url.replace("nats://", "tls://")
        with connect(nats_place(url, **ours)) as connection:
            assert connection.request("$JS.API.INFO").body.startswith(b"{")
        with pytest.raises(ConnectionFailed, match="certificate"):
            connect(nats_place(url))  # an authority that we do not know
    with NatsServer(tmp_path / "plain") as server, pytest.raises(ConnectionFailed):
        connect(nats_place(server.url.replace("nats://", "tls://"), connect_timeout_s=5.0))
