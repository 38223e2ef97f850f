"""How a program runs: on the fastest event loop that is installed, and with a garbage collector that looks less often.

Machines and messages make no cycles, so reference counts free nearly everything, while each look of the collector costs
time that grows with what a node knows.
"""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

COLLECTOR_THRESHOLDS = (50_000, 20, 50)  # Python's own begin at 700 new objects


def run(main: Coroutine[Any, Any, Result], *, uvloop: bool = True) -> Result:
    """Like asyncio.run, on uvloop if it can be imported. `uvloop=False`: on asyncio's own loop."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    if uvloop:
        try:
            import uvloop as fast
        except ImportError:
            pass
        else:
            return fast.run(main)
    return asyncio.run(main)
