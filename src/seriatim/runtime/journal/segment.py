"""The file that a journal appends to, and the thread that does it.

*The thread.* Handing an append to a thread and back costs a busy node more processor time than the disk takes: for
whatever a Python thread does it needs the interpreter's lock, which the event loop holds. So the thread waits for the
next append, writes it and waits for the disk in *one* call of the system: it moves bytes from a pipe to the file
(`splice`), and needs the lock once, to say that it is done. Where that is not possible it reads the pipe and writes to
the file.

*One at a time.* The loop puts a frame into the pipe only when the previous one is durable, so that a crash leaves at
most one unfinished frame, at the end.

*Room.* A file that grows has its new size and blocks made durable with every append, which is a second wait for the
disk. So room is reserved ahead, as zeros: when a file is begun, and later after an append was acknowledged, not while
somebody waits.
"""

import asyncio
import errno
import logging
import os
import sys
import threading
from pathlib import Path

from seriatim.model import JournalError
from seriatim.runtime.journal.layout import failure, write_all

logger = logging.getLogger(__name__)

RESERVED_BYTES_MIN, RESERVED_BYTES_MAX = 64 * 1024, 1024 * 1024  # as much as there is already, within these bounds
NO_ROOM = 2**63  # nothing more is reserved in this file
PIPE_BYTES = 1024 * 1024  # what Linux lets everybody have; elsewhere a pipe is what it is
PIPE_BYTES_USUAL = 16 * 1024  # the least that systems give
ANY_BYTES = 2**30
CANNOT_SPLICE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)  # this file system, or this system


class Segment:
    """One open file: where what was written ends, and how far the file itself goes. For one thread at a time."""

    def __init__(self, path: Path, descriptor: int, end: int, *, reserves: bool) -> None:
        self.path = path
        self.descriptor = descriptor
        self.end = end
        self.reserved = max(end, os.fstat(descriptor).st_size) if reserves else NO_ROOM
        self.broken: JournalError | None = None

    def write(self, data: bytes) -> None:
        """Write. The bytes are durable when this returns, if the file was opened for synchronous writes."""
        if self.broken is not None:
            raise self.broken
        try:
            write_all(self.descriptor, data, self.end)
        except OSError as error:
            raise self.failed(error) from error
        self.written(len(data))

    def written(self, count: int) -> None:
        self.end += count
        self.reserved = max(self.end, self.reserved)

    def failed(self, error: OSError) -> JournalError:
        """A write failed: the content of the disk is unknown, so nothing more is taken."""
        self.broken = failure("append", self.path, error)
        return self.broken

    def reserve(self) -> None:
        """Reserve room if little is left. If the disk has none, an append may still fit, or it reports the error."""
        if self.reserved - self.end >= RESERVED_BYTES_MIN:
            return
        room = min(max(self.end, RESERVED_BYTES_MIN), RESERVED_BYTES_MAX)
        try:
            write_all(self.descriptor, bytes(room), self.reserved)
        except OSError as error:
            logger.warning("no room to reserve: folder=%s reason=%s", self.path.parent, error.strerror)
            self.reserved = NO_ROOM
        else:
            self.reserved += room

    def close(self) -> None:
        """Give back the reserved room. Not made durable: zeros at the end mean nothing."""
        try:
            if self.broken is None and os.fstat(self.descriptor).st_size > self.end:
                os.ftruncate(self.descriptor, self.end)
        except OSError as error:
            logger.warning("reserved room not given back: path=%s reason=%s", self.path, error.strerror)
        os.close(self.descriptor)


class Feed:
    """Appends to a segment in a thread, until it is closed. Made on the event loop, which hears of every append."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._loop = asyncio.get_running_loop()
        self._out, self._in = os.pipe()
        self._capacity = _widened(self._in)
        self._length = 0  # of the frame under way
        self._told: asyncio.Future[None] = self._loop.create_future()  # of the frame under way
        self._thread = threading.Thread(target=self._run, name=f"append {segment.path}", daemon=True)
        self._thread.start()

    def takes(self, data: bytes) -> bool:
        return len(data) <= self._capacity

    def append(self, data: bytes) -> "asyncio.Future[None]":
        """Append a frame that fits. Call it only when the one before is done."""
        self._told = future = self._loop.create_future()
        self._length = len(data)
        if self._segment.broken is not None:  # its thread has ended
            future.set_exception(self._segment.broken)
        else:
            os.write(self._in, data)
        return future

    def _settle(self, error: JournalError | None) -> None:
        if self._told.done():
            return
        if error is None:
            self._told.set_result(None)
        else:
            self._told.set_exception(error)

    def close(self) -> None:
        """Close. Blocks until the current append is written, so do not call it on the event loop."""
        os.close(self._in)
        self._thread.join()
        os.close(self._out)

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        segment, written, move = self._segment, 0, self._move
        if not hasattr(os, "splice"):
            move = self._copy
        while True:
            try:
                count = move()
            except OSError as error:
                if move == self._move and error.errno in CANNOT_SPLICE:
                    move = self._copy
                    continue
                self._tell(segment.failed(error))
                return
            if count == 0:  # closed
                return
            segment.written(count)
            written += count
            if written == self._length:
                written = 0
                if not self._tell(None):
                    return
                segment.reserve()

    def _move(self) -> int:
        return os.splice(self._out, self._segment.descriptor, ANY_BYTES, offset_dst=self._segment.end)

    def _copy(self) -> int:
        data = os.read(self._out, PIPE_BYTES)
        if data:
            write_all(self._segment.descriptor, data, self._segment.end)
        return len(data)

    def _tell(self, error: JournalError | None) -> bool:
        """Tell the event loop. False: the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            return False
        return True


def _widened(pipe: int) -> int:
    """Widen the pipe as far as allowed. Returns how many bytes fit into it."""
    if sys.platform != "linux":
        return PIPE_BYTES_USUAL
    import fcntl

    try:
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except PermissionError:  # this user has many pipes already
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
