"""Messages from a service to the manager that started it, over the socket that systemd names in NOTIFY_SOCKET.

`READY=1` when everything serves, `STOPPING=1` at the first signal, and, if the unit has a WatchdogSec, `WATCHDOG=1`
from the event loop: a process that hangs is started again. Without such a manager nothing is sent.
"""

import asyncio
import logging
import os
import socket

logger = logging.getLogger(__name__)

BEATS_PER_WATCHDOG = 3


def tell_manager(state: str) -> None:
    """Tell the service manager, if there is one. It is never waited for, and an error ends nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(state.encode(), target)
    except OSError as error:
        logger.warning("service manager was not notified: state=%s reason=%s", state.partition("\n")[0], error)


def watchdog_s() -> float | None:
    """How often the manager wants to hear of us. None: it does not."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or not int(microseconds) or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1e6 / BEATS_PER_WATCHDOG


async def beat_forever() -> None:
    """Tell the manager that the event loop turns, as often as it wants to hear that."""
    pause_s = watchdog_s()
    while pause_s is not None:
        tell_manager("WATCHDOG=1")
        await asyncio.sleep(pause_s)
