"""Child processes, by their process id: start, kill -9, freeze, thaw, end. Each has a log file over all its lives."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from seriatim.model import SeriatimError, TimedOut
from soak.tree.rows import now

REPOSITORY = Path(__file__).parent.parent
LOG_LINES_QUOTED = 15
POLL_S = 0.02


class Child:
    """One process of a run. `wanted`: it should be running; if it is not, it died by itself."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.log = log
        self.environment: dict[str, str] = {}
        self.wanted = False
        self.lives = 0
        self.started_at = 0.0
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last life."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists. A frozen one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code of the last life; None: it still runs, or never started."""
        return None if self._process is None else self._process.poll()

    @property
    def died(self) -> bool:
        """Whether the process ended by itself."""
        return self.wanted and not self.running

    def start(self) -> None:
        """Start the process again."""
        assert not self.running, f"{self.name} is running"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", self._module, *self.arguments]
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in a terminal goes to the harness, which ends its children in its own order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.environment),
                start_new_session=True,
            )
        self.wanted = True
        self.lives += 1
        self.started_at = now()

    def kill(self) -> None:
        """kill -9."""
        self.wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def freeze(self) -> None:
        """Send SIGSTOP: the process stops, and others get no error."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Any other signal."""
        os.kill(self.pid, number)

    async def end(self, timeout_s: float = 60.0) -> None:
        """SIGTERM, and wait. TimedOut: it did not end (it is killed then)."""
        self.wanted = False
        if not self.running:
            return
        self.signal(signal.SIGTERM)
        try:
            await wait_for(lambda: not self.running, timeout_s, f"{self.name} to end after SIGTERM")
        except TimedOut:
            self.kill()
            raise

    def last_lines(self, count: int = LOG_LINES_QUOTED) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(nothing)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])


def check_alive(children: Iterable[Child]) -> None:
    """Fail if a process has ended by itself."""
    for child in children:
        if child.died:
            raise SeriatimError(f"{child.name} ended by itself with code {child.code}:\n{child.last_lines()}")


def kill_all(children: Iterable[Child]) -> None:
    """Kill every process that still runs."""
    for child in children:
        if child.running:
            child.kill()


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which a child process finds the code."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])} | dict(more or {})


async def wait_for(is_so: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Poll until something is so; the seconds it took. TimedOut says what was waited for."""
    began = now()
    while not is_so():
        if now() - began > timeout_s:
            raise TimedOut(f"waited {timeout_s:g} s for {what}")
        await asyncio.sleep(POLL_S)
    return now() - began


def free_port() -> int:
    """A port nobody listens on, below those that the system gives to outgoing connections.

    Never from a seed: two runs of one seed side by side would take each other's.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def free_ports(count: int) -> list[int]:
    """Several different free ports."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)
