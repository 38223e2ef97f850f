"""Distance on one machine: a TCP line on which every byte arrives a fixed time later, in both directions.

The live demo puts one between any two of its sites. Like a long cable it delays and does not slow down: as much as
fits into PIECES may be under way at once.
"""

import asyncio
from typing import TypeAlias

HOST = "127.0.0.1"
PIECE_BYTES = 64 * 1024
PIECES = 64  # under way in one direction; then the sender has to wait

Pieces: TypeAlias = "asyncio.Queue[tuple[float, bytes]]"  # when each is due; an empty one is the end


class Line:
    """Listens at `address` and leads to a port of this machine, `delay_ms` away."""

    def __init__(self, port: int, delay_ms: float) -> None:
        self._port = port
        self._delay_s = delay_ms / 1000.0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where to connect to be taken to the far end."""
        assert self._server is not None, "open it first"
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        """Listen on any free port."""
        self._server = await asyncio.start_server(self._accept, HOST, 0)

    async def close(self) -> None:
        """Break every connection and listen no more. May be called twice."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._port)
        except OSError:  # nobody is there: say so as TCP does
            writer.transport.abort()
            return
        loop = asyncio.get_running_loop()
        readings, deliveries = [], []
        for source, target in ((reader, far_writer), (far_reader, writer)):
            pieces: Pieces = asyncio.Queue(PIECES)
            readings.append(loop.create_task(self._read(source, pieces)))
            deliveries.append(loop.create_task(_deliver(pieces, target)))
        try:
            await asyncio.wait(deliveries, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in readings + deliveries:
                task.cancel()
            await asyncio.gather(*readings, *deliveries, return_exceptions=True)
            for end in (writer, far_writer):
                end.close()

    async def _read(self, reader: asyncio.StreamReader, pieces: Pieces) -> None:
        loop = asyncio.get_running_loop()
        piece = b"more"
        while piece:
            try:
                piece = await reader.read(PIECE_BYTES)
            except ConnectionError:
                piece = b""  # broken, which the other side hears of as late as of everything else
            await pieces.put((loop.time() + self._delay_s, piece))


async def _deliver(pieces: Pieces, writer: asyncio.StreamWriter) -> None:
    """Write pieces when they are due, until the sender or the receiver has hung up."""
    loop = asyncio.get_running_loop()
    while True:
        due_s, piece = await pieces.get()
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        if not piece:
            return
        try:
            writer.write(piece)
            await writer.drain()
        except ConnectionError:
            return
