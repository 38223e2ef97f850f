"""A node that several processes can run, one at a time: wait until its journal is silent, take over, wait again.

No lock, lease or vote decides who runs the node. The journal does: it accepts only the last process that opened
it. So a wrong guess about which process is alive costs a moment of service, but never gives a number out twice. Silence
only triggers an attempt. A replaced process learns of it from the journal, at its next append or beat, and waits.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from seriatim.brokers.capabilities import FencedJournal
from seriatim.live.tree.host import NodeHost
from seriatim.model import Fenced, InputError, JournalError, Node, Unreachable
from seriatim.runtime import Journal

logger = logging.getLogger(__name__)

CANCEL_S = 1.0


class Standby:
    """Runs one node whenever no other process does. `host` is the running node, None while another process runs it.

    `make_journal` gives a new journal each time, with a beat several times shorter than `silent_s` and a timeout that
    is shorter too (a writer whose server restarts is silent for about that long); `make_host` a new host on it.
    `eager`: do not wait the first time; replace the process that runs the node. `on_change` is called with the reason
    whenever `host` has changed. `failed` is done after an error that waiting cannot fix.
    """

    def __init__(
        self,
        node: Node,
        *,
        make_journal: Callable[[], FencedJournal],
        make_host: Callable[[Journal], NodeHost],
        silent_s: float,
        eager: bool = False,
        on_change: Callable[[NodeHost | None, str], None] | None = None,
    ) -> None:
        if silent_s <= 0:
            raise InputError("silent_s", f"{silent_s} is not positive", "give a number of seconds above 0")
        loop = asyncio.get_running_loop()
        self.node = node
        self.host: NodeHost | None = None
        self.takeovers = 0
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        self._make_journal = make_journal
        self._make_host = make_host
        self._silent_s = silent_s
        self._eager = eager
        self._on_change = on_change
        self._stop: asyncio.Future[None] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Wait for the node's turn from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._on_ended)

    async def stop(self) -> None:
        """Stop the node, if it runs here, and stop waiting. May be called twice."""
        if not self._stop.done():
            self._stop.set_result(None)
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        is_eager = self._eager
        while not self._stop.done():
            journal = self._make_journal()
            if not is_eager and not await self._unless_stopped(journal.wait_until_silent(self._silent_s)):
                return
            is_eager = False
            host = self._make_host(journal)
            try:
                reason = await self._serve(host, journal)
            except (Fenced, Unreachable) as error:  # another process was quicker, or nobody answers
                logger.info("could not take over: node=%s reason=%s", self.node, error)
                continue
            finally:
                await host.stop()
            if reason is None:
                return
            if not isinstance(reason, JournalError):
                raise reason
            logger.warning("standing by again: node=%s reason=%s", self.node, reason)

    async def _serve(self, host: NodeHost, journal: FencedJournal) -> BaseException | None:
        """Run the node until it ends, and return why. None: a stop was requested."""
        if not await self._unless_stopped(host.start()):
            return None
        self.takeovers += 1
        self._change(host, "nobody else runs it")
        ends: set[asyncio.Future[Any]] = {host.failed, journal.failed, self._stop}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        reason: BaseException | None = None
        if host.failed.done() or journal.failed.done():
            reason = host.failed.result() if host.failed.done() else journal.failed.result()
        self._change(None, str(reason) if reason is not None else "stopping")
        return reason

    async def _unless_stopped(self, job: Coroutine[Any, Any, None]) -> bool:
        """Whether the job was done before a stop was requested."""
        task = asyncio.get_running_loop().create_task(job)
        await asyncio.wait({task, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        while not task.done():  # once is not always enough: waiting with a timeout may swallow it (before Python 3.12)
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_S)
        return False

    def _change(self, host: NodeHost | None, reason: str) -> None:
        self.host = host
        if self._on_change is not None:
            self._on_change(host, reason)

    def _on_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            logger.error("no longer standing by: node=%s reason=%s", self.node, error)
            self.failed.set_result(error)
