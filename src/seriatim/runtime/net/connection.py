"""One TCP connection: frames in, frames out, and bounds on everything the other side can make us keep or wait for.

*In.* All frames that have arrived are handled in one go. Reading stops while the process is behind (`Throttle`) and,
at the side that answers, while the other side does not fetch its answers. Only that side stops for the latter: if both
did, two full connections could wait for each other.

*Out.* What is posted in one turn of the loop is written in one go. A peer that does not fetch what waits for it is
disconnected after a bound in time and in bytes; machines repeat what got lost with it.

*Idle.* A ping goes out when nothing else did. A peer that completes no frame for too long is disconnected.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from seriatim.model import UNREADABLE, InputError, RemoteError
from seriatim.runtime.net.wire import (
    FRAME_BYTES_MAX,
    UNWRITABLE,
    Envelope,
    Framing,
    Hello,
    Ping,
    Refusal,
    Welcome,
    encode_body,
    encode_length,
)

logger = logging.getLogger(__name__)

PING = Ping()
THROTTLE_POLL_S = 0.002

# Why a connection is not being read; bits of one number.
OUTPUT_FULL = 1
BEHIND = 2


def check_positive(options: Struct, *names: str) -> None:
    for name in names:
        if not getattr(options, name) > 0:
            raise InputError(name, f"{getattr(options, name)} is not positive", "give a number above 0")


class TransportOptions(Struct, frozen=True, kw_only=True):
    """Bounds of a connection. Both sides of a cluster should agree roughly on `ping_s` and `silence_s`."""

    connect_timeout_s: float = 5.0  # until a connection is made, TLS included
    hello_timeout_s: float = 5.0  # until a new connection has said who it is, or was answered
    ping_s: float = 5.0  # a side that has sent nothing for this long sends a ping
    silence_s: float = 20.0  # a peer that completes no frame for this long is disconnected
    drain_timeout_s: float = 10.0  # a peer whose output has been full for this long is disconnected
    close_timeout_s: float = 2.0  # what is still unsent when a connection is closed gets this long
    output_bytes_high: int = 256 * 1024  # unsent output above this is full: the answering side stops reading
    output_bytes_max: int = 64 * 1024 * 1024  # unsent output above this: the peer is disconnected at once

    def __post_init__(self) -> None:
        check_positive(self, *self.__struct_fields__)
        if self.silence_s < 2 * self.ping_s:
            problem = f"{self.silence_s} s of silence, and a ping every {self.ping_s} s"
            raise InputError("silence_s", problem, "give at least twice ping_s, or one late ping ends a connection")


class Connection(asyncio.Protocol, ABC):
    """One end of a connection. A subclass says what a frame means (`take`) and what the end means (`ended`).

    `read`: how frames are decoded, until the subclass replaces it.
    """

    def __init__(
        self,
        options: TransportOptions,
        read: Callable[[bytes], Any],
        *,
        body_bytes_max: int,
        throttle: "Throttle | None" = None,
    ) -> None:
        self.peer = "unknown"
        self.open = False
        self.received = 0  # frames
        self.sent = 0
        self.stops_reading_when_full = False
        self.post_bytes_max = FRAME_BYTES_MAX
        self._options = options
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._framing = Framing(body_bytes_max)
        self._throttle = throttle
        self._transport: asyncio.Transport | None = None
        self._output: list[bytes] = []
        self._holds = 0
        self._heard = self._wrote = False  # since the last look
        self._silent_s = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()  # the socket is

    # ── for subclasses ────────────────────────────────────────────────────────────────────────────────────────────

    def begun(self) -> None:
        """The connection is there."""

    @abstractmethod
    def take(self, frame: Any) -> None:
        """One frame. RemoteError: the other side broke the protocol."""

    def violated(self, reason: str) -> None:
        """The other side broke the protocol."""
        self.close(reason)

    def ended(self, reason: str) -> None:
        """The connection has ended. Called once if `begun` was."""

    @property
    def unsent(self) -> int:
        """Bytes that wait for the peer to fetch them."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def post(self, frame: "Hello | Welcome | Refusal | Ping | Envelope[object]") -> None:
        """Send a frame, if the connection is open. Never blocks, never raises."""
        if not self.open:
            return
        try:
            body = encode_body(frame)
        except UNWRITABLE as error:
            logger.error("message not sent: peer=%s reason=%s", self.peer, error)
            return
        length = len(body)
        if length > self.post_bytes_max:
            logger.error("message too long: peer=%s bytes=%s most=%s", self.peer, length, self.post_bytes_max)
            return
        output = self._output
        if not output:
            self._loop.call_soon(self._flush)
        output += (encode_length(length), body)
        self.sent += 1

    def close(self, reason: str, last: "Refusal | None" = None) -> None:
        """End the connection; what is unsent, and `last`, get a short while. May be called twice.

        After `last` the peer hangs up, if it is one of ours, and what it sends until then is read and thrown away:
        closing a socket with unread input resets the connection, and the last word would be lost with it.
        """
        transport = self._transport
        if not self.open or transport is None:
            return
        if last is not None:
            self.post(last)
        self._flush()
        if not self.open:  # the flush found that it must be aborted
            return
        self._end(reason)
        if last is None:
            transport.close()
        elif self._holds:
            transport.resume_reading()
        if not self.closed.done():
            abort = self._loop.call_later(self._options.close_timeout_s, transport.abort)
            self.closed.add_done_callback(lambda _: abort.cancel())

    def abort(self, reason: str) -> None:
        """End the connection at once, also one that is being closed."""
        if self._transport is not None and not self.closed.done():
            self._end(reason)
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed: soon after `close` or `abort`, whatever the peer does."""
        await asyncio.wait([self.closed], timeout=2 * self._options.close_timeout_s)

    def hold(self, why: int) -> None:
        """Stop reading, for one of the reasons above."""
        if self._holds == 0 and self.open and self._transport is not None:
            self._transport.pause_reading()
        self._holds |= why

    def release(self, why: int) -> None:
        """End one reason for not reading."""
        was, self._holds = self._holds, self._holds & ~why
        if was and not self._holds and self.open and self._transport is not None:
            self._transport.resume_reading()

    # ── called by the event loop ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, but not by inheritance
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else "unknown"
        self._transport.set_write_buffer_limits(high=self._options.output_bytes_high)
        self.open = True
        self._look = self._loop.call_later(self._options.ping_s, self._look_around)
        self.begun()

    def data_received(self, data: bytes) -> None:
        if not self.open:
            return
        try:
            bodies = self._framing.feed(data)
            for body in bodies:
                if not self.open:
                    return
                try:
                    frame = self._read(body)
                except UNREADABLE as error:
                    raise RemoteError(f"a frame of {len(body)} bytes cannot be read: {error}") from None
                self.take(frame)
        except RemoteError as error:
            self.violated(str(error))
            return
        if bodies:
            self._heard = True
            self.received += len(bodies)
            if self._throttle is not None:
                self._throttle.hold_if_behind(self)

    def pause_writing(self) -> None:
        self._drain_timer = self._loop.call_later(self._options.drain_timeout_s, self._not_drained)
        if self.stops_reading_when_full:
            self.hold(OUTPUT_FULL)

    def resume_writing(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self.release(OUTPUT_FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection broke: {exc}" if exc is not None else "the other side closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)

    def _flush(self) -> None:
        if not self._output or not self.open or self._transport is None:
            return
        data = b"".join(self._output)
        self._output.clear()
        self._wrote = True
        try:
            self._transport.write(data)
        except RuntimeError as error:  # uvloop: the socket is closed, and nobody was told
            self.connection_lost(error)
            return
        if self._drain_timer is not None and self.unsent > self._options.output_bytes_max:
            self.abort(f"{self.unsent} bytes wait for it, and it does not read")

    def _look_around(self) -> None:
        options = self._options
        self._look = self._loop.call_later(options.ping_s, self._look_around)
        if not self._wrote:
            self.post(PING)
        self._silent_s = 0.0 if self._heard or self._holds else self._silent_s + options.ping_s
        self._heard = self._wrote = False
        if self._silent_s >= options.silence_s:
            self.abort(f"nothing was heard for {self._silent_s:g} s")

    def _not_drained(self) -> None:
        self.abort(f"{self.unsent} bytes wait for it for {self._options.drain_timeout_s:g} s, and it does not read")

    def _end(self, reason: str) -> None:
        if not self.open:
            return
        self.open = False
        self._output.clear()
        for timer in (self._look, self._drain_timer):
            if timer is not None:
                timer.cancel()
        if self._throttle is not None:
            self._throttle.forget(self)
        self.ended(reason)


class Throttle:
    """Stops connections from reading while the process has more to do than `backlog_max`, until it has half of that.

    `backlog` counts what waits: messages not yet stepped, steps not yet in the journal.
    """

    def __init__(self, backlog: Callable[[], int], backlog_max: int) -> None:
        if backlog_max < 1:
            raise InputError("backlog_max", f"{backlog_max} is below 1", "give the number of messages that may wait")
        self.stops = 0
        self._backlog = backlog
        self._backlog_max = backlog_max
        self._held: set[Connection] = set()
        self._polling = False

    def hold_if_behind(self, connection: Connection) -> None:
        """If too much waits, do not read this connection until the backlog is smaller."""
        if self._backlog() <= self._backlog_max:
            return
        if not self._polling:
            self._polling = True
            self.stops += 1
            asyncio.get_running_loop().call_later(THROTTLE_POLL_S, self._poll)
        self._held.add(connection)
        connection.hold(BEHIND)

    def forget(self, connection: Connection) -> None:
        self._held.discard(connection)

    def _poll(self) -> None:
        if self._held and self._backlog() > self._backlog_max // 2:
            asyncio.get_running_loop().call_later(THROTTLE_POLL_S, self._poll)
            return
        self._polling = False
        held, self._held = self._held, set()
        for connection in held:
            connection.release(BEHIND)
