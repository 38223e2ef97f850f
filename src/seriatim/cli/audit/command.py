"""`seriatim audit`: verdicts from logs."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
import msgspec

from seriatim.audit import BREAKS, Auditor, ColumnMapping, Report, Row, audit, certify, read_order_log
from seriatim.audit.logs import OnlySpark
from seriatim.audit.report import extent
from seriatim.cli.audit.certifying import (
    certificate_options,
    certify_on_spark,
    check_certificate,
    engine_for_both,
    method_of,
    requested_of,
)
from seriatim.cli.audit.follow import check_follow, follow, follow_options
from seriatim.cli.audit.input import (
    Choice,
    choose_engine,
    engine_option,
    guarantee_option,
    mapping_of,
    mapping_options,
    read_log,
)
from seriatim.cli.common import is_terminal, notice, show_json
from seriatim.cli.spark import session_of, spark_options
from seriatim.model import History, InputError
from seriatim.order import GUARANTEES
from seriatim.pipeline.spark.requirements import RequirementMissing, check_requirements

EXIT_CODES = {"valid": 0, "invalid": 1, "unknown": 3}
EXIT_INTERRUPTED = 130
SMALL_ROWS = 100_000  # what Spark has read, plain Python audits in a second: Spark would take longer to plan it
LONG_DELIVERIES = 100_000  # more than this many take long enough to say so
COLOURS = {"valid": "green", "invalid": "red", "unknown": "yellow"}
MARGIN = max(map(len, GUARANTEES)) + 2

HELP = f"""Check delivery logs: was the order kept?

PATH is a folder with the tables of a run (deliveries and, if known, publications and subscriptions, as .jsonl, .csv or
.parquet), or deliveries alone: a file, a folder or a pattern. A delivery needs four fields: subscriber, position
(counting its notifications from 0), event_id and topic. Nothing else is needed to compare subscribers, and no clock is
looked at.

Logs of other systems have other columns: say which with --subscriber, --event, --topic, --position. Without positions,
--order-by names what gives the order: rows of equal value, or that the lines of a file contradict, are not ordered, and
then the verdict is `unknown`.

With --order-log the run is also compared with the one order that the cluster keeps of all events: `certificate` is
valid if the order log is dense and every subscriber's positions in it rise. Then per-topic, tno and acyclic are valid,
too.

Logs of some millions of rows are audited in plain Python (text up to 100 MB, Parquet and Delta tables up to 4 million
rows); larger ones and URIs (s3a://…, hdfs://…) on Spark.

Each guarantee gets a verdict. `valid`: no violation in this log. `invalid`: violated, and the rows below prove it.
`unknown`: the log does not tell, and why.

\b
Guarantees:
{chr(10).join(f"  {name:{MARGIN}}{guarantee.promise}" for name, guarantee in GUARANTEES.items())}

\b
Examples:
  seriatim audit run/
  seriatim audit deliveries.csv --guarantee tno
  seriatim audit run/ --guarantee tno --guarantee completeness --json
  seriatim audit run/ --order-log order.jsonl
  seriatim audit consumer-logs/ --subscriber host --event topic,partition,offset --order-by handled_at
  seriatim audit s3a://logs/today/ --table s3a://verdicts/today/
  seriatim audit archive/ --follow --checkpoint state/ --trigger 5s

\b
Exit code: 0 all requested are valid, 1 one is invalid, 3 none is invalid but one is unknown,
           2 there is no answer: the log cannot be read, wrong options, Spark is needed and cannot run,
           130 interrupted (what is known so far is printed).
"""


class _BadLog(click.ClickException):
    exit_code = 2


@click.command(help=HELP)
@click.argument("path", type=str)
@guarantee_option
@click.option("--limit", type=click.IntRange(min=1), default=10, help="Anomalies shown of each name.")
@mapping_options
@engine_option
@click.option("--table", metavar="URI", help="Also write verdicts and anomalies here, as Parquet (on Spark).")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@certificate_options
@follow_options
@spark_options
@click.pass_context
def command(
    context: click.Context,
    /,
    path: str,
    guarantees: tuple[str, ...],
    limit: int,
    engine: str,
    table: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Check delivery logs: was the order kept?"""
    is_complete, is_shown = True, False

    def show(report: Report, chosen: str) -> None:
        nonlocal is_shown
        is_shown = True
        if as_json:
            told = {"engine": chosen, "method": method_of(options), "notes": mapping.notes()}
            show_json({**_as_json(report, requested, options["certificate_only"]), **told})
            return
        method = method_of(options) if options["order_log"] is not None else None
        for line in _as_text(report, requested, mapping.notes(), method, options["certificate_only"]):
            click.echo(line)

    try:
        mapping = mapping_of(options)
        check_follow(context, path, options)
        check_certificate(options, guarantees)
        requested = [name for name in GUARANTEES if name in guarantees or not guarantees]
        requested = requested_of(options, requested)
        if options["follow"]:
            report = follow(path, mapping, limit, table, as_json, options)
        else:
            choice = _engine(path, engine, table, options["order_log"])
            history = _read(path, mapping, engine) if choice.engine == "python" else None
            if history is not None:
                report, is_complete = _audit(path, history, limit, mapping, options)
            else:
                is_forced = engine == "spark"
                report = _audit_on_spark(path, mapping, limit, table, is_forced, choice.is_small, options, show)
    except InputError as error:
        raise _BadLog(str(error)) from None
    except KeyboardInterrupt:
        verdict = "the verdict above is complete, --table is not" if is_shown else "nothing is known yet"
        notice(f"interrupted: {verdict}")
        context.exit(EXIT_INTERRUPTED)
    if not is_shown:
        show(report, "spark" if options["follow"] else "python")
    context.exit(EXIT_CODES[report.answer(requested)] if is_complete else EXIT_INTERRUPTED)


def _engine(path: str, wanted: str, table: str | None, order_log: str | None) -> Choice:
    """The engine to use. Says so if it is not the plain one. A log that is only large needs no Java."""
    if table is not None and wanted == "python":
        raise click.UsageError("--table writes Parquet, which --engine python cannot")
    wanted_here = "spark" if table is not None else wanted
    choice = engine_for_both(choose_engine(path, wanted_here, reads_parquet=True), order_log, wanted_here)
    if choice.engine == "spark":
        try:
            check_requirements()
        except RequirementMissing as error:
            if choice.is_needed:
                raise
            notice(f"{choice.reason}: Spark would be faster, but {error}")
            return Choice("python", choice.reason)
        if wanted == "auto":
            notice(f"engine: Spark ({'--table' if table is not None else choice.reason})")
    elif choice.reason.endswith("Parquet"):
        notice(f"engine: plain Python ({choice.reason}; --engine spark takes Spark)")
    return choice


def _read(path: str, mapping: ColumnMapping, engine: str) -> History | None:
    """The log; None if only Spark reads it."""
    try:
        return read_log(path, mapping)
    except OnlySpark as error:
        if engine == "python":
            raise
        check_requirements()
        notice(f"engine: Spark ({error.problem})")
        return None


def _audit(
    path: str, history: History, limit: int, mapping: ColumnMapping, options: dict[str, Any]
) -> tuple[Report, bool]:
    certificate = None
    if options["order_log"] is not None:
        order = read_order_log(options["order_log"], mapping.run)
        certificate = certify(history.deliveries, order, limit, history.lost)
        certificate.check_numbered(path)
        if options["certificate_only"]:
            return certificate.alone(), True
    report, is_complete = _audited(history, limit)
    return report if certificate is None else certificate.added_to(report), is_complete


def _audited(history: History, limit: int) -> tuple[Report, bool]:
    if len(history.deliveries) > LONG_DELIVERIES and sys.stderr.isatty():
        notice(f"auditing {len(history.deliveries):,} deliveries; Ctrl-C prints what is known so far")
    auditor = Auditor(history, limit)
    try:
        auditor.run()
    except KeyboardInterrupt:
        return auditor.report(), False
    return auditor.report(), True


def _audit_on_spark(
    path: str,
    mapping: ColumnMapping,
    limit: int,
    table: str | None,
    is_forced: bool,
    is_small: bool,
    options: dict[str, Any],
    show: Callable[[Report, str], None],
) -> Report:
    """Read, judge, show and, if wanted, write verdicts and anomalies as tables below `table`.

    A small log is judged by the plain auditor, whose report is the same, unless Spark is asked for. The report is shown
    before anything is written: if that fails, the verdict is known all the same.
    """
    began = time.monotonic()
    with session_of(options, "audit", is_small) as session:
        from seriatim.pipeline.audit import audit_tables
        from seriatim.pipeline.audit.verdicts import write_report
        from seriatim.pipeline.logs import history_of, read_order, read_tables

        session.sparkContext.setLogLevel("OFF")  # we report an error once, without its stack
        _tell(began, "reading")
        tables = read_tables(session, path, mapping)
        order_log = options["order_log"]
        order = read_order(session, order_log, mapping.run) if order_log is not None else None
        history = None if is_forced else history_of(tables, SMALL_ROWS)
        certificate = None
        if order is not None:
            _tell(began, "comparing with the order log")
            certificate = certify_on_spark(tables, history, order, limit, SMALL_ROWS, order_log)
            certificate.check_numbered(path)
        if certificate is not None and options["certificate_only"]:
            report = certificate.alone()
        else:
            _tell(began, "auditing")
            report = audit_tables(tables, limit).report if history is None else audit(history, limit)
            report = certificate.added_to(report) if certificate is not None else report
        _tell(began, "done")
        show(report, "spark" if history is None else "python")
        if table is not None:
            write_report(session, report, table)
            _tell(began, "tables written")
    return report


def _tell(began: float, what: str) -> None:
    if is_terminal():
        click.echo(f"{time.monotonic() - began:5.1f} s  {what}", err=True)


def _as_text(
    report: Report, requested: Iterable[str], notes: Iterable[str], method: str | None, is_certificate_only: bool
) -> Iterator[str]:
    requested = list(requested)
    looked_at = extent(report.deliveries, report.subscribers)
    events = f"{report.events:,} events, {report.shared:,} of them notified to two or more"
    yield looked_at if is_certificate_only else f"{looked_at}; {events}"
    if method is not None:
        yield f"method: {method}"
    if report.out_of_order:
        yield f"{report.out_of_order:,} deliveries tagged out_of_order: not judged for order"
    for note in notes:
        yield f"note: {note}"
    yield ""
    for name in requested:
        verdict = report.verdicts[name]
        answer = click.style(f"{verdict.answer:9}", fg=COLOURS[verdict.answer])
        yield f"{name:{MARGIN}}{answer}{verdict.reason}"
    shown = ""
    for anomaly in report.anomalies_against(requested):
        if anomaly.name != shown:
            shown = anomaly.name
            yield ""
            yield click.style(f"{shown}: {report.counts[shown]:,} found", bold=True)
        yield f"  {anomaly.sentence}"
        for row in anomaly.witness:
            values = " ".join(f"{field}={value}" for field, value in _row(row).items() if field != "row")
            yield f"    {_row(row)['row']:13}{values}"


def _as_json(report: Report, requested: Iterable[str], is_certificate_only: bool) -> dict[str, Any]:
    requested = list(requested)
    counted = ["deliveries", "subscribers", "out_of_order", *([] if is_certificate_only else ["events", "shared"])]
    return {
        "answer": report.answer(requested),
        "verdicts": {
            name: {"answer": report.verdicts[name].answer, "reason": report.verdicts[name].reason} for name in requested
        },
        "anomalies": [
            {
                "name": anomaly.name,
                "breaks": BREAKS[anomaly.name],
                "sentence": anomaly.sentence,
                "witness": [_row(row) for row in anomaly.witness],
            }
            for anomaly in report.anomalies_against(requested)
        ],
        "counts": report.counts,
        **{name: getattr(report, name) for name in counted},
    }


def _row(row: Row) -> dict[str, Any]:
    """A row of a witness, with the name of its table first."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return {"row": type(row).__name__.lower(), **fields}
