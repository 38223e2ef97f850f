"""A NATS server as a child process, and a proxy in front of it that can lose what the server says."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from nats.aio.client import Client

from seriatim.brokers.nats.link import NatsLink
from seriatim.runtime.with_parent import ending_with_parent
from tests.ports import free_port
from tests.waiting import until as until


class OwnServer:
    """JetStream on a free port of 127.0.0.1; `kill` and `start` as often as needed, on the same data."""

    def __init__(self, folder: Path, config: str = "") -> None:
        beside = Path(sys.executable).parent / "nats-server"
        self.binary = str(beside) if beside.is_file() else shutil.which("nats-server")
        assert self.binary is not None, "no nats-server beside python or on PATH"
        self.port = free_port()
        self.config = folder / "nats.conf"
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder}" }}\n{config}\n')
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        command = [str(self.binary), "--config", str(self.config)]
        self.process = subprocess.Popen(
            ending_with_parent(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        await until(self._listens, "nats-server to listen")

    def _listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, "nats-server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
            return connection.recv(4) == b"INFO"
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None


@contextlib.asynccontextmanager
async def running_server(folder: Path, config: str = "") -> AsyncIterator[OwnServer]:
    server = OwnServer(folder, config)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


async def _quiet(error: Exception) -> None:
    """Reconnecting is what these tests are about."""


class Connection(Client):
    """A plain client for looking at the server, and a link of ours, for what is tested."""

    link: NatsLink

    async def open(self, urls: list[str]) -> None:
        self.link = NatsLink(urls, connect_timeout_s=30.0)
        await self.link.open()
        await self.connect(
            urls,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,  # type: ignore[arg-type]  # declared int, only slept on
            error_cb=_quiet,
            connect_timeout=30,
        )

    @property
    def is_connected(self) -> bool:
        return super().is_connected and self.link.is_up

    async def close(self) -> None:
        await self.link.close()
        await super().close()


@contextlib.asynccontextmanager
async def connected(*urls: str) -> AsyncIterator[Connection]:
    client = Connection()
    await client.open(list(urls))
    try:
        yield client
    finally:
        with contextlib.suppress(OSError):  # its server may be gone
            await client.close()


class Proxy:
    """Forwards to a server. `deaf`: what the server says is lost. `mute`: what the client says is lost.

    `lost` has all of that. `hold`: what the client says is on its way until `release`, as in a network that has come
    to a standstill.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.deaf = False
        self.mute = False
        self.hold = False
        self.lost = bytearray()
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut()

    def release(self) -> None:
        """Everything that was on its way arrives."""
        self.hold = False
        for writer, data in self._held:
            writer.write(data)
        self._held.clear()

    def cut(self) -> None:
        """End all connections, as a network that fails would."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        await asyncio.gather(
            self._pump(reader, server_writer, lambda: self.mute, lambda: self.hold),
            self._pump(server_reader, writer, lambda: self.deaf, lambda: False),
        )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_lost: Callable[[], bool],
        is_held: Callable[[], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if is_held():
                    self._held.append((writer, data))
                elif is_lost():
                    self.lost += data
                else:
                    writer.write(data)
        writer.transport.abort()
