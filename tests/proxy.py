"""A TCP proxy that misbehaves on demand: what a bad network does to a connection, for tests.

async with FaultProxy.before("127.0.0.1:7411") as proxy:
    proxy.address                    where to connect
    proxy.cut()                      every connection breaks now
    proxy.partition(), heal()        nothing passes, nobody is told; connections stay up, new ones get no answer
    proxy.refuse = True              new connections are closed at once
    proxy.delay_s = 0.1              each piece waits
    proxy.paused.add(TO_TARGET)      stop reading that direction: back-pressure
    proxy.cut_after[TO_TARGET] = 10  so many more bytes in that direction, then cut
"""

import asyncio

from tests.waiting import FOREVER_S, until

TO_TARGET = "to target"
TO_CLIENT = "to client"
PIECE_BYTES = 64 * 1024


class FaultProxy:
    """Forwards connections to one target."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.refuse = False
        self.delay_s = 0.0
        self.paused: set[str] = set()  # directions that are not read
        self.dropped: set[str] = set()  # directions whose bytes vanish
        self.cut_after: dict[str, int] = {}
        self.passed = {TO_TARGET: 0, TO_CLIENT: 0}
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def before(cls, address: str) -> "FaultProxy":
        """A proxy for `host:port`."""
        host, _, port = address.rpartition(":")
        return cls(host.strip("[]"), int(port))

    @property
    def address(self) -> str:
        """Where to connect instead of to the target."""
        assert self._server is not None, "start it first"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "FaultProxy":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Break everything and stop listening."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection (the peers see a reset)."""
        for writer in list(self._writers):
            writer.transport.abort()

    def partition(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self.dropped = {TO_TARGET, TO_CLIENT}

    def heal(self) -> None:
        """New bytes pass again. What was swallowed is lost, so what was connected is cut first."""
        self.dropped = set()
        self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        self.connections += 1
        try:
            target_reader, target_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, target_writer}
        for pump in (
            self._pump(reader, target_writer, writer, TO_TARGET),
            self._pump(target_reader, writer, target_writer, TO_CLIENT),
        ):
            task = asyncio.get_running_loop().create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        direction: str,
    ) -> None:
        """Carry bytes one way. When this way ends, however it does, the whole connection ends."""
        try:
            while True:
                await until(lambda: direction not in self.paused, "going on", FOREVER_S)
                piece = await reader.read(PIECE_BYTES)
                if not piece:
                    break
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if direction in self.dropped:
                    continue
                if direction in self.cut_after:
                    left = self.cut_after[direction]
                    piece = piece[:left]
                    self.cut_after[direction] = left - len(piece)
                if writer.is_closing():  # the other way has ended; uvloop does not take bytes any more
                    break
                writer.write(piece)
                self.passed[direction] += len(piece)
                await writer.drain()
                if self.cut_after.get(direction, 1) <= 0:
                    del self.cut_after[direction]
                    break
        except ConnectionError:
            pass
        try:
            # Nor is anybody told that the other side hung up.
            await until(lambda: direction not in self.dropped, "going on", FOREVER_S)
        finally:
            for each in (writer, other):
                self._writers.discard(each)
                each.close()
