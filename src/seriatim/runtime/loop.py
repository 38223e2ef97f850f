"""How a program runs: on the fastest event loop that is installed, with as many open files as it may need.

And with a garbage collector that looks less often: machines and messages make no cycles, so reference counts free
nearly everything, while each look costs time that grows with what a node knows.
"""

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

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


def allow_open_files(count: int) -> int:
    """Allow this process `count` open files and sockets, as far as the system permits. Returns how many it may have."""
    import resource  # not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        most = soft
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most != resource.RLIM_INFINITY and most < count:
        text = "fewer open files are allowed than connections may need: allowed=%s wanted=%s fix=%s"
        logger.warning(text, most, count, f"ulimit -n {count}")
    return most
