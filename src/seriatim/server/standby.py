"""A node that several processes can run, one at a time: wait until nobody writes its journal, take over, go back.

No lock, lease or vote decides who runs the node: the journal does, by refusing everybody but the last who opened it.
So this file may be wrong about who is alive, and it costs a moment of service, never a number given out twice. Silence
is only the occasion to try. A process that was replaced learns it from the journal, at its next append or beat, and
waits again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from seriatim.model import Fenced, InputError, JournalError, Node, Unreachable
from seriatim.runtime import Journal
from seriatim.server.host import NodeHost

logger = logging.getLogger(__name__)

CANCEL_S = 1.0


class WatchedJournal(Journal, Protocol):
    """A journal that other processes can look at (brokers/nats_journal.py)."""

    failed: "asyncio.Future[JournalError]"
    """Done when it takes nothing more: also while nobody appends, if it has a beat."""

    async def wait_until_silent(self, silent_s: float) -> None:
        """Return when nobody has written for so long. May wait for ever."""
        ...


class Standby:
    """Runs one node whenever nobody else does. `host` is the running node, None while another process runs it.

    `make_journal` gives a new journal each time, with a beat several times shorter than `silent_s` and a timeout that
    is shorter too (a writer whose server restarts is silent for about that long); `make_host` a new host on it.
    `eager`: do not wait the first time; whoever runs the node is replaced. `on_change` is told whenever `host` has
    changed, with the reason. `failed` is done when something happened that waiting does not cure.
    """

    def __init__(
        self,
        node: Node,
        *,
        make_journal: Callable[[], WatchedJournal],
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
        """Orderly: a node that runs is stopped first. May be called twice."""
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
            except (Fenced, Unreachable) as error:  # somebody else was quicker, or nobody answers
                logger.info("could not take over", extra={"node": self.node, "reason": str(error)})
                continue
            finally:
                await host.stop()
            if reason is None:
                return
            if not isinstance(reason, JournalError):
                raise reason
            logger.warning("waiting again", extra={"node": self.node, "reason": str(reason)})

    async def _serve(self, host: NodeHost, journal: WatchedJournal) -> BaseException | None:
        """Run the node until it ends, and say why; None: we are to stop."""
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
        """Whether the job was done before we are to stop."""
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
            logger.error("no longer standing by", extra={"node": self.node, "reason": str(error)})
            self.failed.set_result(error)
