"""`seriatim simulate`: output, exit codes, logs, replay lines."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from seriatim.audit import read_history
from seriatim.cli import main


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


def test_a_fine_run_says_what_was_seen() -> None:
    result = simulate("--seed", "7", "--broker", "fifo")
    assert result.exit_code == 0
    assert "no violation was seen" in result.output
    assert "everything owed had arrived" in result.output


def test_a_failing_run_prints_the_line_that_replays_it() -> None:
    first = simulate("--seed", "3", "--protocol", "paper000", "--changes", "8")
    assert first.exit_code == 1
    replay = first.output.strip().splitlines()[-1]
    assert replay == "  replay: seriatim simulate --seed 3 --protocol paper000 --changes 8"
    assert simulate(*replay.split()[3:]).output == first.output


def test_many_runs_end_with_a_summary() -> None:
    result = simulate("--seed", "1", "--runs", "5", "--broker", "fifo")
    assert result.exit_code == 0
    assert result.output == "5 runs, seeds 1 to 5: 0 with violations\n"


def test_json_has_one_object_per_run() -> None:
    result = simulate("--seed", "1", "--runs", "2", "--broker", "fifo", "--no-own-order", "--json")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["seed"] for row in rows] == [1, 2]
    assert all(row["fine"] and not row["missing"] for row in rows)
    assert rows[0]["replay"] == "seriatim simulate --seed 1 --broker fifo --no-own-order"


def test_logs_can_be_audited(tmp_path: Path) -> None:
    assert simulate("--seed", "7", "--broker", "fifo", "--log", str(tmp_path / "run"), "--messages").exit_code == 0
    history = read_history(tmp_path / "run")
    assert history.deliveries and history.publications and history.subscriptions and history.messages
    result = CliRunner().invoke(main, ["audit", str(tmp_path / "run"), "--guarantee", "tno"])
    assert result.exit_code == 0


def test_bad_options_are_refused_before_anything_runs(tmp_path: Path) -> None:
    for words in (["--loss", "2"], ["--broker", "unreliable", "--mode", "log"], ["--nodes", "0"]):
        result = simulate(*words)
        assert result.exit_code == 2
    assert simulate("--runs", "2", "--log", str(tmp_path / "run")).exit_code == 2
    assert not (tmp_path / "run").exists()
