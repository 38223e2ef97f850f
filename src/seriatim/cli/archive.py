"""`seriatim archive`: live streams to Parquet, exactly once; `archive compact` and `archive show` beside it."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import click
from msgspec.structs import asdict

from seriatim.cli.common import check_readable, json_option, names_in, show_json, show_progress, url_option
from seriatim.cli.spark import session_of, spark_options
from seriatim.pipeline.spark.requirements import check_requirements

TABLES = ("events", "stamps", "order", "deliveries", "publications", "subscriptions")


@click.group(invoke_without_command=True)
@click.option("--out", metavar="URI", help="The URI of the archive.")
@click.option("--checkpoint", metavar="URI", help="Where to record its progress; one for each archive.")
@click.option("--tables", metavar="NAMES", help="Tables, separated by commas.  [default: all]")
@click.option("--topics", metavar="NAMES", help="Events of these topics only; * matches anything.")
@click.option("--once/--follow", "once", default=True, help="End with what is there now, or continue.")
@click.option(
    "--trigger",
    "trigger_s",
    type=click.FloatRange(min=0),
    default=5.0,
    help="With --follow: seconds between two batches.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=200_000,
    help="Messages per table and batch; a message holds 1 to 4,096 events.",
)
@click.option(
    "--gaps",
    type=click.Choice(["rows", "fail"]),
    default="rows",
    help="What to do about events that were lost before they were archived.",
)
@url_option
@spark_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    out: str | None,
    checkpoint: str | None,
    tables: str | None,
    topics: str | None,
    once: bool,
    trigger_s: float,
    max_rows: int,
    gaps: str,
    url: str,
    cluster: str,
    timeout_s: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Archive what is on the broker as Parquet, each row exactly once.

    Reads the streams of a cluster (on JetStream) and writes tables: events, stamps, order (the order log of a cluster
    with global order), deliveries, publications, subscriptions. It may be killed at any moment, and continues where it
    was with the same --checkpoint. OUT and CHECKPOINT are paths or URIs that Spark can write: file:, hdfs:, s3a:. With
    --once (the default) it ends when everything that was there at its start is archived; with --follow it continues.

    Messages that the broker dropped before they could be archived are recorded as gaps (see `archive show`), or are an
    error with --gaps fail.

    \b
    Examples:
      seriatim archive --out lake/shop --checkpoint lake/shop-checkpoint
      seriatim archive --out s3a://lake/shop --checkpoint s3a://lake/shop-checkpoint --follow --trigger 30
      seriatim archive compact lake/shop
      seriatim archive show lake/shop

    \b
    Exit code: 0 done, or told to end; 1 a table could not be archived, 2 wrong options, 130 interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    if not out or not checkpoint:
        raise click.UsageError("give --out and --checkpoint, for instance --out lake/shop --checkpoint lake/checkpoint")
    check_readable(url, timeout_s)
    check_requirements()
    from seriatim.pipeline.archive import ArchiveOptions, Record, archive

    wishes = ArchiveOptions(
        url=url,
        cluster=cluster,
        out=out,
        checkpoint=checkpoint,
        tables=tuple(names_in(tables)) if tables is not None else TABLES,
        topics=topics or "",
        gaps=gaps,  # type: ignore[arg-type]  # click has checked it
        max_messages=max_rows,
        trigger_s=None if once else trigger_s,
        credentials={"connect_timeout_s": f"{timeout_s:g}"},
    )
    totals: dict[str, dict[str, Any]] = {
        table: {"table": table, "batches": 0, "rows": 0, "lost": 0} for table in wishes.tables
    }
    with session_of(options, "archive") as spark:

        def on_batch(record: Record) -> None:
            total = totals[record.table]
            total["batches"] += 1
            total["rows"] += record.rows - record.gaps
            total["lost"] += record.lost
            show_progress(f"{time.strftime('%H:%M:%S')} {record.table} batch {record.first}: {record.rows} rows", True)

        archive(spark, wishes, until=_told_to_end(), on_batch=on_batch)
    for total in totals.values():
        _show(total, as_json, "{table:<14} {rows} rows in {batches} batches, {lost} positions lost")


def _told_to_end() -> Callable[[], bool]:
    """Whether a signal has come. A second one ends the process as signals do."""
    told = threading.Event()

    def handle(number: int, frame: object) -> None:
        told.set()
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, handle)
    return told.is_set


@command.command("compact")
@click.argument("uri")
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0),
    default=3600.0,
    help="Seconds for which replaced files are kept, for jobs that are reading them.",
)
@click.option(
    "--file-size", "file_mb", type=click.IntRange(min=1), default=128, help="Size of the files to make, in megabytes."
)
@spark_options
@json_option
def compact_command(uri: str, grace_s: float, file_mb: int, as_json: bool, **options: Any) -> None:
    """Combine many small files into few large ones. Others may read and write the archive meanwhile."""
    with session_of(options, "archive compact") as spark:
        from seriatim.pipeline.archive import compact

        size = file_mb * 1024 * 1024
        for done in compact(spark, uri, grace_s=grace_s, file_bytes=size, folder_bytes=8 * size):
            _show(asdict(done), as_json, "{table:<14} {replaced} folders became {written}; {removed} old ones removed")


@command.command("show")
@click.argument("uri")
@spark_options
@json_option
def show_command(uri: str, as_json: bool, **options: Any) -> None:
    """What an archive holds: batches, rows, and what was lost before it could be archived."""
    with session_of(options, "archive show") as spark:
        from seriatim.pipeline.archive import describe

        for row in describe(spark, uri):
            _show(row, as_json, "{table:<14} {rows} rows, {lost} positions lost, {folders} folders, {bytes} bytes")


def _show(row: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        show_json(row)
    else:
        click.echo(text.format(**row))
