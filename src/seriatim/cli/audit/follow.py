"""`seriatim audit --follow`: audit a log while it is written; a line for each violation, as soon as it is there."""

import re
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec import structs

from seriatim.audit import ColumnMapping, Report
from seriatim.brokers.urls import kind_or_none, shown
from seriatim.cli.common import add_options, check_readable, is_terminal, show_json
from seriatim.cli.spark import session_of
from seriatim.model import InputError

if TYPE_CHECKING:
    from seriatim.pipeline.follow import BatchDone

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000}

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m)$")

follow_options = add_options(
    click.option("--follow", is_flag=True, help="Audit PATH while it is written: a folder, or nats://… (Spark)."),
    click.option(
        "--checkpoint", metavar="URI", help="With --follow: where to record progress, to continue after a stop."
    ),
    click.option("--trigger", default="5s", metavar="TIME", help="With --follow: how often to look."),
    click.option("--once", is_flag=True, help="With --follow: read what is there, then end."),
    click.option(
        "--window",
        type=click.IntRange(min=1),
        default=1_000_000,
        metavar="ROWS",
        help="With --follow: rows kept to compare new ones with.",
    ),
)


def check_follow(context: click.Context, path: str, options: dict[str, Any]) -> None:
    """Refuse options that need --follow if it is not given."""
    if options["follow"]:
        if kind_or_none(path) is not None:
            if options["run"] is not None:
                raise InputError("--run", "the log of a running cluster is one run", "leave it out")
            check_readable(path)
        return
    for name in ("checkpoint", "trigger", "once", "window"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{name}", "works only with --follow", "add --follow, or leave it out")
    if kind_or_none(path) is not None:
        fix = "add --follow --once --checkpoint DIR, or archive it first: seriatim archive"
        raise InputError(shown(path), "a log on a broker has no end", fix)


def milliseconds(text: str) -> int:
    """5s, 500ms or 1m."""
    found = _DURATION.match(text.strip())
    if not found or not float(found.group(1)):
        raise click.BadParameter(f"{text!r} is not a time such as 5s, 500ms or 1m", param_hint="--trigger")
    return max(1, round(float(found.group(1)) * UNITS_MS[found.group(2)]))


def follow(
    path: str, mapping: ColumnMapping, limit: int, table: str | None, as_json: bool, options: dict[str, Any]
) -> Report:
    """Follow until interrupted, or with --once until all existing rows are read. Then report."""
    if not options["checkpoint"]:
        raise InputError(
            "--follow", "needs --checkpoint", "give a folder or URI that persists: a restart continues there"
        )
    trigger_ms = milliseconds(options["trigger"])
    with session_of(options, "audit") as session:
        from seriatim.pipeline.follow import Follower, FollowOptions, WindowOptions, follow_deliveries

        session.sparkContext.setLogLevel("OFF")
        chosen = FollowOptions(
            checkpoint=options["checkpoint"],
            findings=f"{table.rstrip('/')}/findings" if table is not None else None,
            trigger_ms=trigger_ms,
            is_once=options["once"],
            run=mapping.run,
            window=WindowOptions(rows_max=options["window"]),
        )
        follower = Follower(session, chosen, lambda done: _told(done, as_json))
        deliveries = follow_deliveries(session, path, structs.replace(mapping, run=None), chosen.files_max)
        query = follower.start(deliveries)
        try:
            follower.wait(query)
        except KeyboardInterrupt:  # an orderly end: the next start continues from the checkpoint
            pass
        finally:
            query.stop()
        return follower.report(limit)


def _told(done: "BatchDone", as_json: bool) -> None:
    if done.judged is None:
        return
    for finding in done.judged.findings:
        name, sentence, count = finding.anomaly.name, finding.anomaly.sentence, finding.count
        if as_json:
            show_json({"batch": done.batch, "name": name, "count": count, "sentence": sentence})
        else:
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            click.echo(f"batch {done.batch}  {click.style(name, fg='red')}: {sentence}{more}")
    if is_terminal():
        rows = f"{done.judged.rows:,} rows, {done.totals.deliveries:,} in all, {done.judged.window_rows:,} kept"
        late = f", {done.totals.late:,} late" if done.totals.late else ""
        click.echo(f"batch {done.batch}  {rows}{late}", err=True)
