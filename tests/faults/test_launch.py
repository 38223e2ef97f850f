"""Faults inside a process: a wall clock that jumps, a disk that is full, a parent that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soak.children import REPOSITORY, environment
from soak.launch import CLOCK_FILE, FILE_BYTES_MAX
from tests.waiting import wait

WAIT_S = 60.0


def run(program: str, *words: str, **variables: str) -> str:
    """What a program prints that has taken on the faults of its environment."""
    return subprocess.run(
        [sys.executable, "-c", f"from soak.launch import take_on_faults\ntake_on_faults()\n{program}", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env=environment(variables),
        timeout=WAIT_S,
    ).stdout


def test_a_wall_clock_that_jumps_moves_no_clock_of_ours(tmp_path: Path) -> None:
    """Over two hours forth and back, `Clock` goes on as if nothing had happened; only its first look was wrong."""
    program = (
        "import json, sys, time; from pathlib import Path; from seriatim.runtime import Clock\n"
        "path, clock, times = Path(sys.argv[1]), Clock(), []\n"
        "for skew in ('7200', '-7200', '0'):\n"
        "    path.write_text(skew)\n"
        "    times.append((time.time(), clock.now_ms()))\n"
        "print(json.dumps(times))\n"
    )
    path = tmp_path / "skew"
    path.write_text("-60")
    (ahead, first), (behind, second), (right, third) = json.loads(run(program, str(path), **{CLOCK_FILE: str(path)}))
    assert 14_300 < ahead - behind < 14_500, "the fault works"
    assert 0 <= second - first < 10_000
    assert 0 <= third - second < 10_000
    assert -70_000 < first - 1000 * right < -50_000


def test_a_clock_that_was_set_back_before_a_restart_goes_on_where_the_journal_ended(tmp_path: Path) -> None:
    path = tmp_path / "skew"
    path.write_text("-7200")
    program = "from seriatim.runtime import Clock; import sys; print(Clock(float(sys.argv[1])).now_ms())"
    journaled_ms = 1000 * time.time()
    assert float(run(program, str(journaled_ms), **{CLOCK_FILE: str(path)})) >= journaled_ms


def test_a_full_disk_fails_a_write_and_not_the_process(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "file = open(sys.argv[1], 'wb', buffering=0)\n"
        "print(file.write(bytes(5000)))\n"
        "try:\n"
        "    print(file.write(b'x'))\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    said = run(program, str(tmp_path / "file"), **{FILE_BYTES_MAX: "4096"})
    assert said.splitlines() == ["4096", "File too large"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_no_child_outlives_a_harness_that_is_killed() -> None:
    child = "from soak.launch import take_on_faults; take_on_faults(); print('up', flush=True); input()"
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env=environment(),
    ) as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        harness.send_signal(signal.SIGKILL)
        wait(lambda: not is_running(pid), f"process {pid} ends with its parent")


def is_running(pid: int) -> bool:
    """A zombie that nobody has reaped yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_children_find_the_code_whatever_the_folder() -> None:
    assert str(REPOSITORY) in environment()["PYTHONPATH"].split(os.pathsep)
