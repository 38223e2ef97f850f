"""`seriatim reproduce` without Spark: what is listed, printed, kept, and refused. tests/pipeline runs it on Spark."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from seriatim.cli import main

WELL, MIXED = "tests.lab.experiments.odd:WELL", "tests.lab.experiments.odd:MIXED"


def reproduce(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", *arguments])


def test_all_experiments_are_listed() -> None:
    listed = reproduce("--list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()][:2] == ["000-fig7", "000-fig8"]
    rows = [json.loads(line) for line in reproduce("--list", "--json").stdout.splitlines()]
    assert rows[0]["id"] == "000-fig7" and rows[0]["axes"]["shape"] == ["0.901", "0.349"]


def test_curves_are_printed_and_kept(tmp_path: Path) -> None:
    stale = tmp_path / "odd" / "measurements" / "part-00000-of-before.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    done = reproduce(WELL, "--no-spark", "--seeds", "3", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "odd  Runs that go wrong (none), 3 runs" in done.stdout
    assert "square: the seed, squared" in done.stdout
    assert not stale.exists()
    (kept,) = [json.loads(line) for line in (tmp_path / "odd/measurements/part-0.json").read_text().splitlines()]
    assert (kept["experiment"], kept["x"], kept["measure"], kept["count"], kept["paper"]) == (
        "odd",
        "well",
        "square",
        3,
        None,
    )
    assert round(kept["mean"], 3) == 4.667


def test_a_run_that_fails_is_told_and_counts() -> None:
    done = reproduce(MIXED, "--no-spark")
    assert done.exit_code == 1
    assert "2 runs failed:" in done.stdout
    assert "{'way': 'raise'} seed 1: ValueError: seed 1 is not to my taste" in done.stdout
    row = json.loads(reproduce(MIXED, "--no-spark", "--json").stdout)
    assert (row["runs"], row["failed"]) == (4, 2)
    assert [point["x"] for point in row["measurements"]] == ["well"]


def test_wrong_names_are_refused() -> None:
    assert "name at least one experiment" in reproduce().output
    refused = reproduce("000-fig70")
    assert refused.exit_code == 2 and "did you mean '000-fig7'" in refused.output


def test_a_sweep_needs_an_experiment_or_a_table() -> None:
    for arguments in (["--out", "x"], ["000-fig7", "--table", "t", "--out", "x"]):
        refused = CliRunner().invoke(main, ["sweep", *arguments])
        assert refused.exit_code == 2 and "give either an experiment or --table" in refused.output
