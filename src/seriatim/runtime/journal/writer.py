"""One thread that does blocking work in order, for an event loop that must not wait for it.

A thread pool does the same; this is the part of one that a journal needs, to open and close its files and for appends
that are too large for the thread of its segment (segment.py).
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from seriatim.model import Closed, SeriatimError

Result = TypeVar("Result")
Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]

# What work raises on purpose or by mistake; the thread survives it, and whoever waits is told.
RAISED = (
    OSError,
    SeriatimError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Writer:
    """A thread, started when it is created. `end` lets earlier work finish."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ended = False
        self._thread.start()

    def submit(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Do this after all earlier work, whether or not somebody waits for it."""
        if self._ended:
            raise Closed(f"{self._thread.name} has ended")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((work, future))
        return future

    def end(self) -> None:
        """Take nothing more."""
        if not self._ended:
            self._ended = True
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            try:
                outcome, error = work(), None
            except RAISED as raised:
                outcome, error = None, raised
            try:
                self._loop.call_soon_threadsafe(_tell, future, outcome, error)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told
            del work, future, outcome, error, job


def _tell(future: "asyncio.Future[Any]", outcome: Any, error: BaseException | None) -> None:
    if future.done():  # whoever waited was cancelled
        return
    if error is None:
        future.set_result(outcome)
    else:
        future.set_exception(error)
