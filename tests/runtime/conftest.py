"""Settings of the tests of the runtime."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from seriatim.runtime.loop import run


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def on_loop(request: pytest.FixtureRequest) -> Any:
    """Runs a coroutine, once on each kind of loop."""

    def go(main: Coroutine[Any, Any, None]) -> None:
        run(asyncio.wait_for(main, 240), uvloop=request.param)

    return go
