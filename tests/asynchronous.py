"""Tests that are coroutines: each runs in an event loop of its own."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

Parameters = ParamSpec("Parameters")


def asynchronous(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """`@asynchronous async def test_…`"""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
