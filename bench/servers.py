"""Fresh servers for the live benchmarks, each part in a process of its own, and what the benchmarks share."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from seriatim.brokers.nats.server import NatsServer

TOPICS = [f"t{index}" for index in range(10)]
HOLDINGS = [TOPICS[0:5], TOPICS[2:7], TOPICS[4:9], TOPICS[5:10]]
SIZE = 64
WAIT_S = 120.0
SPAWN = multiprocessing.get_context("spawn")


class Running(NamedTuple):
    """The servers of one round."""

    url: str
    nats_pid: int
    sequencer_pid: int | None = None
    admin: str = ""

    @property
    def pids(self) -> list[int]:
        """The NATS server's, and the sequencer's if there is one."""
        return [self.nats_pid] if self.sequencer_pid is None else [self.nats_pid, self.sequencer_pid]

    def status(self) -> dict[str, Any]:
        """What the one node says of itself."""
        with urllib.request.urlopen(f"{self.admin}/status", timeout=WAIT_S) as answer:
            node: dict[str, Any] = json.load(answer)["nodes"][0]
        return node


@contextmanager
def nats_alone() -> Iterator[Running]:
    """A fresh NATS server with JetStream."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        yield Running(server.url, server.pid)


@contextmanager
def seriatim_up(mode: str) -> Iterator[Running]:
    """A fresh NATS server and a sequencer with a durable journal."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "seriatim.cli", "up", "--port", "0", "--mode", mode, "--log-level", "warning"]
        process = subprocess.Popen(
            [*command, "--folder", folder, "--ready-file", str(ready)], stdout=subprocess.DEVNULL
        )
        try:
            until(ready.exists, "the sequencer to be ready")
            tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
            children = [int(pid) for task in tasks for pid in task.read_text().split()]
            facts = json.loads(ready.read_text())
            yield Running(facts["url"], children[0], process.pid, facts["admin"])
        finally:
            process.terminate()
            process.wait(20)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0, every_s: float = 0.02) -> None:
    """Wait for a condition, with a time limit."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(every_s)


def in_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work(*arguments)` in a new process; its result comes out of the queue that is returned."""
    answers = SPAWN.Queue()
    SPAWN.Process(target=_answer, args=(answers, work, arguments), daemon=True).start()
    return answers


def _answer(answers: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    answers.put(work(*arguments))


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
