"""Room for what waits to be published: a bound in events and in bytes, given out in turn."""

import asyncio
from collections import deque

from seriatim.client.options import Limits
from seriatim.model import SeriatimError, TimedOut


class Room:
    """`take` when something begins to wait, `give` when it does not any more."""

    def __init__(self, limits: Limits) -> None:
        self.events = 0
        self.bytes = 0
        self._limits = limits
        self._turns: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether there is room now, and nobody waits for it."""
        return not self._turns and self._fits()

    def _fits(self) -> bool:
        return self.events < self._limits.queue_events and self.bytes < self._limits.queue_bytes

    def take(self, size: int) -> None:
        """One more waits."""
        self.events += 1
        self.bytes += size
        self._wake()  # the one behind may fit too

    def give(self, size: int) -> None:
        """One less."""
        self.events -= 1
        self.bytes -= size
        self._wake()

    async def wait(self, timeout_s: float) -> None:
        """Until there is room, in turn. TimedOut: there was none in that time."""
        if self.is_free:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            raise TimedOut(
                f"waited {timeout_s:g} s for room: {self.events} events of {self.bytes} bytes wait to be published "
                "before this one; it was not sent"
            ) from None
        except asyncio.CancelledError:
            if turn.done():  # it was this one's turn: the next one's, then
                self._wake()
            raise
        finally:
            if turn in self._turns:
                self._turns.remove(turn)

    def close(self, error: SeriatimError) -> None:
        """There will be none."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_exception(error)

    def _wake(self) -> None:
        while self._turns and self._fits():
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
