"""The output of `sub --durable` for a program that reads it through a pipe: how far the program is, and whether it
lives.

An event counts as dealt with when the reader begins to read the line after it, as an event in Python does when the next
one is asked for. There is one line in the pipe at a time, so that this holds for readers that read ahead, too. Events
that were not read, and the last one that was, come again after a restart. How many bytes of a pipe nobody has read,
Linux tells. If the output is not a pipe, a written event counts as processed.
"""

import array
import asyncio
import fcntl
import os
import select
import stat
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

import click

from seriatim.model import Closed

if TYPE_CHECKING:
    from seriatim import Event, Gap, Subscription
    from seriatim.client.inbox import Place

LOOK_S = 0.2  # how often an idle reader is looked after
TURNS = 50  # of the loop, in which a quick reader takes its line
READ_S = 0.001  # how often a slower one is looked after


class Output:
    """Takes events from a subscription and prints their lines on stdout.

    `acknowledge`: called at the end, because printed events count as processed; None: nothing is acknowledged.
    """

    def __init__(
        self, events: "AsyncIterator[Event | Gap]", acknowledge: "Callable[[], Awaitable[None]] | None" = None
    ) -> None:
        self._events = events
        self._acknowledge_all = acknowledge

    async def next(self) -> "Event | Gap":
        """The next event. StopAsyncIteration: there are no more."""
        return await anext(self._events)

    async def write(self, line: str) -> None:
        """Print one line, and flush it, because another program may be reading."""
        click.echo(line)

    async def finish(self) -> None:
        """Acknowledge what is printed, if the subscription is durable."""
        if self._acknowledge_all is not None:
            await self._acknowledge_all()


class PipedOutput(Output):
    """Prints into a pipe, and acknowledges each event of a durable subscription when the reader has dealt with it.

    Closed: the reader has ended.
    """

    def __init__(self, events: "Subscription", descriptor: int) -> None:
        super().__init__(events)
        self._subscription = events
        self._fd = descriptor
        self._written = 0
        self._open: deque[tuple[int, Place]] = deque()  # where each line ends, and the place of its event

    async def next(self) -> "Event | Gap":
        coming = asyncio.ensure_future(anext(self._events))
        try:
            while not (await asyncio.wait([coming], timeout=LOOK_S))[0]:
                await self._look()
            return coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait([coming])

    async def write(self, line: str) -> None:
        await self._until_read()
        try:
            await self._write(f"{line}\n".encode())
        except BrokenPipeError:
            await self._look()
        self._open.append((self._written, self._subscription.handed_out))

    async def finish(self) -> None:
        """Wait until the reader has read everything, and acknowledge it."""
        await self._until_read()
        await self._acknowledge(self._written + 1)

    async def _until_read(self) -> None:
        """Wait until the reader has taken what was written. Closed: the reader has ended."""
        for turn in count():
            await self._look()
            if not self._unread():
                return
            await asyncio.sleep(0 if turn < TURNS else READ_S)

    async def _look(self) -> None:
        """Acknowledge what the reader has dealt with. Closed: it has ended."""
        is_gone = self._is_gone()
        await self._acknowledge(self._written - self._unread())
        if is_gone:
            raise Closed(
                f"the reader of the output has ended, and {len(self._open)} of the events that it was given are not "
                "acknowledged; they come again after a restart"
            )

    async def _acknowledge(self, read: int) -> None:
        place = None
        while self._open and self._open[0][0] < read:
            _, place = self._open.popleft()
        if place is not None:
            await self._subscription.acknowledge(place)

    async def _write(self, data: bytes) -> None:
        if len(data) <= select.PIPE_BUF:  # there is room for it
            self._written += os.write(self._fd, data)
            return
        loop = asyncio.get_running_loop()
        while data:
            done = await loop.run_in_executor(None, os.write, self._fd, data)
            self._written += done
            data = data[done:]

    def _unread(self) -> int:
        unread = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, unread)
        return unread[0]

    def _is_gone(self) -> bool:
        """Whether nobody reads any more."""
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))


def stdout_pipe() -> int | None:
    """The descriptor of stdout, if it is a pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
