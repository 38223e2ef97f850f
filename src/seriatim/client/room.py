"""Limits on the events that wait in the client, in number and in bytes. Callers that need room get it in turn.

An outbox has one for events that are not confirmed yet, an inbox one for events that the application has not taken.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from seriatim.model import SeriatimError, TimedOut


class Room:
    """`take` when events begin to wait, `give` when they stop. `others`: returns how many more wait elsewhere."""

    def __init__(self, events_max: int, bytes_max: int, others: Callable[[], int] | None = None) -> None:
        self.events = 0
        self.bytes = 0
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._others = others
        self._turns: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether there is room now, and no caller waits for it."""
        if self._turns or self.events >= self._events_max or self.bytes >= self._bytes_max:
            return False
        return self._others is None or self._fits()

    @property
    def is_exceeded(self) -> bool:
        """Whether more waits than the limits allow."""
        return self.events > self._events_max or self.bytes > self._bytes_max

    @property
    def is_half_free(self) -> bool:
        """Whether at most half of the limits is used."""
        return self.events <= self._events_max // 2 and self.bytes <= self._bytes_max // 2

    @property
    def waiters(self) -> int:
        return len(self._turns)

    def take(self, events: int, size: int) -> None:
        self.events += events
        self.bytes += size
        if self._turns:
            self.wake()  # the next caller may fit too

    def give(self, events: int, size: int) -> None:
        self.events -= events
        self.bytes -= size
        if self._turns:
            self.wake()

    async def wait(self, timeout_s: float) -> None:
        """Wait for room, in turn. TimedOut: there was none in that time."""
        if self.is_free:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            waited = f"waited {timeout_s:g} s for room: {self} before this one"
            raise TimedOut(f"{waited}; it was not sent") from None
        except asyncio.CancelledError:
            if turn.done():  # it was this caller's turn: pass it on
                self.wake()
            raise
        finally:
            if turn in self._turns:
                self._turns.remove(turn)

    def wake(self) -> None:
        """Let the next caller continue, if there is room."""
        while self._turns and self._fits():
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def close(self, error: SeriatimError) -> None:
        """Callers that wait get this error."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_exception(error)

    def __str__(self) -> str:
        return f"{self._waiting()} events of {self.bytes} bytes wait to be published"

    def _waiting(self) -> int:
        return self.events + (self._others() if self._others is not None else 0)

    def _fits(self) -> bool:
        return self._waiting() < self._events_max and self.bytes < self._bytes_max
