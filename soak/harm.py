"""Faults that overlap, each with victims of its own: what the soaks of peers, of atoms and of overlays share."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from soak.children import Child
from soak.refusals import Refusal


class Harm:
    """The faults of a round. `refusals`: how the processes ended that must not act."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self._victims: dict[asyncio.Task[None], frozenset[str]] = {}

    @property
    def struck(self) -> set[str]:
        """All processes that suffer a fault now, or must not be harmed because another one does."""
        return {name for task, names in self._victims.items() if not task.done() for name in names}

    def strike(self, victims: Iterable[str], fault: Coroutine[Any, Any, None]) -> None:
        """Begin a fault; it undoes itself. Nobody else strikes these meanwhile."""
        self._victims[asyncio.get_running_loop().create_task(fault)] = frozenset(victims)

    def check(self) -> None:
        """Raise what went wrong in a fault itself."""
        for task in [task for task in self._victims if task.done()]:
            del self._victims[task]
            task.result()

    async def over(self) -> None:
        """Wait until every fault is undone."""
        while self._victims:
            await asyncio.wait(self._victims, return_when=asyncio.FIRST_COMPLETED)
            self.check()

    async def stop(self) -> None:
        """Go no further: the round is over."""
        tasks = list(self._victims)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._victims.clear()


async def kill(child: Child, for_s: float) -> None:
    """kill -9, and a new life after a while."""
    child.kill()
    await asyncio.sleep(for_s)
    child.start()


async def freeze(child: Child, for_s: float) -> None:
    """SIGSTOP: others see a process that is there and says nothing."""
    child.freeze()
    try:
        await asyncio.sleep(for_s)
    finally:
        child.thaw()
