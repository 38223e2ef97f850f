"""`seriatim reproduce`: run an experiment of a paper and print ours beside what the paper states."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from seriatim.cli.common import json_option, show_json, show_progress, table
from seriatim.cli.spark import session_of, spark_is_there, spark_options
from seriatim.lab.experiments import (
    Comparison,
    Experiment,
    Measurement,
    Results,
    Trial,
    comparisons,
    experiments,
    find,
    measurements,
)
from seriatim.lab.experiments.isolated import run_isolated
from seriatim.model import InputError

EXIT_DIFFERENT = 1
SHOWN_MAX = 5
COMPARISONS = "comparisons.jsonl"
COLOURS = {"within": "green", "outside": "red", "not measured": "yellow"}


@click.command
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--list", "is_list", is_flag=True, help="Show all experiments.")
@click.option("--quick/--full", "is_quick", default=True, help="Run only a few points, or the whole axes of the paper.")
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds 1 to this many.  [default: the experiment's]")
@click.option("--out", metavar="URI", help="Keep runs and curves here, in a folder per experiment.")
@click.option(
    "--limit", "limit_s", type=float, metavar="S", help="Seconds a run may take.  [default: the experiment's]"
)
@click.option("--no-spark", is_flag=True, help="Run in this process, one after the other.")
@json_option
@spark_options
def command(
    ids: tuple[str, ...],
    is_list: bool,
    is_quick: bool,
    seeds: int | None,
    out: str | None,
    limit_s: float | None,
    no_spark: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run an experiment of a paper and print our results beside the paper's.

    Each line is one statement of the paper: its value, our value (mean over seeds ± half of the 95 % interval), the
    band that counts as equal, and whether our value is within it. Below are our curves, also for layouts that the paper
    did not have.

    Runs on Spark if it is there, with as many runs at a time as there are cores; --no-spark runs them one after the
    other. With --out, runs are kept: when called again, the command runs only those that are missing.
    OUT/ID/measurements holds the curves as JSON lines (experiment, variant, x, measure, mean, std, count, paper),
    OUT/ID/comparisons.jsonl the lines of the paper, both for `seriatim report`.

    \b
    Examples:
      seriatim reproduce --list
      seriatim reproduce 000-fig7
      seriatim reproduce 000-fig9 --full --seeds 40 --out figures
      seriatim reproduce 000-fig12 --no-spark --json

    \b
    Exit code: 0 everything is within its band, 1 something is not or a run failed,
               2 wrong options or it could not be done, 130 interrupted.
    """
    if is_list:
        _list(as_json)
        return
    if not ids:
        raise InputError("ID", "name at least one experiment", "see seriatim reproduce --list")
    chosen = {id: find(id) for id in ids}
    is_different = False
    with _runner(options, out, no_spark or not spark_is_there("Running here, one by one:")) as runner:
        for name, experiment in chosen.items():
            runs = runner.run(name, experiment, seeds or experiment.seeds, not is_quick, limit_s)
            results = Results(runs)
            compared = comparisons(experiment, results)
            curves = measurements(experiment, results)
            runner.keep(experiment, curves, compared)
            _show(experiment, results, compared, curves, as_json)
            is_different |= bool(results.failures) or any(row.verdict == "outside" for row in compared)
    sys.exit(EXIT_DIFFERENT if is_different else 0)


def _list(as_json: bool) -> None:
    known = experiments()
    width = max(map(len, known))
    for id, experiment in known.items():
        if as_json:
            shown = {"id": id, "title": experiment.title, "citation": experiment.citation}
            show_json(shown | {"axes": {axis.name: list(axis.full) for axis in experiment.axes}})
        else:
            click.echo(f"{id:<{width}}  {experiment.title} ({experiment.citation})")


# ── where runs are made ───────────────────────────────────────────────────────────────────────────────────────────


class _Here:
    """Run one after the other, each in its own process."""

    def __init__(self, out: str | None) -> None:
        self._out = out
        self._made: dict[str, list[Trial]] = {}  # figures drawn from the same runs need them once

    def run(self, name: str, experiment: Experiment, seeds: int, full: bool, limit_s: float | None) -> list[Trial]:
        if experiment.runs_as in self._made:
            return self._made[experiment.runs_as]
        points = [(point, seed) for point in experiment.grid(full) for seed in range(1, seeds + 1)]
        runs = []
        for index, (point, seed) in enumerate(points):
            _progress(experiment, index, len(points))
            runs.append(run_isolated(name, point, seed, limit_s or experiment.limit_s))
        _progress(experiment, len(points), len(points))
        self._made[experiment.runs_as] = runs
        return runs

    def keep(self, experiment: Experiment, curves: list[Measurement], compared: list[Comparison]) -> None:
        if self._out is not None:
            folder = Path(self._out) / _folder(experiment.id) / "measurements"
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():  # of an earlier run, maybe on Spark: it would be read as well
                old.unlink()
            (folder / "part-0.json").write_text(_lines(curves), encoding="utf-8")
            (folder.parent / COMPARISONS).write_text(_lines(compared), encoding="utf-8")


class _OnSpark:
    """A sweep whose results are kept under `out`."""

    def __init__(self, spark: Any, out: str, keeps: bool) -> None:
        self._spark = spark
        self._out = out
        self._keeps = keeps

    def run(self, name: str, experiment: Experiment, seeds: int, full: bool, limit_s: float | None) -> list[Trial]:
        from seriatim.pipeline.sweep import SweepOptions, grid, read_results, runs_of, sweep

        out = f"{self._out}/{_folder(experiment.runs_as)}"
        rows = grid(self._spark, experiment, seeds, full, name=name if ":" in name else None)
        settings = SweepOptions(limit_s=limit_s, retry_failed=True)
        sweep(self._spark, rows, out, settings, lambda done: _progress(experiment, done.finished, done.total))
        return runs_of(read_results(self._spark, out), rows)

    def keep(self, experiment: Experiment, curves: list[Measurement], compared: list[Comparison]) -> None:
        from seriatim.pipeline.spark import files
        from seriatim.pipeline.sweep import write_measurements

        if self._keeps:
            folder = f"{self._out}/{_folder(experiment.id)}"
            write_measurements(self._spark, curves, folder)
            files.replace(self._spark, files.join(folder, COMPARISONS), _lines(compared).encode("utf-8"))


def _lines(rows: Sequence[Measurement | Comparison]) -> str:
    return "".join(f"{json.dumps(structs.asdict(row), ensure_ascii=False)}\n" for row in rows)


@contextmanager
def _runner(options: dict[str, Any], out: str | None, is_here: bool) -> Iterator[_Here | _OnSpark]:
    if is_here:
        yield _Here(out)
        return
    if out is None and not options["master"].startswith("local"):
        raise InputError("--out", "executors and driver must share a folder for results", "give a URI both can reach")
    with (
        tempfile.TemporaryDirectory(prefix="seriatim-reproduce-") as temporary,
        session_of(options, "reproduce") as spark,
    ):
        yield _OnSpark(spark, out or temporary, out is not None)


def _folder(id: str) -> str:
    return id.replace(":", "-")


def _progress(experiment: Experiment, finished: int, total: int) -> None:
    show_progress(f"{experiment.id}: {finished:,} of {total:,} runs", stays=finished == total)


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────


def _show(
    experiment: Experiment, results: Results, compared: list[Comparison], curves: list[Measurement], as_json: bool
) -> None:
    if as_json:
        show_json(
            {
                "experiment": experiment.id,
                "runs": len(results.runs),
                "failed": len(results.failures),
                "comparisons": [structs.asdict(row) for row in compared],
                "measurements": [structs.asdict(row) for row in curves],
            }
        )
        return
    click.echo(f"{experiment.id}  {experiment.title} ({experiment.citation}), {len(results.runs):,} runs\n")
    cells = [(row.point, row.paper, row.ours, row.band, row.verdict) for row in compared]
    if cells:
        click.echo(table(("point", "paper", "ours", "band", "verdict"), cells, COLOURS))
    for reason in dict.fromkeys(row.reason for row in compared if row.reason):
        click.echo(f"  outside: {reason}")
    for measure, unit in experiment.measures.items():
        rows = [row for row in curves if row.measure == measure]
        if rows:
            click.echo(f"\n{measure}: {unit}\n{_curves(rows)}")
    if results.failures:
        click.echo(f"\n{len(results.failures):,} runs failed:")
        for run in results.failures[:SHOWN_MAX]:
            click.echo(f"  {run.parameters} seed {run.seed}: {str(run.error).splitlines()[-1]}")
    click.echo()


def _curves(rows: list[Measurement]) -> str:
    """A line per curve, a column per x."""
    at = sorted({row.x for row in rows}, key=_place)
    points = {(row.variant, row.x): row for row in rows}
    lines = [
        (variant, *(_point(points.get((variant, x))) for x in at))
        for variant in dict.fromkeys(row.variant for row in rows)
    ]
    return table(("", *(f"{int(x):,}" if x.isdecimal() else x for x in at)), lines)


def _place(x: str) -> tuple[float, str]:
    """Numbers in their order, then words in theirs."""
    try:
        return float(x), ""
    except ValueError:
        return float("inf"), x


def _point(row: Measurement | None) -> str:
    if row is None:
        return "-"
    return f"{row.mean:,.0f}" if abs(row.mean) >= 100 else f"{row.mean:.3g}"
