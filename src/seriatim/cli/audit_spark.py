"""`seriatim audit` on Spark: the same report as the plain auditor's, for logs of any size, and as tables."""

import time
from typing import Any

import click

from seriatim.audit import ColumnMapping, Report
from seriatim.cli.common import is_terminal
from seriatim.cli.spark import session_of


def audit_on_spark(path: str, mapping: ColumnMapping, limit: int, table: str | None, options: dict[str, Any]) -> Report:
    """Read, judge and, if wanted, write verdicts and anomalies as tables below `table`."""
    began = time.monotonic()
    with session_of(options, "audit") as session:
        from seriatim.pipeline.audit import audit_tables
        from seriatim.pipeline.tables import read_tables, write_table
        from seriatim.pipeline.verdicts import anomaly_table, verdict_table

        session.sparkContext.setLogLevel("OFF")  # what goes wrong is told once, by us, without its stack
        _tell(began, "reading")
        tables = read_tables(session, path, mapping)
        _tell(began, "auditing")
        report = audit_tables(tables, limit).report
        if table is not None:
            write_table(verdict_table(session, report), f"{table.rstrip('/')}/verdicts")
            write_table(anomaly_table(session, report), f"{table.rstrip('/')}/anomalies")
        _tell(began, "done")
    return report


def _tell(began: float, what: str) -> None:
    if is_terminal():
        click.echo(f"{time.monotonic() - began:5.1f} s  {what}", err=True)
