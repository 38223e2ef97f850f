"""Tokens and TLS: who is admitted, who is not, and the errors they get."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from seriatim.live.tree import wire
from seriatim.model import ConnectionFailed, InputError
from seriatim.runtime.net.connection import TransportOptions
from seriatim.runtime.net.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.net.listener import Listener
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Switchboard
from tests.certificates import Certificates
from tests.runtime.net.hosts import CLUSTER, WAIT_S, dialing, serving, until, works

CLIENTS = "the-token-of-clients"
NODES = "the-token-of-all-nodes"
BOTH = SecurityOptions(token=CLIENTS, node_token=NODES)
ONCE = DialerOptions(refused_s=60.0, transport=TransportOptions(hello_timeout_s=60.0, connect_timeout_s=60.0))


async def refused(listener: Listener, security: SecurityOptions, role: Any = "client", name: str = "left") -> str:
    """What somebody is told who is not let in."""
    dialer = Dialer(
        Switchboard(),
        [Peer("root", (listener.address,))],
        cluster=CLUSTER,
        decoders=wire.TREE,
        name=name,
        role=role,
        security=security,
        options=ONCE,
    )
    dialer.start()
    try:
        await until(lambda: "not tried yet" not in dialer.problems().get("root", "connected"), "an attempt")
        with pytest.raises(ConnectionFailed) as caught:
            await dialer.wait_connected("root", 0.1)
        return str(caught.value)
    finally:
        await dialer.stop()


def node_dialer(listener: Listener, security: SecurityOptions) -> Dialer:
    """The node below this one."""
    peers = [Peer("root", (listener.address,))]
    return Dialer(
        Switchboard(), peers, cluster=CLUSTER, decoders=wire.TREE, name="left", role="node", security=security
    )


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_has_the_token_is_let_in() -> None:
    async with serving(security=BOTH) as listener:
        await works(listener, security=SecurityOptions(token=CLIENTS))
        dialer = node_dialer(listener, SecurityOptions(node_token=NODES))
        dialer.start()
        await dialer.wait_connected("root", WAIT_S)
        await dialer.stop()


@pytest.mark.parametrize(
    ("role", "shown", "told"),
    [
        ("client", SecurityOptions(), "a token is needed"),
        ("client", SecurityOptions(token="not-the-token-of-clients"), "wrong token"),
        ("client", SecurityOptions(token=NODES), "wrong token"),
        ("node", SecurityOptions(), "a node_token is needed"),
        ("node", SecurityOptions(node_token="not-the-token-of-nodes"), "wrong node_token"),
        ("node", SecurityOptions(node_token=CLIENTS), "wrong node_token"),
    ],
)
async def test_who_has_not_is_told_at_once_and_others_still_work(role: str, shown: SecurityOptions, told: str) -> None:
    async with serving(security=BOTH) as listener:
        story = await refused(listener, shown, role)
        assert story.endswith(f"tried {listener.address}: refused: {told}") and ": refused;" in story
        assert CLIENTS not in story and NODES not in story
        assert listener.refused == {"token": 1}
        await works(listener, security=SecurityOptions(token=CLIENTS))


async def test_no_node_is_let_in_where_only_clients_have_a_token() -> None:
    """Else everybody without any token could be a node."""

    async with serving(security=SecurityOptions(token=CLIENTS)) as listener:
        assert "node_token is not set there" in await refused(listener, SecurityOptions(), "node")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("middle", "there is no node 'middle' in the tree here"),
        ("root", "node 'root' runs here"),
    ],
)
async def test_a_node_must_be_a_neighbour(name: str, told: str) -> None:
    async with serving() as listener:
        assert told in await refused(listener, SecurityOptions(), "node", name)
    async with serving() as beside:
        beside.switchboard.plug("left", lambda source, message: None)  # not over this port: it runs here, too
        assert "node 'left' runs here" in await refused(beside, SecurityOptions(), "node", "left")
        assert beside.switchboard.reaches("left")
    async with serving("right") as elsewhere:
        assert "no neighbour of 'left' is active here" in await refused(elsewhere, SecurityOptions(), "node", "left")


@pytest.mark.parametrize("name", ["root", "left", "broker", "application", "", "x" * 300, "new\nline", "bell\x07"])
async def test_names_that_no_client_may_have(name: str) -> None:
    async with serving() as listener:
        story = await refused(listener, SecurityOptions(), "client", name)
        assert "is not a name for a client" in story or "1 to 256 printable characters" in story
        await works(listener)


async def test_a_token_never_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving(security=BOTH) as listener:
            await works(listener, security=SecurityOptions(token=CLIENTS))
            await refused(listener, SecurityOptions(token="not-the-token-of-clients"))
    seen = "\n".join(str(vars(record)) for record in caplog.records if record.name.startswith("seriatim"))
    assert "wrong token" in seen
    assert not any(secret in seen for secret in (CLIENTS, NODES, "not-the-token-of-clients"))


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.both_loops
async def test_tls_both_ways(certificates: Certificates) -> None:
    """Large frames too: they do not fit into one record of TLS."""
    server = SecurityOptions(certificate=certificates.server, key=certificates.server_key)
    client = SecurityOptions(authority=certificates.authority)

    async with (
        serving(security=server) as listener,
        dialing(listener.address, security=client) as (dialer, asker),
    ):
        await dialer.wait_connected("root", WAIT_S)
        for request in range(20):
            asker.ask(request, topic="t" * 50_000)
        await until(lambda: asker.requests() == list(range(20)), "all answers")
        for guest in list(listener.guests):
            guest.close("test")
        await until(lambda: not dialer.connected("root"), "the close")
        await dialer.wait_connected("root", WAIT_S)


@pytest.mark.parametrize(
    ("shown", "trusted", "told"),
    [
        ("server", "stranger", "its certificate is not trusted"),
        ("expired", "authority", "certificate has expired"),
        ("misnamed", "authority", "IP address mismatch"),
    ],
)
@pytest.mark.both_loops
async def test_a_server_that_cannot_be_trusted_is_left(
    certificates: Certificates, shown: str, trusted: str, told: str
) -> None:
    certificate, key = getattr(certificates, shown), getattr(certificates, f"{shown}_key")
    server = SecurityOptions(certificate=certificate, key=key)

    async with serving(security=server) as listener:
        story = await refused(listener, SecurityOptions(authority=getattr(certificates, trusted)))
        assert told in story
        await until(lambda: listener.refused["tls"] > 0 or listener.accepted > 0, "the server saw it")


@pytest.mark.both_loops
async def test_client_certificates_can_be_required(certificates: Certificates) -> None:
    server = SecurityOptions(
        certificate=certificates.server,
        key=certificates.server_key,
        authority=certificates.authority,
        require_client_certificate=True,
    )
    trusted = SecurityOptions(
        authority=certificates.authority, certificate=certificates.client, key=certificates.client_key
    )
    expired = SecurityOptions(
        authority=certificates.authority, certificate=certificates.expired, key=certificates.expired_key
    )

    async with serving(security=server) as listener:
        await works(listener, security=trusted)
        for stranger in (SecurityOptions(authority=certificates.authority), expired):
            story = await refused(listener, stranger)
            assert "TLS failed" in story or "the connection broke" in story or "the other side closed" in story
        assert listener.clients == 0
        await works(listener, security=trusted)


@pytest.mark.both_loops
async def test_a_certificate_does_not_make_a_node(certificates: Certificates) -> None:
    """Else every client could be a node, and say what the order is."""
    server = SecurityOptions(
        certificate=certificates.server,
        key=certificates.server_key,
        authority=certificates.authority,
        require_client_certificate=True,
    )
    shown = SecurityOptions(
        authority=certificates.authority, certificate=certificates.client, key=certificates.client_key
    )

    async with serving(security=server) as listener:
        assert "node_token is not set there" in await refused(listener, shown, "node")
        await works(listener, security=shown)
    async with serving(security=replace(server, node_token=NODES)) as listener:
        assert "a node_token is needed" in await refused(listener, shown, "node")
        await works(listener, security=shown)
        dialer = node_dialer(listener, replace(shown, node_token=NODES))
        dialer.start()
        await dialer.wait_connected("root", WAIT_S)
        await dialer.stop()


@pytest.mark.both_loops
async def test_plain_and_encrypted_do_not_mix_and_the_reason_is_told(certificates: Certificates) -> None:
    server = SecurityOptions(certificate=certificates.server, key=certificates.server_key)
    client = SecurityOptions(authority=certificates.authority)

    async with serving(security=server) as encrypted, serving() as plain:
        assert "TLS" in await refused(encrypted, SecurityOptions())
        assert "TLS" in await refused(plain, client)
        await works(encrypted, security=client)
        await works(plain)


async def test_handshakes_that_never_end_are_bounded(certificates: Certificates) -> None:
    server = SecurityOptions(certificate=certificates.server, key=certificates.server_key)
    quick = TransportOptions(hello_timeout_s=3.0)

    async with serving(security=server, transport=quick) as listener:
        host, _, port = listener.address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        await works(listener, security=SecurityOptions(authority=certificates.authority))
        ends = await asyncio.wait_for(
            asyncio.gather(*(reader.read() for reader, _ in idle), return_exceptions=True), 60
        )
        assert all(end == b"" or isinstance(end, ConnectionError) for end in ends)
        assert listener.refused["tls"] == 20
        for _, writer in idle:
            writer.close()


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def write(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path.name


def test_tokens_and_certificates_are_read_from_files(tmp_path: Path, certificates: Certificates) -> None:
    loaded = SecurityOptions.load(
        token_file=write(tmp_path / "token", CLIENTS + "\n"),
        node_token_file=write(tmp_path / "node_token", f"  {NODES}\r\n"),
        certificate=str(certificates.server),
        key=str(certificates.server_key),
        authority=str(certificates.authority),
        require_client_certificate=True,
        folder=tmp_path,
    )
    assert (loaded.token, loaded.node_token) == (CLIENTS, NODES)
    assert loaded.encrypted and loaded.server_context() is not None and loaded.client_context() is not None
    nothing = SecurityOptions.load()
    assert not nothing.encrypted and nothing.server_context() is None and nothing.client_context() is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("short", "it has 5 characters"),
        ("two words in one token", "blanks"),
        ("x" * 1_025, "it has 1025 characters"),
        ("schlüssel-mit-umlaut", "is not a text file"),
    ],
)
def test_a_token_that_is_none_is_explained(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=f"token_file: .*{told}.*; use 16 or more characters"):
        SecurityOptions.load(token_file=write(tmp_path / "token", text), folder=tmp_path)


def test_files_that_cannot_be_used_are_explained(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    def problem(**given: Any) -> str:
        with pytest.raises(InputError) as caught:
            SecurityOptions.load(folder=tmp_path, **given)
        return str(caught.value)

    certificate, key = str(certificates.server), str(certificates.server_key)
    other_key = str(certificates.client_key)
    encrypted = str(certificates.write_key("encrypted.key", ec.generate_private_key(ec.SECP256R1()), b"password"))
    junk = write(tmp_path / "junk", "not a certificate")
    assert "missing cannot be read (No such file or directory); correct the path" in problem(token_file="missing")
    assert "cannot be read" in problem(certificate="missing", key=key)
    assert "certificate: is missing, and key is given" in problem(key=key)
    assert "key: is missing, and certificate is given" in problem(certificate=certificate)
    assert "give PEM files that belong together" in problem(certificate=certificate, key=other_key)
    assert "give PEM files that belong together" in problem(certificate=junk, key=key)
    assert "is encrypted" in problem(certificate=certificate, key=encrypted)
    assert "holds no certificates" in problem(authority=junk)
    assert "give authority, certificate and key too" in problem(require_client_certificate=True)
    same = write(tmp_path / "same", CLIENTS)
    assert "give nodes a token of their own" in problem(token_file=same, node_token_file=same)
    if os.getuid() != 0:
        locked = write(tmp_path / "locked", CLIENTS, 0o000)
        assert "let the user that runs this read it" in problem(token_file=locked)
    assert not caplog.records
    SecurityOptions.load(token_file=write(tmp_path / "open", CLIENTS, 0o644), folder=tmp_path)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("every user can read a secret: path=")


def test_a_server_needs_a_certificate_to_speak_tls() -> None:
    with pytest.raises(InputError, match="a server cannot speak TLS without one"):
        SecurityOptions(tls=True).server_context()
