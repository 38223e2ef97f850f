"""Ranges of a stream, read whole and once: holes, lost connections, and what publishers write into headers."""

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec import structs

from seriatim.brokers.bulk import Messages
from seriatim.brokers.nats.bulk.ranges import read_range
from seriatim.brokers.nats.bulk.reader import NatsReader
from seriatim.brokers.nats.bulk.socket import NatsSocket
from seriatim.brokers.nats.kind import JETSTREAM
from seriatim.brokers.nats.server import NatsServer
from seriatim.model import ConnectionFailed, InputError, TimedOut
from tests.brokers.nats.world import new_cluster, shared_server
from tests.certificates import Certificates
from tests.proxy import TO_CLIENT, FaultProxy

COUNT = 500


def nats_place(url: str, **options: Any) -> NatsReader:
    return JETSTREAM.bulk(url, options)


@pytest.fixture
def place() -> NatsReader:
    return nats_place(shared_server().url, cluster=new_cluster())


async def fill(place: NatsReader, stream: str, count: int, **options: Any) -> None:
    """Messages 1 … count, and what is deleted of them."""
    deleted = options.pop("deleted", ())
    kept_from = options.pop("kept_from", 1)
    headers = options.pop("headers", None)

    client = await nats.connect(place.servers[0])
    jetstream = client.jetstream(timeout=30)
    await jetstream.add_stream(name=stream, subjects=[stream], **{"allow_direct": True, **options})
    for number in range(1, count + 1):
        await jetstream.publish(stream, str(number).encode(), headers=headers)
    for number in deleted:
        await jetstream.delete_msg(stream, number)
    await jetstream.purge_stream(stream, seq=kept_from)
    await client.close()


def read(place: NatsReader, stream: str, first: int, last: int, **options: Any) -> Messages:
    whole = Messages()
    for part in read_range(place.connect, stream, first, last, **options):
        for name in whole.__struct_fields__:
            getattr(whole, name).extend(getattr(part, name))
    return whole


@pytest.mark.parametrize("direct", [True, False])
async def test_every_message_once_and_every_hole(place: NatsReader, direct: bool) -> None:
    stream = f"{place.cluster}.s".replace(".", "-")
    await fill(
        place, stream, COUNT, deleted=(40, 41, 60, COUNT), kept_from=11, headers={"Who": "me"}, allow_direct=direct
    )
    found = read(place, stream, 1, COUNT, direct=direct, batch=64)
    missing = {*range(1, 11), 40, 41, 60, COUNT}
    assert found.positions == [number for number in range(1, COUNT + 1) if number not in missing]
    assert found.bodies == [str(number).encode() for number in found.positions]
    assert set(found.headers) == {b"Who: me\r\n"} and set(found.subjects) == {stream.encode()}
    assert sorted(number for first, last in found.holes for number in range(first, last + 1)) == sorted(missing)
    part = read(place, stream, 38, 43, direct=direct)
    assert part.positions == [38, 39, 42, 43] and part.holes == [(40, 41)]


async def test_a_range_beyond_the_end_is_a_hole(place: NatsReader) -> None:
    await fill(place, place.cluster, 5)
    assert read(place, place.cluster, 4, 9).holes == [(6, 9)]


async def test_headers_that_pretend_to_be_the_servers(place: NatsReader) -> None:
    forged = {"Nats-Stream": "x", "Nats-Subject": "forged", "Nats-Sequence": "99", "Nats-Last-Sequence": "7"}
    await fill(place, place.cluster, 3, headers=forged)
    found = read(place, place.cluster, 1, 3)
    assert found.positions == [1, 2, 3] and set(found.subjects) == {place.cluster.encode()}


async def test_a_large_message_has_room(place: NatsReader) -> None:
    client = await nats.connect(place.servers[0])
    jetstream = client.jetstream(timeout=30)
    await jetstream.add_stream(name=place.cluster, subjects=[place.cluster], allow_direct=True)
    for _ in range(20):
        await jetstream.publish(place.cluster, b"x" * 1_000_000)
    await client.close()
    found = read(place, place.cluster, 1, 20)
    assert found.positions == list(range(1, 21)) and {len(body) for body in found.bodies} == {1_000_000}


async def test_a_lost_connection_is_made_anew_and_nothing_comes_twice(place: NatsReader) -> None:
    await fill(place, place.cluster, COUNT)

    async with FaultProxy.before(place.servers[0].removeprefix("nats://")) as proxy:
        loop = asyncio.get_running_loop()
        through = structs.replace(place, servers=[f"nats://{proxy.address}"])

        def read_and_cut() -> list[int]:
            positions: list[int] = []
            for part in read_range(through.connect, place.cluster, 1, COUNT, batch=50):
                positions += part.positions
                loop.call_soon_threadsafe(proxy.cut_after.__setitem__, TO_CLIENT, 5_000)
            return positions

        positions = await asyncio.to_thread(read_and_cut)
        assert proxy.connections > 2
        assert positions == list(range(1, COUNT + 1))


async def test_a_server_that_is_away_is_waited_for_but_not_for_ever() -> None:
    with NatsServer() as server:
        place = nats_place(server.url, cluster="away")
        await fill(place, "away", 3)
    with pytest.raises(TimedOut, match="position 1 of stream away"):
        read(place, "away", 1, 3, patience_s=0.2)
    with pytest.raises(ConnectionFailed, match="no NATS server can be read"):
        NatsSocket(place.servers)


def test_who_we_are(tmp_path: Any) -> None:
    with NatsServer(tmp_path, config="authorization { token: secret }") as server:
        with NatsSocket([server.url], nats_place(server.url, token="secret").credentials) as connection:
            assert connection.request("$JS.API.INFO").body.startswith(b"{")
        with pytest.raises(ConnectionFailed, match="Authorization"):
            NatsSocket([server.url], nats_place(server.url, token="wrong").credentials)


async def test_the_catalogue_knows_ours_from_others(place: NatsReader) -> None:
    from seriatim.brokers.naming import Names

    names = Names(place.cluster)

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
    found = place.catalogue()
    logs = {each.holds: (each.name, each.direct) for each in found.of("log")}
    assert logs == {
        f"{place.cluster}.own": (names.log_stream(f"{place.cluster}.own"), False),
        f"{place.cluster}.alien": (f"X{place.cluster}", False),
    }
    assert [each.holds for each in found.of("stamps")] == ["root"]
    assert [each.holds for each in found.of("log", "*.own")] == [f"{place.cluster}.own"]
    with pytest.raises(InputError, match="no stream of cluster"):
        place.catalogue("nothing.like.this")


def test_encrypted_or_not_at_all(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    files = f'cert_file: "{certificates.server}", key_file: "{certificates.server_key}"'
    tls = f'tls {{ {files}, ca_file: "{certificates.authority}", verify: true }}'
    ours = {"ca": str(certificates.authority), "cert": str(certificates.client), "key": str(certificates.client_key)}
    with NatsServer(tmp_path / "nats", config=tls) as server:
        url = server.url.replace("nats://", "tls://")
        with nats_place(url, **ours).connect() as connection:
            assert connection.request("$JS.API.INFO").body.startswith(b"{")
        with pytest.raises(ConnectionFailed, match="certificate"):
            nats_place(url).connect()  # an authority that we do not know
    with NatsServer(tmp_path / "plain") as server, pytest.raises(ConnectionFailed):
        nats_place(server.url.replace("nats://", "tls://"), connect_timeout_s=5.0).connect()
