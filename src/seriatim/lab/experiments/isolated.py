"""One run in a separate process: a run that is slow, crashes or uses up all memory fails alone.

The parent keeps a pipe to the child open; a child whose parent is gone sees its end and stops. The child gets the run
as an argument, and answers on its standard output; both are JSON.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from typing import Any

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
    work = {"experiment": experiment, "parameters": parameters, "seed": seed, "memory_mb": memory_mb}
    ending, open_end = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "seriatim.lab.experiments.isolated", json.dumps(work)],
        stdin=ending,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # so that what the run starts can be ended with it
    )
    is_late = False
    try:
        answer, complaint = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        is_late = True
    finally:
        _end(child)
        os.close(ending)
        os.close(open_end)
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


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kill a child with everything it started. A child that has ended is left alone, because its process id may be
    another's."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(END_S)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"


# ── in the child ──────────────────────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Run what the argument says, and write its measures."""
    work = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if work["memory_mb"] is not None:
        _bound_memory(work["memory_mb"])
    experiment = find(work["experiment"])
    with redirect_stdout(sys.stderr):  # what a run prints is not its answer
        measures = experiment.run(experiment.check(work["parameters"]), work["seed"])
    sys.stdout.write(json.dumps(_numbers(measures)))
    sys.stdout.flush()


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
