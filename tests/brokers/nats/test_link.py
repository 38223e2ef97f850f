"""The connection to NATS: who is let in, what is said when nobody is there, and what is never said."""

import asyncio
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from nats.aio.client import Client

from seriatim.brokers.nats.client import TolerantClient
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.brokers.nats.link import NatsLink, Reply
from seriatim.brokers.nats.server import NatsServer
from seriatim.brokers.urls import open_broker
from seriatim.model import ConnectionFailed, InputError, RequestRefused
from seriatim.protocols.with_broker import Append, Listen, Listening
from tests.brokers.conformance import Probe, event
from tests.brokers.nats.servers import until
from tests.brokers.nats.test_outages import Insistent


async def test_nobody_there_is_said_in_time() -> None:
    link = NatsLink(["nats://127.0.0.1:1", "nats://me:secret@127.0.0.1:2"], connect_timeout_s=0.5)
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        await asyncio.wait_for(link.open(), 60)
    broker = open_broker("nats://127.0.0.1:1", connect_timeout_s=0.2)
    with pytest.raises(ConnectionFailed, match="start one"):
        await broker.open()
    await broker.close()


def test_headers_are_read_as_nats_py_reads_them() -> None:
    pieces = [b"Nats-Sequence: 7", b"Key:value", b" Key :\tvalue ", b"no colon", b"", b": no name", b"two words: x"]
    pieces += [
        b"a\x1cb: x",
        b"\x1cab: x",
        b"\xe4: x",
        b"K: \xc3\xa4 \xff",
        b"K: a: b",
        b"\tK\x0b: \r x",
        b"K:",
        b"k\x00: x",
    ]
    random = Random(7)
    for _ in range(500):
        raw = b"\r\n".join(random.choices(pieces, k=random.randrange(5)))
        assert TolerantClient._parse_header_lines(raw) == Client._parse_header_lines(raw), raw


async def test_tokens() -> None:
    async with NatsServer(config='authorization { token: "open sesame" }') as server:
        host = server.url.removeprefix("nats://")
        for wrong in (server.url, f"nats://wrong@{host}"):
            broker = open_broker(wrong, connect_timeout_s=60.0)
            with pytest.raises(ConnectionFailed, match="check the credentials"):
                await broker.open()
            await broker.close()
        broker = open_broker(f"nats://open%20sesame@{host}")
        await broker.open()
        assert await Probe(broker, "p").append("a", "a1") == [1]
        await server.restart()
        assert await Insistent(broker, "q").append("a", "a2") == [2], "also after a reconnect"
        await broker.close()


def self_signed(folder: Path) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return f'tls {{ cert_file: "{folder / "cert.pem"}", key_file: "{folder / "key.pem"}" }}'


async def test_encryption(tmp_path: Path) -> None:
    async with NatsServer(config=f"{self_signed(tmp_path)}\nauthorization {{ token: secret }}") as server:
        url = server.url.replace("nats://", "tls://")
        broker = open_broker(url, token="secret", ca=tmp_path / "cert.pem")
        await broker.open()
        assert await Probe(broker, "p").append("a", "a1") == [1]
        await broker.close()
        broker = open_broker(url, token="secret")
        with pytest.raises(ConnectionFailed, match="certificate"):
            await broker.open()
        await broker.close()


async def test_a_secret_is_not_told_to_a_server_that_does_not_encrypt() -> None:
    heard: list[bytes] = []

    async def eavesdrop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","headers":true,"max_payload":1048576}\r\n')
        heard.append(await reader.read(4096))
        writer.close()

    listener = await asyncio.start_server(eavesdrop, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    for credentials in ({"token": "secret"}, {"user": "me", "password": "secret"}):
        broker = open_broker(f"tls://127.0.0.1:{port}", **credentials)
        with pytest.raises(ConnectionFailed, match="secure connection"):
            await broker.open()
        await broker.close()
    listener.close()
    await listener.wait_closed()
    assert not any(b"secret" in said for said in heard)


PERMISSIONS = """
authorization {
  users = [
    {user: sequencer, password: s}
    {user: client, password: c, permissions: {publish: {deny: ["forbidden", "_seriatim.stamps.>"]}}}
  ]
}
"""


async def test_a_missing_permission_is_told_to_whoever_asked() -> None:
    async with NatsServer(config=PERMISSIONS) as server:
        sequencer, client = [
            open_broker(server.url, user=user, password=password)
            for user, password in (("sequencer", "s"), ("client", "c"))
        ]
        await sequencer.open()
        await client.open()
        assert await Probe(sequencer, "root").append("Forbidden", "f0") == [1], "names differ in case"
        await Probe(sequencer, "root").append("forbidden", "f1")
        probe = Probe(client, "p")
        probe.send(Append(event("forbidden", "f2")))
        await probe.until(lambda: probe.errors, "the refusal")
        assert isinstance(probe.errors[0][1], RequestRefused) and "permissions" in str(probe.errors[0][1])
        assert await probe.append("allowed", "a1") == [1], "nothing else suffers"
        client.configure("log", lambda topic: "root")
        await probe.ask(Listen("forbidden", 0, 1), Listening)
        await client.close()
        await sequencer.close()


async def test_questions_are_answered_or_given_up_when_the_server_dies() -> None:
    async with NatsServer() as server:
        link = NatsLink([server.url])
        await link.open()
        heard: list[object] = []
        link.listen("silence", heard.append)
        assert await link.flush()
        replies: list[Reply] = []
        link.ask("silence", b"", replies.append, timeout_s=0.3)
        await until(lambda: bool(replies), "the end of patience")
        assert replies == [None]
        waiting = asyncio.create_task(link.call("silence", b"", timeout_s=600))
        await until(lambda: len(heard) == 2, "the second question to be heard")
        await asyncio.to_thread(server.kill)
        assert await asyncio.wait_for(waiting, 60) is None
        assert not link.publish("x", b"") and not await link.flush()
        await server.restart()
        await until(lambda: link.is_up, "the connection to be made again")
        assert await link.flush()
        await link.close()
        await link.close()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"user": "me"}, "user"),
        ({"token": "x", "user": "me", "password": "p"}, "credentials"),
        ({"certificate_key_file": Path("x")}, "certificate_file"),
        ({"authority_file": Path("/no/such/file")}, "authority_file"),
    ],
)
def test_bad_credentials_are_named(given: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        NatsCredentials(**given)  # type: ignore[arg-type]


def test_a_file_that_is_no_certificate_is_said(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    with pytest.raises(InputError, match="cannot be used"):
        open_broker("tls://host", ca=tmp_path / "cert.pem")


async def test_what_is_wanted_while_a_connection_is_made_is_subscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is listened to while the link comes up: after its subscriptions, before it counts as up."""

    async with NatsServer() as server:
        link = NatsLink([server.url])
        got: list[bytes] = []
        flush = TolerantClient.flush

        async def flush_and_want_more(client: TolerantClient, **more: int) -> None:
            await flush(client, **more)
            if "later" not in link._standing:
                link.listen("later", lambda message: got.append(message.data))

        monkeypatch.setattr(TolerantClient, "flush", flush_and_want_more)
        await link.open()
        assert link.publish("later", b"here")
        assert await link.flush()
        assert got == [b"here"]
        await link.close()
