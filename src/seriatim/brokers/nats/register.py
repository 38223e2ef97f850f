"""A record of a cluster on JetStream: the last message of a stream, written behind the one that was read."""

import asyncio

from seriatim.brokers.nats.api import EXPECTED, RETRY_S, StreamNotFound, WrongLastSequence, ack_of
from seriatim.brokers.nats.streams import Streams
from seriatim.model import ConnectionFailed

ATTEMPTS = 20  # to write into a stream that somebody else makes or deletes at the same moment


class NatsRegister:
    """One record. Its version is the number of its message, which grows as long as the stream lives."""

    def __init__(self, streams: Streams, name: str) -> None:
        self._streams = streams
        self._name = name
        self._stream = streams.names.register_stream(name)
        self._subject = streams.names.register_subject(name)

    async def read(self) -> tuple[bytes, int] | None:
        try:
            last = await self._streams.api.message(self._stream, {"last_by_subj": self._subject})
        except StreamNotFound:
            self._streams.forget_other(self._stream)
            return None
        return (last.data, last.seq) if last is not None else None

    async def write(self, data: bytes, after: int) -> int | None:
        for _ in range(ATTEMPTS):
            stream = await self._streams.register(self._name)
            try:
                reply = await self._streams.api.link.call(self._subject, data, {EXPECTED: str(after)})
                return ack_of(reply, f"registering the {self._name} of the cluster").seq
            except WrongLastSequence:
                return None
            except StreamNotFound:  # deleted, or another process makes it: it is listed before it captures anything
                self._streams.forget_other(stream)
                await asyncio.sleep(RETRY_S)
        raise ConnectionFailed(
            f"the {self._name} of the cluster cannot be registered: stream {self._stream} takes nothing"
        )
