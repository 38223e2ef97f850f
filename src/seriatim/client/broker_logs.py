"""A table of a client's log on the broker. Rows that change are written again; the last one of a key holds."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import required
from seriatim.model import UNREADABLE, LogError, Subscription

T = TypeVar("T", bound=Struct)

_encoder = msgspec.json.Encoder()


class BrokerTable:
    """A `RowTable` on the broker. It ignores offsets: a change is a new line."""

    def __init__(self, broker: Broker, table: str, client: str) -> None:
        self._table = table
        channel = broker.row_channel(table, client)
        self._channel = required(channel, "log", "keeps no logs of clients", 'give a folder instead of "broker:"')
        self._past: list[bytes] = []

    def append(self, lines: bytes) -> int:
        self._channel.send(b"".join(line.rstrip() + b"\n" for line in lines.splitlines()))
        return 0

    def change(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        self._channel.send(_encoder.encode_lines(rows))

    def withdraw(self, offset: int, rows: Sequence[Struct], lengths: Sequence[int]) -> None:
        self._channel.send(b"".join(b"-" + _encoder.encode(row) + b"\n" for row in rows))

    async def load(self) -> None:
        self._past = await self._channel.read()

    def rows(self, kind: type[T]) -> Iterable[tuple[int, int, T]]:
        """Of subscriptions only the last row of each; other rows are read as they were written."""
        decoder = msgspec.json.Decoder(kind)
        last: dict[object, T] = {}
        for number, body in enumerate(self._past, 1):
            for line in body.splitlines():
                try:
                    row = decoder.decode(line)
                except UNREADABLE as error:
                    where = f"{self._table} on the broker, message {number}"
                    raise LogError(where, f"not a row ({error})", "use another name, or another log") from None
                key = (row.topic, row.since) if isinstance(row, Subscription) else len(last)
                last[key] = row
        self._past = []
        return [(0, 0, row) for row in last.values()]

    async def written(self, timeout_s: float) -> None:
        await self._channel.written(timeout_s)

    def close(self) -> None:
        self._channel.close()
