"""`seriatim` as people run it: in processes of its own, waited for with a bound, ended by process id."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.waiting import wait

SOURCE = Path(__file__).parent.parent.parent / "src"
WAIT_S = 120.0  # a bound for a busy machine; most things here take a second
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("SERIATIM_")},
    "PYTHONPATH": str(SOURCE),
    "PYTHONUNBUFFERED": "1",
}
PROGRAM = [sys.executable, "-c", "from seriatim.cli import main; main(prog_name='seriatim')"]


def command(*words: str | Path) -> list[str]:
    """The whole command line. Who waits for an answer waits for as long as a busy machine may take."""
    patience = (
        ["--timeout", "60"] if words[0] in ("pub", "sub", "status", "explain") and "--timeout" not in words else []
    )
    return [*PROGRAM, *map(str, words), *patience]


class Running:
    """One `seriatim` process. What it writes is kept, line by line."""

    def __init__(self, *words: str | Path, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE) -> None:
        self.words = " ".join(map(str, words))
        self.process = subprocess.Popen(
            command(*words),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        streams = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        self._readers = [_follow(stream, lines) for stream, lines in streams if stream is not None]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_line(self, text: str) -> str:
        """Until it has written a line with this text, to stdout or stderr."""

        def found() -> str | None:
            return next((line for line in [*self.out, *self.err] if text in line), None)

        wait(lambda: found() or self.process.poll() is not None, f"{self} writes {text!r}", WAIT_S)
        line = found()
        if line is None:
            self.__exit__()  # or its pipes would be found open in a later test
            raise AssertionError(f"{self} ended before it wrote {text!r}")
        return line

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Its exit code, once it has ended."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} did not end within {timeout_s} s") from None
        for reader in self._readers:
            reader.join(WAIT_S)
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it, and wait."""
        self.process.send_signal(number)
        return self.wait()

    def rows(self) -> list[dict[str, Any]]:
        """What it wrote, as JSON lines."""
        return [json.loads(line) for line in self.out]

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # killed, it could not stop what it has started
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def __str__(self) -> str:
        written = "\n".join([*self.out[-20:], *self.err[-20:]])
        return f"`seriatim {self.words}` (exit code {self.process.poll()}), which wrote:\n{written}\n"


def _follow(stream: IO[str], lines: list[str]) -> threading.Thread:
    def read() -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def run(*words: str | Path, cwd: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*words),
        input=given,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        cwd=cwd,
        timeout=WAIT_S,
    )


@contextmanager
def up(folder: Path, *words: str | Path) -> Iterator[tuple[Running, dict[str, Any]]]:
    """`seriatim up` on a free port, ready; what it says about itself."""
    ready = folder / "ready.json"
    with Running("up", "--port", "0", "--ready-file", ready, *words) as running:
        wait(lambda: ready.exists() or running.process.poll() is not None, f"{running} is ready", WAIT_S)
        assert running.process.poll() is None, f"{running} ended before it was ready"
        yield running, json.loads(ready.read_text())
