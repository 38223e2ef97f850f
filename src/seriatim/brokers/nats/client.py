"""The client of nats-py as we use it. Nothing else in Seriatim touches private names of nats-py.

`PRIVATE_NAMES` lists them. tests/brokers/nats/test_client.py says which one a new release of nats-py has changed, and
pyproject.toml allows only releases that were tested.
"""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client

PRIVATE_NAMES = {
    "nats.aio.client.Client": ("_process_headers", "_parse_header_lines", "_reading_task", "_transport"),
    "nats.aio.transport.TcpTransport": ("_io_writer",),
}


class TolerantClient(Client):
    """A client that survives headers it cannot read. The server stores any headers that a publisher sends.

    An error there would end the task that reads, and with it the connection. The next connection would be sent the same
    message, and so on: one such message in a log would stop every reader.
    """

    def on_lost(self, callback: Callable[["asyncio.Task[None]"], None]) -> None:
        """Call this when the task that reads has ended: the one sign that always comes when a connection is lost."""
        assert self._reading_task is not None, "it is connected"
        self._reading_task.add_done_callback(callback)

    @property
    def is_encrypted(self) -> bool:
        writer = getattr(self._transport, "_io_writer", None)
        return writer is not None and writer.get_extra_info("ssl_object") is not None

    def drop(self) -> None:
        """Close the socket, which `close` may leave open after an error."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, LookupError):  # not text, or shorter than any header
            return None

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        """Parse headers faster than nats-py, without checking every character of a name. Every answer has headers."""
        headers: dict[str, str] = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon and name.isascii():
                key = name.strip().decode()
                if not key or key.split() == [key]:  # a name has no blanks inside
                    headers[key] = value.strip().decode("utf-8", "replace")
        return headers
