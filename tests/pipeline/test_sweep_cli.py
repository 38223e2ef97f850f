"""`seriatim sweep` and `seriatim reproduce` on Spark, in the session of the tests."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from seriatim.cli import main

WELL, MIXED = "tests.lab.experiments.odd:WELL", "tests.lab.experiments.odd:MIXED"


def seriatim(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_sweep_tells_failures_and_goes_on(tmp_path: Path) -> None:
    done = seriatim("sweep", MIXED, "--seeds", "1", "--out", str(tmp_path), "--json")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert (told["rows"], told["failed"], told["results"]) == (2, 1, f"{tmp_path}/results")
    assert "not to my taste" in told["failures"][0]["error"]
    again = seriatim("sweep", MIXED, "--seeds", "1", "--out", str(tmp_path))
    assert again.exit_code == 1 and again.stdout.startswith(f"2 runs, 1 failed; results in {tmp_path}/results\n")
    assert len(list((tmp_path / "results").glob("part=*"))) == 1, "nothing was run again"


def test_sweep_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(WELL, '{"way": "well"}', seed) for seed in (4, 5)]
    spark.createDataFrame(rows, "experiment string, parameters string, seed long").write.parquet(f"{tmp_path}/table")
    done = seriatim("sweep", "--table", f"{tmp_path}/table", "--out", f"{tmp_path}/out")
    assert done.exit_code == 0 and done.stdout == f"2 runs, 0 failed; results in {tmp_path}/out/results\n"


@pytest.mark.long
def test_reproduce_keeps_runs_and_curves(spark: SparkSession, tmp_path: Path) -> None:
    done = seriatim("reproduce", WELL, "--seeds", "2", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "odd  Runs that go wrong (none), 2 runs" in done.stdout
    (row,) = spark.read.json(f"{tmp_path}/odd/measurements").collect()
    assert (row.measure, row["mean"], row["count"]) == ("square", 2.5, 2)
    assert seriatim("reproduce", WELL, "--seeds", "2", "--out", str(tmp_path)).stdout == done.stdout
    assert len(list((tmp_path / "odd" / "results").glob("part=*"))) == 1, "nothing was run again"
