"""A run in a process of its own: whatever it does, its parent gets an answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.lab.experiments import Trial
from seriatim.lab.experiments.isolated import run_isolated
from tests.waiting import wait

ODD = "tests.lab.experiments.odd:ODD"
LIMIT_S = 120.0  # for what ends by itself; a machine may be slow


def run(way: str, limit_s: float = LIMIT_S, memory_mb: int | None = None) -> Trial:
    return run_isolated(ODD, {"way": way}, 3, limit_s, memory_mb)


def test_measures_come_back() -> None:
    done = run("well")
    assert done.measures == {"square": 9.0}
    assert done.error is None
    assert done.elapsed_s > 0


def test_what_a_run_prints_is_not_its_answer() -> None:
    assert run("print").measures == {"square": 9.0}


@pytest.mark.parametrize(
    "way, complaint",
    [
        ("raise", "ValueError: seed 3 is not to my taste"),
        ("crash", "was killed by SIGSEGV"),
        ("exit", "ended with exit code 3"),
    ],
)
def test_a_run_that_fails_is_a_failure_that_says_why(way: str, complaint: str) -> None:
    failed = run(way)
    assert failed.measures is None
    assert failed.error is not None and complaint in failed.error


def test_a_run_that_hangs_is_ended_at_its_limit() -> None:
    failed = run("hang", limit_s=1.0)
    assert failed.measures is None
    assert failed.error == "took longer than 1 s"


def test_a_run_that_eats_memory_is_stopped() -> None:
    failed = run("eat", memory_mb=2_048)
    assert failed.error is not None and "MemoryError" in failed.error


@pytest.mark.parametrize(
    "name, complaint",
    [
        ("tests.lab.experiments.odd:MISSING", "has no attribute 'MISSING'"),
        ("tests.lab.experiments.odd:NOT_ONE", "is a str; name an Experiment"),
        ("000-fig99", "unknown experiment; did you mean"),
    ],
)
def test_an_unknown_experiment_is_a_failure_that_says_so(name: str, complaint: str) -> None:
    failed = run_isolated(name, {}, 1, LIMIT_S)
    assert failed.error is not None and complaint in failed.error


def test_parameters_of_another_experiment_are_refused() -> None:
    failed = run_isolated(ODD, {"speed": 1}, 1, LIMIT_S)
    assert failed.error is not None and "odd takes way, not speed" in failed.error


def is_running(process_id: int) -> bool:
    """A process that has ended but that nobody has waited for does not count."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_a_run_ends_with_its_parent(tmp_path: Path) -> None:
    """A killed sweep leaves no process behind that continues to compute."""
    file = tmp_path / "process"
    call = f"run_isolated({ODD!r}, {{'way': 'hang'}}, 1, {LIMIT_S})"
    code = f"from seriatim.lab.experiments.isolated import run_isolated; {call}"
    environment = os.environ | {"ODD_FILE": str(file), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        wait(file.exists, "the run to begin")
        run_id = int(file.read_text())
        assert is_running(run_id)
    finally:
        parent.kill()
        parent.wait(LIMIT_S)
    wait(lambda: not is_running(run_id), "the run to end with its parent")
