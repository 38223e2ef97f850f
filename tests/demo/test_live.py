"""The live demo as a stranger runs it: real servers, real kills, and nothing left of it afterwards."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BOUND_S = 280.0  # a machine that does other things as well may need many times the usual twenty seconds


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "seriatim.cli", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "TMPDIR": str(folder)},
    )


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_ordered_and_unordered_through_two_kills(tmp_path: Path) -> None:
    temporary, logs = tmp_path / "temporary", tmp_path / "logs"
    temporary.mkdir()
    process = start(temporary, "--json", "--no-spark", "--seconds", "3", "--folder", str(logs))
    output, errors = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0, errors
    answer = json.loads(output)
    assert answer["valid"]

    ordered, without = answer["with"], answer["without"]
    assert set(ordered["verdicts"].values()) == {"valid"}
    assert ordered["missing"] == [] and ordered["anomalies"] == {}
    assert len(set(ordered["books_cents"].values())) == 1
    assert without["verdicts"]["per-topic"] == "valid", "what NATS promises"
    assert without["verdicts"]["tno"] == "invalid", "events of two sites, 40 ms apart"
    assert " before " in without["disagreement"]
    assert ordered["deliveries"] == without["deliveries"] > 10_000
    assert answer["added_p50_ms"] > 0 and answer["list_per_s"] > 0

    assert [fault["what"] for fault in answer["faults"]] == ["sequencer us", "publisher cashier"]
    for fault in answer["faults"]:
        assert fault["pid"] != fault["new_pid"]
        assert fault["flow_after_s"] > fault["restarted_after_s"]
    assert len(answer["processes"]) == 3 + 3 + 3 + 3 + len(answer["faults"])
    assert [each for each in answer["processes"] if is_there(each["pid"])] == []
    assert list(temporary.iterdir()) == []

    audit = [sys.executable, "-m", "seriatim.cli", "audit", "--guarantee", "tno"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    codes = [subprocess.run([*audit, str(logs / kind)], env=environment).returncode for kind in ("with", "without")]
    assert codes == [0, 1], "the logs that were kept say the same"


@pytest.mark.long
@pytest.mark.parametrize("at", ["NATS", "sequencers"])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, at: str) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    pids: list[int] = []
    deadline = time.monotonic() + BOUND_S
    for line in process.stdout:
        assert time.monotonic() < deadline, f"waited for the line about {at}"
        if re.match(r" +\d+\.\d s  (NATS|sequencers)", line):
            pids += [int(pid) for pid in re.findall(r"\w+ (\d+)[,:]", line.partition(" s  ")[2])]
        if re.match(rf" +\d+\.\d s  {at}", line):
            break
    assert len(pids) in (3, 6) and all(map(is_there, pids))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, errors
    assert errors == "Interrupted.\n"
    assert not any(map(is_there, pids))
    assert list(tmp_path.iterdir()) == []
