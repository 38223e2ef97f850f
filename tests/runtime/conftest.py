"""Settings of the tests of the runtime."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test marked `both_loops` runs once on each kind of event loop."""
    if item.get_closest_marker("both_loops"):
        return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
