"""How tests wait: for something to be so, never for a time to pass. What sleeps in the tests sleeps here."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

FOREVER_S = 3_600.0  # pytest ends the test before
LIMIT_S = 50.0  # for a busy machine; below the limit of a test, so that a failure says what was waited for
STEP_S = 0.002


async def until(
    is_so: Callable[[], object] | Callable[[], Awaitable[object]], what: str, timeout_s: float = LIMIT_S
) -> None:
    """Look again and again; what is asked may be a coroutine."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer: Any = is_so()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s: {what}"
        await asyncio.sleep(STEP_S)


def wait(is_so: Callable[[], object], what: str, timeout_s: float = LIMIT_S) -> None:
    """The same for tests that block."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s: {what}"
        time.sleep(STEP_S)


async def a_moment(seconds: float = 0.1) -> None:
    """In which something must not happen, or the pace of a load. Never for something that is to happen: see above."""
    await asyncio.sleep(seconds)
