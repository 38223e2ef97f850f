"""Sweeps: failures are rows, what is finished is not run again, and nothing depends on how rows are laid out."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seriatim.model import InputError
from seriatim.pipeline.schemas import GRID, RESULTS
from seriatim.pipeline.sweep import (
    Progress,
    SweepOptions,
    grid,
    pending,
    read_results,
    sweep,
    with_run_id,
)
from tests.lab.experiments.odd import MIXED, ODD, WELL

NAME = "tests.lab.experiments.odd"


def rows_of(frame: DataFrame) -> list[tuple[str, int, str]]:
    ways = [(json.loads(row.parameters)["way"], row.seed, row.status) for row in frame.collect()]
    return sorted(ways)


def test_every_way_to_fail_is_a_row_and_the_others_have_results(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path)
    table = grid(spark, ODD, 1, name=f"{NAME}:ODD")
    hangs = F.col("parameters").contains("hang")
    told: list[Progress] = []
    progress = sweep(spark, table.where(~hangs), out, SweepOptions(memory_mb=2_048, chunk_rows=5), told.append)
    assert progress == Progress(total=6, finished=6, failed=4)
    assert told[0] == Progress(6, 0, 0) and told[-1] == progress
    assert sweep(spark, table, out, SweepOptions(limit_s=1.0)) == Progress(total=7, finished=7, failed=1)
    results = read_results(spark, out)
    assert results.schema.names == RESULTS.names
    errors = {json.loads(row.parameters)["way"]: row.error for row in results.where("status = 'failed'").collect()}
    assert "ValueError: seed 1 is not to my taste" in errors.pop("raise")
    assert "SIGSEGV" in errors.pop("crash")
    assert "MemoryError" in errors.pop("eat")
    assert errors == {"hang": "took longer than 1 s", "exit": "ended with exit code 3"}
    measured = results.where("status = 'done'").select("measures").collect()
    assert [row.measures for row in measured] == [{"square": 1.0}] * 2


def test_a_sweep_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path)
    first = grid(spark, MIXED, 3, name=f"{NAME}:MIXED")
    told: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        told.append(progress)
        if progress.finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(spark, first, out, SweepOptions(chunk_rows=3), interrupt)
    finished = told[-1].finished
    assert 0 < finished < 6, "stopped in the middle"
    again = first.repartition(3, "seed")  # the same rows, laid out in another way
    progress = sweep(spark, again, out, tell=told.append)
    assert told[2] == Progress(6, finished, 0), "only what is left is run"
    assert (progress.total, progress.finished) == (6, 6)
    expected = [(way, seed, status) for way, status in (("raise", "failed"), ("well", "done")) for seed in (1, 2, 3)]
    assert rows_of(read_results(spark, out)) == sorted(expected)
    assert sweep(spark, again, out, SweepOptions(retry_failed=True)) == Progress(6, 6, 3)
    assert rows_of(read_results(spark, out)) == sorted(expected)  # still one row per run


def test_a_table_from_outside(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that cannot be run are failures of their own, and what a killed sweep left behind is no result."""
    leftover = tmp_path / "results" / "part=killed" / "_temporary" / "0"
    leftover.mkdir(parents=True)
    (leftover / "half.parquet").write_bytes(b"PAR1 half a file")
    assert read_results(spark, str(tmp_path)).count() == 0
    rows = [(f"{NAME}:WELL", '{"way": "well"}', 5), ("000-fig99", "{}", 1), (f"{NAME}:WELL", "no json", 1)]
    table = with_run_id(spark.createDataFrame(rows, "experiment string, parameters string, seed int"))
    assert table.schema.names == GRID.names
    assert sweep(spark, table, str(tmp_path)) == Progress(3, 3, 2)
    errors = {row.experiment: row.error for row in read_results(spark, str(tmp_path)).where("seed = 1").collect()}
    assert "unknown experiment" in errors["000-fig99"]
    assert "Expecting value" in errors[f"{NAME}:WELL"]


def test_a_table_without_the_columns_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="it has no column parameters, seed"):
        with_run_id(spark.createDataFrame([("a",)], "experiment string"))


def test_pending_is_what_has_no_result(spark: SparkSession) -> None:
    table = grid(spark, WELL, 3)
    finished = table.where("seed = 2").withColumns(
        {"status": F.lit("failed"), "measures": F.lit(None), "error": F.lit("x"), "elapsed_s": F.lit(0.0)}
    )
    assert [row.seed for row in pending(table.union(table), finished, False).orderBy("seed").collect()] == [1, 3]
    assert [row.seed for row in pending(table, finished, True).orderBy("seed").collect()] == [1, 2, 3]
