"""One run in a process of its own: a run that is slow, crashes or uses up all memory fails alone.

The parent writes one JSON line to the child and keeps the pipe open; a child whose parent is gone sees its end and
stops. The child answers with one JSON line on its standard output.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout, suppress
from typing import IO, Any

from seriatim.lab.experiments.experiment import Parameters
from seriatim.lab.experiments.registry import find
from seriatim.lab.experiments.results import Trial

ERROR_CHARACTERS = 2_000  # of a traceback, from its end
END_S = 10.0  # for a killed child to be gone


def run_isolated(
    experiment: str, parameters: Parameters, seed: int, limit_s: float, memory_mb: int | None = None
) -> Trial:
    """Run one point in a child process, for at most so long. Never raises for what the run does."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    child = subprocess.Popen(
        [sys.executable, "-m", "seriatim.lab.experiments.isolated"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # so that what the run starts can be ended with it
    )
    work = {"experiment": experiment, "parameters": parameters, "seed": seed, "memory_mb": memory_mb}
    assert child.stdin is not None
    try:
        with suppress(BrokenPipeError):  # a child that dies at once: its exit code tells
            child.stdin.write(json.dumps(work).encode() + b"\n")
            child.stdin.flush()
        answer, complaint, is_late = _await(child, limit_s)
    finally:
        _end(child)
        _close(child)
    elapsed_s = time.monotonic() - began

    def failed(error: str) -> Trial:
        return Trial(parameters=parameters, seed=seed, measures=None, error=error, elapsed_s=elapsed_s)

    if is_late:
        return failed(f"took longer than {limit_s:g} s")
    if child.returncode != 0:
        last = complaint.decode(errors="replace").strip()[-ERROR_CHARACTERS:]
        return failed(f"{_how_it_ended(child.returncode)}: {last}" if last else _how_it_ended(child.returncode))
    try:
        measures = json.loads(answer)
    except ValueError:
        return failed("the answer was not a set of measures")
    return Trial(parameters=parameters, seed=seed, measures=measures, elapsed_s=elapsed_s)


def _await(child: "subprocess.Popen[bytes]", limit_s: float) -> tuple[bytes, bytes, bool]:
    """What the child wrote, and whether it was still running at the limit.

    Its input stays open, so `communicate`, which closes it, cannot be used.
    """
    written: dict[str, bytes] = {}

    def read(name: str, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        written[name] = pipe.read()

    readers = [
        threading.Thread(target=read, args=(name, pipe), daemon=True)
        for name, pipe in (("answer", child.stdout), ("complaint", child.stderr))
    ]
    for reader in readers:
        reader.start()
    is_late = False
    try:
        child.wait(limit_s)
    except subprocess.TimeoutExpired:
        is_late = True
        _end(child)
    for reader in readers:
        reader.join(END_S)
    return written.get("answer", b""), written.get("complaint", b""), is_late


def _end(child: "subprocess.Popen[bytes]") -> None:
    """With everything it started. A child that has ended is left alone: its id may be another's by now."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(END_S)


def _close(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"


# ── in the child ──────────────────────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Run what the first line of the input says, and write its measures."""
    work = json.loads(_first_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if work["memory_mb"] is not None:
        _bound_memory(work["memory_mb"])
    experiment = find(work["experiment"])
    with redirect_stdout(sys.stderr):  # what a run prints is not its answer
        measures = experiment.run(experiment.check(work["parameters"]), work["seed"])
    sys.stdout.write(json.dumps(_numbers(measures)))
    sys.stdout.flush()


def _first_line() -> bytes:
    """Read from the descriptor itself: a buffered reader that a thread still waits in would stop us from ending."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(sys.stdin.fileno(), 1 << 16)):
        line += more
    return line


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _bound_memory(memory_mb: int) -> None:
    import resource  # not on every system

    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))


def _numbers(measures: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in measures.items()}


if __name__ == "__main__":
    main()
