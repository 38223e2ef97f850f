"""`seriatim sweep`: run a table of experiments on Spark; rows that have a result are not run again."""

import sys
from typing import Any

import click

from seriatim.cli.common import json_option, show_json, show_progress
from seriatim.cli.spark import session_of, spark_options
from seriatim.lab.experiments import find
from seriatim.model import InputError

EXIT_FAILED = 1
SHOWN_MAX = 5


@click.command
@click.argument("experiment", required=False)
@click.option("--table", metavar="URI", help="Rows to run: experiment, parameters, seed (Parquet).")
@click.option("--out", required=True, metavar="URI", help="Where results are kept.")
@click.option("--seeds", type=click.IntRange(min=1), default=40, help="Seeds 1 to this many.")
@click.option("--full", is_flag=True, help="The whole grid of the experiment, not the quick one.")
@click.option(
    "--limit", "limit_s", type=float, metavar="S", help="Seconds a row may take.  [default: the experiment's]"
)
@click.option("--memory-mb", type=int, help="Memory a row may take.")
@click.option("--chunk", "chunk_rows", type=int, help="Rows between two writes.  [default: 8 per core]")
@click.option("--retry-failed", is_flag=True, help="Run rows that failed again.")
@json_option
@spark_options
def command(
    experiment: str | None, table: str | None, out: str, seeds: int, full: bool, as_json: bool, **options: Any
) -> None:
    """Run many experiments on Spark: one row of a table is one run.

    EXPERIMENT is an id that `seriatim reproduce --list` shows, or MODULE:NAME of an Experiment of your own; its grid is
    run with the seeds 1 to --seeds. With --table the rows come from a Parquet table with the columns experiment,
    parameters (a JSON object) and seed.

    Every row runs in a separate process. A run that fails, hangs or uses up all memory becomes a failure row, and the
    others continue. Results are appended under OUT/results as Parquet. With the same --out again, only rows without a
    result are run.

    \b
    Examples:
      seriatim sweep 000-fig9 --out fig9 --seeds 40
      seriatim sweep --table grid.parquet --out s3a://bucket/sweep --master spark://host:7077
      seriatim sweep 000-fig9 --out fig9 --seeds 40 --retry-failed

    \b
    Exit code: 0 every row has a result, 1 some rows failed,
               2 wrong options or it could not be done, 130 interrupted (finished chunks are kept).
    """
    if (experiment is None) == (table is None):
        raise InputError("EXPERIMENT", "give either an experiment or --table", "see seriatim reproduce --list")
    chosen = find(experiment) if experiment is not None else None
    with session_of(options, "sweep") as spark:
        from seriatim.pipeline.sweep import FAILED, SweepOptions, grid, read_results, sweep, with_run_id

        limits = ("limit_s", "memory_mb", "chunk_rows", "retry_failed")
        settings = SweepOptions(**{name: options[name] for name in limits})
        if chosen is not None:
            rows = grid(spark, chosen, seeds, full, name=experiment if ":" in str(experiment) else None)
        else:
            rows = with_run_id(spark.read.parquet(table))
        runs = "{0.finished:,} of {0.total:,} runs".format
        progress = sweep(spark, rows, out, settings, lambda progress: show_progress(runs(progress)))
        show_progress(runs(progress), stays=True)
        results = read_results(spark, out).join(rows.select("run_id"), "run_id", "left_semi")
        failures = results.where(results.status == FAILED)
        failed = failures.count()
        first = failures.orderBy("run_id").limit(SHOWN_MAX).select("experiment", "parameters", "seed", "error")
        shown = [row.asDict() for row in first.collect()]
    if as_json:
        show_json({"rows": progress.total, "failed": failed, "results": f"{out}/results", "failures": shown})
    else:
        click.echo(f"{progress.total:,} runs, {failed:,} failed; results in {out}/results")
        for row in shown:
            last = str(row["error"]).splitlines()[-1]
            click.echo(f"  {row['experiment']} {row['parameters']} seed {row['seed']}: {last}")
        if failed > len(shown):
            click.echo(f"  and {failed - len(shown):,} more (column `error` of the results)")
    sys.exit(EXIT_FAILED if failed else 0)
