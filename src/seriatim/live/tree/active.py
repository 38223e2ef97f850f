"""What a standby knows of the process that it stands by for: whether it answers on the broker, and at its address.

The journal decides who runs a node (standby.py). But a process may write its journal, and be reached by nobody.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from seriatim.model import UNREADABLE, SeriatimError
from seriatim.runtime.net.addresses import split_address
from seriatim.server.health import Trouble
from seriatim.server.status import NodeStatus

if TYPE_CHECKING:
    from seriatim.live.tree.served import ServedNode

ANSWER_S = 2.0
PATIENCE = 2.0  # times the time after which a standby takes over: it is silent for so long


class ActiveProcess:
    """The process that runs a node while this one stands by for it."""

    def __init__(self, served: "ServedNode") -> None:
        self._served = served
        self._answered_s = time.monotonic()
        self._address = ""
        self._unreached = ""

    async def look_forever(self) -> None:
        pause_s = self._served.takeover_s
        while True:
            if self._served.role == "standby":
                await self._look()
            else:
                self._answered_s, self._unreached = time.monotonic(), ""
            await asyncio.sleep(pause_s)

    async def _look(self) -> None:
        try:
            answer = await self._served.ask_active(ANSWER_S)
            status = msgspec.json.decode(answer, type=NodeStatus) if answer is not None else None
        except (SeriatimError, *UNREADABLE):
            return  # the broker is away, or refuses: that is a problem by itself
        if status is None:
            return
        self._answered_s, self._address = time.monotonic(), status.address
        self._unreached = await _why_unreached(status.address)

    def troubles(self) -> Iterator[Trouble]:
        silent_s = time.monotonic() - self._answered_s
        node = self._served.node
        if silent_s > PATIENCE * self._served.takeover_s + ANSWER_S:
            reason = f"no process runs {node}, or it does not answer on the broker; this one has not taken over yet"
            yield Trouble("silent", "", reason, silent_s)
        elif self._unreached:
            reason = f"the process that runs {node} is not reached from here at {self._address}: {self._unreached}"
            yield Trouble("silent", self._address, reason)


async def _why_unreached(address: str) -> str:
    """Why no process accepts connections at this address. Empty: one does."""
    host, port = split_address("address", address)
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no connection within {ANSWER_S:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__
    writer.transport.abort()  # nothing was said
    return ""
