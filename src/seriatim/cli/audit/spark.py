"""`seriatim audit` on Spark: logs of any size and place, the same report as the plain auditor's, and as tables."""

import time
from typing import Any

import click

from seriatim.audit import ColumnMapping, Report, audit
from seriatim.cli.common import is_terminal
from seriatim.cli.spark import session_of

SMALL_ROWS = 100_000  # what Spark has read, plain Python audits in a second: Spark would take longer to plan it


def audit_on_spark(
    path: str,
    mapping: ColumnMapping,
    limit: int,
    table: str | None,
    is_forced: bool,
    is_small: bool,
    options: dict[str, Any],
) -> tuple[Report, str]:
    """Read, judge and, if wanted, write verdicts and anomalies as tables below `table`. And which engine judged.

    A small log is judged by the plain auditor, whose report is the same, unless Spark is asked for.
    """
    began = time.monotonic()
    with session_of(options, "audit", is_small) as session:
        from seriatim.pipeline.audit import audit_tables
        from seriatim.pipeline.audit.verdicts import anomaly_table, verdict_table
        from seriatim.pipeline.logs import history_of, read_tables, write_table

        session.sparkContext.setLogLevel("OFF")  # what goes wrong is told once, by us, without its stack
        _tell(began, "reading")
        tables = read_tables(session, path, mapping)
        _tell(began, "auditing")
        history = None if is_forced else history_of(tables, SMALL_ROWS)
        report = audit_tables(tables, limit).report if history is None else audit(history, limit)
        if table is not None:
            write_table(verdict_table(session, report), f"{table.rstrip('/')}/verdicts")
            write_table(anomaly_table(session, report), f"{table.rstrip('/')}/anomalies")
        _tell(began, "done")
    return report, "spark" if history is None else "python"


def _tell(began: float, what: str) -> None:
    if is_terminal():
        click.echo(f"{time.monotonic() - began:5.1f} s  {what}", err=True)
