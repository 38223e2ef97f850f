"""The processes of the live demo, by their process id: started, heard, killed, and gone at the end whatever happens."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seriatim.model import SeriatimError, TimedOut

END_S = 5.0
LOG_LINES_QUOTED = 8
SOURCE = Path(__file__).parents[2]  # where this package is, also when it is not installed


class ChildFailed(SeriatimError):
    """A process of the demo ended by itself; says how, and what it said last."""


class Child:
    """One program, perhaps started several times: `python -m <module> <arguments>`."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = folder / f"{name.replace(' ', '-')}.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def _last(self) -> asyncio.subprocess.Process:
        """The process that was started last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self._last.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it in a session of its own: Ctrl-C in a terminal goes to the demo, which ends its children."""
        assert not self.is_running, f"{self.name} is running"
        path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )

    async def line(self, timeout_s: float, what: str) -> str:
        assert self._last.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._last.stdout.readline()
        except TimeoutError:
            raise TimedOut(f"waited {timeout_s:g} s for {self.name} {what}{self._last_words()}") from None
        if not line:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._last.wait()
            raise self.failure(f"while we waited for it {what}")
        return line.decode().rstrip()

    def failure(self, when: str) -> ChildFailed:
        """The error for a process that ended and should not have."""
        return ChildFailed(f"{self.name} ended with code {self._last.returncode} {when}{self._last_words()}")

    async def kill(self) -> int:
        """Kill it with SIGKILL; returns its process id."""
        if self.is_running:
            self._last.kill()
        await self._last.wait()
        return self.pid

    def terminate(self) -> None:
        """Send SIGTERM: it ends in its own time."""
        if self.is_running:
            self._last.terminate()

    async def ended(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._last.wait()
        except TimeoutError:
            raise TimedOut(f"waited {timeout_s:g} s for {self.name} to end{self._last_words()}") from None
        if self._last.returncode != 0:
            raise self.failure("in the end")

    def _last_words(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        lines = text.splitlines()[-LOG_LINES_QUOTED:]
        return "; it said:\n" + "\n".join(lines) if lines else ""


class Children:
    """All processes. Leaving the context kills whatever still runs."""

    def __init__(self, folder: Path) -> None:
        self.pids: list[tuple[str, int]] = []  # of every process that was ever started
        self._folder = folder
        self._all: list[Child] = []

    async def start(self, name: str, module: str, *arguments: str) -> Child:
        child = Child(name, module, arguments, self._folder)
        self._all.append(child)
        await self.restart(child)
        return child

    async def restart(self, child: Child) -> None:
        """Start one again that has ended."""
        await child.start()
        self.pids.append((child.name, child.pid))

    def check(self) -> None:
        """Raise if one that should be running is not."""
        for child in self._all:
            if not child.is_running:
                raise child.failure("by itself")

    async def __aenter__(self) -> "Children":
        return self

    async def __aexit__(self, *error: object) -> None:
        running = [child for child in self._all if child.is_running]
        await asyncio.gather(*(child.kill() for child in running))
