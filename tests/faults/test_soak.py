"""The soak as people run it: its table and exit code when all is well, and its report when something is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.audit import read_history
from soak.children import REPOSITORY, environment
from soak.tree.roles import LOSE

WAIT_S = 280.0


def soak(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "soak", "--minutes", "0.05", "--shape", "one", "--seed", "7", *words],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=environment(variables),
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.long
def test_a_short_soak_in_which_nothing_goes_wrong(tmp_path: Path) -> None:
    result = soak("--round-s", "8", "--faults", "kill-subscriber", "--rate", "200", "--folder", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "soak of 0.05 minutes, shape one, seed 7" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["lost", "0"] in lines
    assert ["repeated", "0"] in lines
    for name in ("tno", "acyclic", "certificate", "fifo-across-topics"):
        assert [name, "valid", "in", "1", "rounds"] in lines
    assert any(line[:1] == ["visits"] and int(line[1]) > 0 for line in lines), "somebody began with the past"
    assert any(line[:1] == ["kill-subscriber"] and len(line) > 5 for line in lines), "a row with recovery times"


@pytest.mark.long
def test_a_soak_whose_subscribers_lose_events_says_so_and_keeps_the_history(tmp_path: Path) -> None:
    """The subscribers' programs are broken on purpose, so that the whole way to exit code 1 is tried."""
    words = ["--round-s", "5.5", "--faults", "kill-publisher", "--rate", "200", "--idle-s", "1"]
    result = soak(*words, "--folder", str(tmp_path), **{LOSE: "0.01"})
    assert result.returncode == 1, result.stdout + result.stderr
    assert "was never handed" in result.stdout
    folder = tmp_path / "cluster-1" / "round-001"
    replay = "python -m soak --shape one --seed 7 --round 1 --rate 200.0 --faults kill-publisher --round-s 5.5"
    assert f"round 1: {folder}, replay: {replay}" in result.stdout
    assert "lost" in (folder / "violations.txt").read_text(encoding="utf-8")
    assert read_history(folder / "history").deliveries
    assert any((folder / "subscribers").iterdir())


def test_wrong_words_are_refused() -> None:
    for words, reason in [
        (["--shape", "ring"], "--shape: give one of one, tree"),
        (["--faults", "kill-cat"], "--faults: there is no kill-cat"),
        (["--minutes", "0"], "--minutes: give a number above 0"),
    ]:
        result = soak(*words)
        assert result.returncode == 2
        assert reason in result.stderr
