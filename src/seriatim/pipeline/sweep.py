"""Sweep: a table of (experiment, parameters, seed) → one run per row on the executors, results and failures as rows.

Every row runs in its own child process with a time limit, so a row that is slow, crashes or uses up all memory becomes
a failure row. Results are written chunk by chunk, each in its own folder `results/part=…`: a sweep that was killed
continues with the rows that have no result yet. Nothing depends on the order or the partitions of the table.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil
from time import time_ns
from uuid import uuid4

import pyarrow as pa
from msgspec import Struct
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from seriatim.lab.experiments import Experiment, Trial, find
from seriatim.lab.experiments.isolated import run_isolated
from seriatim.lab.experiments.results import Measurement
from seriatim.model import InputError
from seriatim.pipeline.schemas import GRID, MEASUREMENTS, RESULTS

DONE, FAILED = "done", "failed"
ROWS_PER_CORE = 8  # of a chunk: a killed sweep loses at most one chunk


class SweepOptions(Struct, frozen=True, kw_only=True):
    """How rows are run. `limit_s` None: as long as the experiment itself allows."""

    limit_s: float | None = None
    memory_mb: int | None = None
    chunk_rows: int | None = None
    retry_failed: bool = False

    def __post_init__(self) -> None:
        for name in ("limit_s", "memory_mb", "chunk_rows"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InputError(name, f"{value} is not positive", "give a number above 0")


class Progress(Struct, frozen=True):
    """How far a sweep is: rows of the whole table, those with a result, and of these the failures of this sweep."""

    total: int
    finished: int
    failed: int


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def grid(
    spark: SparkSession, experiment: Experiment, seeds: int, full: bool = False, name: str | None = None
) -> DataFrame:
    """Every point of an experiment with the seeds 1 … `seeds`. `name`: what executors find it by, if not its id."""
    points = [(name or experiment.runs_as, json.dumps(point, sort_keys=True)) for point in experiment.grid(full)]
    frame = spark.createDataFrame(points, "experiment string, parameters string")
    return with_run_id(frame.crossJoin(spark.range(1, seeds + 1).withColumnRenamed("id", "seed")))


def with_run_id(table: DataFrame) -> DataFrame:
    """The columns of a grid. The id of a run is a digest of what it is: the same run is known again anywhere."""
    missing = {"experiment", "parameters", "seed"} - set(table.columns)
    if missing:
        problem = f"it has no column {', '.join(sorted(missing))}"
        raise InputError("table", problem, "give experiment, parameters (JSON) and seed")
    seed = F.col("seed").cast("long")
    digest = F.sha2(F.concat_ws("\n", "experiment", "parameters", seed.cast("string")), 256).substr(1, 32)
    return table.select(digest.alias("run_id"), "experiment", "parameters", seed.alias("seed"))


def newest(results: DataFrame) -> DataFrame:
    """One row per run: two sweeps into one folder, or a retry, may have left several. A success wins over a failure."""
    order = Window.partitionBy("run_id").orderBy((F.col("status") == DONE).desc(), F.col("part").desc())
    return results.withColumn("_place", F.row_number().over(order)).where("_place = 1").drop("_place", "part")


def pending(table: DataFrame, results: DataFrame, retry_failed: bool) -> DataFrame:
    """The rows that have no result; with `retry_failed` also those that failed."""
    finished = results.where(F.col("status") == DONE) if retry_failed else results
    return table.dropDuplicates(["run_id"]).join(finished.select("run_id"), "run_id", "left_anti").select(*GRID.names)


def run_chunk(rows: DataFrame, tasks: int, options: SweepOptions) -> DataFrame:
    """Run these rows, dealt out evenly to so many tasks."""
    work = partial(_run_batches, limit_s=options.limit_s, memory_mb=options.memory_mb)
    return rows.coalesce(1).repartition(tasks).mapInArrow(work, RESULTS)


def _run_batches(
    batches: Iterable[pa.RecordBatch], limit_s: float | None, memory_mb: int | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            run = _run_row(row["experiment"], row["parameters"], row["seed"], limit_s, memory_mb)
            measures = None if run.measures is None else list(run.measures.items())
            status = FAILED if measures is None else DONE
            result = row | {"status": status, "measures": measures, "error": run.error, "elapsed_s": run.elapsed_s}
            yield pa.RecordBatch.from_pylist([result], schema=to_arrow_schema(RESULTS))


def _run_row(experiment: str, parameters: str, seed: int, limit_s: float | None, memory_mb: int | None) -> Trial:
    try:
        given = json.loads(parameters)
        limit_s = find(experiment).limit_s if limit_s is None else limit_s
    except (ValueError, InputError) as error:  # a table from outside: the row is wrong, not the sweep
        return Trial(parameters={}, seed=seed, measures=None, error=str(error))
    return run_isolated(experiment, given, seed, limit_s, memory_mb)


# ── the edge ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_results(spark: SparkSession, out: str) -> DataFrame:
    """Everything that sweeps into this folder have finished, one row per run; no rows if there was none."""
    try:
        parts = spark.read.schema(RESULTS).parquet(f"{out}/results")
        if "part" in parts.columns:  # else the folder is there, and no chunk was finished
            return newest(parts)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
    return spark.createDataFrame([], RESULTS)


def sweep(
    spark: SparkSession,
    table: DataFrame,
    out: str,
    options: SweepOptions | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Run every row of the table that has no result under `out` yet. `tell` is called at first and after each chunk."""
    options = options or SweepOptions()
    rows = pending(table, read_results(spark, out), options.retry_failed).persist()
    try:
        left = rows.count()
        total = table.select("run_id").distinct().count()
        progress = Progress(total, total - left, 0)
        tell(progress)
        size = options.chunk_rows or ROWS_PER_CORE * spark.sparkContext.defaultParallelism
        chunks = ceil(left / size)
        for index in range(chunks):
            chunk = rows.where(F.pmod(F.xxhash64("run_id"), F.lit(chunks)) == index)
            # A task per row or two runs them, one task writes them: not a file per row.
            results = run_chunk(chunk, min(left, size), options).repartition(1)
            seen = Observation()
            counts = (F.count(F.lit(1)).alias("rows"), F.count_if(F.col("status") == FAILED).alias("failed"))
            # Names sort by time, so that of several failures of a run the last one is told.
            part = f"t{time_ns()}-{uuid4().hex[:8]}"
            results.observe(seen, *counts).write.parquet(f"{out}/results/part={part}")
            progress = Progress(total, progress.finished + seen.get["rows"], progress.failed + seen.get["failed"])
            tell(progress)
        return progress
    finally:
        rows.unpersist()


def runs_of(results: DataFrame, table: DataFrame) -> list[Trial]:
    """The results of the rows of a grid, brought here: as many as an experiment has points and seeds."""
    rows = results.join(table.select("run_id"), "run_id", "left_semi").toLocalIterator()
    names = ("seed", "measures", "error", "elapsed_s")
    return [Trial(parameters=json.loads(row["parameters"]), **{name: row[name] for name in names}) for row in rows]


def write_measurements(spark: SparkSession, rows: Iterable[Measurement], out: str) -> None:
    """Write measurements as JSON lines into the folder `measurements`, where a report finds them, as after a run
    without Spark."""
    values = [tuple(getattr(row, name) for name in MEASUREMENTS.names) for row in rows]
    spark.createDataFrame(values, MEASUREMENTS).coalesce(1).write.mode("overwrite").json(f"{out}/measurements")
